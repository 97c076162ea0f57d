"""Occlusion of words: each word of a question and its context is removed, and the answer's probability compared.

    effect(w) = log p(answer) − log p(answer without w)          in nats; above 0: the word is evidence for the answer

The answer itself stays. Only what the model read at once is looked at: the window that the answer was found in.

Shapes: N words taken away · T positions · 2 start and end
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.questions import Place
from regard.data.tokenised_questions import asked, tokens_of, window_around, windows_of
from regard.data.tokenizers import END, START, TextTokenizer
from regard.decoding.spans import Answer
from regard.inside.subject import plainly
from regard.models.reader import Reader

AT_ONCE = 64  # rows
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Effect:
    """A word, of the question or the context; `effect` is None for the words of the answer."""

    word: str
    in_question: bool
    effect: float | None
    columns: range  # of the row that the model read


@dataclass(frozen=True)
class _Word:
    text: str
    in_question: bool
    columns: range  # of the row


def effects_of_words(task: Any, question: str, context: str, answer: Answer) -> list[Effect]:
    """Of every word of the question and of the window with the answer, in their order."""
    tokenizer: TextTokenizer = task.tokenizer
    data = task.settings.data
    places_T2 = tokenizer.places(context, tokenizer.encode([context])[0])
    first, last = tokens_of(Place(answer.start, answer.end), places_T2)
    windows = windows_of(asked(tokenizer, question, context), data.max_length, data.stride)
    window = window_around(windows, first, last)
    asked_for, begins = int(window.question_length[0]), int(window.first[0])
    ids = [START, *window.question_ids().tolist(), END, *window.context_ids().tolist(), END]
    before = asked_for + 2  # columns before the window
    question_T2 = tokenizer.places(question, tokenizer.encode([question])[0])[:asked_for]
    window_T2 = places_T2[begins : begins + int(window.length[0])]
    words = [*_words(question, question_T2, 1, True), *_words(context, window_T2, before, False)]
    span = range(before + first - begins, before + last - begins + 1)
    removable = [word for word in words if not set(word.columns) & set(span)]
    rows = [range(0), *(word.columns for word in removable)]
    likely = _likely(task.model, ids, before, span, rows, task.hardware.device)
    lost = iter((likely[0] - likely[1:]).tolist())
    return [
        Effect(word.text, word.in_question, None if set(word.columns) & set(span) else next(lost), word.columns)
        for word in words
    ]


def _words(text: str, places_T2: Any, begins: int, in_question: bool) -> list[_Word]:
    """The words of a text that have tokens, with their columns in a row."""
    words: list[_Word] = []
    for match in WORD.finditer(text):
        touched = np.flatnonzero((places_T2[:, 0] < match.end()) & (places_T2[:, 1] > match.start())).tolist()
        # A token with the space before a word is that word's; one that two words share is the first one's.
        inside = [at for at in touched if not words or begins + at not in words[-1].columns]
        if inside:
            words.append(_Word(match.group(), in_question, range(begins + inside[0], begins + inside[-1] + 1)))
    return words


@torch.inference_mode()
def _likely(
    model: Reader, ids: list[int], before: int, span: range, without: list[range], device: torch.device
) -> Tensor:
    """How likely the answer at these columns is (log), with some columns taken away: [N]."""
    likely = []
    for some in (without[at : at + AT_ONCE] for at in range(0, len(without), AT_ONCE)):
        tokens_NT = torch.zeros(len(some), len(ids), dtype=torch.long)
        readable_NT = torch.zeros_like(tokens_NT, dtype=torch.bool)
        shift = torch.zeros(len(some), 2, dtype=torch.long)
        for row, gone in enumerate(some):
            kept = [at for at in range(len(ids)) if at not in gone]
            tokens_NT[row, : len(kept)] = torch.tensor([ids[at] for at in kept])
            readable_NT[row, : len(kept)] = torch.tensor([at == 0 or before <= at < len(ids) - 1 for at in kept])
            shift[row] = torch.tensor([sum(at < edge for at in gone) for edge in (span.start, span.stop - 1)])
        segments_NT = (torch.arange(len(ids)) < (tokens_NT != 0).sum(1, keepdim=True)).long()
        positions_NT = torch.arange(len(ids)).expand_as(tokens_NT)
        inputs = (each.to(device) for each in (tokens_NT, segments_NT, positions_NT, readable_NT))
        with plainly(model):
            start_NT, end_NT = model(*inputs).cpu()
        columns_N2 = torch.tensor([span.start, span.stop - 1]) - shift
        likely.append((start_NT.gather(1, columns_N2[:, :1]) + end_NT.gather(1, columns_N2[:, 1:]))[:, 0])
    return torch.cat(likely)
