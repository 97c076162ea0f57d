"""Tokens: words, characters or bytes, and byte pairs as the compromise. All with the same compute.

                  tokens of a sentence     words never seen             entries of the vocabulary
    words         few                      spelled in bytes             all words there are
    byte pairs    few                      spelled in parts it knows    as many as you like
    characters    many                     spelled as any other         few
    bytes         many                     spelled as any other         256

A small language model learns sentences of the built-in English with tokens of each kind. What it has learned is told in
bits per byte, which means the same for all of them. Compute is the same, too: the operations of a training step are
counted, forward and backward, and whose step costs less takes more of them. Words and byte pairs have as many entries;
rare words are spelled in bytes already in training. A row is about as many bytes for all. In as many tokens, characters
and bytes read less text.

Two texts are predicted: short sentences of words that training has shown, and short sentences with forms that it has
not. For that, every other regular plural is kept out of training, which has "horse" and "dogs", never "cats".

More compute closes the gap on known words: a trial with six times as much had 0.84 bits for words and 0.88 for byte
pairs there, which is just about the threshold, and 1.73 and 1.11 with new words. The size was then cut to what two
cores do in a minute, and the sentences to short ones, where a new word weighs more. The thresholds are as they were
written first; with more compute the verdict may be another.

Shapes: K kinds of tokens · X texts, known words and new ones
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.operations import operations
from regard.claims.frame.pictures import COLOURS, chart
from regard.claims.frame.trainings import made_once, trained_model
from regard.data.samples import english_german
from regard.data.samples.lexicon import NOUNS
from regard.data.tokenizers import train_tokenizer
from regard.evaluation.compare import half_width
from regard.models.causal import Causal
from regard.models.markov import split_words
from regard.run import read_recipe
from regard.training.loss import cross_entropy

RECIPE = "shakespeare-cpu"
KINDS = {"words": "word", "byte pairs": "bpe", "characters": "character", "bytes": "byte"}
ROWS = {"word": 32, "bpe": 40, "character": 160, "byte": 160}  # tokens
ENTRIES = 500  # of a vocabulary; the 256 bytes are among them
SHORT = 6  # words of a sentence to predict
NEAR, WORSE = 1.05, 1.05  # times as many bits
TEXTS = ("known", "new")

REGULAR = [noun.english_plural for noun in NOUNS if noun.english_plural == f"{noun.english}s"]
KEPT_OUT = set(REGULAR[1::2])

ABOUT = About(
    text="Word tokens need a vast vocabulary and character tokens long sequences; byte pairs are the compromise.",
    decks=("002", "004"),
    group="text",
    measures="bits per byte of small language models of words, byte pairs, characters and bytes, each trained with the "
    "same number of operations: for sentences whose words are known, and with plurals that training never had.",
    threshold=f"on both texts byte pairs need at most {NEAR - 1:.0%} more bits than any other kind; words need at "
    f"least {WORSE - 1:.0%} more than byte pairs where words are new, characters and bytes on both texts.",
    figures={
        "new_byte_pairs": "bits per byte, new words: byte pairs",
        "new_words": "bits per byte, new words: words",
        "new_characters": "bits per byte, new words: characters",
        "known_byte_pairs": "bits per byte, known words: byte pairs",
        "known_words": "bits per byte, known words: words",
        "known_characters": "bits per byte, known words: characters",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    learned, held_out = budget.choose(tiny=(500, 60), normal=(8000, 400), full=(30_000, 1000))
    steps, *size = budget.choose(tiny=(24, 640, 32, 1), normal=(100, 960, 32, 2), full=(2000, 2560, 64, 2))
    names = list(KINDS)[: budget.choose(tiny=3, normal=4)]  # bytes do as characters do, in English
    folder = made_once(budget, f"plurals-{learned}-{seed}", lambda: texts(learned, held_out, seed)).resolve()
    changes = {name: settings(f"{folder}/train.txt", KINDS[name], *size) for name in names}
    text = (folder / "train.txt").read_text()
    cost = {name: operations_of_a_step(text, changes[name]) for name in names}
    bits_KX = []
    for name in names:
        own = round(steps * cost["words"] / cost[name])  # steps
        of_steps = (f"training.steps={own}", f"training.warmup={own // 10}", f"training.validate_every={own}")
        model = trained_model(budget, RECIPE, *changes[name], *of_steps, seed=seed)
        scores = [model.evaluate([f"{folder}/{each}.txt"]).scores for each in TEXTS]
        bits_KX.append([score.value for each in scores for score in each if score.name == "bits_per_byte"])
    measured = {
        f"{each}_{name.replace(' ', '_')}": bits
        for name, bits_X in zip(names, bits_KX, strict=True)
        for each, bits in zip(TEXTS, bits_X, strict=True)
    }
    return {**measured, "bits": bits_KX}


def texts(learned: int, held_out: int, seed: int) -> dict[str, str]:
    """To learn from, and to predict: with words that are known, and with plurals that were kept out."""
    train: list[str] = []
    test: dict[str, list[str]] = {name: [] for name in TEXTS}
    for english, _ in english_german.sentences(seed):
        words = split_words(english)
        new = not KEPT_OUT.isdisjoint(words)
        wanted = test["new" if new else "known"]
        if len(words) <= SHORT + 1 and len(wanted) < held_out:  # the full stop is one of them
            wanted.append(english)
        elif not new and len(train) < learned:
            train.append(english)
        if len(train) == learned and all(len(each) == held_out for each in test.values()):
            break
    return {f"{name}.txt": "\n".join(lines) + "\n" for name, lines in {"train": train, **test}.items()}


def settings(text: str, kind: str, tokens: int, width: int, layers: int) -> list[str]:
    return [
        f'data.text="{text}"',
        f'tokenizer.kind="{kind}"',
        f"tokenizer.vocabulary={ENTRIES}",
        f"model.layers={layers}",
        f"model.width={width}",
        f"model.feedforward={2 * width}",
        f"training.tokens_per_batch={tokens}",
        f"training.row_length={ROWS[kind]}",
    ]


def operations_of_a_step(text: str, changes: list[str]) -> float:
    """Forward and backward."""
    recipe = read_recipe(RECIPE, changes)
    entries = train_tokenizer([text], recipe.tokenizer, sentences=False).size
    model, length = Causal(recipe.model, entries), recipe.training.row_length
    tokens_BT = torch.randint(entries, (recipe.training.tokens_per_batch // length, length))
    return operations(lambda: cross_entropy(model(tokens_BT), tokens_BT).backward())


def verdict(measured: Measured) -> Verdict:
    bits_KX = measured.curve("bits")
    words_X, pairs_X, spelled_X = bits_KX[0], bits_KX[1], bits_KX[2:].min(0)
    told = "; ".join(f"{name} {known:.2f} and {new:.2f}" for name, (known, new) in zip(KINDS, bits_KX, strict=False))
    told = (
        f"Bits per byte where words are known and where some are new: {told}. Words the model has never seen cost it "
        f"{words_X[1] / words_X[0]:.2f} times the bits with word tokens, {pairs_X[1] / pairs_X[0]:.2f} with byte pairs."
    )
    better = (spelled_X >= WORSE * pairs_X).all() and words_X[1] >= WORSE * pairs_X[1]
    if not better:
        return does_not_hold(told)
    if pairs_X[0] <= NEAR * words_X[0]:
        return holds(told)
    return depends("whether words are new", f"{told} Where all words are known, words are the better tokens.")


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "", "bits per byte; the same compute")
    names = [*KINDS][: measured["bits"].shape[1]]
    for place, name in enumerate(("words are known", "some words are new")):
        bits_SK = measured["bits"][:, :, place]
        halves = [half_width(bits_S.tolist()) or 0 for bits_S in bits_SK.T]
        x_K = np.arange(len(names)) + 0.38 * (place - 0.5)
        drawn = axis.bar(x_K, bits_SK.mean(0), 0.36, yerr=halves, color=COLOURS[place], label=name, capsize=3)
        axis.bar_label(drawn, fmt="%.2f", padding=2, fontsize=8)
    axis.set_xticks(range(len(names)), names)
    axis.legend(loc="upper left")
    return figure
