"""What the page may ask: a name, and the function that answers it with something that JSON can say.

A function takes what was looked at and what else was asked; the types of its arguments are checked before it is
called. It is imported when it is first asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from regard.errors import UsageError, did_you_mean
from regard.explore.session import Session

QUESTIONS = {
    "look": "regard.explore.look:look",
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
    "opened": "regard.explore.what_if:opened",
    "rewrite": "regard.explore.what_if:rewrite",
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
    "seen": "regard.explore.images:seen",
    "bias": "regard.explore.images:bias",
    "complete": "regard.explore.images:complete",
}


def answer(session: Session, run: int, given: dict[str, Any], what: str, options: dict[str, Any]) -> Any:
    """What a question about an input of a run is answered with."""
    if what not in QUESTIONS:
        raise UsageError(
            f"'{what}' cannot be asked.", "There is no such question.", did_you_mean(what, list(QUESTIONS))
        )
    function = _function(what)
    with session.lock:
        looked = session.looked(run, given)
        try:
            return function(looked, **options)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or what
            raise UsageError(
                f"'{what}' cannot be asked like this.", f"{where}: {first['msg']}.", "Check the option."
            ) from None


@cache
def _function(what: str) -> Any:
    module, _, name = QUESTIONS[what].partition(":")
    return validate_call(config=ConfigDict(arbitrary_types_allowed=True))(getattr(import_module(module), name))


def runs(session: Session) -> list[dict[str, Any]]:
    """What the page must know of the runs themselves."""
    return [
        {
            "name": task.folder.path.name,
            "task": task.settings.task,
            "noun": task.about.noun,
            "fields": session.fields(number),
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
