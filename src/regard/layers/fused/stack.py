"""A stack of blocks in training on a GPU, with all that lies between products in as few kernels as possible.

The same as the blocks as they are written in `block.py`, but for the last bits of bfloat16, and for which numbers
dropout leaves out. Nothing needs to be compiled.

Shapes: B rows · T positions · D model width · C columns of any width
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from regard.layers.attention import Attention
from regard.layers.block import Block
from regard.layers.context import Context
from regard.layers.feedforward import FeedForward
from regard.layers.fused.activation import ALIGNED, KINDS, activate
from regard.layers.fused.dropout import draw_seeds
from regard.layers.fused.eight_bits import in_eight_bits
from regard.layers.fused.heads import Shaping, project
from regard.layers.fused.product import Operand, Product, Rounded, in_half, product
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


def read(
    blocks: Iterable[nn.Module], norm: nn.Module, x_BTD: Tensor, context: Context, eight_bits: bool = False
) -> Tensor:
    """What the last block makes of vectors, normalised: [B, T, D]. `eight_bits`: products are in them."""
    parts = _parts(blocks, x_BTD.device)
    layers, half = [layer for part in parts for layer in part.layers], torch.get_autocast_dtype(x_BTD.device.type)
    rounded = in_eight_bits(layers, half, x_BTD[..., 0].numel()) if eight_bits else in_half(layers, half)
    if isinstance(norm, nn.Identity):  # post-norm
        n = Operand(x_BTD)
        for number, part in enumerate(parts, 1):
            y, bias = part.read(n, context, rounded)
            followed = number < len(parts)
            x_BTD, n = add_norm(x_BTD, y, bias, part.norm, part.dropped, post=True, eight=eight_bits and followed)
        return n.half
    before: tuple[Product | None, Tensor | None, Dropped | None] = None, None, None
    for part in parts:
        given, bias, dropped = before
        x_BTD, n = add_norm(x_BTD, given, bias, part.norm, dropped, eight=eight_bits)
        before = *part.read(n, context, rounded), part.dropped
    given, bias, dropped = before
    return add_norm(x_BTD, given, bias, norm, dropped)[1].half


class _Part:
    """The mixer, the attention across or the feed-forward of a block."""

    def __init__(self, block: Block, module: nn.Module, norm: nn.Module):
        self.module, self.norm, self.p = module, norm, block.dropout.p
        self.survival = block.survival if block.skips else None
        self.p_inside = module.dropout.p if isinstance(module, FeedForward) else 0.0
        self.seed: Tensor | None = None
        self.seed_inside: Tensor | None = None

    @property
    def layers(self) -> list[nn.Linear]:
        module = self.module
        if isinstance(module, Attention):
            return [module.to_qkv, module.to_out]
        assert isinstance(module, FeedForward)
        return [module.expand, module.contract]

    @property
    def dropped(self) -> Dropped:
        return Dropped(self.p, self.survival, self.seed)

    def read(self, n: Operand, context: Context, rounded: Mapping[nn.Module, Rounded]) -> tuple[Product, Tensor | None]:
        """What it adds, but for a bias; and that bias."""
        module = self.module
        if isinstance(module, Attention):
            o = Operand(module.gathered(*_projected(module, n, context, rounded[module.to_qkv]), context))
            return product(o, module.to_out.weight, rounded[module.to_out]), module.to_out.bias
        assert isinstance(module, FeedForward)
        expand, contract = module.expand, module.contract
        h = product(n, expand.weight, rounded[expand])
        a = activate(h, expand.bias, module.activation_name, self.p_inside, self.seed_inside)
        return product(a, contract.weight, rounded[contract]), contract.bias


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


def _projected(mixer: Attention, n: Operand, context: Context, rounded: Rounded) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, all [B, heads, positions, width]."""
    weight, bias = mixer.to_qkv.weight, mixer.to_qkv.bias
    norms = [norm for norm in (mixer.query_norm, mixer.key_norm) if isinstance(norm, RMSNorm)]
    gains, epsilon = tuple(norm.weight for norm in norms), norms[0].eps or 0.0 if norms else 0.0
    queries, keys = mixer.heads, mixer.key_value_heads
    if not mixer.cross:
        positions, frequencies = None, None
        if mixer.rotate is Rotary.rotate:
            positions = context.positions_BT.expand(n.half.shape[:2])
            frequencies = kept_frequencies(mixer.key_width, n.half.device)
        shaping = Shaping(2, gains, epsilon, positions, frequencies)
        q_BHTK, k_BGTK, v_BGTV = project(n, weight, bias, rounded, (queries, keys, keys), shaping)
        return q_BHTK, k_BGTK, v_BGTV
    assert context.memory is not None
    of_queries = slice(0, mixer.widths[0]), slice(mixer.widths[0], None)
    weights, biases = ([given[rows] if given is not None else None for rows in of_queries] for given in (weight, bias))
    parts = [rounded.part(rows) for rows in of_queries]
    (q_BHTK,) = project(n, weights[0], biases[0], parts[0], (queries,), Shaping(1, gains[:1], epsilon))
    memory = Operand(context.memory.states_BSD)
    k_BGSK, v_BGSV = project(memory, weights[1], biases[1], parts[1], (keys, keys), Shaping(1, gains[1:], epsilon))
    return q_BHTK, k_BGSK, v_BGSV
