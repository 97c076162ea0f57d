"""Questions about training: its curves, and the same input at every checkpoint.

The model briefly gets the weights of a checkpoint, and then its own back. Everything asked about the checkpoint is
computed in between, under the lock of the session; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from regard.errors import UsageError
from regard.explore.session import TracedInput
from regard.explore.stages import key_stack, stack_with
from regard.inside.lens import answer_names, lens
from regard.inside.named import named
from regard.inside.trace import Trace, trace
from regard.metrics import display_name
from regard.training.checkpoint import Checkpoints, must_fit, not_finite
from regard.training.course import curve, panels
from regard.training.tensors import map_tensors

MOST_POINTS = 1000  # of a curve
MOST_CHECKPOINTS = 12  # shown side by side


def curves(traced: TracedInput) -> list[dict[str, Any]]:
    """The panels of the training curves: a title, and series over steps."""
    records = traced.task.folder.read_metrics()
    return [
        {
            "title": display_name(title),
            "series": [_thinned(label or display_name(title), curve(records, key)) for key, label in keys.items()],
        }
        for title, keys in panels(records, traced.task.about.metrics).items()
    ]


def checkpoints(traced: TracedInput) -> dict[str, Any]:
    """The steps of all checkpoints, those to show, and the problems of those that cannot be used.

    `final`: the step whose weights are those of the final model, if there is one; it is not shown a second time.
    """
    folder = traced.task.folder
    steps = folder.saved_steps()
    problems = {str(step): why for step in steps if (why := _problem(folder.checkpoints, step))}
    usable = [step for step in steps if str(step) not in problems]
    final = traced.cached("final step", lambda: next((step for step in usable if _is_final(traced, step)), None))
    return {
        "steps": steps,
        "shown": _evenly_spaced([step for step in usable if step != final]),
        "problems": problems,
        "final": final,
    }


def _is_final(traced: TracedInput, step: int) -> bool:
    weights = _weights_of(traced.task.folder.checkpoints, step)
    own: dict[str, Tensor] = dict(traced.task.model.named_parameters())
    return all(name in weights and weights[name].to(weight).equal(weight) for name, weight in own.items())


def _weights_of(folder: Path, step: int) -> dict[str, Tensor]:
    """The weights of a checkpoint: the moving average if there is one, because that is what is validated."""
    average = folder / f"step-{step}" / "average.safetensors"
    return map_tensors(average if average.exists() else folder / f"step-{step}" / "model.safetensors")


def _evenly_spaced(steps: list[int]) -> list[int]:
    """At most MOST_CHECKPOINTS of them, including the first and the last."""
    if len(steps) <= MOST_CHECKPOINTS:
        return steps
    return [steps[round(n * (len(steps) - 1) / (MOST_CHECKPOINTS - 1))] for n in range(MOST_CHECKPOINTS)]


def at_checkpoint(
    traced: TracedInput,
    step: int | None = None,
    what: Literal["answers", "lens", "weights"] = "answers",
    part: str = "",
    head: int = 0,
) -> dict[str, Any]:
    """What the model of a checkpoint, or the final one, computes for the same input and the same output tokens."""
    if step is None:
        return _described(traced.trace, what, part, head)
    with weights_of_step(traced, step):
        return _described(trace(traced.trace.subject), what, part, head)


def _described(trace: Trace, what: str, part: str, head: int) -> dict[str, Any]:
    if what == "lens":
        result = lens(trace)
        kl = named("KL", result.kl.values.mean(1), [("layer", result.kl.labels[0])], "nats")
        return {"agreement": result.agreement.to_json(), "kl": kl.to_json()}
    if what == "weights":
        return _weights(trace, part, head)
    subject, p_AW = trace.subject, trace.p_AW
    p_A = [float(p_AW[number, answer.token]) for number, answer in enumerate(subject.answers)]
    words = [subject.name_of(token) for token in subject.likeliest(trace.logits_AW).tolist()]
    return named("probability of the final answer", p_A, [("answer", answer_names(trace))], words=words).to_json()


def _weights(trace: Trace, name: str, head: int) -> dict[str, Any]:
    part = next((part for part in trace.parts() if part.name == name and part.attends), None)
    if part is None or not 0 <= head < max(1, part.heads):
        raise UsageError(
            f"There is no head {head + 1} of '{name}'.", "No attention of this model has it.", "Choose another."
        )
    weights_TS = part.attention().weights_BHTS[0, head]
    queries, keys = stack_with(trace, part).stack, key_stack(trace, part).stack
    return named("weight", weights_TS, [("looks from", queries.pieces), ("looks at", keys.pieces)]).to_json()


@contextmanager
def weights_of_step(traced: TracedInput, step: int) -> Iterator[None]:
    """Give the model the weights of a checkpoint while the block runs."""
    folder, model = traced.task.folder, traced.task.model
    if step not in folder.saved_steps():
        steps = ", ".join(map(str, folder.saved_steps())) or "none"
        raise UsageError(f"There is no checkpoint of step {step}.", f"The steps are: {steps}.", "Choose another.")
    if why := _problem(folder.checkpoints, step):
        raise UsageError(f"The checkpoint of step {step} is damaged.", f"{why}.", "Choose another.")
    weights = _weights_of(folder.checkpoints, step)
    must_fit(model, weights, folder.path)
    if bad := not_finite(weights):
        raise UsageError(f"The checkpoint of step {step} cannot be used.", f"{bad} is not finite.", "Choose another.")
    own: dict[str, Tensor] = {name: parameter.data for name, parameter in model.named_parameters()}
    try:
        for name, parameter in model.named_parameters():
            parameter.data = weights[name].to(parameter)
        yield
    finally:
        for name, parameter in model.named_parameters():
            parameter.data = own[name]


def _problem(folder: Path, step: int) -> str | None:
    """What is wrong with a checkpoint, if anything. Hashing is slow, so the result is cached until a file changes."""
    files = sorted((folder / f"step-{step}").iterdir())
    return _cached_problem(folder, step, tuple((file.name, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=256)
def _cached_problem(folder: Path, step: int, files: tuple[tuple[str, int], ...]) -> str | None:
    return Checkpoints(folder, every=1, keep=1, warn=lambda _: None).problem(step)


def _thinned(name: str, points: list[tuple[int, float]]) -> dict[str, Any]:
    """About MOST_POINTS of a curve, evenly spaced, and its last point."""
    every = -(-len(points) // MOST_POINTS) or 1
    points = [*points[:-1:every], *points[-1:]]
    return {"name": name, "steps": [step for step, _ in points], "values": [value for _, value in points]}
