"""One table for source, target and output words: fewer weights, and nothing lost.

    source, target    E[word] · √D
    output            logits = x Eᵀ                 E [W, D]: W words of both languages · D model width

In a small translator most weights are in tables of words, so this is most of what can be saved. A word of a table that
is shared is also trained from both sides, which may help where there is little data; or the two sides are in each
other's way.

The same translator with one table for all three, and with three tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import bars, set_title
from regard.claims.frame.trainings import metrics, trained
from regard.claims.frame.translation import RECIPE, translator
from regard.training.folder import RunFolder

TIED = "all"
FEWER, LOST = 0.75, 1.0  # of the weights; of BLEU

ABOUT = About(
    text="Source, target and output words can share one table: fewer weights, and no worse a translator.",
    decks=(),
    group="blocks",
    measures="weights, BLEU (greedy) and loss on held-out pairs, of a translator with one table for all words and with "
    "three.",
    threshold=f"the shared one has at most {FEWER:.0%} of the weights and loses at most {LOST} BLEU on average over "
    "seeds.",
    figures={
        "bleu_gain": "BLEU with one table − BLEU with three",
        "share": "weights with one table, share of those with three",
        "bleu": "BLEU with one table",
        "bleu_apart": "BLEU with three",
        "loss": "loss with one table",
        "loss_apart": "loss with three",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    runs = [
        trained(budget, RECIPE, *translator(budget), f'model.tie_embeddings="{tie}"', seed=seed)
        for tie in (TIED, "none")
    ]
    tied, apart = (metrics(run) for run in runs)
    weights, weights_apart = (RunFolder.open(run).read_json("summary.json")["parameters"] for run in runs)
    return {
        "bleu": tied["bleu"],
        "bleu_apart": apart["bleu"],
        "bleu_gain": tied["bleu"] - apart["bleu"],
        "loss": tied["loss"],
        "loss_apart": apart["loss"],
        "weights": weights,
        "weights_apart": weights_apart,
        "share": weights / weights_apart,
    }


def verdict(measured: Measured) -> Verdict:
    gain, (least, _) = measured.mean("bleu_gain"), measured.interval("bleu_gain")
    told = (
        f"One table leaves {measured.mean('weights'):,.0f} of {measured.mean('weights_apart'):,.0f} weights. BLEU is "
        f"{measured.mean('bleu'):.1f} with it and {measured.mean('bleu_apart'):.1f} with three tables "
        f"({gain:+.1f} ± {gain - least:.1f}), the loss {measured.mean('loss'):.3f} and "
        f"{measured.mean('loss_apart'):.3f}."
    )
    if measured.mean("share") > FEWER:
        return does_not_hold(told)
    if gain >= -LOST:
        return holds(told)
    return does_not_hold(f"{told} Weights are saved, but not for nothing.")


def picture(measured: Measured) -> Figure:
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    set_title(figure, ABOUT.text)
    sides = figure.subplots(1, 2)
    for axis, name, label in zip(sides, ("weights", "bleu"), ("weights", "BLEU"), strict=True):
        bars(axis, ["one table", "three tables"], [measured[name], measured[f"{name}_apart"]])
        axis.set_ylabel(label)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
