"""What the page asks about training: its curves, and the same input as the run's checkpoints see it.

For a moment the model has the weights of a checkpoint, and gets its own back. All that is asked about it is computed
in between, under the lock of the session; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from regard.errors import UsageError
from regard.explore.session import Looked
from regard.inside.lens import answer_names, lens
from regard.inside.named import named
from regard.inside.trace import Trace, trace
from regard.training.checkpoint import Checkpoints, must_fit, not_finite
from regard.training.course import curve, panels
from regard.training.tensors import map_tensors

MOST_POINTS = 1000  # of a curve
MOST_CHECKPOINTS = 12  # that are shown side by side


def curves(looked: Looked) -> list[dict[str, Any]]:
    """The panels of the run's training: a title, and curves of numbers over steps."""
    records = looked.task.folder.read_metrics()
    return [
        {
            "title": title.replace("_", " "),
            "series": [_thinned(label or title.replace("_", " "), curve(records, key)) for key, label in keys.items()],
        }
        for title, keys in panels(records, looked.task.about.metrics).items()
    ]


def checkpoints(looked: Looked) -> dict[str, Any]:
    """The steps of which there is a checkpoint, those to be shown, and what is wrong with those that cannot be used.

    `final`: the step whose weights are those of the final model, if there is one; it is not shown twice.
    """
    folder = looked.task.folder
    steps = folder.saved_steps()
    problems = {str(step): why for step in steps if (why := _problem(folder.checkpoints, step))}
    whole = [step for step in steps if str(step) not in problems]
    final = looked.once("final step", lambda: next((step for step in whole if _is_final(looked, step)), None))
    return {
        "steps": steps,
        "shown": _evenly([step for step in whole if step != final]),
        "problems": problems,
        "final": final,
    }


def _is_final(looked: Looked, step: int) -> bool:
    weights = _weights_of(looked.task.folder.checkpoints, step)
    own: dict[str, Tensor] = dict(looked.task.model.named_parameters())
    return all(name in weights and weights[name].to(each).equal(each) for name, each in own.items())


def _weights_of(folder: Path, step: int) -> dict[str, Tensor]:
    """The weights of a checkpoint; of their moving average, where there is one, as validated."""
    average = folder / f"step-{step}" / "average.safetensors"
    return map_tensors(average if average.exists() else folder / f"step-{step}" / "model.safetensors")


def _evenly(steps: list[int]) -> list[int]:
    """At most so many, the first and the last among them."""
    if len(steps) <= MOST_CHECKPOINTS:
        return steps
    return [steps[round(n * (len(steps) - 1) / (MOST_CHECKPOINTS - 1))] for n in range(MOST_CHECKPOINTS)]


def at_checkpoint(
    looked: Looked,
    step: int | None = None,
    what: Literal["answers", "lens", "weights"] = "answers",
    part: str = "",
    head: int = 0,
) -> dict[str, Any]:
    """What the model of a checkpoint, or the final one, makes of the same input, forced to the same tokens."""
    if step is None:
        return _answered(looked.trace, what, part, head)
    with weights_of_step(looked, step):
        return _answered(trace(looked.trace.subject), what, part, head)


def _answered(traced: Trace, what: str, part: str, head: int) -> dict[str, Any]:
    if what == "lens":
        seen = lens(traced)
        kl = named("KL", seen.kl.values.mean(1), [("layer", seen.kl.labels[0])], "nats")
        return {"agreement": seen.agreement.to_json(), "kl": kl.to_json()}
    if what == "weights":
        return _weights(traced, part, head)
    subject, p_AW = traced.subject, traced.p_AW
    said_A = [float(p_AW[number, answer.token]) for number, answer in enumerate(subject.answers)]
    words = [subject.name_of(token) for token in subject.likeliest(traced.logits_AW).tolist()]
    return named("probability of the final answer", said_A, [("answer", answer_names(traced))], words=words).to_json()


def _weights(traced: Trace, name: str, head: int) -> dict[str, Any]:
    part = next((each for each in traced.parts() if each.name == name and each.attends), None)
    if part is None or not 0 <= head < max(1, part.heads):
        raise UsageError(f"There is no head {head + 1} of '{name}'.", "No attention has it.", "Choose another.")
    weights_TS = part.attention().weights_BHTS[0, head]
    stack = name.split(".")[0]
    names = [each.name for each in traced.stacks]
    of = names[names.index(stack) - 1] if part.cross else stack
    pieces, seen = traced[stack].stack.pieces, traced[of].stack.pieces
    return named("weight", weights_TS, [("looks from", pieces), ("looks at", seen)]).to_json()


@contextmanager
def weights_of_step(looked: Looked, step: int) -> Iterator[None]:
    """Inside, the model has the weights of this checkpoint."""
    folder, model = looked.task.folder, looked.task.model
    if step not in folder.saved_steps():
        steps = ", ".join(map(str, folder.saved_steps())) or "none"
        raise UsageError(f"There is no checkpoint of step {step}.", f"There are: {steps}.", "Choose another.")
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
    """What is wrong with a checkpoint. To hash it takes a while, so that is done once for the files as they are."""
    files = sorted((folder / f"step-{step}").iterdir())
    return _found_wrong(folder, step, tuple((file.name, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=256)
def _found_wrong(folder: Path, step: int, files: tuple[tuple[str, int], ...]) -> str | None:
    return Checkpoints(folder, every=1, keep=1, warn=lambda _: None).problem(step)


def _thinned(name: str, points: list[tuple[int, float]]) -> dict[str, Any]:
    """At most so many points, evenly; a curve of a picture has no more."""
    every = -(-len(points) // MOST_POINTS) or 1
    kept = [*points[:-1:every], *points[-1:]]
    return {"name": name, "steps": [step for step, _ in kept], "values": [value for _, value in kept]}
