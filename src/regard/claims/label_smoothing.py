"""Label smoothing hurts perplexity and helps BLEU.

    target = (1 − ε) · the right word + ε / W · every word          ε = 0.1 · W words in the vocabulary

A model that learns this is never sure: in the best case it gives the right word 1 − ε, and pays for that in perplexity,
which is measured on the right words alone. The paper says that translations become better by it.

The same translator, from the same random start, with and without smoothing. The tiny version copies symbols instead,
and counts those that are right instead of BLEU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame import synthetic, translation
from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import bars, set_title
from regard.claims.frame.trainings import metrics, trained

SMOOTHING = 0.1
HIGHER = 0.01  # by how much a perplexity must be higher, relative to it
BETTER = 0.5  # by how much BLEU must be

ABOUT = About(
    text="Label smoothing makes perplexity worse and BLEU better.",
    decks=(),
    group="blocks",
    measures="perplexity (of the right words, nothing smoothed) and BLEU (greedy) on held-out pairs, of a translator "
    f"trained with label smoothing {SMOOTHING} and without.",
    threshold=f"perplexity is higher by {HIGHER:.0%} or more, and BLEU by {BETTER} or more; both by more than the "
    "95 % interval over seeds.",
    figures={
        "bleu_gain": "BLEU with smoothing − BLEU without",
        "perplexity_rise": "perplexity with smoothing / perplexity without, − 1",
        "bleu": "BLEU with smoothing",
        "bleu_without": "BLEU without",
        "perplexity": "perplexity with smoothing",
        "perplexity_without": "perplexity without",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int, smoothing: float = SMOOTHING) -> Mapping[str, ArrayLike]:
    if budget.size == "tiny":  # a translator of a second learns nothing: a model that copies symbols does
        recipe, score = synthetic.RECIPE, "accuracy"
        base = synthetic.symbols("copy", vocabulary=6, half=5, rows=8, layers=1, steps=75)
        base += ["training.learning_rate=0.01"]
    else:
        recipe, score, base = translation.RECIPE, "bleu", translation.translator(budget)
    smooth, plain = (
        metrics(trained(budget, recipe, *base, f"training.label_smoothing={share}", seed=seed))
        for share in (smoothing, 0.0)
    )
    perplexity, without = (math.exp(each["loss"]) for each in (smooth, plain))
    return {
        "bleu": smooth[score],
        "bleu_without": plain[score],
        "bleu_gain": smooth[score] - plain[score],
        "perplexity": perplexity,
        "perplexity_without": without,
        "perplexity_rise": perplexity / without - 1,
    }


def verdict(measured: Measured) -> Verdict:
    gain, (least, _) = measured.mean("bleu_gain"), measured.interval("bleu_gain")
    told = (
        f"Smoothing takes perplexity from {measured.mean('perplexity_without'):.3g} to "
        f"{measured.mean('perplexity'):.3g}, and BLEU from {measured.mean('bleu_without'):.1f} to "
        f"{measured.mean('bleu'):.1f} ({gain:+.1f} ± {gain - least:.1f})."
    )
    if measured.mean("perplexity_rise") < HIGHER or measured.interval("perplexity_rise")[0] <= 0:
        return does_not_hold(told)
    if gain >= BETTER and least > 0:
        return holds(told)
    more = "The price in perplexity is plain; a gain in BLEU is not to be told from chance."
    return depends("what is scored", f"{told} {more}")


def picture(measured: Measured) -> Figure:
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    set_title(figure, ABOUT.text)
    for axis, name in zip(figure.subplots(1, 2), ("perplexity", "bleu"), strict=True):
        bars(axis, ["without", f"smoothing {SMOOTHING}"], [measured[f"{name}_without"], measured[name]])
        axis.set_ylabel({"perplexity": "perplexity on held-out pairs", "bleu": "BLEU"}[name])
        axis.spines[["top", "right"]].set_visible(False)
    return figure
