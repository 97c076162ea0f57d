"""A stack of blocks in training on a GPU, with all that lies between products in as few kernels as possible.

The same as the blocks as they are written in `block.py`, but for the last bits of bfloat16, and for which numbers
dropout leaves out. Nothing needs to be compiled.

Shapes: B rows · T positions · D model width · C columns of any width
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import Attention
from regard.layers.block import Block
from regard.layers.context import Context
from regard.layers.feedforward import FeedForward
from regard.layers.fused.activation import ALIGNED, KINDS, activate
from regard.layers.fused.dropout import draw_seeds
from regard.layers.fused.heads import Shaping, project
from regard.layers.fused.residual import Dropped, add_norm
from regard.layers.norm import RMSNorm
from regard.layers.positions import Positions, Rotary, kept_frequencies

WIDEST = 4096  # a vector that one program normalises


def fits(blocks: Iterable[nn.Module], norm: nn.Module, x_BTD: Tensor) -> bool:
    """Whether these blocks have nothing but what is fused here."""
    half = torch.is_autocast_enabled(x_BTD.device.type) and torch.get_autocast_dtype(x_BTD.device.type).itemsize == 2
    pre_norm = not isinstance(norm, nn.Identity)
    if not half or not torch.is_grad_enabled() or x_BTD.shape[-1] > WIDEST or (pre_norm and not _normalises(norm)):
        return False
    return all(_fits(block) and block.pre_norm == pre_norm for block in blocks)


def _fits(block: nn.Module) -> bool:
    if not isinstance(block, Block) or not block.training or len(block.scales):
        return False
    feedforward = block.feedforward
    return (
        _attends(block.mixer)
        and _normalises(block.mixer_norm)
        and (block.cross is None or (_attends(block.cross) and _normalises(block.cross_norm)))
        and isinstance(feedforward, FeedForward)
        and _normalises(block.feedforward_norm)
        and not feedforward.gated
        and feedforward.activation_name in KINDS
        and feedforward.expand.out_features % ALIGNED == 0
    )


def _attends(mixer: nn.Module) -> bool:
    """In the usual way: kinds of it may do anything else."""
    return (
        type(mixer) is Attention
        and mixer.key_width == mixer.value_width
        and mixer.key_width % 2 == 0
        and mixer.rotate in (Positions.rotate, Rotary.rotate)
    )


def _normalises(norm: nn.Module) -> bool:
    return type(norm) in (nn.LayerNorm, RMSNorm)


def read(blocks: Iterable[nn.Module], norm: nn.Module, x_BTD: Tensor, context: Context) -> Tensor:
    """What the last block makes of vectors, normalised: [B, T, D]."""
    parts = _parts(blocks, x_BTD.device)
    if isinstance(norm, nn.Identity):  # post-norm
        n_BTD = x_BTD
        for part in parts:
            y_BTD, bias_D = part.read(n_BTD, context)
            x_BTD, n_BTD = add_norm(x_BTD, y_BTD, bias_D, part.norm, part.dropped, post=True)
        return n_BTD
    before: tuple[Tensor | None, Tensor | None, Dropped | None] = None, None, None
    for part in parts:
        y, bias, dropped = before
        x_BTD, n_BTD = add_norm(x_BTD, y, bias, part.norm, dropped)
        before = *part.read(n_BTD, context), part.dropped
    y, bias, dropped = before
    return add_norm(x_BTD, y, bias, norm, dropped)[1]


class _Part:
    """The mixer, the attention across or the feed-forward of a block."""

    def __init__(self, block: Block, module: nn.Module, norm: nn.Module):
        self.module, self.norm, self.p = module, norm, block.dropout.p
        self.survival = block.survival if block.skips else None
        self.p_inside = module.dropout.p if isinstance(module, FeedForward) else 0.0
        self.seed: Tensor | None = None
        self.seed_inside: Tensor | None = None

    @property
    def dropped(self) -> Dropped:
        return Dropped(self.p, self.survival, self.seed)

    def read(self, n_BTD: Tensor, context: Context) -> tuple[Tensor, Tensor | None]:
        """What it adds, but for a bias; and that bias."""
        module = self.module
        if isinstance(module, Attention):
            o_BTC = module.gathered(*_projected(module, n_BTD, context), context)
            return F.linear(o_BTC, module.to_out.weight), module.to_out.bias
        assert isinstance(module, FeedForward)
        h_BTC = F.linear(n_BTD, module.expand.weight)
        a_BTC = activate(h_BTC, module.expand.bias, module.activation_name, self.p_inside, self.seed_inside)
        return F.linear(a_BTC, module.contract.weight), module.contract.bias


def _parts(blocks: Iterable[nn.Module], device: torch.device) -> list[_Part]:
    """Of all blocks in order, each with seeds where it draws anything."""
    parts = [
        _Part(block, module, norm)
        for block in blocks
        if isinstance(block, Block)
        for module, norm in (
            (block.mixer, block.mixer_norm),
            (block.cross, block.cross_norm),
            (block.feedforward, block.feedforward_norm),
        )
        if module is not None
    ]
    if any(part.dropped.at_all or part.p_inside for part in parts):
        for part, seeds in zip(parts, draw_seeds(2 * len(parts), device).view(-1, 2), strict=True):
            part.seed, part.seed_inside = seeds[:1], seeds[1:]
    return parts


def _projected(mixer: Attention, n_BTD: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, all [B, heads, positions, width]."""
    weight, bias = mixer.to_qkv.weight, mixer.to_qkv.bias
    norms = [norm for norm in (mixer.query_norm, mixer.key_norm) if isinstance(norm, RMSNorm)]
    gains, epsilon = tuple(norm.weight for norm in norms), norms[0].eps or 0.0 if norms else 0.0
    queries, keys = mixer.heads, mixer.key_value_heads
    if not mixer.cross:
        positions, frequencies = None, None
        if mixer.rotate is Rotary.rotate:
            positions = context.positions_BT.expand(n_BTD.shape[:2])
            frequencies = kept_frequencies(mixer.key_width, n_BTD.device)
        shaping = Shaping(2, gains, epsilon, positions, frequencies)
        q_BHTK, k_BGTK, v_BGTV = project(n_BTD, weight, bias, (queries, keys, keys), shaping)
        return q_BHTK, k_BGTK, v_BGTV
    assert context.memory is not None
    of_queries = slice(0, mixer.widths[0]), slice(mixer.widths[0], None)
    weights, biases = ([given[rows] if given is not None else None for rows in of_queries] for given in (weight, bias))
    (q_BHTK,) = project(n_BTD, weights[0], biases[0], (queries,), Shaping(1, gains[:1], epsilon))
    memory = context.memory.states_BSD
    k_BGSK, v_BGSV = project(memory, weights[1], biases[1], (keys, keys), Shaping(1, gains[1:], epsilon))
    return q_BHTK, k_BGSK, v_BGSV
