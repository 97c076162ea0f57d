"""Rollout: what reaches the end, followed back through all layers (Abnar & Zuidema, 2020).

    Â_l = ½ · mean over heads of A_l + ½ · I          rollout = Â_L ⋯ Â_2 Â_1

A block adds what attention gathers to what was there, so half of each token comes from itself. Every Â has rows
that sum to 1, and so has their product: row t says how much of each token of the input is in token t at the end.
Where a Swin Transformer merges 2 × 2 patches, the new one comes from its four in equal parts. Feed-forward layers are
left out, and so is what a decoder takes from its source: rollout follows one sequence.

Shapes: H heads · T positions · E positions at the end, fewer where patches were merged · R × S grid of patches
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import UsageError
from regard.inside.named import Named, named
from regard.inside.parts import PartTrace, StackTrace
from regard.inside.subject import Stack
from regard.inside.trace import Trace
from regard.models.swin import PatchMerging


@torch.no_grad()
def rollout(trace: Trace, stack: str = "") -> Named:
    """How much of each position of the input is in each at the end of a stack, by default the last: [E, T]."""
    chain = _chain(trace, stack)
    rolled_ET = _through(chain)
    axes = [("position", chain[-1].stack.pieces), ("from", chain[0].stack.pieces)]
    return named("rollout", rolled_ET, axes, stack=chain[-1].name, left_out=_left_out(chain))


@torch.no_grad()
def rollout_of_answer(trace: Trace, answer: int = -1) -> Named:
    """How much of each position of the input is in what an answer is read from: [T], sums to 1."""
    chain = _chain(trace, "")
    rolled_ET = _through(chain)
    rolled_T = reading(trace, answer, chain[-1].stack).to(rolled_ET) @ rolled_ET
    return named(
        "rollout",
        rolled_T,
        [("from", chain[0].stack.pieces)],
        stack=chain[0].name,
        answer=trace.subject.answers[answer].label,
        read_from=read_from(trace, answer),
        left_out=_left_out(chain),
    )


@dataclass(frozen=True)
class AttentionMaps:
    """What a model looked at in one image, seen from where its answer is read."""

    rollout_RS: Tensor
    layers_HRS: list[Tensor]  # a map for each head of each layer; a Swin's later layers have more heads, coarser grids
    read_from: str  # in words


@torch.no_grad()
def attention_maps(trace: Trace, answer: int = -1) -> AttentionMaps:
    """Rollout and every head's attention, as maps over the patches of an image."""
    chain = _chain(trace, "")
    layers_HRS = []
    for stack in chain:
        reading_T = reading(trace, answer, stack.stack)
        layers_HRS += [_on_grid(part.attention().weights_BHTS[0], reading_T, stack.stack) for part in _mixers(stack)]
    rolled_RS = _on_grid(_through(chain), reading(trace, answer, chain[-1].stack), chain[0].stack)
    return AttentionMaps(rolled_RS, layers_HRS, read_from(trace, answer))


def read_from(trace: Trace, answer: int = -1) -> str:
    """Where an answer is read, in words."""
    stack = trace.last.stack
    readers = readers_of(trace, answer, stack)
    if len(readers) > 1:
        everywhere = f"the mean of all {'patches' if stack.grid else 'positions'}"
        return f"the class token and {everywhere}, by halves" if readers[0] < stack.before else everywhere
    if stack.grid and trace.subject.tokens:  # pixels: one is read where the next is predicted
        row, column = divmod(readers[0], stack.grid[1])
        return f"where the pixel in row {row + 1}, column {column + 1} is predicted"
    piece = stack.pieces[readers[0]]
    if stack.grid:
        return {"class": "the class token"}.get(piece, piece if readers[0] < stack.before else f"patch {piece}")
    return f"position {piece}"


def product(layers_HTT: Iterable[Tensor]) -> Tensor:
    """The rollout of attention weights, the first layer first: [T, T]."""
    rolled_TT: Tensor | None = None
    for weights_HTT in layers_HTT:
        taken_TT = _with_residual(weights_HTT)
        rolled_TT = taken_TT if rolled_TT is None else taken_TT @ rolled_TT
    assert rolled_TT is not None
    return rolled_TT


