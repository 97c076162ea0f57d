"""Beam search against greedy decoding: it finds likelier translations, and better ones.

    greedy   at each place the likeliest word; what was taken is never taken back
    beam K   the K likeliest beginnings go on side by side
    score    log p(target | source) / ((5 + length) / 6)^0.6

Likelier is by the model's own score, which is all that a search knows; better is by BLEU, against what a person, here a
grammar, would say. The first does not imply the second.

One trained translator, decoded with beams of several widths.

A first run had three seeds, and could not tell (BLEU +0.93 ± 2.17); two more were added, the threshold stayed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import line, set_title
from regard.claims.frame.trainings import trained_model
from regard.claims.frame.translation import RECIPE, translator
from regard.data.pairs import not_empty, pair_splits
from regard.evaluation.metrics import bleu

BEAMS = (1, 2, 4, 8)
BETTER = 0.2  # BLEU

ABOUT = About(
    text="Beam search finds likelier translations than greedy decoding, and better ones.",
    decks=("004",),
    group="text",
    measures="of the same translator with beams of 1 (greedy), 2, 4 and 8: the mean score that it gives its own "
    "translations of held-out sentences, and their BLEU.",
    threshold=f"with a beam of 4, the score rises by more than the 95 % interval over seeds, and BLEU by {BETTER} or "
    "more and by more than its interval.",
    figures={
        "bleu_gain": "BLEU with a beam of 4 − BLEU, greedy",
        "score_gain": "mean score with a beam of 4 − mean score, greedy",
        "likelier": "share of the sentences for which a beam of 4 finds a likelier translation",
        "less_likely": "share for which it finds a less likely one",
        "bleu_greedy": "BLEU, greedy",
    },
    seeds=Seeds(tiny=1, normal=5, full=5),
)


def experiment(budget: Budget, seed: int, beams: tuple[int, ...] = BEAMS) -> Mapping[str, ArrayLike]:
    run = trained_model(budget, RECIPE, *translator(budget), seed=seed)
    sources, references = zip(*not_empty(pair_splits(run.settings.data)["test"]), strict=True)
    bleus, scores = [], []
    for beam in beams[: budget.choose(tiny=3, normal=4)]:
        found = [best[0] for best in run.translator(beam=beam, length_penalty=0.6).translate(sources, best=1)]
        bleus.append(bleu([each.text for each in found], references))
        scores.append([each.score for each in found])
    scores_KN = np.array(scores)
    four = 2  # its place among the beams
    gain_N = scores_KN[four] - scores_KN[0]
    same = 1e-4  # the last digits of the same translation may differ
    return {
        "bleu_greedy": bleus[0],
        "bleu_gain": bleus[four] - bleus[0],
        "score_gain": gain_N.mean(),
        "likelier": (gain_N > same).mean(),
        "less_likely": (gain_N < -same).mean(),
        "bleus": bleus,
        "scores": scores_KN.mean(1),
    }


def verdict(measured: Measured) -> Verdict:
    gain, (least, _) = measured.mean("bleu_gain"), measured.interval("bleu_gain")
    told = (
        f"A beam of 4 finds a likelier translation for {measured.mean('likelier'):.0%} of the sentences, a less likely "
        f"one for {measured.mean('less_likely'):.0%}. BLEU goes from {measured.mean('bleu_greedy'):.1f} to "
        f"{measured.curve('bleus')[2]:.1f} ({gain:+.2f} ± {gain - least:.2f}); beams of "
        f"{', '.join(str(beam) for beam in BEAMS[1 : len(measured.curve('bleus'))])} have "
        f"{', '.join(f'{each:.1f}' for each in measured.curve('bleus')[1:])}."
    )
    if measured.interval("score_gain")[0] <= 0:
        return does_not_hold(told)
    if gain >= BETTER and least > 0:
        return holds(told)
    return depends("what is scored", f"{told} Likelier they are; that they are better is not to be told from chance.")


def picture(measured: Measured) -> Figure:
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    set_title(figure, ABOUT.text)
    labels = {"scores": "mean score of the translations (log-probability)", "bleus": "BLEU"}
    for number, (axis, name) in enumerate(zip(figure.subplots(1, 2), labels, strict=True)):
        beams = BEAMS[: measured[name].shape[-1]]
        line(axis, beams, measured[name], labels[name], number)
        axis.set_xscale("log", base=2)
        axis.set_xticks(beams, ["greedy", *map(str, beams[1:])])
        axis.set_xlabel("beam")
        axis.set_ylabel(labels[name])
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
