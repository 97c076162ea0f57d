"""How the answer changes when one head, or one part, is switched off: every one in turn.

    effect = ln p(answer | off) − ln p(answer), the mean of all answers or that of one

Shapes: P parts · H heads, and the part as a whole in the last column · B of the variants · A answers
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.explain.heat_maps import draw_cells
from regard.explain.names import part_name
from regard.explain.sheet import number
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.inside.ablation import Off, ablate
from regard.inside.named import Named, named
from regard.inside.sites import PARTS, sites_of
from regard.inside.variants import log_p_of_answers

WHOLE = "all of it"


def ablation(view: View) -> Shown:
    effects = named_effects(view)
    labels = [answer.label.strip() for answer in view.subject.answers]
    one = len(labels) == 1 or view.choice.answer is not None
    remark = (f"change of ln p of '{labels[view.answer()]}'" if one else "mean over all answers") + ", in nats"
    worst = np.unravel_index(np.nanargmin(effects.values), effects.values.shape)
    part, head = (axis[number] for axis, number in zip(effects.labels, worst, strict=True))
    strongest = f"{part}, {'head ' + head if head != WHOLE else WHOLE}"
    drop = float(np.nanmin(effects.values))
    if drop < 0:
        remark += f"; largest drop: {strongest}, −{-drop:.3f}"
    return Shown(
        "Ablation: change of the log-probability of the answer with a head or part switched off",
        [effects],
        lambda: _draw(effects),
        [remark],
    )


def named_effects(view: View) -> Named:
    """Of every part and head: [P, H + 1]; NaN where there is no such head."""
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
    rest = iter(change[len(parts) :])
    for row, part in enumerate(parts):
        effects[row, : heads[part]] = [next(rest) for _ in range(heads[part])]
    columns = [*(str(head + 1) for head in range(most)), WHOLE]
    axes = [("part", [part_name(view.trace, part) for part in parts]), ("head", columns)]
    return named("change of log-probability", effects, axes, "nats", answer=chosen, by="zero")


def _draw(effects: Named) -> Figure:
    words = [[number(value, "+") for value in row] for row in effects.values]
    heads = [name if name == WHOLE else f"head {name}" for name in effects.labels[1]]
    largest = float(np.nanmax(np.abs(effects.values))) or 1.0
    change = "change of the log-probability, in nats"
    return draw_cells(
        effects.values, words, effects.labels[0], heads, change, ("switched off", ""), largest, signed=True
    )
