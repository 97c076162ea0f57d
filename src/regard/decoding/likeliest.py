"""What beam search and greedy decoding ask of logits, on a GPU, in one pass over them.

Every row is gone over in the same order wherever it lies in memory, so a row's numbers do not depend on the others.

Shapes: N rows · W words · P parts of a row · X chunks of words
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def likeliest(logits_NW: Tensor) -> tuple[Tensor, Tensor]:
    """The probability of the likeliest word, and the word: [N] each."""
    p_N = torch.empty(len(logits_NW), device=logits_NW.device)
    word_N = torch.empty(len(logits_NW), dtype=torch.long, device=logits_NW.device)
    _likeliest[(len(logits_NW),)](
        logits_NW, p_N, word_N, logits_NW.stride(0), logits_NW.shape[1], BLOCK=BLOCK, num_warps=16
    )
    return p_N, word_N


def totals_and_chunks(logits_NW: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """log Σ exp of every row, [N]; and the largest of every whole chunk of so many words, [N, X]."""
    rows, words = logits_NW.shape
    parts = triton.cdiv(words, BLOCK)
    largest_NP, total_NP = logits_NW.new_empty(2, rows, parts, dtype=torch.float32)
    chunks_NX = logits_NW.new_empty(rows, words // chunk, dtype=torch.float32)
    _parts[(rows, parts)](
        logits_NW,
        largest_NP,
        total_NP,
        chunks_NX,
        logits_NW.stride(0),
        words,
        parts,
        words // chunk,
        CHUNK=chunk,
        BLOCK=BLOCK,
        num_warps=8,
    )
    log_total_N = logits_NW.new_empty(rows, dtype=torch.float32)
    _join[(rows,)](largest_NP, total_NP, log_total_N, parts, BLOCK=triton.next_power_of_2(parts), num_warps=1)
    return log_total_N, chunks_NX


@triton.jit
def _likeliest(logits_ptr, p_ptr, word_ptr, stride, words, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    # Every lane goes over its own words; the first of equal ones counts.
    largest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    best = tl.zeros((BLOCK,), dtype=tl.int32)
    for begin in range(0, words, BLOCK):
        word = begin + place
        x = tl.load(logits_ptr + row * stride + word, mask=word < words, other=float("-inf"))
        new = tl.maximum(largest, x)
        base = tl.where(new > float("-inf"), new, 0.0)
        total = total * tl.exp(largest - base) + tl.exp(x - base)
        best = tl.where(x > largest, word, best)
        largest = new
    top = tl.max(largest, axis=0)
    sums = tl.sum(total * tl.exp(largest - top), axis=0)
    tl.store(p_ptr + row, 1.0 / sums)
    tl.store(word_ptr + row, tl.min(tl.where(largest == top, best, words), axis=0).to(tl.int64))


@triton.jit
def _parts(
    logits_ptr,
    largest_ptr,
    total_ptr,
    chunks_ptr,
    stride,
    words,
    parts,
    chunks,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    word = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * stride + word, mask=word < words, other=float("-inf"))
    of_chunks = tl.max(tl.reshape(x, (BLOCK // CHUNK, CHUNK)), axis=1)
    number = part * (BLOCK // CHUNK) + tl.arange(0, BLOCK // CHUNK)
    tl.store(chunks_ptr + row * chunks + number, of_chunks, mask=number < chunks)
    largest = tl.max(x, axis=0)
    base = tl.where(largest > float("-inf"), largest, 0.0)
    tl.store(largest_ptr + row * parts + part, base)
    tl.store(total_ptr + row * parts + part, tl.sum(tl.exp(x - base), axis=0))


@triton.jit
def _join(largest_ptr, total_ptr, log_total_ptr, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, BLOCK)
    largest = tl.load(largest_ptr + row * parts + part, mask=part < parts, other=float("-inf"))
    total = tl.load(total_ptr + row * parts + part, mask=part < parts, other=0.0)
    top = tl.max(largest, axis=0)
    tl.store(log_total_ptr + row, top + tl.log(tl.sum(total * tl.exp(largest - top), axis=0)))
