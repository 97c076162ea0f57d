"""English sentences with their German translations, as many as you like, made from a small grammar.

This is the corpus that `regard demo` learns to translate. The words are in lexicon.py, the rules of both
languages in grammar.py, and speaker.py decides what to say.

    python -m regard.data.samples.english_german --count 10
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.data.samples.grammar import Pair
from regard.data.samples.speaker import Speaker

SHORTEST, LONGEST = 3, 15  # words in a sentence, in either language


@dataclass(frozen=True)
class Corpus:
    """Pairs (English, German); no sentence of either language is in two of the three lists."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def corpus(seed: int = 1, train: int = 31_000, valid: int = 1_000, test: int = 1_000) -> Corpus:
    everything = pairs(train + valid + test, seed)
    return Corpus(everything[:train], everything[train : train + valid], everything[train + valid :])


def pairs(count: int, seed: int = 1) -> list[Pair]:
    """`count` pairs in which no English and no German sentence comes twice."""
    found: list[Pair] = []
    seen_english: set[str] = set()
    seen_german: set[str] = set()
    for english, german in sentences(seed):
        if len(found) == count:
            break
        if english not in seen_english and german not in seen_german:
            seen_english.add(english)
            seen_german.add(german)
            found.append((english, german))
    return found


def sentences(seed: int = 1) -> Iterator[Pair]:
    """Endless pairs; the same ones may come again."""
    rng = random.Random(seed)
    while True:
        english, german = Speaker(rng).sentence()
        lengths = len(english.split()), len(german.split())
        if min(lengths) >= SHORTEST and max(lengths) <= LONGEST:
            yield english, german


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print English sentences with their German translations.")
    parser.add_argument("--count", type=int, default=10, help="how many pairs (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other sentences (default: 1)")
    options = parser.parse_args(arguments)
    for english, german in pairs(options.count, options.seed):
        print(f"{english}\t{german}")


if __name__ == "__main__":
    main()
