"""Random numbers that are a pure function of a key, and keys that are one of (seed, epoch, sample).

A key is 64 bits. The n-th number of a key is the upper bits of scramble(key + n · golden), which is the generator
splitmix64 (Steele et al., 2014); it needs no state, so that a sample is changed in the same way on any device, in any
batch and after any restart.

Shapes: B samples · N numbers of a sample
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bits = TypeVar("Bits", NDArray[np.int64], Tensor)


def sample_keys(seed: int, epochs_B: NDArray[np.int64], samples_B: NDArray[np.int64]) -> NDArray[np.int64]:
    """A key of 64 bits for each (seed, epoch, sample): [B]."""
    keys_B = np.full(samples_B.shape, seed % 2**64, np.uint64).view(np.int64)
    keys_B = scramble(keys_B + GOLDEN)
    keys_B = scramble(keys_B + epochs_B)
    return scramble(keys_B + samples_B)


def uniforms(keys_B: Tensor, count: int, first: int = 0) -> Tensor:
    """`count` random numbers of each key, from its `first` on, each from 0 up to but not 1: float32 [N, B].

    The n-th is the upper 24 bits of scramble(key + n · golden): the generator splitmix64 (Steele et al., 2014).
    """
    n_N1 = torch.arange(first + 1, first + count + 1, device=keys_B.device)[:, None]
    return shift_right(scramble(keys_B + n_N1 * GOLDEN), 40).float() * 2**-24


def whole(uniform_B: Tensor, below: int | Tensor) -> Tensor:
    """Whole numbers from 0 up to but not `below`, all alike: int64 [B]."""
    # No number is above 1 − 2⁻²⁴, so the product never rounds up to `below`.
    return (uniform_B * below).long()


def scramble(bits: Bits) -> Bits:
    """Every bit of the result depends on every bit given, and no two results are the same; wraps at 64 bits."""
    bits = (bits ^ shift_right(bits, 30)) * FIRST_FACTOR
    bits = (bits ^ shift_right(bits, 27)) * SECOND_FACTOR
    return bits ^ shift_right(bits, 31)


def shift_right(bits: Bits, places: int) -> Bits:
    """Zeros come in from the left, where `>>` brings in the sign."""
    return (bits >> places) & (2 ** (64 - places) - 1)


def signed(bits: int) -> int:
    """The number that the same 64 bits stand for in an int64."""
    return bits - 2**64 if bits >= 2**63 else bits


GOLDEN = signed(0x9E3779B97F4A7C15)
FIRST_FACTOR = signed(0xBF58476D1CE4E5B9)
SECOND_FACTOR = signed(0x94D049BB133111EB)
