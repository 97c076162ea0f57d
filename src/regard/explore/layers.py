"""What the page asks about layers: the lens, what parts added, how long vectors are, what heads do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.explore.session import Looked
from regard.inside.heads import SCORES, Score
from regard.inside.lens import Lens
from regard.inside.named import named


def lens(looked: Looked) -> dict[str, Any]:
    """What the model would say after each layer: every array of the lens."""
    seen: Lens = looked.trace.lens()
    return {name: getattr(seen, name).to_json() for name in seen.__dataclass_fields__}


def contributions(looked: Looked, answer: int = -1, token: int | str | None = None) -> dict[str, Any]:
    """What each head and part added to a logit."""
    return looked.trace.contributions(answer, token).to_json()


def norms(looked: Looked) -> dict[str, Any]:
    """The length of every vector of the residual stream, before the first block and after each: by stack."""
    lengths = {}
    for stack in looked.trace.stacks:
        layers = ["embedding", *(str(number + 1) for number in range(len(stack.layers)))]
        axes = [("layer", layers), ("position", stack.stack.pieces)]
        lengths[stack.name] = named("length", stack.residual_LTD.norm(dim=-1), axes).to_json()
    return lengths


def heads(looked: Looked, scores: Sequence[Score] = SCORES) -> dict[str, Any]:
    """What every head does, in one number for each of these scores."""
    return {name: score.to_json() for name, score in looked.trace.heads(scores).items()}
