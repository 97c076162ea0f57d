"""Temperature: how soft the softmax is from which the next word is drawn.

    p_w ∝ exp(logit_w / τ)          τ → 0: always the likeliest          τ = 1: as trained          τ → ∞: any word

A small language model learns sentences of the built-in English. It then writes sentences at several temperatures.
Quality: how many sentences are made only of triples of words that are known from 60,000 sentences of the grammar. The
test is strict: fresh sentences of the grammar itself have unknown triples as well, and are told beside. Variety: how
many different pairs of words there are for each pair that is written. The tiny version has learned too little for
whole sentences: its quality is the share of triples that are known.

Shapes: T temperatures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import GREY, chart, line
from regard.claims.frame.trainings import made_once, trained_model
from regard.data.samples import english_german
from regard.models.markov import split_words

TEMPERATURES = (0.3, 0.6, 1.0, 1.5, 2.0)
LEAST = 10.0  # points between the lowest and the highest temperature
AGAINST = 3.0  # points that a step may go the other way

ABOUT = About(
    text="The temperature of the softmax trades quality for variety: lower, and text is more regular; higher, and it "
    "is more varied.",
    decks=("004",),
    group="text",
    measures="sentences that a small language model writes at several temperatures: the share with no triple of words "
    "that is unknown from 60,000 sentences of the grammar, and different pairs of words for each pair written.",
    threshold=f"from the lowest temperature to the highest, quality falls and variety rises by at least {LEAST:.0f} "
    f"points, and no step between goes the other way by more than {AGAINST:.0f}.",
    figures={
        "quality_low": f"sentences without an unknown triple, %, τ = {TEMPERATURES[0]}",
        "quality_one": "the same, τ = 1",
        "quality_high": f"the same, τ = {TEMPERATURES[-1]}",
        "variety_low": f"different pairs for 100 pairs, τ = {TEMPERATURES[0]}",
        "variety_one": "the same, τ = 1",
        "variety_high": f"the same, τ = {TEMPERATURES[-1]}",
        "of_grammar": "sentences without an unknown triple, %, of the grammar itself",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    learned, reference, written, steps = budget.choose(
        tiny=(500, 3000, 40, 40), normal=(8000, 60_000, 200, 300), full=(31_000, 300_000, 1000, 2000)
    )
    english = [english for english, _ in english_german.pairs(learned, seed=seed)]
    folder = made_once(budget, f"english-{learned}-{seed}", lambda: {"text.txt": "\n".join(english) + "\n"})
    model = trained_model(budget, "shakespeare-cpu", *settings(f"{folder.resolve()}/text.txt", steps), seed=seed)
    known = {triple for text, _ in islice(english_german.sentences(1000 + seed), reference) for triple in runs(text, 3)}
    quality = budget.choose(tiny=known_triples, normal=regular)
    quality_T, variety_T = [], []
    for temperature in TEMPERATURES:
        texts = model.generate("\n", samples=written, stop=["\n"], seed=seed, temperature=temperature, max_tokens=24)
        quality_T.append(quality(texts, known))
        pairs = [pair for text in texts for pair in runs(text, 2)]
        variety_T.append(100 * len(set(pairs)) / max(len(pairs), 1))
    fresh = [text for text, _ in islice(english_german.sentences(2000 + seed), written)]
    one = TEMPERATURES.index(1.0)
    return {
        **{f"quality_{name}": quality_T[place] for name, place in (("low", 0), ("one", one), ("high", -1))},
        **{f"variety_{name}": variety_T[place] for name, place in (("low", 0), ("one", one), ("high", -1))},
        "of_grammar": quality(fresh, known),
        "quality": quality_T,
        "variety": variety_T,
    }


def settings(text: str, steps: int) -> list[str]:
    return [
        f'data.text="{text}"',
        'tokenizer.kind="word"',
        "tokenizer.vocabulary=2000",
        "model.layers=2",
        "model.width=48",
        "model.feedforward=96",
        "training.tokens_per_batch=1024",
        "training.row_length=32",
        f"training.steps={steps}",
        f"training.warmup={steps // 10}",
        f"training.validate_every={steps}",
    ]


def runs(text: str, length: int) -> Iterator[tuple[str, ...]]:
    """All runs of so many words in a sentence, which is closed on both sides."""
    words = ["<start>", *split_words(text.strip()), "<end>"]
    return zip(*(words[first:] for first in range(length)), strict=False)


def regular(texts: Sequence[str], known: set[tuple[str, ...]]) -> float:
    """The share of texts all of whose triples are known, in %."""
    return 100 * float(np.mean([known.issuperset(runs(text, 3)) for text in texts]))


def known_triples(texts: Sequence[str], known: set[tuple[str, ...]]) -> float:
    """The share of triples that are known, in %."""
    return 100 * float(np.mean([triple in known for text in texts for triple in runs(text, 3)]))


def verdict(measured: Measured) -> Verdict:
    quality_T, variety_T = measured.curve("quality"), measured.curve("variety")
    told = (
        f"From τ = {TEMPERATURES[0]} over 1 to {TEMPERATURES[-1]}, {quality_T[0]:.0f}, "
        f"{measured.mean('quality_one'):.0f} and {quality_T[-1]:.0f} % of the sentences have no unknown triple (of "
        f"the grammar's own {measured.mean('of_grammar'):.0f} %), and of 100 pairs of words {variety_T[0]:.0f}, "
        f"{measured.mean('variety_one'):.0f} and {variety_T[-1]:.0f} are different ones."
    )
    falls = quality_T[0] - quality_T[-1] >= LEAST and np.diff(quality_T).max() <= AGAINST
    rises = variety_T[-1] - variety_T[0] >= LEAST and np.diff(variety_T).min() >= -AGAINST
    if falls and rises:
        return holds(told)
    return depends("which of the two is meant", told) if falls or rises else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "temperature τ", "%")
    line(axis, TEMPERATURES, measured["quality"], "quality: sentences without an unknown triple", 0)
    line(axis, TEMPERATURES, measured["variety"], "variety: different pairs of words / pairs written", 1)
    axis.axhline(measured.mean("of_grammar"), color=GREY, linestyle=":", label="quality of the grammar's own sentences")
    axis.set_ylim(0, 130)
    axis.set_yticks(range(0, 101, 20))
    axis.legend(loc="upper center", fontsize=8)
    return figure
