"""Which layer, reading and head of a translator align best, found on validation pairs without links drawn by people.

Every pair is read in every way by forced decoding, and the links are compared with what counting words in the training
pairs finds (IBM Model 2, both ways); where there are none at hand, by entropy.

Shapes: L layers · B pairs side by side · H heads · T target pieces · S source pieces, <end> last · X source words
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.pairs import Pair, not_empty, pair_splits
from regard.data.tokenizers import END, START
from regard.errors import RegardError
from regard.evaluation.alignment import Links, score_alignment
from regard.evaluation.ibm2 import BothWays
from regard.inside.alignment import READINGS, Choice, Way, Words, links_of, no_cross_attention, to_words
from regard.inside.subject import blocks_of, plainly
from regard.models.seq2seq import Seq2Seq

VALIDATION_PAIRS = 300  # to choose by
TRAINING_PAIRS = 20_000  # in which words are counted
MOST_PAIRS = 500_000  # that these are drawn from: corpora are often sorted, and begin with their shortest pairs
POSITIONS = 4096  # of pairs that are read side by side


@dataclass(frozen=True)
class Aligned:
    """A pair of texts, and its alignment in every way."""

    source: list[str]
    target: list[str]
    links: dict[Way, Links]
    entropy: dict[Way, float]  # mean over target words


def align_pairs(task: Any, pairs: Sequence[Pair]) -> list[Aligned]:
    """Every pair by forced decoding, in all ways: each layer and reading, the mean of heads and each of them."""
    found: dict[int, Aligned] = {}
    for rows in _side_by_side(task, pairs):
        weights_LBHTS = _cross_weights(task.model, [row.source_ids for row in rows], [row.target_ids for row in rows])
        for place, row in enumerate(rows):
            weights_LHTS = weights_LBHTS[:, place, :, : len(row.target_ids) + 1, : len(row.source_ids)]
            of_ways = dict(to_words(weights_LHTS, row.source, row.target, _ways(*weights_LHTS.shape[:2])))
            links = {way: links_of(weights_JX) for way, weights_JX in of_ways.items()}
            entropy = {way: _entropy(weights_JX) for way, weights_JX in of_ways.items()}
            found[row.number] = Aligned(row.source.names, row.target.names, links, entropy)
    return [found[number] for number in range(len(pairs))]


def _ways(layers: int, heads: int) -> list[Way]:
    which = [None, *range(heads)] if heads > 1 else [None]
    return [Way(layer, reading, head) for layer in range(layers) for reading in READINGS for head in which]


def choose(task: Any, pairs: Sequence[Pair] | None = None) -> Choice:
    """The layer, reading and head whose links are most like those of counting words; kept with the task."""
    if pairs is None and task.alignment_choice is not None:
        kept: Choice = task.alignment_choice
        return kept
    counted = count_words(task)
    if pairs is None:
        pairs = _sampled(task, "valid", VALIDATION_PAIRS) or []
    choice = _chosen(align_pairs(task, pairs), counted) if pairs else _unknown(task)
    task.alignment_choice = choice
    return choice


def count_words(task: Any) -> BothWays | None:
    """In the run's own training pairs; None if they are not at hand."""
    pairs = _sampled(task, "train", TRAINING_PAIRS)
    return BothWays(pairs) if pairs else None


def _sampled(task: Any, split: str, count: int) -> list[Pair] | None:
    """Pairs from all over a split; None if its files are not at hand."""
    draw = random.Random(1)
    kept: list[Pair] = []
    try:
        for number, pair in enumerate(islice(not_empty(pair_splits(task.settings.data)[split]), MOST_PAIRS)):
            if number < count:
                kept.append(pair)
            elif (place := draw.randrange(number + 1)) < count:
                kept[place] = pair
    except RegardError:
        return None
    return kept


