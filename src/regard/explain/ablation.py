"""How the log-probability of the answer changes with one head or part switched off, for each of them.

    effect = ln p(answer | off) − ln p(answer)          of one answer, or the mean over all

Shapes: P parts · H heads, and the part as a whole in the last column · B of the variants · A answers
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.explain.explanation import Explanation
from regard.explain.heat_maps import draw_cells
from regard.explain.names import part_name
from regard.explain.sheet import number
from regard.explain.view import View
from regard.inside.ablation import Off, ablate
from regard.inside.named import Named, named
from regard.inside.sites import PARTS, sites_of
from regard.inside.variants import log_p_of_answers

WHOLE = "whole part"


def ablation(view: View) -> Explanation:
    effects = named_effects(view)
    labels = [answer.label.strip() for answer in view.subject.answers]
    single = len(labels) == 1 or view.choice.answer is not None
    remark = (f"change of ln p of '{labels[view.answer()]}'" if single else "mean over all answers") + ", in nats"
    worst = np.unravel_index(np.nanargmin(effects.values), effects.values.shape)
    part, head = (labels[index] for labels, index in zip(effects.labels, worst, strict=True))
    drop = float(effects.values[worst])
    if drop < 0:
        remark += f"; largest drop: {part}, {head if head == WHOLE else f'head {head}'}, −{-drop:.3f}"
    return Explanation(
        "Ablation: change of the log-probability of the answer with a head or part switched off",
        [effects],
        lambda: _draw(effects),
        [remark],
    )


def named_effects(view: View) -> Named:
    """The effect of every head and part: [P, H + 1]; NaN where a part has no such head."""
    subject = view.subject
    sites = sites_of(subject)
    parts = [site for site in sites if site.rpartition(".")[2] in PARTS]
    heads = {part: int(getattr(sites[part], "heads", 0)) for part in parts}
    most = max(heads.values())
    offs = [Off(parts=(part,)) for part in parts]
    offs += [Off(heads=(f"{part}.{head}",)) for part in parts for head in range(heads[part])]
    chosen = None if view.choice.answer is None else view.answer()

    def read(logits_BAW: Tensor) -> Tensor:
        log_p_BA = log_p_of_answers(subject, logits_BAW)
        return log_p_BA.mean(1) if chosen is None else log_p_BA[:, chosen]

    with torch.no_grad():
        before = float(read(view.trace.logits_AW[None])[0])
        change = (ablate(subject, offs, "zero", [view.trace], read) - before).tolist()
    effects = np.full((len(parts), most + 1), np.nan, dtype=np.float32)
    effects[:, -1] = change[: len(parts)]
    of_heads = iter(change[len(parts) :])
    for row, part in enumerate(parts):
        effects[row, : heads[part]] = [next(of_heads) for _ in range(heads[part])]
    columns = [*(str(head + 1) for head in range(most)), WHOLE]
    axes = [("part", [part_name(view.trace, part) for part in parts]), ("head", columns)]
    return named("change of log-probability", effects, axes, "nats", answer=chosen, by="zero")


def _draw(effects: Named) -> Figure:
    words = [[number(value, "+") for value in row] for row in effects.values]
    heads = [name if name == WHOLE else f"head {name}" for name in effects.labels[1]]
    largest = float(np.nanmax(np.abs(effects.values))) or 1.0
    unit = "change of the log-probability, in nats"
    return draw_cells(effects.values, words, effects.labels[0], heads, unit, ("switched off", ""), largest, signed=True)
