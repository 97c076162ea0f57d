"""Attention over rows that are not long, with a mask where several sequences share a row.

    o = softmax(q kᵀ / √K, where the mask allows it) v

torch's kernel wants a mask as numbers to add, for every head, and passes over keys that nobody may see. Here a tile
that is masked as a whole costs no more than a look at its mask. Without a mask it pays for short rows, for which the
libraries' kernels are not made. With P = softmax(…) and dP = dO Vᵀ the gradients are

    dV = Pᵀ dO        dS = P ⊙ (dP − Σ dO ⊙ O)        dQ = dS K / √K        dK = dSᵀ Q / √K

One kernel goes through the keys of some queries, another through the queries of some keys: so no two programs add to
the same gradient.

Shapes: B rows · H heads · T query positions · S key positions · K width of a head
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

FEWEST = 16  # queries: less than a tile is for kernels of other kinds
LONGEST = 512  # positions, with a mask
LONGEST_WITHOUT = 128  # from here on libraries have faster kernels
WIDTHS = (16, 32, 64, 128)  # of a head


def can(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None) -> bool:
    longest = LONGEST if mask is not None else LONGEST_WITHOUT
    positions = q_BHTK.shape[2]
    fits = positions >= FEWEST and max(positions, k_BHSK.shape[2]) <= longest and q_BHTK.shape[-1] in WIDTHS
    alike = k_BHSK.shape == v_BHSK.shape == (*q_BHTK.shape[:2], k_BHSK.shape[2], q_BHTK.shape[3])
    half = all(x.dtype in (torch.bfloat16, torch.float16) and x.stride(-1) == 1 for x in (q_BHTK, k_BHSK, v_BHSK))
    allowed = mask is None or (mask.dtype == torch.bool and mask.ndim == 4 and mask.shape[1] == 1)
    return fits and alike and half and allowed


def attend(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask_B1TS: Tensor | None, causal: bool = False) -> Tensor:
    """[B, H, T, K]. A query that may see nothing gets zeros."""
    attended: Tensor = _Short.apply(q_BHTK, k_BHSK, v_BHSK, mask_B1TS, causal)
    return attended


class _Short(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask_B1TS: Tensor | None, causal: bool
    ) -> Tensor:
        rows, heads, queries, width = q_BHTK.shape
        keys = k_BHSK.shape[2]
        # Heads of a position side by side, as the product that follows wants them.
        o_BHTK = q_BHTK.new_empty(rows, queries, heads, width).transpose(1, 2)
        normaliser_BHT = torch.empty(rows, heads, queries, dtype=torch.float32, device=q_BHTK.device)
        if mask_B1TS is not None:
            mask_BTS = mask_B1TS.expand(rows, 1, queries, keys)[:, 0].view(torch.uint8)
        else:
            mask_BTS = q_BHTK[:, 0]  # something: it is not read
        ctx.options = {
            "WIDTH": width, "BLOCK_T": _block(queries), "BLOCK_S": _block(keys), "MASKED": mask_B1TS is not None,
            "CAUSAL": causal, "num_warps": 4,
        }  # fmt: skip
        _forward[(triton.cdiv(queries, _block(queries)), rows * heads)](
            q_BHTK, k_BHSK, v_BHSK, mask_BTS, o_BHTK, normaliser_BHT,
            *q_BHTK.stride()[:3], *k_BHSK.stride()[:3], *v_BHSK.stride()[:3], *o_BHTK.stride()[:3], *mask_BTS.stride(),
            heads, queries, keys, _scale(width), **ctx.options,
        )  # fmt: skip
        ctx.save_for_backward(q_BHTK, k_BHSK, v_BHSK, mask_BTS, o_BHTK, normaliser_BHT)
        return o_BHTK

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, do_BHTK: Tensor) -> tuple[Tensor | None, ...]:
        q_BHTK, k_BHSK, v_BHSK, mask_BTS, o_BHTK, normaliser_BHT = ctx.saved_tensors
        rows, heads, queries, width = q_BHTK.shape
        keys = k_BHSK.shape[2]
        if do_BHTK.stride(-1) != 1:
            do_BHTK = do_BHTK.contiguous()
        dq_BHTK = q_BHTK.new_empty(rows, queries, heads, width).transpose(1, 2)
        dk_BHSK, dv_BHSK = (q_BHTK.new_empty(rows, keys, heads, width).transpose(1, 2) for _ in range(2))
        along_BHT = torch.empty_like(normaliser_BHT)
        given = (
            q_BHTK, k_BHSK, v_BHSK, mask_BTS, do_BHTK, normaliser_BHT, along_BHT,
            *q_BHTK.stride()[:3], *k_BHSK.stride()[:3], *v_BHSK.stride()[:3], *do_BHTK.stride()[:3], *mask_BTS.stride(),
            heads, queries, keys, _scale(width),
        )  # fmt: skip
        _of_queries[(triton.cdiv(queries, _block(queries)), rows * heads)](
            *given, o_BHTK, dq_BHTK, *o_BHTK.stride()[:3], *dq_BHTK.stride()[:3], **ctx.options
        )
        _of_keys[(triton.cdiv(keys, _block(keys)), rows * heads)](
            *given, dk_BHSK, dv_BHSK, *dk_BHSK.stride()[:3], **ctx.options
        )
        return dq_BHTK, dk_BHSK, dv_BHSK, None, None


def _block(positions: int) -> int:
    return max(16, min(64, triton.next_power_of_2(positions)))


def _scale(width: int) -> float:
    """1 / √K, for powers of two."""
    return width**-0.5 * 1.4426950408889634


@triton.jit
def _rows_of(x, row, head, place, exists, of_row, of_head, of_time, WIDTH: tl.constexpr):
    """The vectors of some positions of a row and head; zeros where there is none."""
    at = row * of_row + head * of_head + place[:, None] * of_time + tl.arange(0, WIDTH)[None, :]
    return tl.load(x + at, mask=exists[:, None], other=0.0)


@triton.jit
def _put(x, value, row, head, place, exists, of_row, of_head, of_time, WIDTH: tl.constexpr):
    at = row * of_row + head * of_head + place[:, None] * of_time + tl.arange(0, WIDTH)[None, :]
    tl.store(x + at, value.to(x.dtype.element_ty), mask=exists[:, None])


@triton.jit
def _seen(mask, row, query, key, queries, keys, m_row, m_query, m_key, MASKED: tl.constexpr, CAUSAL: tl.constexpr):
    """Which key each query may look at."""
    seen = (query < queries)[:, None] & (key < keys)[None, :]
    if MASKED:
        at = row * m_row + query[:, None] * m_query + key[None, :] * m_key
        seen = tl.load(mask + at, mask=seen, other=0) != 0
    if CAUSAL:
        seen = seen & (key[None, :] <= query[:, None])
    return seen


@triton.jit
def _forward(
    q, k, v, mask, o, normaliser,
    q_row, q_head, q_time, k_row, k_head, k_time, v_row, v_head, v_time, o_row, o_head, o_time, m_row, m_query, m_key,
    heads, queries, keys, scale,
    WIDTH: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    query = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    q_TK = _rows_of(q, row, head, query, query < queries, q_row, q_head, q_time, WIDTH)
    highest = tl.full([BLOCK_T], -1e30, tl.float32)
    total = tl.zeros([BLOCK_T], tl.float32)
    o_TK = tl.zeros([BLOCK_T, WIDTH], tl.float32)
    for start in range(0, keys, BLOCK_S):
        key = start + tl.arange(0, BLOCK_S)
        seen = _seen(mask, row, query, key, queries, keys, m_row, m_query, m_key, MASKED, CAUSAL)
        if tl.max(seen.to(tl.int32)) > 0:
            k_SK = _rows_of(k, row, head, key, key < keys, k_row, k_head, k_time, WIDTH)
            v_SK = _rows_of(v, row, head, key, key < keys, v_row, v_head, v_time, WIDTH)
            s_TS = tl.where(seen, tl.dot(q_TK, tl.trans(k_SK)) * scale, -1e30)
            higher = tl.maximum(highest, tl.max(s_TS, 1))
            p_TS = tl.where(seen, tl.exp2(s_TS - higher[:, None]), 0.0)
            shrunk = tl.exp2(highest - higher)
            total = total * shrunk + tl.sum(p_TS, 1)
            o_TK = o_TK * shrunk[:, None] + tl.dot(p_TS.to(v_SK.dtype), v_SK)
            highest = higher
    total = tl.where(total > 0, total, 1.0)  # a query that sees nothing has zeros
    _put(o, o_TK / total[:, None], row, head, query, query < queries, o_row, o_head, o_time, WIDTH)
    tl.store(normaliser + tl.program_id(1) * queries + query, highest + tl.log2(total), mask=query < queries)


@triton.jit
def _of_queries(
    q, k, v, mask, do, normaliser, along,
    q_row, q_head, q_time, k_row, k_head, k_time, v_row, v_head, v_time, d_row, d_head, d_time, m_row, m_query, m_key,
    heads, queries, keys, scale, o, dq, o_row, o_head, o_time, dq_row, dq_head, dq_time,
    WIDTH: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dQ, and Σ dO ⊙ O for the other kernel."""
    row, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    query = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    of_query = tl.program_id(1) * queries + query
    q_TK = _rows_of(q, row, head, query, query < queries, q_row, q_head, q_time, WIDTH)
    do_TK = _rows_of(do, row, head, query, query < queries, d_row, d_head, d_time, WIDTH)
    o_TK = _rows_of(o, row, head, query, query < queries, o_row, o_head, o_time, WIDTH)
    along_T = tl.sum(do_TK.to(tl.float32) * o_TK.to(tl.float32), 1)
    tl.store(along + of_query, along_T, mask=query < queries)
    normaliser_T = tl.load(normaliser + of_query, mask=query < queries, other=0.0)
    dq_TK = tl.zeros([BLOCK_T, WIDTH], tl.float32)
    for start in range(0, keys, BLOCK_S):
        key = start + tl.arange(0, BLOCK_S)
        seen = _seen(mask, row, query, key, queries, keys, m_row, m_query, m_key, MASKED, CAUSAL)
        if tl.max(seen.to(tl.int32)) > 0:
            k_SK = _rows_of(k, row, head, key, key < keys, k_row, k_head, k_time, WIDTH)
            v_SK = _rows_of(v, row, head, key, key < keys, v_row, v_head, v_time, WIDTH)
            p_TS = tl.where(seen, tl.exp2(tl.dot(q_TK, tl.trans(k_SK)) * scale - normaliser_T[:, None]), 0.0)
            ds_TS = p_TS * (tl.dot(do_TK, tl.trans(v_SK)) - along_T[:, None])
            dq_TK += tl.dot(ds_TS.to(k_SK.dtype), k_SK)
    dq_TK *= scale * 0.6931471805599453
    _put(dq, dq_TK, row, head, query, query < queries, dq_row, dq_head, dq_time, WIDTH)


