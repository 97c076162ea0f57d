"""Candidates: the model's candidates at each position, the likeliest first."""

from __future__ import annotations

from matplotlib.figure import Figure

from regard.explain.bars import draw_bars
from regard.explain.heat_maps import answer_labels, draw_cells, what_answers_are
from regard.explain.sheet import label
from regard.explain.shown import Shown
from regard.explain.view import View

MOST_ANSWERS = 32  # drawn: of more, the last


def candidates(view: View) -> Shown:
    found = view.trace.candidates(view.choice.count, view.choice.temperature)
    p_AK, words = found.probabilities.values, found.probabilities.notes["words"]
    chosen = range(len(p_AK))
    remarks = []
    if view.choice.temperature != 1.0:
        remarks.append(f"at temperature {view.choice.temperature:g}")
    if "over" in found.probabilities.notes:
        remarks.append(f"probabilities are over {found.probabilities.notes['over']}")
    if view.subject.independent:
        remarks.append("each class has its own sigmoid: probabilities do not sum to 1")
    if view.choice.answer is not None:
        chosen = range(view.answer(), view.answer() + 1)
    elif len(chosen) > MOST_ANSWERS:
        chosen = chosen[-MOST_ANSWERS:]
        remarks.append(f"drawn: the last {MOST_ANSWERS} of {len(p_AK)} places")

    def draw() -> Figure:
        if len(chosen) == 1:  # bars are easier to compare
            [a] = chosen
            return draw_bars([label(word) for word in words[a]], p_AK[a].tolist(), "probability")
        names = answer_labels(view.subject)
        cells = [[f"{label(words[a][k])} {percent(p_AK[a, k])}" for a in chosen] for k in range(p_AK.shape[1])]
        return draw_cells(
            p_AK[chosen.start : chosen.stop].T,
            cells,
            found.probabilities.labels[1],
            [names[a] for a in chosen],
            "probability",
            ("rank", what_answers_are(view.subject, chosen)),
            each_row=8,
        )

    arrays = [found.probabilities, found.logits, found.rank, found.said]
    return Shown("Candidates at each position, the likeliest first", arrays, draw, remarks)


def percent(p: float) -> str:
    """Whole, but below 1 % of two digits."""
    if p == 0 or p >= 0.00995:
        return f"{p:.0%}"
    return f"{100 * p:.2g}%" if p >= 1e-6 else "<0.0001%"
