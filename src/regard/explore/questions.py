"""The questions that the page may ask: a name each, and the function whose result is sent as JSON.

A function takes a traced input and the options of the question; their types are checked before it is called. It is
imported when it is first needed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from regard.errors import UsageError, did_you_mean
from regard.explore.session import Session

QUESTIONS = {
    "overview": "regard.explore.overview:overview",
    "lens": "regard.explore.layers:lens",
    "contributions": "regard.explore.layers:contributions",
    "norms": "regard.explore.layers:norms",
    "heads": "regard.explore.layers:heads",
    "influence": "regard.explore.mixers:influence",
    "filters": "regard.explore.mixers:filters",
    "toeplitz": "regard.explore.mixers:toeplitz",
    "operator": "regard.explore.mixers:whole_operator",
    "neighbours": "regard.explore.words:neighbours",
    "projection": "regard.explore.words:projection",
    "words_like": "regard.explore.words:words_like",
    "merges": "regard.explore.words:merges",
    "rotations": "regard.explore.words:rotations",
    "curves": "regard.explore.training:curves",
    "checkpoints": "regard.explore.training:checkpoints",
    "at_checkpoint": "regard.explore.training:at_checkpoint",
    "ablate": "regard.explore.what_if:ablate",
    "change": "regard.explore.what_if:change",
    "input_for_tokens": "regard.explore.what_if:input_for_tokens",
    "regenerate": "regard.explore.what_if:regenerate",
    "patch": "regard.explore.what_if:patch",
    "vocabulary": "regard.explore.what_if:vocabulary",
    "candidates": "regard.explore.output:candidates",
    "force": "regard.explore.output:force",
    "continuation": "regard.explore.output:continuation",
    "beams": "regard.explore.output:beams",
    "steps": "regard.explore.steps:steps",
    "likeliest": "regard.explore.steps:likeliest",
    "arithmetic": "regard.explore.arithmetic:arithmetic",
    "attribution": "regard.explore.attribution:attribution",
    "image": "regard.explore.images:image",
    "readout_attention": "regard.explore.images:readout_attention",
    "bias": "regard.explore.images:bias",
    "complete": "regard.explore.images:complete",
}


def answer(session: Session, run: int, fields: dict[str, Any], question: str, options: dict[str, Any]) -> Any:
    """The answer to a question about an input of a run."""
    if question not in QUESTIONS:
        raise UsageError(
            f"'{question}' cannot be asked.", "There is no such question.", did_you_mean(question, list(QUESTIONS))
        )
    function = _function(question)
    with session.lock:
        traced = session.traced(run, fields)
        try:
            return function(traced, **options)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or question
            raise UsageError(
                f"'{question}' cannot be asked like this.", f"{where}: {first['msg']}.", "Check the option."
            ) from None


@cache
def _function(question: str) -> Any:
    module, _, name = QUESTIONS[question].partition(":")
    return validate_call(config=ConfigDict(arbitrary_types_allowed=True))(getattr(import_module(module), name))


def runs(session: Session) -> list[dict[str, Any]]:
    """The runs that the page can choose from, with the settings that it mentions."""
    return [
        {
            "name": task.folder.path.name,
            "task": task.settings.task,
            "noun": task.about.noun,
            "fields": session.field_names(number),
            "examples": session.examples(number),
            "parameters": sum(parameter.numel() for parameter in task.model.parameters()),
            "mixer": getattr(task.settings.model, "mixer", ""),
            "positions": getattr(task.settings.model, "positions", ""),
            "smoothing": getattr(task.settings.training, "label_smoothing", 0.0),
            "dropout": getattr(task.settings.model, "dropout", 0.0),
            "beam": getattr(getattr(task.settings, "decoding", None), "beam", None),
        }
        for number, task in enumerate(session.tasks)
    ]
