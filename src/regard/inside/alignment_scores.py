"""The alignment error rate of a translator, for every layer and reading, beside what counting words finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.pairs import Pair
from regard.evaluation.alignment import AlignmentScore, read_gold, score_alignment
from regard.evaluation.metrics import Evaluation, Score
from regard.inside.alignment import Way, align_pairs, choose, train_ibm1
from regard.tables import text_table

SIGNATURE = "links of cross-attention · S sure ⊆ P possible · over the corpus"


def evaluate_alignment(task: Any, pairs: Sequence[Pair], links: Path, first: int, swapped: bool) -> Evaluation:
    """The scores are those of the best layer and reading, the mean of its heads."""
    gold = read_gold(links, [(len(source.split()), len(target.split())) for source, target in pairs], first, swapped)
    aligned = align_pairs(task, pairs, heads=True)
    scores = {way: score_alignment([each.links[way] for each in aligned], gold) for way in aligned[0].links}
    means = {way: score for way, score in scores.items() if way.head is None}
    best = min(means, key=lambda way: means[way].aer)
    best_head = min(scores, key=lambda way: scores[way].aer)
    chosen = choose(task)
    counting = train_ibm1(task)
    counted = None
    if counting is not None:
        counted = score_alignment([counting.align(each.source, each.target) for each in aligned], gold)
    details: dict[str, Any] = {
        "ways": [way.to_json() | score.to_json() for way, score in scores.items()],
        "best": best.to_json(),
        "best_head": best_head.to_json() | scores[best_head].to_json(),
        "chosen": chosen.way.to_json() | scores[chosen.way].to_json() | {"criterion": chosen.criterion},
        "ibm1": None if counting is None or counted is None else counted.to_json() | {"pairs": counting.pairs},
    }
    notes = ["", _table(scores, best)]
    notes += ["", f"best             {best}", f"best of all heads  {best_head}: AER {scores[best_head].aer:.2f}"]
    notes.append(f"without links      {chosen.way}: AER {scores[chosen.way].aer:.2f} ({chosen.criterion})")
    if counting is None or counted is None:
        notes.append("IBM Model 1        not compared: the run's training data is not at hand")
    else:
        notes.append(
            f"IBM Model 1        AER {counted.aer:.2f}, precision {counted.precision:.2f}, recall {counted.recall:.2f} "
            f"(trained on {counting.pairs:,} pairs of the run's training data)"
        )
    found = means[best]
    values = {"aer": found.aer, "precision": found.precision, "recall": found.recall}
    return Evaluation(
        [Score(name, value, None, SIGNATURE) for name, value in values.items()],
        len(pairs),
        task.unit,
        details=details,
        notes=notes,
    )


def _table(scores: dict[Way, AlignmentScore], best: Way) -> str:
    """Layers and readings; of heads, the best of each."""
    rows = []
    for way, score in scores.items():
        if way.head is not None:
            continue
        heads = {each: scores[each] for each in scores if each.head is not None and _same(each, way)}
        head = min(heads, key=lambda each: heads[each].aer)
        numbers = [f"{value:.2f}" for value in (score.aer, score.precision, score.recall)]
        mark = "best" if way == best else ""
        rows.append([str(way.layer + 1), way.reading, *numbers, f"{(head.head or 0) + 1}: {heads[head].aer:.2f}", mark])
    return text_table(["layer", "step that", "AER", "precision", "recall", "best head", ""], rows, "><>>>><")


def _same(one: Way, other: Way) -> bool:
    return (one.layer, one.reading) == (other.layer, other.reading)
