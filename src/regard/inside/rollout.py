"""Attention rollout: attention multiplied through all layers (Abnar & Zuidema, 2020).

    Â_l = ½ · mean over heads of A_l + ½ · I          rollout = Â_L ⋯ Â_2 Â_1

The residual connection counts as half: ½ · I. The rows of every Â sum to 1, and so do those of the product: row t is
the share of each input token in output token t. Where a Swin Transformer merges 2 × 2 patches, each counts as a quarter
of the merged one. Feed-forward layers are ignored, and so is cross-attention: rollout follows one sequence.

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
from regard.inside.subject import Stack, Subject
from regard.inside.trace import Trace
from regard.models.swin import PatchMerging


@torch.no_grad()
def rollout(trace: Trace, stack: str = "") -> Named:
    """The share of each input position in each output position of a stack, by default the last: [E, T]."""
    chain = _chain(trace, stack)
    rolled_ET = _through(chain)
    axes = [("position", chain[-1].stack.pieces), ("from", chain[0].stack.pieces)]
    return named("rollout", rolled_ET, axes, stack=chain[-1].name, left_out=_left_out(chain))


@torch.no_grad()
def rollout_of_answer(trace: Trace, answer: int = -1) -> Named:
    """The share of each input position in what an answer is read from: [T], sums to 1."""
    chain = _chain(trace, "")
    rolled_ET = _through(chain)
    rolled_T = readout_weights(trace, answer, chain[-1].stack).to(rolled_ET) @ rolled_ET
    return named(
        "rollout",
        rolled_T,
        [("from", chain[0].stack.pieces)],
        stack=chain[0].name,
        answer=trace.subject.answers[answer].label,
        read_from=read_from(trace, answer),
        left_out=_left_out(chain, trace.subject),
    )


@dataclass(frozen=True)
class AttentionMaps:
    """Attention over the patches of an image, from where the answer is read."""

    rollout_RS: Tensor
    layers_HRS: list[Tensor]  # for each layer; later layers of a Swin have more heads and coarser grids
    read_from: str  # for people
    left_out: str = "feed-forward layers"


@torch.no_grad()
def attention_maps(trace: Trace, answer: int = -1) -> AttentionMaps:
    """Rollout and every head's attention, as maps over the patches of an image."""
    chain = _chain(trace, "")
    layers_HRS = []
    for stack in chain:
        readout_T = readout_weights(trace, answer, stack.stack)
        layers_HRS += [_on_grid(part.attention().weights_BHTS[0], readout_T, stack.stack) for part in _mixers(stack)]
    rolled_RS = _on_grid(_through(chain), readout_weights(trace, answer, chain[-1].stack), chain[0].stack)
    return AttentionMaps(rolled_RS, layers_HRS, read_from(trace, answer), _left_out(chain, trace.subject))


def read_from(trace: Trace, answer: int = -1, stack: Stack | None = None) -> str:
    """Where in a stack, by default the last, an answer is read, in words."""
    stack = stack or trace.last.stack
    positions = readout_positions(trace, answer, stack)
    if trace.subject.of_patches and len(positions) > 1:
        row, column = divmod(answer % len(trace.subject.answers), grid_of(trace)[1])
        return f"the {len(positions)} patches of {stack.name} nearest to patch {row + 1}, {column + 1}"
    if len(positions) > 1:
        mean = f"the mean of all {'patches' if stack.grid else 'positions'}"
        return f"the class token and {mean}, half each" if positions[0] < stack.before else mean
    if stack.grid and trace.subject.tokens:  # pixels: each is predicted at the position of the one before
        row, column = divmod(positions[0], stack.grid[1])
        return f"where the pixel in row {row + 1}, column {column + 1} is predicted"
    piece = stack.pieces[positions[0]]
    if stack.grid:
        return {"class": "the class token"}.get(piece, piece if positions[0] < stack.before else f"patch {piece}")
    return f"position {piece}"


def product(layers_HTT: Iterable[Tensor]) -> Tensor:
    """Â_L ⋯ Â_1 of attention weights, the first layer first: [T, T]."""
    rolled_TT: Tensor | None = None
    for weights_HTT in layers_HTT:
        layer_TT = _with_residual(weights_HTT)
        rolled_TT = layer_TT if rolled_TT is None else layer_TT @ rolled_TT
    assert rolled_TT is not None
    return rolled_TT


def _with_residual(weights_HTT: Tensor) -> Tensor:
    """Â = ½ · mean over heads + ½ · I: [T, T]."""
    identity_TT = torch.eye(weights_HTT.shape[-1], dtype=weights_HTT.dtype, device=weights_HTT.device)
    return 0.5 * weights_HTT.mean(0) + 0.5 * identity_TT


