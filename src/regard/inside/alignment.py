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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError, UsageError
from regard.evaluation.alignment import Links
from regard.inside.named import Named, named

if TYPE_CHECKING:
    from regard.inside.trace import Trace

Reading = Literal["writes", "reads"]
READINGS: tuple[Reading, Reading] = ("writes", "reads")


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
        [part.attention().weights_BHTS[0].float().cpu().numpy() for part in trace.parts() if part.cross]
        or no_cross_attention()
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
    of_way = dict(to_words(weights_LHTS, aligner.source, aligner.target, [way]))
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


def to_words(
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


def no_cross_attention() -> Any:
    raise RegardError(
        "This run has no cross-attention.",
        'It has cross = "none": the decoder is given only the last state of the encoder.',
        "Choose a run with another model.cross.",
    )
