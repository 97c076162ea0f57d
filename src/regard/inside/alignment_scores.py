"""The alignment error rate of a translator, for every layer and reading, beside what counting words finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.pairs import Pair
from regard.evaluation.alignment import AlignmentScore, read_gold, score_alignment
from regard.evaluation.metrics import Evaluation, Score
from regard.inside.alignment import Way
from regard.inside.alignment_choice import align_pairs, choose, count_words
from regard.tables import text_table

SIGNATURE = "links of cross-attention · S sure ⊆ P possible · over the corpus"


def evaluate_alignment(task: Any, pairs: Sequence[Pair], links: Path, first: int, swapped: bool) -> Evaluation:
    """The scores are those of the layer, reading and head that were chosen without these links."""
    gold = read_gold(links, [(len(source.split()), len(target.split())) for source, target in pairs], first, swapped)
    aligned = align_pairs(task, pairs)
    scores = {way: score_alignment([each.links[way] for each in aligned], gold) for way in aligned[0].links}
    best = min(scores, key=lambda way: scores[way].aer)
    choice = choose(task)
    chosen = scores[choice.way]
    counting = count_words(task)
    counted = None
    if counting is not None:
        counted = score_alignment([counting.forth.align(each.source, each.target) for each in aligned], gold)
    details: dict[str, Any] = {
        "ways": [way.to_json() | score.to_json() for way, score in scores.items()],
        "best": best.to_json() | scores[best].to_json(),
        "chosen": choice.way.to_json() | chosen.to_json() | {"criterion": choice.criterion},
        "ibm2": None if counting is None or counted is None else counted.to_json() | {"pairs": counting.pairs},
    }
    notes = ["", _table(scores, choice.way), ""]
    notes.append(f"scored             {choice.way} ({choice.criterion})")
    notes.append(f"best by the links  {best}: AER {scores[best].aer:.2f}")
    if counting is None or counted is None:
        notes.append("IBM Model 2        not compared: the run's training data is not at hand")
    else:
        notes.append(
            f"IBM Model 2        AER {counted.aer:.2f}, precision {counted.precision:.2f}, recall {counted.recall:.2f} "
            f"(trained on {counting.pairs:,} pairs of the run's training data)"
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
    """Layers and readings; of heads, the best of each."""
    rows = []
    for way, score in scores.items():
        if way.head is not None:
            continue
        heads = {each: scores[each] for each in scores if each.head is not None and _same(each, way)}
        head = min(heads, key=lambda each: heads[each].aer, default=None)
        numbers = [f"{value:.2f}" for value in (score.aer, score.precision, score.recall)]
        of_head = "" if head is None else f"{(head.head or 0) + 1}: {heads[head].aer:.2f}"
        rows.append([str(way.layer + 1), way.reading, *numbers, of_head, "chosen" if _same(way, chosen) else ""])
    return text_table(["layer", "step that", "AER", "precision", "recall", "best head", ""], rows, "><>>>><")


def _same(one: Way, other: Way) -> bool:
    return (one.layer, one.reading) == (other.layer, other.reading)
