"""Word alignment: which source word each output word comes from, by cross-attention.

    A_ji = mean over the pieces of target word j, sum over the pieces of source word i, of the attention weights
    link_j = argmax_i A_ji                    no link if that is <end>

The same weights can be read in two ways, since two decoder steps involve y_j: one writes it, the next one reads it.

    writes    row j
    reads     row j + 1

The layer, reading and head that align best differ from model to model. `choose` (alignment_choice.py) selects them on
validation pairs without manual links, by agreement with IBM Model 2 trained on the training pairs, or by entropy if
these are not available.

Shapes: L layers · H heads · T target pieces · S source pieces, <end> last · J target words · I source words ·
        X = I + 1, with a last column for <end>
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
    """One way to read an alignment. Layers and heads count from 0; head None: the mean of all."""

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
    """The words of a text, and the index of the word that each piece belongs to: -1 for none."""

    names: list[str]
    of_piece: list[int]

    @classmethod
    def of(cls, tokenizer: TextTokenizer, text: str, ids: Sequence[int]) -> Words:
        """Words are separated by spaces."""
        try:
            spans_T2 = tokenizer.places(text, ids)
        except ValueError:  # bytes that are not characters: each piece is a word
            return cls([tokenizer.piece(token) for token in ids], list(range(len(ids))))
        word, of_character = -1, []
        for index, letter in enumerate(text):
            if not letter.isspace() and (index == 0 or text[index - 1].isspace()):
                word += 1
            of_character.append(-1 if letter.isspace() else word)
        # The last word that it touches: a piece may begin with the space before a word.
        return cls(text.split(), [max(of_character[start:end], default=-1) for start, end in spans_T2.tolist()])

    def cut(self, pieces: int) -> Words:
        """With this many pieces, followed by <end>, which belongs to no word."""
        return Words(self.names, [*self.of_piece[:pieces], -1])

    @property
    def matrix_JT(self) -> NDArray[np.float32]:
        """1 where a piece belongs to a word."""
        return (np.arange(len(self.names))[:, None] == np.array(self.of_piece, int)[None]).astype(np.float32)


@dataclass(frozen=True)
class Choice:
    """The way that aligns best, and how it was chosen."""

    way: Way
    criterion: str  # for people
    scores: dict[Way, float]  # of all ways; lower is better

    def among(self, layer: int | None, reading: Reading | None, head: int | None) -> Way:
        """The best way with this layer, reading and head; None: any."""

        def fits(way: Way) -> bool:
            pairs = ((layer, way.layer), (reading, way.reading), (head, way.head))
            return all(wanted is None or wanted == actual for wanted, actual in pairs)

        default = Way(self.way.layer if layer is None else layer, reading or self.way.reading, head)
        return min(filter(fits, self.scores), key=self.scores.__getitem__, default=default)


@dataclass(frozen=True)
class Aligner:
    """What an alignment needs besides the attention weights."""

    source: Words  # with <end>
    target: Words
    choose: Callable[[], Choice]


def alignment(trace: Trace, layer: int | None = None, reading: Reading | None = None, head: int | None = None) -> Named:
    """The weights [J, I]; the notes have the `links` and the weight of <end> for each target word.

    A layer, reading or head that is not given is chosen on validation text. If layer and reading are given and the head
    is not, the weights are the mean of all heads.
    """
    aligner = trace.subject.aligner
    if aligner is None:
        raise UsageError(
            "There are no words to align.", "This run does not translate one text into another.", "Use a translator."
        )
    weights_LHTS = np.stack(
        [part.attention().weights_BHTS[0].float().cpu().numpy() for part in trace.parts() if part.cross]
        or no_cross_attention()
    )
    layers, heads = weights_LHTS.shape[:2]
    if reading not in (None, *READINGS):
        raise UsageError(
            f"There is no reading '{reading}'.",
            "The weights are those of the decoder step that writes a word, or of the one that reads it.",
            f"Use {' or '.join(READINGS)}, or leave it out.",
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
    [(_, weights_JX)] = to_words(weights_LHTS, aligner.source, aligner.target, [way])
    links = sorted(links_of(weights_JX))
    axes = [("target", aligner.target.names), ("source", aligner.source.names)]
    notes: dict[str, Any] = {"way": str(way), "criterion": criterion, "links": links, **way.to_json()}
    return named("alignment", weights_JX[:, :-1], axes, end=weights_JX[:, -1].tolist(), **notes)


def links_of(weights_JX: NDArray[np.float32]) -> Links:
    """The source word with the highest weight for every target word, unless that is <end>."""
    words = weights_JX.shape[1] - 1
    best_J = weights_JX.argmax(1).tolist()
    # A target word that was cut off has no weights.
    return frozenset((best, j) for j, best in enumerate(best_J) if best < words and weights_JX[j, best] > 0)


def to_words(
    weights_LHTS: NDArray[np.float32], source: Words, target: Words, ways: Sequence[Way]
) -> Iterator[tuple[Way, NDArray[np.float32]]]:
    """From pieces to words: [J, X]. The last column is for <end> and pieces of no word."""
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
        'It has cross = "none": the decoder only receives the last state of the encoder.',
        "Choose a run with another model.cross.",
    )