def _chosen(aligned: Sequence[Aligned], counted: BothWays | None) -> Choice:
    if counted is not None:
        gold = [counted.align(each.source, each.target) for each in aligned]
        scores = {way: score_alignment([each.links[way] for each in aligned], gold).aer for way in aligned[0].links}
        criterion = f"most like IBM Model 2 of {counted.pairs:,} training pairs, on {len(aligned):,} validation pairs"
    else:
        means = [way for way in aligned[0].links if way.head is None]  # the sharpest head need not be the best
        scores = {way: float(np.mean([each.entropy[way] for each in aligned])) for way in means}
        criterion = f"lowest entropy on {len(aligned):,} pairs, as there is no training data at hand"
    return Choice(min(scores, key=scores.__getitem__), criterion, scores)


def _unknown(task: Any) -> Choice:
    layers = sum(_across(block) is not None for block in blocks_of(task.model.decoder))
    way = Way(max(0, layers - 2), "reads")
    return Choice(way, "the usual one, as there is no data at hand to choose by", {})


# ---------------------------------------------------------------- weights


@dataclass(frozen=True)
class _Row:
    number: int
    source_ids: list[int]  # with <end>
    target_ids: list[int]
    source: Words
    target: Words


def _side_by_side(task: Any, pairs: Sequence[Pair]) -> Iterator[list[_Row]]:
    """Pairs of similar length together."""
    tokenizers, most = task.tokenizers.both, task.longest_source
    sides = [tokenizer.encode([pair[side] for pair in pairs]) for side, tokenizer in enumerate(tokenizers)]
    rows = []
    for number, (pair, *ids) in enumerate(zip(pairs, *sides, strict=True)):
        source, target = (Words.of(*each) for each in zip(tokenizers, pair, ids, strict=True))
        source_ids, target_ids = [*ids[0][: most - 1], END], ids[1][: most - 1]
        rows.append(
            _Row(
                number,
                source_ids,
                target_ids,
                source.cut(len(source_ids) - 1),
                Words(target.names, target.of_piece[: len(target_ids)]),
            )
        )
    rows.sort(key=lambda row: max(len(row.source_ids), len(row.target_ids)))
    together: list[_Row] = []
    for row in rows:
        longest = max(len(row.source_ids), len(row.target_ids) + 1)
        if together and longest * (len(together) + 1) > POSITIONS:
            yield together
            together = []
        together.append(row)
    if together:
        yield together


@torch.no_grad()
def _cross_weights(model: Seq2Seq, sources: list[list[int]], targets: list[list[int]]) -> NDArray[np.float32]:
    """Of every layer that looks at the source, while it is forced to write the targets: [L, B, H, T + 1, S]."""
    device = next(model.parameters()).device
    source, target = _filled(sources), _filled([[START, *ids] for ids in targets])
    inputs = [torch.from_numpy(x).to(device) for x in (*source, *target)]
    found: list[Tensor] = []

    def note(module: Any, given: tuple[Any, ...], _: Any) -> None:
        found.append(module.trace(*given).weights_BHTS.float().cpu())

    layers = [module for block in blocks_of(model.decoder) if (module := _across(block)) is not None]
    handles = [module.register_forward_hook(note) for module in layers or no_cross_attention()]
    try:
        with plainly(model):
            model.hidden(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(found).numpy()


def _across(block: Any) -> nn.Module | None:
    """The part of a block that looks at the source; of a Bahdanau decoder the mixer itself."""
    for part in (block.cross, block.mixer):
        if hasattr(part, "trace") and (part is block.cross or hasattr(part, "alignment")):
            found: nn.Module = part
            return found
    return None


def _filled(rows: list[list[int]]) -> tuple[NDArray[np.int64], ...]:
    """Tokens, segments and positions, with 0 behind the end of each."""
    lengths = np.array([len(row) for row in rows])
    segments = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    tokens = np.zeros_like(segments)
    tokens[segments > 0] = np.concatenate([np.array(row, np.int64) for row in rows])
    return tokens, segments, np.broadcast_to(np.arange(segments.shape[1]), segments.shape).copy()


def _entropy(weights_JX: NDArray[np.float32]) -> float:
    return float(-(weights_JX * np.log(np.maximum(weights_JX, 1e-12))).sum(1).mean()) if len(weights_JX) else 0.0
