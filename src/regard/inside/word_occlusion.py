"""Occlusion of words: how the probability of an answer changes when a word of the question or context is removed.

    effect(w) = ln p(answer) − ln p(answer | w removed)          in nats; above 0: the word is evidence for the answer

The words of the answer itself stay. Only the window that contains the answer is considered.

Shapes: N removed words · T positions · 2 start and end
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
from regard.inside.subject import unfused_eval
from regard.models.reader import Reader

AT_ONCE = 64  # rows
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Effect:
    """A word, of the question or the context; `effect` is None for the words of the answer."""

    word: str
    in_question: bool
    effect: float | None
    columns: range  # in the row that the model reads


@dataclass(frozen=True)
class _Word:
    text: str
    in_question: bool
    columns: range


def effects_of_words(task: Any, question: str, context: str, answer: Answer) -> list[Effect]:
    """For every word of the question and of the window with the answer, in order."""
    tokenizer: TextTokenizer = task.tokenizer
    data = task.settings.data
    places_T2 = tokenizer.places(context, tokenizer.encode([context])[0])
    first, last = tokens_of(Place(answer.start, answer.end), places_T2)
    windows = windows_of(asked(tokenizer, question, context), data.max_length, data.stride)
    window = window_around(windows, first, last)
    question_length, window_start = int(window.question_length[0]), int(window.first[0])
    ids = [START, *window.question_ids().tolist(), END, *window.context_ids().tolist(), END]
    before = question_length + 2  # columns before the window
    question_T2 = tokenizer.places(question, tokenizer.encode([question])[0])[:question_length]
    window_T2 = places_T2[window_start : window_start + int(window.length[0])]
    words = [*_words(question, question_T2, 1, True), *_words(context, window_T2, before, False)]
    span = range(before + first - window_start, before + last - window_start + 1)
    removable = [word for word in words if not set(word.columns) & set(span)]
    rows = [range(0), *(word.columns for word in removable)]
    log_p_N = _log_p(task.model, ids, before, span, rows, task.hardware.device)
    drops = iter((log_p_N[0] - log_p_N[1:]).tolist())
    return [
        Effect(word.text, word.in_question, None if set(word.columns) & set(span) else next(drops), word.columns)
        for word in words
    ]


def _words(text: str, places_T2: Any, first_column: int, in_question: bool) -> list[_Word]:
    """The words of a text that have tokens, with their columns in the row."""
    words: list[_Word] = []
    for match in WORD.finditer(text):
        touched = np.flatnonzero((places_T2[:, 0] < match.end()) & (places_T2[:, 1] > match.start())).tolist()
        # A token that starts with the space before a word belongs to that word; one that two words share, to the first.
        own = [token for token in touched if not words or first_column + token not in words[-1].columns]
        if own:
            words.append(_Word(match.group(), in_question, range(first_column + own[0], first_column + own[-1] + 1)))
    return words


@torch.inference_mode()
def _log_p(
    model: Reader, ids: list[int], before: int, span: range, removed: list[range], device: torch.device
) -> Tensor:
    """ln p of the answer at these columns, with some columns removed: [N]."""
    log_p = []
    for chunk in (removed[start : start + AT_ONCE] for start in range(0, len(removed), AT_ONCE)):
        tokens_NT = torch.zeros(len(chunk), len(ids), dtype=torch.long)
        readable_NT = torch.zeros_like(tokens_NT, dtype=torch.bool)
        shift_N2 = torch.zeros(len(chunk), 2, dtype=torch.long)
        for row, columns in enumerate(chunk):
            rest = [column for column in range(len(ids)) if column not in columns]
            tokens_NT[row, : len(rest)] = torch.tensor([ids[column] for column in rest])
            readable = [column == 0 or before <= column < len(ids) - 1 for column in rest]
            readable_NT[row, : len(rest)] = torch.tensor(readable)
            shift_N2[row] = torch.tensor([sum(column < end for column in columns) for end in (span[0], span[-1])])
        segments_NT = (torch.arange(len(ids)) < (tokens_NT != 0).sum(1, keepdim=True)).long()
        positions_NT = torch.arange(len(ids)).expand_as(tokens_NT)
        inputs = (x_NT.to(device) for x_NT in (tokens_NT, segments_NT, positions_NT, readable_NT))
        with unfused_eval(model):
            start_NT, end_NT = model(*inputs).cpu()
        columns_N2 = torch.tensor([span[0], span[-1]]) - shift_N2
        log_p.append((start_NT.gather(1, columns_N2[:, :1]) + end_NT.gather(1, columns_N2[:, 1:]))[:, 0])
    return torch.cat(log_p)