def _chain(trace: Trace, name: str) -> list[StackTrace]:
    """The stack of this name, or the last one, preceded by the stages of a Swin whose patches it merges."""
    last = trace.stacks.index(trace[name]) if name else len(trace.stacks) - 1
    first = last
    while isinstance(trace.stacks[first].stack.embed, PatchMerging):
        first -= 1
    return trace.stacks[first : last + 1]


def _through(chain: list[StackTrace]) -> Tensor:
    """The rollout through several stages: [E, T]."""
    rolled_ET: Tensor | None = None
    for stack in chain:
        stage_EE = product(part.attention().weights_BHTS[0].float() for part in _mixers(stack))
        grid = stack.stack.grid
        rolled_ET = stage_EE if rolled_ET is None or grid is None else stage_EE @ _merged(rolled_ET, grid)
    assert rolled_ET is not None
    return rolled_ET


def _merged(rolled_FT: Tensor, grid: tuple[int, int]) -> Tensor:
    """The mean of the 2 × 2 patches that each patch of this grid merges: [F = 4·E, T] → [E, T]."""
    rows, columns = grid
    return rolled_FT.unflatten(0, (rows, 2, columns, 2)).mean((1, 3)).flatten(0, 1)


def _mixers(stack: StackTrace) -> list[PartTrace]:
    mixers = [part for layer in stack.layers if (part := layer.part("mixer")) is not None]
    if any(not part.attends or part.cross for part in mixers):
        raise UsageError(
            f"Rollout is not defined for the {stack.name}.",
            "It mixes positions without self-attention: there are no weights to multiply.",
            "Use influence instead, which is defined for every mixer.",
        )
    return mixers


def readout_positions(trace: Trace, answer: int, stack: Stack) -> list[int]:
    """The positions of a stack that an answer is read from."""
    return readout_weights(trace, answer, stack).nonzero()[:, 0].tolist()


def readout_weights(trace: Trace, answer: int, stack: Stack) -> Tensor:
    """The weight of each position of a stack in the readout of an answer: [T], sums to 1.

    A single position, the mean of all, or, for pool "both", half the first and half the mean. The class of a patch is
    read from that patch, and in later stages of a Swin from the nearest ones.
    """
    if trace.subject.of_patches:
        return _nearest(answer, grid_of(trace), stack)
    position, readout = trace.subject.answers[answer].position, trace.subject.readout
    pool = readout.pool if readout is not None else "mean"
    if position is None and pool == "mean":
        return mean_weights(stack)
    readout_T = torch.zeros(len(stack.pieces))
    readout_T[position or 0] = 1.0
    return (readout_T + mean_weights(stack)) / 2 if position is None and pool == "both" else readout_T


def grid_of(trace: Trace) -> tuple[int, int]:
    """The patches of the image."""
    grid = trace.stacks[0].stack.grid
    assert grid is not None
    return grid


def _nearest(cell: int, grid: tuple[int, int], stack: Stack) -> Tensor:
    """The weights of the patches of a stack in its vector at a cell of a finer grid, bilinearly interpolated: [T]."""
    assert stack.grid is not None
    each_PRS = torch.eye(stack.grid[0] * stack.grid[1]).unflatten(1, stack.grid)
    if stack.grid != grid:
        each_PRS = F.interpolate(each_PRS[None], grid, mode="bilinear", align_corners=False)[0]
    return torch.cat([torch.zeros(stack.before), each_PRS.flatten(1)[:, cell]])


def mean_weights(stack: Stack) -> Tensor:
    """The mean of all patches, or of all positions: [T]."""
    mean_T = torch.zeros(len(stack.pieces))
    mean_T[stack.before :] = 1.0 / (len(stack.pieces) - stack.before)
    return mean_T


def _on_grid(weights: Tensor, readout_T: Tensor, stack: Stack) -> Tensor:
    """From where it is read to the patches, as a grid: [..., R, S]."""
    if stack.grid is None:
        raise UsageError("There are no maps for this input.", "It is not an image.", "Use the rollout itself.")
    from_readout = (readout_T.to(weights) @ weights)[..., stack.before :]
    unread = stack.grid[0] * stack.grid[1] - from_readout.shape[-1]  # the last pixel is not in the input
    return F.pad(from_readout, (0, unread)).unflatten(-1, stack.grid)


def _left_out(chain: list[StackTrace], subject: Subject | None = None) -> str:
    has_cross = any(part.cross for stack in chain for layer in stack.layers for part in layer.parts)
    left_out = "feed-forward layers and cross-attention" if has_cross else "feed-forward layers"
    # The head of a Swin reads earlier stages too; class tokens attend with the patches.
    return f"{left_out}, and the head" if subject and subject.of_patches and not subject.readout else left_out
