"""What each head and part added to one logit, as bars that sum to it."""

from __future__ import annotations

import numpy as np

from regard.explain.bars import draw_bars
from regard.explain.explanation import Explanation
from regard.explain.names import part_name
from regard.explain.sheet import label
from regard.explain.view import View
from regard.inside.named import Named

MOST_BARS = 40
ROUNDING = 1e-3  # a larger difference of logits comes from copying


def contributions(view: View) -> Explanation:
    answer = view.answer()
    parts = view.trace.contributions(answer, view.token(answer))
    token, logit = label(parts.notes["token"]), parts.notes["logit"]
    names, values, left_out = largest(parts, [part_name(view.trace, name) for name in parts.labels[0]])
    within = "1e-6" if parts.notes["error"] <= 1e-6 else f"{parts.notes['error']:.1e}"
    p = float(view.trace.p_AW[answer, view.token(answer)])
    several = f", answer {answer + 1} of {len(view.subject.answers)}" if len(view.subject.answers) > 1 else ""
    remarks = [
        f"'{token}'{several}: logit {logit:.3f}, probability {p:.1%}; the parts sum to the logit within {within}"
    ]
    if abs(parts.notes["final_logit"] - logit) > ROUNDING:
        final = parts.notes["final_logit"]
        remarks.append(f"this is the logit of the head; with words copied from the source it is {final:.3f}")
    return Explanation(
        f"Direct logit attribution: what each part added to the logit of '{token}'",
        [parts],
        lambda: draw_bars(names, values, "added to the logit"),
        [*remarks, *left_out],
    )


def largest(parts: Named, names: list[str]) -> tuple[list[str], list[float], list[str]]:
    """Names and values in the order of the model; of many, the largest ones and the sum of the others."""
    values = parts.values.tolist()
    if len(names) <= MOST_BARS:
        return names, values, []
    drawn = sorted(np.argsort(-np.abs(parts.values))[: MOST_BARS - 1].tolist())
    others = sum(values) - sum(values[n] for n in drawn)
    remark = f"drawn: the {len(drawn)} largest of {len(names)}, and the sum of the others"
    bars = [*(names[n] for n in drawn), f"{len(names) - len(drawn)} others"]
    return bars, [*(values[n] for n in drawn), others], [remark]
