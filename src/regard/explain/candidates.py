"""Candidates: the model's candidates at each position, the likeliest first."""

from __future__ import annotations

from matplotlib.figure import Figure

from regard.explain.bars import draw_bars
from regard.explain.explanation import Explanation
from regard.explain.heat_maps import answer_labels, draw_cells, drawn_answers, source_of_answers
from regard.explain.sheet import label
from regard.explain.view import View

MOST_ANSWERS = 32  # drawn


def candidates(view: View) -> Explanation:
    listed = view.trace.candidates(view.choice.count, view.choice.temperature)
    p_AK, notes = listed.probabilities.values, listed.probabilities.notes
    words = notes["words"]
    chosen, left_out = drawn_answers(view, MOST_ANSWERS, "positions")
    remarks = []
    if view.choice.temperature != 1.0:
        remarks.append(f"at temperature {view.choice.temperature:g}")
    if "over" in notes:
        remarks.append(f"probabilities are over {notes['over']}")
    if view.subject.independent:
        remarks.append("each class has its own sigmoid: probabilities do not sum to 1")
    remarks += left_out

    def draw() -> Figure:
        if len(chosen) == 1:  # bars compare better than colours
            [a] = chosen
            return draw_bars([label(word) for word in words[a]], p_AK[a].tolist(), "probability")
        names = answer_labels(view.subject)
        cells = [[f"{label(words[a][k])} {percent(p_AK[a, k])}" for a in chosen] for k in range(p_AK.shape[1])]
        return draw_cells(
            p_AK[chosen.start : chosen.stop].T,
            cells,
            listed.probabilities.labels[1],
            [names[a] for a in chosen],
            "probability",
            ("rank", source_of_answers(view.subject, chosen)),
            each_row=8,
        )

    arrays = [listed.probabilities, listed.logits, listed.rank, listed.answer]
    return Explanation("Candidates at each position, the likeliest first", arrays, draw, remarks)


def percent(p: float) -> str:
    """An integer, or two significant digits below 1 %."""
    if p == 0 or p >= 0.00995:
        return f"{p:.0%}"
    return f"{100 * p:.2g}%" if p >= 1e-6 else "<0.0001%"
