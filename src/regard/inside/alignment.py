"""Word alignment: which source word each written word comes from, by cross-attention.

    A = mean over the pieces of a target word, sum over the pieces of a source word, of the weights
    link_j = argmax_i A_ji                    unless that is <end>

There are two readings of the same weights, since a token passes the decoder twice: the step that writes y_j reads
y_{j−1}, and the next one reads y_j itself.

    writes    row j
    reads     row j + 1

Which layer, reading and head align is another matter for every model. `choose` finds out on validation pairs, without
links drawn by people: by comparison with what counting words in the training pairs finds (IBM Model 2, both ways), or,
where they are not at hand, by entropy.

Shapes: L layers · H heads · T target pieces · S source pieces, <end> last · J target words · I source words ·
        B pairs side by side
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.pairs import Pair, not_empty, pair_splits
from regard.data.tokenizers import END, START, TextTokenizer
from regard.errors import RegardError, UsageError
from regard.evaluation.alignment import Links, score_alignment
from regard.evaluation.ibm2 import BothWays
from regard.inside.named import Named, named
from regard.inside.subject import blocks_of, plainly
from regard.models.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from regard.inside.trace import Trace

Reading = Literal["writes", "reads"]
READINGS: tuple[Reading, Reading] = ("writes", "reads")
VALIDATION_PAIRS = 300  # to choose by
TRAINING_PAIRS = 20_000  # in which words are counted
MOST_PAIRS = 500_000  # that these are drawn from: corpora are often sorted, and begin with their shortest pairs
POSITIONS = 4096  # of pairs that are read side by side


@dataclass(frozen=True)
class Way:
    """One way to read an alignment. Layers and heads count from 0; no head: the mean of all."""

    layer: int
    reading: Reading
    head: int | None = None

    def __str__(self) -> str:
        which = "mean of heads" if self.head is None else f"head {self.head + 1}"
        return f"layer {self.layer + 1}, {which}, the step that {self.reading} the word"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Words:
    """The words of a text, and the one that each piece belongs to: -1 for a piece of none."""

    names: list[str]
    of_piece: list[int]

    @classmethod
    def of(cls, tokenizer: TextTokenizer, text: str, ids: Sequence[int]) -> Words:
        """Words are what stands between spaces."""
        try:
            places_T2 = tokenizer.places(text, ids)
        except ValueError:  # bytes that are no characters: each piece is a word
            return cls([tokenizer.piece(token) for token in ids], list(range(len(ids))))
        number, of_character = -1, []
        for place, letter in enumerate(text):
            if not letter.isspace() and (place == 0 or text[place - 1].isspace()):
                number += 1
            of_character.append(-1 if letter.isspace() else number)
        # The last word that it touches: a piece may begin with the space before a word.
        return cls(text.split(), [max(of_character[first:last], default=-1) for first, last in places_T2.tolist()])

    def cut(self, pieces: int) -> Words:
        """With only so many pieces read; then <end>, which is no word."""
        return Words(self.names, [*self.of_piece[:pieces], -1])

    @property
    def matrix_JT(self) -> NDArray[np.float32]:
        """1 where a piece belongs to a word."""
        return (np.arange(len(self.names))[:, None] == np.array(self.of_piece, int)[None]).astype(np.float32)


@dataclass(frozen=True)
class Choice:
    """The way that was found to align best, and how that was found."""

    way: Way
    criterion: str  # in words
    scores: dict[Way, float]  # of all ways: the lower, the better

    def among(self, layer: int | None, reading: Reading | None, head: int | None) -> Way:
        """The best of those that have what is given."""

        def fits(way: Way) -> bool:
            pairs = ((layer, way.layer), (reading, way.reading), (head, way.head))
            return all(given is None or given == has for given, has in pairs)

        default = Way(self.way.layer if layer is None else layer, reading or self.way.reading, head)
        return min(filter(fits, self.scores), key=self.scores.__getitem__, default=default)


@dataclass(frozen=True)
class Aligner:
    """What an alignment needs to know besides the weights."""

    source: Words  # with <end>
    target: Words
    choose: Callable[[], Choice]


def alignment(trace: Trace, layer: int | None = None, reading: Reading | None = None, head: int | None = None) -> Named:
    """[target words, source words]; `links` in its notes, and how much went to <end>.

    What is left out of layer, reading and head is chosen on validation text. With a layer and a reading, but no head,
    it is the mean of all heads.
    """
    aligner = trace.subject.aligner
    if aligner is None:
        raise UsageError(
            "There are no words to align.", "This run does not map one text to another.", "Use a translator."
        )
    weights_LHTS = np.stack(
        [part.attention().weights_BHTS[0].float().cpu().numpy() for part in trace.parts() if part.across]
        or _looks_at_nothing()
    )
    layers, heads = weights_LHTS.shape[:2]
    if reading not in (None, *READINGS):
        raise UsageError(
            f"There is no reading '{reading}'.",
            "Weights are those of the step that writes a word, or of the one that reads it.",
            f"Use {' or '.join(READINGS)}, or none for the one chosen on validation text.",
        )
    for what, number, count in (("layer", layer, layers), ("head", head, heads)):
        if number is not None and not 0 <= number < count:
            raise UsageError(
                f"There is no {what} {number + 1} to align by.",
                f"Counted from 1, the last is {count}.",
                "Choose another, or leave it out.",
            )
    criterion = "asked for"
    if layer is None or reading is None:
        choice = aligner.choose()
        way, criterion = choice.among(layer, reading, head), choice.criterion
    else:
        way = Way(layer, reading, head)
    of_way = dict(_words(weights_LHTS, aligner.source, aligner.target, [way]))
    weights_JX = of_way[way]
    links = sorted(links_of(weights_JX))
    axes = [("target", aligner.target.names), ("source", aligner.source.names)]
    notes: dict[str, Any] = {"way": str(way), "criterion": criterion, "links": links, **way.to_json()}
    return named("alignment", weights_JX[:, :-1], axes, end=weights_JX[:, -1].tolist(), **notes)


def links_of(weights_JX: NDArray[np.float32]) -> Links:
    """The likeliest source word of every target word; the last column is <end>."""
    words = weights_JX.shape[1] - 1
    best_J = weights_JX.argmax(1).tolist()
    # A word that was not read to its end has no weights.
    return frozenset((best, j) for j, best in enumerate(best_J) if best < words and weights_JX[j, best] > 0)


# ---------------------------------------------------------------- many pairs


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
            of_ways = dict(_words(weights_LHTS, row.source, row.target, _ways(*weights_LHTS.shape[:2])))
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
    handles = [module.register_forward_hook(note) for module in layers or _looks_at_nothing()]
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


def _looks_at_nothing() -> Any:
    raise RegardError(
        "This run has no cross-attention.",
        'It has cross = "none": the decoder is given only the last state of the encoder.',
        "Choose a run with another model.cross.",
    )


def _filled(rows: list[list[int]]) -> tuple[NDArray[np.int64], ...]:
    """Tokens, segments and positions, with 0 behind the end of each."""
    lengths = np.array([len(row) for row in rows])
    segments = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    tokens = np.zeros_like(segments)
    tokens[segments > 0] = np.concatenate([np.array(row, np.int64) for row in rows])
    return tokens, segments, np.broadcast_to(np.arange(segments.shape[1]), segments.shape).copy()


def _words(
    weights_LHTS: NDArray[np.float32], source: Words, target: Words, ways: Sequence[Way]
) -> Iterator[tuple[Way, NDArray[np.float32]]]:
    """From pieces to words; the last column is <end> and what belongs to no word: [J, I + 1]."""
    from_SX = np.concatenate([source.matrix_JT, np.array([source.of_piece], int) < 0]).astype(np.float32).T
    to_JT = target.matrix_JT
    to_JT = to_JT / np.maximum(1, to_JT.sum(1, keepdims=True))
    for way in ways:
        layer_HTS = weights_LHTS[way.layer]
        weights_TS = layer_HTS.mean(0) if way.head is None else layer_HTS[way.head]
        weights_TS = weights_TS[1:] if way.reading == "reads" else weights_TS[:-1]
        yield way, to_JT @ weights_TS @ from_SX


def _entropy(weights_JX: NDArray[np.float32]) -> float:
    return float(-(weights_JX * np.log(np.maximum(weights_JX, 1e-12))).sum(1).mean()) if len(weights_JX) else 0.0
