"""Which layer, reading and head of a translator align best, chosen on validation pairs without manual links.

Validation pairs are aligned in every way by forced decoding. The way is chosen whose links agree best with IBM Model 2
(both directions), trained on the training pairs; without training data, the way with the lowest entropy.

Shapes: L layers · B pairs in a batch · H heads · T target pieces · S source pieces, <end> last · J target words ·
        X source words and <end>
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
from regard.inside.subject import blocks_of, unfused_eval
from regard.models.seq2seq import Seq2Seq

VALIDATION_PAIRS = 300
TRAINING_PAIRS = 20_000  # for IBM Model 2
MOST_PAIRS = 500_000  # from which these are sampled: corpora are often sorted, with the shortest pairs first
POSITIONS = 4096  # of a batch


@dataclass(frozen=True)
class Aligned:
    """The words of a pair, and its alignment in every way."""

    source: list[str]
    target: list[str]
    links: dict[Way, Links]
    entropy: dict[Way, float]  # mean over target words


def align_pairs(task: Any, pairs: Sequence[Pair]) -> list[Aligned]:
    """Align pairs by forced decoding in all ways: each layer and reading, by each head and by the mean of heads."""
    aligned: dict[int, Aligned] = {}
    for rows in _batches(task, pairs):
        weights_LBHTS = _cross_weights(task.model, [row.source_ids for row in rows], [row.target_ids for row in rows])
        for index, row in enumerate(rows):
            weights_LHTS = weights_LBHTS[:, index, :, : len(row.target_ids) + 1, : len(row.source_ids)]
            by_way = dict(to_words(weights_LHTS, row.source, row.target, _ways(*weights_LHTS.shape[:2])))
            links = {way: links_of(weights_JX) for way, weights_JX in by_way.items()}
            entropy = {way: _entropy(weights_JX) for way, weights_JX in by_way.items()}
            aligned[row.number] = Aligned(row.source.names, row.target.names, links, entropy)
    return [aligned[number] for number in range(len(pairs))]


def _ways(layers: int, heads: int) -> list[Way]:
    mean_and_heads = [None, *range(heads)] if heads > 1 else [None]
    return [Way(layer, reading, head) for layer in range(layers) for reading in READINGS for head in mean_and_heads]


def choose(task: Any, pairs: Sequence[Pair] | None = None) -> Choice:
    """The layer, reading and head whose links agree best with IBM Model 2; cached in the task."""
    if pairs is None and task.alignment_choice is not None:
        cached: Choice = task.alignment_choice
        return cached
    ibm2 = train_ibm2(task)
    if pairs is None:
        pairs = _sampled(task, "valid", VALIDATION_PAIRS) or []
    choice = _best(align_pairs(task, pairs), ibm2) if pairs else _default(task)
    task.alignment_choice = choice
    return choice


def train_ibm2(task: Any) -> BothWays | None:
    """IBM Model 2 of the run's own training pairs; None if they are not available."""
    pairs = _sampled(task, "train", TRAINING_PAIRS)
    return BothWays(pairs) if pairs else None


def _sampled(task: Any, split: str, count: int) -> list[Pair] | None:
    """Pairs from all over a split (reservoir sampling); None if its files are not available."""
    generator = random.Random(1)
    sample: list[Pair] = []
    try:
        for number, pair in enumerate(islice(not_empty(pair_splits(task.settings.data)[split]), MOST_PAIRS)):
            if number < count:
                sample.append(pair)
            elif (index := generator.randrange(number + 1)) < count:
                sample[index] = pair
    except RegardError:
        return None
    return sample


def _best(aligned: Sequence[Aligned], ibm2: BothWays | None) -> Choice:
    if ibm2 is not None:
        reference = [ibm2.align(pair.source, pair.target) for pair in aligned]
        ways = aligned[0].links
        scores = {way: score_alignment([pair.links[way] for pair in aligned], reference).aer for way in ways}
        criterion = f"closest to IBM Model 2 of {ibm2.pairs:,} training pairs, on {len(aligned):,} validation pairs"
    else:
        means = [way for way in aligned[0].links if way.head is None]  # the sharpest head need not be the best
        scores = {way: float(np.mean([pair.entropy[way] for pair in aligned])) for way in means}
        criterion = f"lowest entropy on {len(aligned):,} pairs, as the training data is not available"
    return Choice(min(scores, key=scores.__getitem__), criterion, scores)


def _default(task: Any) -> Choice:
    """Without data: the step that reads, in the last layer but one."""
    layers = sum(_cross_attention(block) is not None for block in blocks_of(task.model.decoder))
    way = Way(max(0, layers - 2), "reads")
    return Choice(way, "the default, as no data is available to choose by", {})


# ---------------------------------------------------------------- weights


@dataclass(frozen=True)
class _Row:
    number: int
    source_ids: list[int]  # with <end>
    target_ids: list[int]
    source: Words
    target: Words


def _batches(task: Any, pairs: Sequence[Pair]) -> Iterator[list[_Row]]:
    """Pairs of similar length, up to `POSITIONS` with padding."""
    tokenizers, most = task.tokenizers.both, task.longest_source
    sides = [tokenizer.encode([pair[side] for pair in pairs]) for side, tokenizer in enumerate(tokenizers)]
    rows = []
    for number, (pair, *ids) in enumerate(zip(pairs, *sides, strict=True)):
        source, target = (Words.of(*side) for side in zip(tokenizers, pair, ids, strict=True))
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
    batch: list[_Row] = []
    for row in rows:
        longest = max(len(row.source_ids), len(row.target_ids) + 1)
        if batch and longest * (len(batch) + 1) > POSITIONS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


@torch.no_grad()
def _cross_weights(model: Seq2Seq, sources: list[list[int]], targets: list[list[int]]) -> NDArray[np.float32]:
    """Cross-attention weights of every layer, with the targets forced: [L, B, H, T + 1, S]."""
    device = next(model.parameters()).device
    source, target = _padded(sources), _padded([[START, *ids] for ids in targets])
    inputs = [torch.from_numpy(x).to(device) for x in (*source, *target)]
    weights: list[Tensor] = []

    def record(module: Any, inputs: tuple[Any, ...], _: Any) -> None:
        weights.append(module.trace(*inputs).weights_BHTS.float().cpu())

    layers = [module for block in blocks_of(model.decoder) if (module := _cross_attention(block)) is not None]
    handles = [module.register_forward_hook(record) for module in layers or no_cross_attention()]
    try:
        with unfused_eval(model):
            model.hidden(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(weights).numpy()


def _cross_attention(block: Any) -> nn.Module | None:
    """The part of a block that attends to the source; in a Bahdanau decoder, the mixer itself."""
    for part in (block.cross, block.mixer):
        if hasattr(part, "trace") and (part is block.cross or hasattr(part, "alignment")):
            attention: nn.Module = part
            return attention
    return None


def _padded(rows: list[list[int]]) -> tuple[NDArray[np.int64], ...]:
    """Tokens, segments and positions: [B, T] each; tokens and segments are padded with 0."""
    lengths = np.array([len(row) for row in rows])
    segments = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    tokens = np.zeros_like(segments)
    tokens[segments > 0] = np.concatenate([np.array(row, np.int64) for row in rows])
    return tokens, segments, np.broadcast_to(np.arange(segments.shape[1]), segments.shape).copy()


def _entropy(weights_JX: NDArray[np.float32]) -> float:
    return float(-(weights_JX * np.log(np.maximum(weights_JX, 1e-12))).sum(1).mean()) if len(weights_JX) else 0.0
