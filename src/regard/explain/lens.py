"""The logit lens as a table: the prediction after each layer, coloured by its probability."""

from __future__ import annotations

from matplotlib.figure import Figure

from regard.explain.explanation import Explanation
from regard.explain.heat_maps import answer_labels, draw_cells, drawn_answers, source_of_answers
from regard.explain.sheet import label
from regard.explain.view import View
from regard.inside.lens import Lens
from regard.inside.named import Named
from regard.inside.subject import Subject

MOST_ANSWERS = 56  # drawn


def lens(view: View) -> Explanation:
    by_layer = view.trace.lens()
    chosen, remarks = drawn_answers(view, MOST_ANSWERS, "answers")
    remarks.append(
        f"after the last layer this is the model's own distribution: agreement {by_layer.agreement.values[-1]:.0f} %, "
        f"KL {by_layer.kl.values[-1].mean():.2f} nats"
    )
    arrays = [by_layer.likeliest, by_layer.answer, by_layer.kl, by_layer.agreement]
    return Explanation(
        "Logit lens: what the model would predict if it stopped after each layer",
        arrays,
        lambda: _draw(by_layer, chosen, view.subject),
        remarks,
    )


def _draw(by_layer: Lens, chosen: range, subject: Subject) -> Figure:
    """From the last layer at the top to the embedding at the bottom."""
    words, down = by_layer.likeliest.notes["words"], _row_labels(by_layer.agreement, by_layer.kl)
    names = answer_labels(subject)
    return draw_cells(
        by_layer.likeliest.values[::-1, chosen.start : chosen.stop],
        [[label(row[answer]) for answer in chosen] for row in words[::-1]],
        down[::-1],
        [names[answer] for answer in chosen],
        "probability of the likeliest",
        ("after layer", source_of_answers(subject, chosen)),
    )


def _row_labels(agreement: Named, kl: Named) -> list[str]:
    """Each layer with its agreement and its mean KL over all answers."""
    rows = zip(agreement.labels[0], agreement.values, kl.values.mean(1), strict=True)
    return [f"{layer}   {percent:.0f} %, KL {nats:.2f}" for layer, percent, nats in rows]
