"""Attention of one position to those before it, on a GPU: one program for every row and head.

It goes over the row's own positions and no further, finds each in the row that holds it, and adds the newest, whose
key and value it also puts into the cache. So one captured graph serves every length, nothing is masked, and what is
summed up for a text, and in which order, depends on that text alone. Of a long text, every program takes a stretch,
and what they have found is joined.

Where several positions of a text are fed at once, all their keys and values are put into the cache first. Then each is
a row like any other, and is summed up in the same order as if it were fed alone.

Shapes: N rows (K beams of B slots, or A of their positions) · H heads · G key and value heads · E positions held ·
        L longest text · S source positions · Q key width of a head · V value width of a head
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.layers.slots import KeySlots, MemorySlots

STRETCH = 128  # positions that one program goes over, where there would otherwise be too few to keep the GPU busy
ENOUGH = 264  # programs
BLOCK = 32  # positions read at once


def attend_to_own(q_NH1Q: Tensor, k_NG1Q: Tensor, v_NG1V: Tensor, state: KeySlots) -> Tensor:
    """Puts the newest keys and values into the cache; what every row finds in all of its own: [N, H · V]."""
    places = state.places
    q, k, v = (x[:, :, 0] if x.stride(-1) == 1 else x[:, :, 0].contiguous() for x in (q_NH1Q, k_NG1Q, v_NG1V))
    rows, heads, key_width = q.shape
    value_width = v.shape[-1]
    stretch = STRETCH if rows * heads < ENOUGH else state.window
    stretches = triton.cdiv(state.window, stretch)
    y_NHV = q.new_empty(rows, heads, value_width)
    # Of each stretch: what was found, unscaled, and after it the largest score and the sum of exponentials.
    found_NHSX = q.new_empty(rows, heads, stretches, value_width + 2, dtype=torch.float32) if stretches > 1 else y_NHV
    if places.at_once > 1:
        _put[(rows, k.shape[1])](
            k,
            v,
            state.keys_BGEK,
            state.values_BGEV,
            places.positions_N,
            *k.stride()[:2],
            *v.stride()[:2],
            state.entries,
            AT_ONCE=places.at_once,
            Q=key_width,
            V=value_width,
            Q_UP=triton.next_power_of_2(key_width),
            V_UP=triton.next_power_of_2(value_width),
            num_warps=1,
        )
    _attend_to_own[(rows, heads, stretches)](
        q,
        k,
        v,
        state.keys_BGEK,
        state.values_BGEV,
        found_NHSX,
        places.positions_N,
        places.origins_BKL if places.origins_BKL is not None else places.positions_N,
        1 / math.sqrt(key_width),
        *q.stride()[:2],
        *k.stride()[:2],
        *v.stride()[:2],
        heads // k.shape[1],
        k.shape[1],
        state.entries,
        state.window,
        places.length,
        BEAMS=places.beams,
        AT_ONCE=places.at_once,
        Q=key_width,
        V=value_width,
        Q_UP=triton.next_power_of_2(key_width),
        V_UP=triton.next_power_of_2(value_width),
        BLOCK=BLOCK,
        STRETCH=stretch,
        STRETCHES=stretches,
        STAGES=1 if state.window <= STRETCH else 3,  # loads that are under way while others are used
        num_warps=1 if state.window <= STRETCH else 2,
    )
    if stretches > 1:
        _join_stretches[(rows, heads)](
            found_NHSX,
            y_NHV,
            stretches,
            V=value_width,
            V_UP=triton.next_power_of_2(value_width),
            STRETCHES_UP=triton.next_power_of_2(stretches),
            num_warps=4,
        )
    return y_NHV.flatten(1)


def attend_across(q_NH1Q: Tensor, state: MemorySlots) -> Tensor:
    """What every row finds in the source of its text: [N, H · V]."""
    q = q_NH1Q[:, :, 0] if q_NH1Q.stride(-1) == 1 else q_NH1Q[:, :, 0].contiguous()
    rows, heads, key_width = q.shape
    groups, source_length, value_width = state.values_BGSV.shape[1:]
    y_NHV = q.new_empty(rows, heads, value_width)
    _attend_across[(rows, heads)](
        q,
        state.keys_BGSK,
        state.values_BGSV,
        y_NHV,
        state.lengths_B,
        1 / math.sqrt(key_width),
        *q.stride()[:2],
        heads // groups,
        groups,
        source_length,
        BEAMS=state.places.beams,
        Q=key_width,
        V=value_width,
        Q_UP=triton.next_power_of_2(key_width),
        V_UP=triton.next_power_of_2(value_width),
        BLOCK=BLOCK,
        num_warps=1,
    )
    return y_NHV.flatten(1)


@triton.jit
def _put(
    k_ptr,
    v_ptr,
    keys_ptr,
    values_ptr,
    positions_ptr,
    k_row,
    k_head,
    v_row,
    v_head,
    entries,
    AT_ONCE: tl.constexpr,
    Q: tl.constexpr,
    V: tl.constexpr,
    Q_UP: tl.constexpr,
    V_UP: tl.constexpr,
):
    row, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at_q, at_v = tl.arange(0, Q_UP), tl.arange(0, V_UP)
    in_q, in_v = at_q < Q, at_v < V
    place = ((row // AT_ONCE) * tl.num_programs(1) + g) * entries + tl.load(positions_ptr + row) % entries
    key = tl.load(k_ptr + row * k_row + g * k_head + at_q, mask=in_q, other=0.0)
    value = tl.load(v_ptr + row * v_row + g * v_head + at_v, mask=in_v, other=0.0)
    tl.store(keys_ptr + place * Q + at_q, key, mask=in_q)
    tl.store(values_ptr + place * V + at_v, value, mask=in_v)


@triton.jit
def _attend_to_own(
    q_ptr,
    k_ptr,
    v_ptr,
    keys_ptr,
    values_ptr,
    y_ptr,
    positions_ptr,
    origins_ptr,
    scale,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    group,
    groups,
    entries,
    window,
    length,
    BEAMS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    Q: tl.constexpr,
    V: tl.constexpr,
    Q_UP: tl.constexpr,
    V_UP: tl.constexpr,
    BLOCK: tl.constexpr,
    STRETCH: tl.constexpr,
    STRETCHES: tl.constexpr,
    STAGES: tl.constexpr,
):
    row, head, stretch = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    g = head // group
    at_q, at_v = tl.arange(0, Q_UP), tl.arange(0, V_UP)
    in_q, in_v = at_q < Q, at_v < V
    q = tl.load(q_ptr + row * q_row + head * q_head + at_q, mask=in_q, other=0.0).to(tl.float32) * scale
    new_key = tl.load(k_ptr + row * k_row + g * k_head + at_q, mask=in_q, other=0.0)
    new_value = tl.load(v_ptr + row * v_row + g * v_head + at_v, mask=in_v, other=0.0)
    now = tl.load(positions_ptr + row).to(tl.int32)

    # Softmax as it comes: the largest score so far, the sum of exponentials, and the weighted values. The newest
    # position belongs to the first stretch.
    first = stretch == 0
    largest = tl.where(first, tl.sum(q * new_key.to(tl.float32)), -1e30)
    total = tl.where(first, 1.0, 0.0)
    found = tl.where(first, new_value.to(tl.float32), 0.0)
    held = ((row // (BEAMS * AT_ONCE)) * groups + g) * entries * BEAMS  # where those of this text and head begin
    start = tl.maximum(0, now - window + 1) + stretch * STRETCH
    stop = tl.minimum(now, start + STRETCH)
    for begin in tl.range(start, stop, BLOCK, num_stages=STAGES):
        position = begin + tl.arange(0, BLOCK)
        seen = position < stop
        place = (position % entries) * BEAMS
        if BEAMS > 1:
            place += tl.load(origins_ptr + row * length + position, mask=seen, other=0)
        keys = tl.load(
            keys_ptr + (held + place)[:, None] * Q + at_q[None, :], mask=seen[:, None] & in_q[None, :], other=0.0
        )
        # Asked for before it is needed, so that it comes while scores are computed.
        values = tl.load(
            values_ptr + (held + place)[:, None] * V + at_v[None, :], mask=seen[:, None] & in_v[None, :], other=0.0
        )
        scores = tl.where(seen, tl.sum(keys.to(tl.float32) * q[None, :], axis=1), float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores))
        shrink = tl.exp(largest - new_largest)
        weights = tl.exp(scores - new_largest)
        found = found * shrink + tl.sum(weights[:, None] * values.to(tl.float32), axis=0)
        total = total * shrink + tl.sum(weights)
        largest = new_largest
    heads = groups * group
    if STRETCHES == 1:
        tl.store(y_ptr + (row * heads + head) * V + at_v, found / total, mask=in_v)
    else:
        part = y_ptr + ((row * heads + head) * STRETCHES + stretch) * (V + 2)
        tl.store(part + at_v, found, mask=in_v)
        tl.store(part + V, largest)
        tl.store(part + V + 1, total)
    if AT_ONCE == 1:  # noqa: SIM102 - known when the kernel is compiled; the other is not
        if (head % group == 0) & first:
            new_place = held + (now % entries) * BEAMS + row % BEAMS
            tl.store(keys_ptr + new_place * Q + at_q, new_key, mask=in_q)
            tl.store(values_ptr + new_place * V + at_v, new_value, mask=in_v)


@triton.jit
def _join_stretches(found_ptr, y_ptr, stretches, V: tl.constexpr, V_UP: tl.constexpr, STRETCHES_UP: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    stretch, at_v = tl.arange(0, STRETCHES_UP), tl.arange(0, V_UP)
    real, in_v = stretch < stretches, at_v < V
    part = found_ptr + (place * stretches + stretch) * (V + 2)
    largest = tl.load(part + V, mask=real, other=-1e30)
    total = tl.load(part + V + 1, mask=real, other=0.0)
    share = tl.exp(largest - tl.max(largest, axis=0))
    found = tl.load(part[:, None] + at_v[None, :], mask=real[:, None] & in_v[None, :], other=0.0)
    y = tl.sum(found * share[:, None], axis=0) / tl.sum(total * share, axis=0)
    tl.store(y_ptr + place * V + at_v, y, mask=in_v)


@triton.jit
def _attend_across(
    q_ptr,
    keys_ptr,
    values_ptr,
    y_ptr,
    lengths_ptr,
    scale,
    q_row,
    q_head,
    group,
    groups,
    source_length,
    BEAMS: tl.constexpr,
    Q: tl.constexpr,
    V: tl.constexpr,
    Q_UP: tl.constexpr,
    V_UP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    g = head // group
    at_q, at_v = tl.arange(0, Q_UP), tl.arange(0, V_UP)
    in_q, in_v = at_q < Q, at_v < V
    q = tl.load(q_ptr + row * q_row + head * q_head + at_q, mask=in_q, other=0.0).to(tl.float32) * scale
    slot = row // BEAMS
    length = tl.load(lengths_ptr + slot).to(tl.int32)
    largest = float("-inf")
    total = 0.0
    found = tl.zeros((V_UP,), dtype=tl.float32)
    held = (slot * groups + g) * source_length
    for begin in range(0, length, BLOCK):
        position = begin + tl.arange(0, BLOCK)
        seen = position < length
        keys = tl.load(
            keys_ptr + (held + position)[:, None] * Q + at_q[None, :], mask=seen[:, None] & in_q[None, :], other=0.0
        )
        # Asked for before it is needed, so that it comes while scores are computed.
        values = tl.load(
            values_ptr + (held + position)[:, None] * V + at_v[None, :], mask=seen[:, None] & in_v[None, :], other=0.0
        )
        scores = tl.where(seen, tl.sum(keys.to(tl.float32) * q[None, :], axis=1), float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores))
        shrink = tl.exp(largest - new_largest)
        weights = tl.exp(scores - new_largest)
        found = found * shrink + tl.sum(weights[:, None] * values.to(tl.float32), axis=0)
        total = total * shrink + tl.sum(weights)
        largest = new_largest
    heads = groups * group
    tl.store(y_ptr + (row * heads + head) * V + at_v, found / total, mask=in_v)
