"""The logit lens as a table: what the model would say after each layer, on the colour of how sure it would be."""

from __future__ import annotations

from matplotlib.figure import Figure

from regard.explain.heat_maps import answer_labels, draw_cells, what_answers_are
from regard.explain.sheet import label
from regard.explain.shown import Shown
from regard.explain.view import View
from regard.inside.lens import Lens
from regard.inside.named import Named
from regard.inside.subject import Subject

MOST_ANSWERS = 56  # drawn: of more, the last


def lens(view: View) -> Shown:
    through = view.trace.lens()
    answers = through.likeliest.labels[1]
    chosen = range(len(answers))
    remarks = []
    if view.choice.answer is not None:
        chosen = range(view.answer(), view.answer() + 1)
    elif len(answers) > MOST_ANSWERS:
        chosen = chosen[-MOST_ANSWERS:]
        remarks.append(f"drawn: the last {MOST_ANSWERS} of {len(answers)} answers")
    remarks.append(
        f"after the last layer this is the model's own distribution: agreement {through.agreement.values[-1]:.0f} %, "
        f"KL {through.kl.values[-1].mean():.2g} nats"
    )
    arrays = [through.likeliest, through.answer, through.kl, through.agreement]
    return Shown(
        "Logit lens: what the model would predict if it stopped after each layer",
        arrays,
        lambda: _draw(through, chosen, view.subject),
        remarks,
    )


def _draw(through: Lens, chosen: range, subject: Subject) -> Figure:
    """From the last layer, above, to the embedding, below."""
    words, down = through.likeliest.notes["words"], _rows(through.agreement, through.kl)
    names = answer_labels(subject)
    return draw_cells(
        through.likeliest.values[::-1, chosen.start : chosen.stop],
        [[label(row[answer]) for answer in chosen] for row in words[::-1]],
        down[::-1],
        [names[answer] for answer in chosen],
        "probability of the likeliest",
        ("after layer", what_answers_are(subject, chosen)),
    )


def _rows(agreement: Named, kl: Named) -> list[str]:
    """How far each layer is from the answer, over all answers."""
    nats = kl.values.mean(1)
    shares = zip(agreement.labels[0], agreement.values, nats, strict=True)
    return [f"{layer}   {share:.0f} %, KL {distance:.2f}" for layer, share, distance in shares]
