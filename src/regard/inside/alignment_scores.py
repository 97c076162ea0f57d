"""The alignment error rate of a translator, for every layer, reading and head, compared with IBM Model 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.pairs import Pair
from regard.evaluation.alignment import AlignmentScore, read_gold, score_alignment
from regard.evaluation.metrics import Evaluation, Score
from regard.inside.alignment import Way
from regard.inside.alignment_choice import align_pairs, choose, train_ibm2
from regard.tables import text_table

SIGNATURE = "links of cross-attention · S sure ⊆ P possible · over the corpus"


def evaluate_alignment(task: Any, pairs: Sequence[Pair], links: Path, first: int, swapped: bool) -> Evaluation:
    """The scores of the layer, reading and head that were chosen without these links; the notes have all others."""
    gold = read_gold(links, [(len(source.split()), len(target.split())) for source, target in pairs], first, swapped)
    aligned = align_pairs(task, pairs)
    scores = {way: score_alignment([pair.links[way] for pair in aligned], gold) for way in aligned[0].links}
    best = min(scores, key=lambda way: scores[way].aer)
    choice = choose(task)
    chosen = scores[choice.way]
    ibm2 = train_ibm2(task)
    ibm2_score = None
    if ibm2 is not None:
        ibm2_score = score_alignment([ibm2.forth.align(pair.source, pair.target) for pair in aligned], gold)
    details: dict[str, Any] = {
        "ways": [way.to_json() | score.to_json() for way, score in scores.items()],
        "best": best.to_json() | scores[best].to_json(),
        "chosen": choice.way.to_json() | chosen.to_json() | {"criterion": choice.criterion},
        "ibm2": None if ibm2 is None or ibm2_score is None else ibm2_score.to_json() | {"pairs": ibm2.pairs},
    }
    notes = ["", _table(scores, choice.way), ""]
    notes.append(f"scored             {choice.way} ({choice.criterion})")
    notes.append(f"best by the links  {best}: AER {scores[best].aer:.2f}")
    if ibm2 is None or ibm2_score is None:
        notes.append("IBM Model 2        not compared: the run's training data is not available")
    else:
        notes.append(
            f"IBM Model 2        AER {ibm2_score.aer:.2f}, precision {ibm2_score.precision:.2f}, "
            f"recall {ibm2_score.recall:.2f} (trained on {ibm2.pairs:,} pairs of the run's training data)"
        )
    values = {"aer": chosen.aer, "precision": chosen.precision, "recall": chosen.recall}
    return Evaluation(
        [Score(name, value, None, SIGNATURE) for name, value in values.items()],
        len(pairs),
        task.unit,
        details=details,
        notes=notes,
    )


def _table(scores: dict[Way, AlignmentScore], chosen: Way) -> str:
    """A row for each layer and reading: the mean of heads, and the best head."""
    rows = []
    for way, score in scores.items():
        if way.head is not None:
            continue
        heads = {head: scores[head] for head in scores if head.head is not None and _same_row(head, way)}
        best = min(heads, key=lambda head: heads[head].aer, default=None)
        numbers = [f"{value:.2f}" for value in (score.aer, score.precision, score.recall)]
        best_head = "" if best is None else f"{(best.head or 0) + 1}: {heads[best].aer:.2f}"
        rows.append([str(way.layer + 1), way.reading, *numbers, best_head, "chosen" if _same_row(way, chosen) else ""])
    return text_table(["layer", "step that", "AER", "precision", "recall", "best head", ""], rows, "><>>>><")


def _same_row(a: Way, b: Way) -> bool:
    return (a.layer, a.reading) == (b.layer, b.reading)