@triton.jit
def _of_keys(
    q, k, v, mask, do, normaliser, along,
    q_row, q_head, q_time, k_row, k_head, k_time, v_row, v_head, v_time, d_row, d_head, d_time, m_row, m_query, m_key,
    heads, queries, keys, scale, dk, dv, dk_row, dk_head, dk_time,
    WIDTH: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dK and dV."""
    row, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    key = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S)
    k_SK = _rows_of(k, row, head, key, key < keys, k_row, k_head, k_time, WIDTH)
    v_SK = _rows_of(v, row, head, key, key < keys, v_row, v_head, v_time, WIDTH)
    dk_SK = tl.zeros([BLOCK_S, WIDTH], tl.float32)
    dv_SK = tl.zeros([BLOCK_S, WIDTH], tl.float32)
    for start in range(0, queries, BLOCK_T):
        query = start + tl.arange(0, BLOCK_T)
        seen = _seen(mask, row, query, key, queries, keys, m_row, m_query, m_key, MASKED, CAUSAL)
        if tl.max(seen.to(tl.int32)) > 0:
            of_query = tl.program_id(1) * queries + query
            q_TK = _rows_of(q, row, head, query, query < queries, q_row, q_head, q_time, WIDTH)
            do_TK = _rows_of(do, row, head, query, query < queries, d_row, d_head, d_time, WIDTH)
            along_T = tl.load(along + of_query, mask=query < queries, other=0.0)
            normaliser_T = tl.load(normaliser + of_query, mask=query < queries, other=0.0)
            p_TS = tl.where(seen, tl.exp2(tl.dot(q_TK, tl.trans(k_SK)) * scale - normaliser_T[:, None]), 0.0)
            dv_SK += tl.dot(tl.trans(p_TS.to(do_TK.dtype)), do_TK)
            ds_TS = p_TS * (tl.dot(do_TK, tl.trans(v_SK)) - along_T[:, None])
            dk_SK += tl.dot(tl.trans(ds_TS.to(q_TK.dtype)), q_TK)
    dk_SK *= scale * 0.6931471805599453
    _put(dk, dk_SK, row, head, key, key < keys, dk_row, dk_head, dk_time, WIDTH)
    _put(dv, dv_SK, row, head, key, key < keys, dk_row, dk_head, dk_time, WIDTH)