def _with_residual(weights_HTT: Tensor) -> Tensor:
    """What a block takes from each position, one's own half included: Â, [T, T]."""
    identity_TT = torch.eye(weights_HTT.shape[-1], dtype=weights_HTT.dtype, device=weights_HTT.device)
    return 0.5 * weights_HTT.mean(0) + 0.5 * identity_TT


def _chain(trace: Trace, name: str) -> list[StackTrace]:
    """The stack of this name, or the last, after those whose patches it is made of."""
    last = trace.stacks.index(trace[name]) if name else len(trace.stacks) - 1
    first = last
    while isinstance(trace.stacks[first].stack.embed, PatchMerging):
        first -= 1
    return trace.stacks[first : last + 1]


def _through(chain: list[StackTrace]) -> Tensor:
    rolled_ET: Tensor | None = None
    for stack in chain:
        stage_EE = product(part.attention().weights_BHTS[0].float() for part in _mixers(stack))
        grid = stack.stack.grid
        rolled_ET = stage_EE if rolled_ET is None or grid is None else stage_EE @ _merged(rolled_ET, grid)
    assert rolled_ET is not None
    return rolled_ET


def _merged(rolled_FT: Tensor, grid: tuple[int, int]) -> Tensor:
    """What is in the patches of this grid, each of which merges 2 × 2 of the grid before: [F = 4·E, T] → [E, T]."""
    rows, columns = grid
    return rolled_FT.unflatten(0, (rows, 2, columns, 2)).mean((1, 3)).flatten(0, 1)


def _mixers(stack: StackTrace) -> list[PartTrace]:
    mixers = [part for layer in stack.layers if (part := layer.part("mixer")) is not None]
    if any(not part.attends or part.cross for part in mixers):
        raise UsageError(
            f"Rollout is not defined for the {stack.name}.",
            "It mixes positions without self-attention: there are no weights to multiply.",
            "Use the influence of positions instead, which is defined for every mixer.",
        )
    return mixers


def readers_of(trace: Trace, answer: int, stack: Stack) -> list[int]:
    """The positions of a stack that an answer is read from."""
    return reading(trace, answer, stack).nonzero()[:, 0].tolist()


def reading(trace: Trace, answer: int, stack: Stack) -> Tensor:
    """How much of each position of a stack an answer is read from: [T], sums to 1.

    One position; or all alike; or half of it the first and half of it all patches, where their mean stands beside it.
    """
    position, readout = trace.subject.answers[answer].position, trace.subject.readout
    pool = readout.pool if readout is not None else "mean"
    if position is None and pool == "mean":
        return everywhere(stack)
    reading_T = torch.zeros(len(stack.pieces))
    reading_T[position or 0] = 1.0
    return (reading_T + everywhere(stack)) / 2 if position is None and pool == "both" else reading_T


def everywhere(stack: Stack) -> Tensor:
    """The mean of all patches, or of all positions: [T]."""
    mean_T = torch.zeros(len(stack.pieces))
    mean_T[stack.before :] = 1.0 / (len(stack.pieces) - stack.before)
    return mean_T


def _on_grid(weights: Tensor, reading_T: Tensor, stack: Stack) -> Tensor:
    """From where it is read to the patches, as a grid: [..., R, S]."""
    if stack.grid is None:
        raise UsageError("There are no maps for this input.", "It is not an image.", "Use the rollout itself.")
    seen = (reading_T.to(weights) @ weights)[..., stack.before :]
    rest = stack.grid[0] * stack.grid[1] - seen.shape[-1]  # the last pixel is never read, so nothing looks at it
    return F.pad(seen, (0, rest)).unflatten(-1, stack.grid)


def _left_out(chain: list[StackTrace]) -> str:
    across = any(part.cross for stack in chain for layer in stack.layers for part in layer.parts)
    return "feed-forward layers, and what came from the source by cross-attention" if across else "feed-forward layers"
