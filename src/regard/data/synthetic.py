"""Made-up sequences: they ask what a model can remember, and where it stood.

    copy             <start> 3 1 3 | 3 1 3              the symbols once more
    reverse          <start> 3 1 2 | 2 1 3              backwards
    sort             <start> 3 1 2 | 1 2 3              from small to large
    recall           k1 v4 k0 v2 k1 v4 k2 v3 k0 v2      the value of the last key, which has occurred before
    recall-multi     the same sequences                 the value of every key that has occurred before
    recall-one-shot  . k1 v4 . . . k0 v2 . k1 v4        every key once, anywhere, then one of them again
    permutations     bac cab acb                        what all of them up to here make of abc: bac, cba, cab

Only the answers have labels. A model reads all tokens but the last, and each label is the token that comes next; only
with permutations it reads all, and labels stand where it has read enough to know.

Recall: half of the vocabulary are keys and half values; every sequence gives each key another value of its own, at
random. Chance is 1 / number of values. In a small vocabulary a key recurs soon (with 15 keys, every 30 tokens), so
`recall` can be solved by looking back a little, however long the sequence is. `recall-one-shot` cannot: what it asks
for was said once, anywhere. Sort is easier than chance says, since an answer never falls.

Permutations: a symbol is one of the n! orders of n elements, and says which of the elements that are there now comes to
each place. What came of all so far must be known to apply the next: there is no shorter way, as there is for sums.

Training never shows a sequence twice: batch by batch they follow from (seed, row of the stream). Those to validate
and to test on follow from other numbers, and are the same for every seed, so that runs can be compared. Short
sequences of few symbols may still come up on both sides by chance.

Shapes: B sequences · S tokens of each · T = S − 1 positions that are read (of permutations, S) · N symbols · P pairs ·
        K keys · E elements
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.stream import Part, Stream
from regard.data.text_batches import TextBatch
from regard.data.tokenizers import PAD, SPECIALS, START
from regard.settings import SyntheticSettings

MARK = len(SPECIALS)  # between question and answer; in one-shot sequences, where nothing is said
FIRST = MARK + 1  # the first ordinary symbol
TRAIN, VALID, TEST = 1, 2, 3  # random numbers of different splits start from these

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]


class SyntheticStream(Stream[range, TextBatch]):
    """One epoch that has no end."""

    def __init__(self, settings: SyntheticSettings, rows: int, seed: int):
        self.settings, self.rows, self.seed = settings, rows, seed

    def open(self, epoch: int, window: int) -> range:
        return range(sys.maxsize)

    def collate(self, parts: list[Part[range]]) -> TextBatch:
        generator = np.random.default_rng([TRAIN, self.seed, parts[0].rows.start])
        return sequences(self.settings, self.rows, generator, training=True)


def held_out(settings: SyntheticSettings, split: str) -> TextBatch:
    """The sequences of "valid" or "test", all in one batch."""
    generator = np.random.default_rng([VALID if split == "valid" else TEST])
    return sequences(settings, settings.test_sequences, generator)


def sequences(
    settings: SyntheticSettings, rows: int, generator: np.random.Generator, training: bool = False
) -> TextBatch:
    """Fresh sequences, with the labels of their kind; in training, with those to learn from."""
    kind = settings.kind
    if training and kind == "recall" and settings.learn_from == "all":
        kind = "recall-multi"
    if kind == "permutations":
        tokens_BT, labels_BT = _permutations(settings, rows, generator)
        return TextBatch(labels=_tensor(labels_BT), tokens_BT=_tensor(tokens_BT))
    tokens_BS, answers_BS = KINDS[kind](settings, rows, generator)
    labels_BS = np.where(answers_BS, tokens_BS, PAD)
    return TextBatch(labels=_tensor(labels_BS[:, 1:]), tokens_BT=_tensor(tokens_BS[:, :-1]))


def vocabulary_size(settings: SyntheticSettings) -> int:
    """Of the model: the symbols, and what is special."""
    return FIRST + settings.vocabulary


def chance(settings: SyntheticSettings) -> float:
    """How many answers are right, in percent, if each is any symbol that may be an answer."""
    recall = settings.kind.startswith("recall")
    return 100 / (settings.vocabulary // 2 if recall else settings.vocabulary)


def spell(settings: SyntheticSettings, token: int) -> str:
    """A token, for people."""
    if token < MARK:
        return SPECIALS[token]
    recall, keys = settings.kind.startswith("recall"), settings.vocabulary // 2
    if token == MARK:
        return "." if recall else "|"
    symbol = token - FIRST
    if settings.kind == "permutations":
        return "".join(chr(ord("a") + element) for element in _orders(settings.elements)[symbol])
    if not recall:
        return str(symbol)
    return f"k{symbol}" if symbol < keys else f"v{symbol - keys}"


# ------------------------------------------------------------ the kinds: tokens, and which of them are answers


def _answered(settings: SyntheticSettings, rows: int, generator: np.random.Generator, answer: Any) -> tuple[Ids, Flags]:
    """<start>, symbols (drawn with repetition), a mark, and what `answer` makes of the symbols."""
    count = settings.length // 2 - 1
    symbols_BN = FIRST + generator.integers(settings.vocabulary, size=(rows, count))
    start_B1, mark_B1 = np.full((rows, 1), START), np.full((rows, 1), MARK)
    tokens_BS = np.concatenate([start_B1, symbols_BN, mark_B1, answer(symbols_BN)], axis=1)
    answers_BS = np.zeros(tokens_BS.shape, bool)
    answers_BS[:, -count:] = True
    return tokens_BS, answers_BS


def _copy(settings: SyntheticSettings, rows: int, generator: np.random.Generator) -> tuple[Ids, Flags]:
    return _answered(settings, rows, generator, lambda symbols_BN: symbols_BN)


def _reverse(settings: SyntheticSettings, rows: int, generator: np.random.Generator) -> tuple[Ids, Flags]:
    return _answered(settings, rows, generator, lambda symbols_BN: symbols_BN[:, ::-1])


def _sort(settings: SyntheticSettings, rows: int, generator: np.random.Generator) -> tuple[Ids, Flags]:
    return _answered(settings, rows, generator, lambda symbols_BN: np.sort(symbols_BN, axis=1))


def _recall_multi(settings: SyntheticSettings, rows: int, generator: np.random.Generator) -> tuple[Ids, Flags]:
    """Pairs of a key and its value. The last key is any of those before it, each as likely."""
    count, pairs = settings.vocabulary // 2, settings.length // 2
    value_of_BK = _dictionaries(rows, count, generator)
    keys_BP = generator.integers(count, size=(rows, pairs))
    occurred_BK = np.zeros((rows, count), bool)
    np.put_along_axis(occurred_BK, keys_BP[:, :-1], True, axis=1)
    keys_BP[:, -1] = np.where(occurred_BK, generator.random((rows, count)), -1.0).argmax(1)
    tokens_BS = np.empty((rows, 2 * pairs), np.int64)
    tokens_BS[:, 0::2] = FIRST + keys_BP
    tokens_BS[:, 1::2] = FIRST + count + np.take_along_axis(value_of_BK, keys_BP, axis=1)
    answers_BS = np.zeros(tokens_BS.shape, bool)
    answers_BS[:, 1::2] = _occurred_before(keys_BP)
    return tokens_BS, answers_BS


def _recall(settings: SyntheticSettings, rows: int, generator: np.random.Generator) -> tuple[Ids, Flags]:
    tokens_BS, _ = _recall_multi(settings, rows, generator)
    return tokens_BS, _only_last(tokens_BS)


def _recall_one_shot(settings: SyntheticSettings, rows: int, generator: np.random.Generator) -> tuple[Ids, Flags]:
    """Every key once with its value, in random order and at random positions; then one of the keys again."""
    count = settings.vocabulary // 2
    keys_BK = _dictionaries(rows, count, generator)
    values_BK = _dictionaries(rows, count, generator)
    # Each pair is one of `things` in a row, the others being marks; a pair moves what follows it by one.
    things = settings.length - 2 - count
    chosen_BK = generator.random((rows, things)).argsort(1)[:, :count]
    starts_BK = np.sort(chosen_BK, axis=1) + np.arange(count)
    tokens_BS = np.full((rows, settings.length), MARK)
    np.put_along_axis(tokens_BS, starts_BK, FIRST + keys_BK, axis=1)
    np.put_along_axis(tokens_BS, starts_BK + 1, FIRST + count + values_BK, axis=1)
    asked_B1 = generator.integers(count, size=(rows, 1))
    tokens_BS[:, -2:-1] = FIRST + np.take_along_axis(keys_BK, asked_B1, axis=1)
    tokens_BS[:, -1:] = FIRST + count + np.take_along_axis(values_BK, asked_B1, axis=1)
    return tokens_BS, _only_last(tokens_BS)


def _permutations(settings: SyntheticSettings, rows: int, generator: np.random.Generator) -> tuple[Ids, Ids]:
    """Permutations, and at each the one that all so far amount to: not tokens and answers, but tokens and labels."""
    then_NN = _compositions(settings.elements)
    symbols_BT = generator.integers(settings.vocabulary, size=(rows, settings.length))
    so_far_BT = symbols_BT.copy()
    for position in range(1, settings.length):
        so_far_BT[:, position] = then_NN[so_far_BT[:, position - 1], symbols_BT[:, position]]
    return FIRST + symbols_BT, FIRST + so_far_BT


@cache
def _orders(elements: int) -> Ids:
    """All permutations: [N, E]."""
    return np.array(list(permutations(range(elements))))


@cache
def _compositions(elements: int) -> Ids:
    """Which one a and then b amount to, [a, b]: each place has what a had put where b takes it from."""
    orders_NE = _orders(elements)
    number_of = {tuple(order): number for number, order in enumerate(orders_NE.tolist())}
    return np.array([[number_of[tuple(a_E[b_E].tolist())] for b_E in orders_NE] for a_E in orders_NE])


Maker = Callable[[SyntheticSettings, int, np.random.Generator], tuple[Ids, Flags]]
KINDS: dict[str, Maker] = {
    "copy": _copy,
    "reverse": _reverse,
    "sort": _sort,
    "recall": _recall,
    "recall-multi": _recall_multi,
    "recall-one-shot": _recall_one_shot,
}


def _dictionaries(rows: int, count: int, generator: np.random.Generator) -> Ids:
    """The numbers below `count` in another order in every row: [rows, count].

    One to one: were values drawn one by one, the commonest value of a sequence would be a good guess.
    """
    return generator.permuted(np.tile(np.arange(count), (rows, 1)), axis=1)


def _occurred_before(keys_BP: Ids) -> Flags:
    """Whether the same key stands further to the left."""
    order_BP = keys_BP.argsort(axis=1, kind="stable")
    sorted_BP = np.take_along_axis(keys_BP, order_BP, axis=1)
    again_BP = np.zeros(keys_BP.shape, bool)
    np.put_along_axis(again_BP, order_BP[:, 1:], sorted_BP[:, 1:] == sorted_BP[:, :-1], axis=1)
    return again_BP


def _only_last(tokens_BS: Ids) -> Flags:
    last_BS = np.zeros(tokens_BS.shape, bool)
    last_BS[:, -1] = True
    return last_BS


def _tensor(ids_BT: Ids) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids_BT))
