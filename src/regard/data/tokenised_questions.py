"""Questions and contexts tokenised once, with the tokens that the answers stand at; and cut into windows.

A context that is longer than what is read at once is read in windows that overlap. Every window is a sample of its own:

    <start> question <end> window <end>

A window without the answer is answered at <start>: "not here".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import cached
from regard.data.questions import Place, Question, QuestionSource, places
from regard.data.ragged import Ragged, spread
from regard.data.tokenised import read_side, write_sides
from regard.data.tokenising import CHUNK
from regard.data.tokenizers import TextTokenizer

FORMAT = "questions-1"
FRAME = 3  # <start>, <end> after the question, <end> after the window
NONE, KNOWN, NOT_FOUND = 0, 1, 2  # an answer: none is given, it stands in the context, it is given but does not


@dataclass(frozen=True)
class TokenisedQuestions:
    """Question i is about context `context_of[i]`; its answers stand at tokens `spans[i]`: start, end, start, end …"""

    questions: Ragged
    contexts: Ragged
    context_of: NDArray[np.int64]
    spans: Ragged  # the first and the last token of each place
    states: NDArray[np.int64]  # NONE, KNOWN or NOT_FOUND

    def __len__(self) -> int:
        return len(self.questions)


def tokenise_questions(source: QuestionSource, tokenizer: TextTokenizer, cache: Path) -> TokenisedQuestions:
    key = [FORMAT, source.fingerprint, tokenizer.to_json()]
    folder = cached(cache, key, lambda folder: _write(folder, source, tokenizer))
    arrays = {name: np.fromfile(folder / name, np.int64) for name in ("context_of", "states", "spans", "span_offsets")}
    return TokenisedQuestions(
        read_side(folder, "question", tokenizer),
        read_side(folder, "context", tokenizer),
        arrays["context_of"],
        Ragged(arrays["spans"], arrays["span_offsets"]),
        arrays["states"],
    )


def _write(folder: Path, source: QuestionSource, tokenizer: TextTokenizer) -> None:
    write_sides(folder, {"question": tokenizer}, ((question.question,) for question in source))
    write_sides(folder, {"context": tokenizer}, ((group[0].context,) for group in _by_context(source)))
    context_of: list[int] = []
    spans: list[list[int]] = []
    states: list[int] = []
    contexts = enumerate(_by_context(source))
    while some := list(itertools.islice(contexts, CHUNK)):
        encoded = tokenizer.encode([group[0].context for _, group in some])
        for ids, (number, group) in zip(encoded, some, strict=True):
            places_T2 = tokenizer.places(group[0].context, ids)
            for question in group:
                found = [tokens_of(place, places_T2) for place in places(question)]
                context_of.append(number)
                spans.append([token for span in dict.fromkeys(found) for token in span])
                states.append(KNOWN if found else NOT_FOUND if question.answers else NONE)
    ragged = Ragged.from_lists(spans)
    arrays = {"context_of": context_of, "states": states, "spans": ragged.ids, "span_offsets": ragged.offsets}
    for name, array in arrays.items():
        (folder / name).write_bytes(np.asarray(array, np.int64).tobytes())


def _by_context(questions: QuestionSource) -> Iterator[list[Question]]:
    """Successive questions about the same context."""
    for _, group in itertools.groupby(questions, key=lambda question: question.context):
        yield list(group)


def asked(tokenizer: TextTokenizer, question: str, context: str) -> TokenisedQuestions:
    """One question about one context, whose answer is not known."""
    questions, contexts = (Ragged.from_lists(tokenizer.encode([text])) for text in (question, context))
    nowhere = Ragged.from_lists([[]])
    return TokenisedQuestions(questions, contexts, np.zeros(1, np.int64), nowhere, np.full(1, NOT_FOUND))


def tokens_of(place: Place, places_T2: NDArray[np.int64]) -> tuple[int, int]:
    """The first and the last token with characters of this place."""
    first = int(np.searchsorted(places_T2[:, 1], place.start, side="right"))
    last = int(np.searchsorted(places_T2[:, 0], place.end, side="left")) - 1
    return first, max(first, last)


def text_of(context: str, places_T2: NDArray[np.int64], first: int, last: int) -> Place:
    """The characters from one token to another, without spaces around them."""
    start, end = int(places_T2[first, 0]), int(places_T2[last, 1])
    words = context[start:end].strip()
    start += len(context[start:end]) - len(context[start:end].lstrip())
    return Place(start, start + len(words))


# ---------------------------------------------------------------- windows


@dataclass(frozen=True)
class Windows:
    """What is read at once: of question `question[i]`, `length[i]` tokens of its context from `first[i]` on."""

    of: TokenisedQuestions
    question: NDArray[np.int64]
    question_length: NDArray[np.int64]  # a question that leaves its context no room is cut
    first: NDArray[np.int64]
    length: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.question)

    def take(self, rows: NDArray[np.int64]) -> Windows:
        mine = (self.question, self.question_length, self.first, self.length)
        return Windows(self.of, *(array[rows] for array in mine))

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.question_length + self.length + FRAME

    def question_ids(self) -> NDArray[np.int64]:
        """Of all windows, one after the other."""
        return self.of.questions.ids[spread(self.of.questions.offsets[self.question], self.question_length)]

    def context_ids(self) -> NDArray[np.int64]:
        starts = self.of.contexts.offsets[self.of.context_of[self.question]] + self.first
        return self.of.contexts.ids[spread(starts, self.length)]

    def spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Every place of an answer that is whole in a window: the window, and the first and last token within it."""
        spans = self.of.spans.take(self.question)
        window = np.repeat(np.arange(len(self)), spans.lengths // 2)
        start, end = (spans.ids[at::2] - self.first[window] for at in (0, 1))
        inside = (start >= 0) & (end < self.length[window])
        return window[inside], start[inside], end[inside]


def windows_of(questions: TokenisedQuestions, max_length: int, stride: int, skip: Sequence[int] = ()) -> Windows:
    """All windows of all questions but those in the states to skip."""
    kept = np.flatnonzero(~np.isin(questions.states, np.array(skip, np.int64)))
    question_length = np.minimum(questions.questions.lengths[kept], (max_length - FRAME) // 2)
    room = max_length - FRAME - question_length
    context_length = questions.contexts.lengths[questions.context_of[kept]]
    step = np.minimum(stride, room)
    counts = 1 + np.maximum(0, -(-(context_length - room) // step))
    number = spread(np.zeros_like(counts), counts)
    each = np.repeat(np.arange(len(kept)), counts)
    first = number * step[each]
    length = np.minimum(room[each], context_length[each] - first)
    return Windows(questions, kept[each], question_length[each], first, length)


def window_around(windows: Windows, first: int, last: int) -> Windows:
    """Of those that hold the answer, the one with most text on both sides of it."""
    left, right = first - windows.first, windows.first + windows.length - 1 - last
    return windows.take(np.array([np.argmax(np.minimum(left, right))]))
