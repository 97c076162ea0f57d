"""A survey of sentence pairs: what is in them, and what may be wrong with them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import Pair
from regard.data.tokenizers import TextTokenizer

UNEQUAL = 3.0  # one side has over three times the words of the other, and ten more
CHUNK = 10_000


@dataclass(frozen=True)
class Survey:
    """Counts over one split. Lengths are in tokens, without <end>."""

    pairs: int
    empty: int  # a side without text
    duplicates: int  # pairs that stand earlier in the same split, word for word
    unequal: int
    source_lengths: dict[str, float]
    target_lengths: dict[str, float]
    too_long: int
    spelled_out: float  # share of tokens that are bytes standing in for something not in the vocabulary

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def survey(
    pairs: Iterable[Pair], tokenizers: tuple[TextTokenizer, TextTokenizer], max_length: int
) -> tuple[Survey, NDArray[np.uint64], NDArray[np.uint64]]:
    """Count; also return a 64-bit hash of every pair and of every source sentence, to compare splits."""
    pair_hashes: list[int] = []
    source_hashes: list[int] = []
    lengths: tuple[list[int], list[int]] = ([], [])
    empty = unequal = too_long = tokens = spelled = count = 0
    chunk: list[Pair] = []

    def digest() -> None:
        nonlocal too_long, tokens, spelled
        sides = [tokenizer.encode([pair[side] for pair in chunk]) for side, tokenizer in enumerate(tokenizers)]
        for side, tokenizer in enumerate(tokenizers):
            lengths[side].extend(map(len, sides[side]))
            tokens += sum(map(len, sides[side]))
            spelled += sum(map(tokenizer.spelled_out, sides[side]))
        too_long += sum(max(len(s), len(t)) >= max_length for s, t in zip(*sides, strict=True))
        chunk.clear()

    for source, target in pairs:
        count += 1
        if not source.strip() or not target.strip():
            empty += 1
            continue
        pair_hashes.append(_hash(f"{source}\t{target}"))
        source_hashes.append(_hash(source))
        short, long = sorted((len(source.split()), len(target.split())))
        unequal += long > UNEQUAL * short and long - short > 10
        chunk.append((source, target))
        if len(chunk) == CHUNK:
            digest()
    digest()
    hashes = np.array(pair_hashes, np.uint64)
    result = Survey(
        pairs=count,
        empty=empty,
        duplicates=len(hashes) - len(np.unique(hashes)),
        unequal=unequal,
        source_lengths=_spread(lengths[0]),
        target_lengths=_spread(lengths[1]),
        too_long=too_long,
        spelled_out=spelled / max(tokens, 1),
    )
    return result, hashes, np.array(source_hashes, np.uint64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _spread(lengths: list[int]) -> dict[str, float]:
    if not lengths:
        return {}
    values = np.array(lengths)
    return {
        "mean": round(float(values.mean()), 2),
        "median": float(np.median(values)),
        "99%": float(np.percentile(values, 99)),
        "longest": int(values.max()),
    }
