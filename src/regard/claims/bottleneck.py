"""The bottleneck of an encoder-decoder: all of a sentence must pass through one vector, unless there is attention.

    without    s_0 = tanh(W · ends of the sentence)      all that the decoder ever gets to see of the source
    with       c_i = Σ_j α_ij h_j                        before every word, whatever it needs of all states

A vector has room for a few words and not for many, so the share of words that come out right should fall with the
length of the sentence without attention, and should not with it. Sentences of real language have lengths and
difficulties that go together. So these are lists of nouns, to be translated word by word: a longer one is not harder,
there is only more of it to remember. The model is a GRU encoder-decoder; the only difference is `model.cross`.

The first trial was on the sentences of the demo, with one seed: without attention 400 steps came to 9 BLEU, 9 for the
shortest sentences and 6 for the longest, against 71 with Bahdanau's attention. A model that has not learned short
sentences cannot lose long ones, so lists took their place; thresholds were set after a first look at them.

That the model has learned to translate is asked of single words. At first it was asked of one and two words: without
attention, the second word is already the worse one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import chart, line
from regard.claims.frame.trainings import made_once, trained_model
from regard.data.samples.lexicon import NOUNS

CROSS = {"none": "one vector", "additive": "attention to all states"}
LEARNED, LOST, KEPT = 0.8, 0.5, 0.8

ABOUT = About(
    text="An encoder that must squeeze a sentence into one vector loses long sentences; attention does not.",
    decks=("000", "002", "003"),
    group="recurrence",
    measures="the share of words that a small GRU encoder-decoder translates right at their place, in lists of 1 to "
    "12 nouns, when only the encoder's last states pass, and with attention to all of them.",
    threshold=f"of single words both models have at least {LEARNED:.0%} right; of the longest three lengths less "
    f"than {LOST:.0%} without attention, and at least {KEPT:.0%} with it.",
    figures={
        "none_long": "share of words right in the longest lists, one vector",
        "none_short": "share of single words right, one vector",
        "additive_long": "share of words right in the longest lists, attention",
        "additive_short": "share of single words right, attention",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int, cross: Mapping[str, str] | None = None) -> Mapping[str, ArrayLike]:
    """`cross`: what stands for each of the two; a test has others."""
    longest, nouns, steps, width, tokens = budget.choose(
        tiny=(6, 6, 120, 32, 128), normal=(12, 20, 300, 64, 512), full=(30, 60, 3000, 128, 2048)
    )
    folder = made_once(budget, f"lists-{longest}", lambda: files(longest, nouns)).resolve()
    right = {}
    for name in CROSS:
        model = trained_model(
            budget,
            "demo",
            'data.sample=""',
            *(f'data.{split}=["{folder / split}.tsv"]' for split in ("train", "valid", "test")),
            "model.layers=1",
            f"model.width={width}",
            "model.feedforward=0",
            'model.mixer="gru"',
            f'model.cross="{(cross or {}).get(name, name)}"',
            f"training.steps={steps}",
            f"training.warmup={steps // 10}",
            f"training.validate_every={steps}",
            "training.validate_bleu=false",
            f"training.tokens_per_batch={tokens}",
            "training.row_length=32",
            "training.learning_rate=0.006",
            "training.label_smoothing=0.0",
            "decoding.beam=1",
            seed=seed,
        )
        pairs = [line.split("\t") for line in Path(folder / "every-length.tsv").read_text().splitlines()]
        outputs = [each.split() for each in model.translate([source for source, _ in pairs])]
        references = [target.split() for _, target in pairs]
        right[name] = by_length(references, outputs, longest)
    return {
        **{f"{name}_short": right[name][0] for name in CROSS},
        **{f"{name}_long": float(np.mean(right[name][-3:])) for name in CROSS},
        "right": [right[name] for name in CROSS],
    }


def files(longest: int, nouns: int) -> dict[str, str]:
    rng = random.Random(1)
    anything = [make_pair(rng, nouns, rng.randint(1, longest)) for _ in range(4040)]
    every_length = [make_pair(rng, nouns, length) for length in range(1, longest + 1) for _ in range(20)]
    splits = {"train": anything[40:], "valid": anything[:20], "test": anything[20:40], "every-length": every_length}
    return {f"{name}.tsv": "".join(pairs) for name, pairs in splits.items()}


def make_pair(rng: random.Random, nouns: int, length: int) -> str:
    said = rng.choices(NOUNS[:nouns], k=length)
    return " ".join(noun.english for noun in said) + "\t" + " ".join(noun.german for noun in said) + "\n"


def by_length(references: list[list[str]], outputs: list[list[str]], longest: int) -> list[float]:
    """The share of words that are right at their place, for each length from 1 on."""
    shares: list[list[float]] = [[] for _ in range(longest)]
    for reference, output in zip(references, outputs, strict=True):
        right = sum(word == other for word, other in zip(reference, output, strict=False))
        shares[len(reference) - 1].append(right / len(reference))
    return [float(np.mean(each)) for each in shares]


def verdict(measured: Measured) -> Verdict:
    short, long = ({name: measured.mean(f"{name}_{which}") for name in CROSS} for which in ("short", "long"))
    told = (
        f"Of the words of the longest lists, {long['none']:.0%} are right when one vector passes and "
        f"{long['additive']:.0%} with attention; of single words, {short['none']:.0%} and {short['additive']:.0%}."
    )
    if long["additive"] < KEPT or long["none"] >= LOST:
        return does_not_hold(told)
    if short["none"] >= LEARNED:
        return holds(told)
    return depends("training", told + " Without attention it has not learned to translate at all.")


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "words in the list", "share of words right")
    lengths = range(1, measured["right"].shape[-1] + 1)
    for place, name in enumerate(CROSS.values()):
        line(axis, lengths, measured["right"][:, place], name, place)
    axis.set_ylim(0, 1.05)
    axis.legend(loc="lower left")
    return figure
