"""Markov chains: the next word is predicted from counts. What there was before attention, in three steps up to it.

    first order     P(next | latest)                        a row for each word: N × N
    second order    P(next | the two latest)                a row for each pair of words: N² × N
    with skips      Σ over earlier of P(next | earlier, latest), normalised

With skips a row is a feature: some earlier word of the sentence, however far back, and the latest word. All
features present vote for the next word; a word said twice votes once. Most votes say nothing beyond what the
latest word says alone. Selective masking removes those, and that is attention, written as a product:

    mask = query · K        attended = mask ∘ present        votes = attended · transitions

query is the latest word as a one-hot vector, K has for each latest word a row of zeros and ones over the earlier
words, present is 1 for the words that stand before the latest one.

Every sentence has an end, which is predicted like a word. Only counts above zero are stored, as sorted numbers.

Shapes: W words · N next words · P positions in a text · R rows, one for each context that was seen · F counts in them
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError
from regard.models.counts import Counts, Floats, Ints

ORDERS = ("1", "2", "skip")
END = "<end>"  # no word looks like this: punctuation is stripped
MOST_WORDS = 2_000_000  # different ones: three of their numbers fit into one of 64 bits
MOST_SKIPS = 30_000_000  # pairs in a text, which are all in memory at once: about 2 GB

Bools = NDArray[np.bool_]


class Markov:
    """Counts of what follows what, and the predictions they make. `Markov.fit` makes one."""

    def __init__(self, words: Sequence[str], order: str, text_P: Ints):
        """text_P: numbers of words, with the number of the boundary before and after every sentence."""
        self.words = list(words)  # sorted
        self.order = order
        self.boundary, self.unknown, self.size = len(words), len(words) + 1, len(words) + 2
        self.number = {word: number for number, word in enumerate(self.words)}
        self.sentences = int((text_P == self.boundary).sum()) - 1
        self.word_count = len(text_P) - 1 - self.sentences
        latest_P, next_P = text_P[:-1], text_P[1:]
        self.unigrams = Counts.from_keys(next_P, self.size)
        self.bigrams = Counts.from_keys(latest_P * self.size + next_P, self.size)
        self.pairs = Counts.from_keys(self._pair_keys(text_P), self.size)

    @classmethod
    def fit(cls, sentences: Iterable[Sequence[str]], order: str = "1") -> Markov:
        """Count the words of these sentences; order is "1", "2" or "skip"."""
        if order not in ORDERS:
            raise ValueError(f"order is {order!r}, not one of {ORDERS}")
        seen: dict[str, int] = {}
        text = array("q", [-1])
        for sentence in filter(len, sentences):
            text.extend(seen.setdefault(word, len(seen)) for word in sentence)
            text.append(-1)
        if not seen:
            raise RegardError("The text is empty.", "It has no words.", "Give a text with one sentence per line.")
        if len(seen) > MOST_WORDS:
            raise RegardError(
                f"The text has {len(seen):,} different words.", f"At most {MOST_WORDS:,} fit.", "Give less text."
            )
        words = sorted(seen)
        rank = np.empty(len(words) + 1, np.int64)
        rank[[seen[word] for word in words]] = np.arange(len(words))
        rank[-1] = len(words)  # the boundary
        return cls(words, order, rank[np.frombuffer(text, np.int64)])

    # ------------------------------------------------------------ prediction

    def distribution(self, so_far: Sequence[str], mask: bool = False) -> dict[str, float]:
        """The next word (or `END`) after these, each with its probability; those of probability 0 are left out."""
        p_N = self._predict(self._numbers(so_far), mask)
        names = [*self.words, END]
        return {names[number]: float(p_N[number]) for number in np.flatnonzero(p_N)}

    def rests_on(self, so_far: Sequence[str], mask: bool = False) -> str:
        """What the prediction comes from: "start", "latest", "pair" or "votes"."""
        numbers = self._numbers(so_far)
        if not numbers:
            return "start"
        if self._sum_of_votes(numbers, mask) is None:
            return "latest"
        return "pair" if self.order == "2" else "votes"

    def sample(
        self, generator: np.random.Generator, so_far: Sequence[str] = (), mask: bool = False, longest: int = 100
    ) -> list[str]:
        """Words drawn one after the other: what follows `so_far`, until the sentence ends or `longest` are drawn."""
        numbers = self._numbers(so_far)
        while len(numbers) < len(so_far) + longest:
            number = int(generator.choice(self.size, p=self._predict(numbers, mask)))
            if number == self.boundary:
                break
            numbers.append(number)
        return [self.words[number] for number in numbers[len(so_far) :]]

    def _predict(self, so_far: list[int], mask: bool) -> Floats:
        """Probabilities by number [size]; where there is neither pair nor vote, from the latest word alone."""
        votes = self._sum_of_votes(so_far, mask)
        if votes is None:
            context = so_far[-1] if so_far else self.boundary
            votes = self.bigrams.row_shares(int(self.bigrams.find(np.array([context]))[0]))
        return votes / votes.sum()

    def _sum_of_votes(self, so_far: list[int], mask: bool) -> Floats | None:
        """The sum of the rows that vote after these words, beyond that of the latest; None if there is none."""
        if self.order == "1" or not so_far:
            return None
        *earlier, latest = so_far
        voters = set(earlier) if self.order == "skip" else {earlier[-1] if earlier else self.boundary}
        rows = self.pairs.find(np.array([voter * self.size + latest for voter in sorted(voters)], np.int64))
        rows = rows[self._may_vote(rows, mask)]
        return np.sum([self.pairs.row_shares(row) for row in rows], axis=0) if rows.size else None

    def _numbers(self, words: Sequence[str]) -> list[int]:
        for word in words:
            if word not in self.number:
                near = difflib.get_close_matches(word, self.words, n=1)
                raise RegardError(
                    f"The word '{word}' is unknown.",
                    "It does not occur in the text that was counted.",
                    f"Did you mean '{near[0]}'?" if near else "Use words of that text.",
                )
        return [self.number[word] for word in words]

    # ------------------------------------------------------------ masking and attention

    @cached_property
    def informative(self) -> Bools:
        """For each pair: does what follows it differ in distribution from what follows its latest word? [R]"""
        pairs, latest_F, next_F = self.pairs, self.pairs.context_F % self.size, self.pairs.keys_F % self.size
        if not pairs.keys_F.size:
            return np.zeros(0, bool)
        # count / total is compared crosswise, in whole numbers: equal shares are exactly equal.
        after_pair = pairs.counts_F * self.bigrams.total(latest_F)
        after_latest = self.bigrams.count(latest_F, next_F) * np.repeat(pairs.totals_R, pairs.distinct_R)
        return np.logical_or.reduceat(after_pair != after_latest, pairs.starts[:-1])

    def _may_vote(self, rows: Ints, mask: bool) -> Bools:
        """Whether these rows vote: those that were seen, and with a mask only the informative ones."""
        if not mask or self.order != "skip" or not self.informative.size:
            return rows >= 0
        return (rows >= 0) & self.informative[rows]

    def most_helped_word(self) -> str:
        """The latest word that earlier words tell most about, in bits over the text; among equals the least certain."""
        pairs, latest_F = self.pairs, self.pairs.context_F % self.size
        alone_F = self.bigrams.count(latest_F, pairs.keys_F % self.size) / self.bigrams.total(latest_F)
        gained = np.bincount(latest_F, pairs.counts_F * np.log2(pairs.shares_F / alone_F), minlength=self.size)
        surprise_F = -self.bigrams.counts_F * np.log2(self.bigrams.shares_F)
        uncertain = np.bincount(self.bigrams.context_F, surprise_F, minlength=self.size)
        words = len(self.words)  # rounded, so that what is equal on paper is a tie; the last key weighs most
        return self.words[np.lexsort([-uncertain[:words].round(6), -gained[:words].round(6)])[0]]

    def vote_table(self, so_far: Sequence[str], mask: bool, among: Sequence[str] | None = None) -> VoteTable:
        """The votes with skips as a product of matrices, over all words or `among` those of the sentence and more."""
        numbers = self._numbers(so_far)
        *earlier, latest = numbers
        among_W = sorted({*numbers, *self._numbers(among)}) if among is not None else list(range(len(self.words)))
        words_W = np.array(among_W, np.int64)
        query_W = (words_W == latest).astype(np.float64)
        present_W = np.isin(words_W, earlier).astype(np.float64)
        rows_W = self.pairs.find(words_W * self.size + latest)
        transitions = np.stack(
            [self.pairs.row_shares(row) if row >= 0 else np.zeros(self.size) for row in rows_W.tolist()]
        )
        masks_WW = np.ones((len(words_W), len(words_W)))
        if mask:
            rows_WW = self.pairs.find((words_W[None, :] * self.size + words_W[:, None]).ravel())
            masks_WW = self._may_vote(rows_WW, mask).reshape(masks_WW.shape).astype(np.float64)
        columns = np.flatnonzero(transitions[present_W > 0].any(axis=0)) if earlier else np.zeros(0, np.int64)
        names = [*self.words, END]
        return VoteTable(
            words=[self.words[number] for number in among_W],
            candidates=[names[column] for column in columns],
            query_W=query_W,
            masks_WW=masks_WW,
            present_W=present_W,
            seen_W=rows_W >= 0,
            transitions_WN=transitions[:, columns],
        )

    # ------------------------------------------------------------ tables

    def contexts(self, latest: str = "", most: int | None = None) -> tuple[list[tuple[str, ...]], int]:
        """The rows of the table, sorted, and how many there are.

        First order: every word. Second order: the pairs that a word follows. With skips: every earlier word
        with this latest one. With `most` below that: this many, the most frequent; none that was never seen.
        """
        if self.order == "1":
            keys = np.arange(len(self.words))
            totals = self.bigrams.total(keys)
        elif self.order == "2":
            inside_F = (self.pairs.keys_F % self.size != self.boundary) & (
                self.pairs.context_F < self.boundary * self.size
            )
            keys = np.unique(self.pairs.context_F[inside_F])
            totals = self.pairs.total(keys)
        else:
            keys = np.arange(len(self.words)) * self.size + self._numbers([latest])[0]
            totals = self.pairs.total(keys)
        shown = keys
        if most is not None and most < len(keys):
            keys, totals = keys[totals > 0], totals[totals > 0]
            shown = np.sort(keys[np.argsort(-totals, kind="stable")[:most]])
        if self.order == "1":
            return [(self.words[key],) for key in shown], len(keys)
        return [(self.words[key // self.size], self.words[key % self.size]) for key in shown], len(keys)

    def row(self, context: Sequence[str]) -> dict[str, float] | None:
        """What follows these one or two words, ends left out; None if they were never seen, {} if only an end was."""
        counts, key = self.pairs if len(context) == 2 else self.bigrams, 0
        for number in self._numbers(context):
            key = key * self.size + number
        row = int(counts.find(np.array([key]))[0])
        if row < 0:
            return None
        shares = counts.row_shares(row)
        shares[self.boundary] = 0
        total = shares.sum()
        return {self.words[number]: float(shares[number] / total) for number in np.flatnonzero(shares)}

    def table(self, latest: str = "") -> tuple[list[tuple[str, ...]], Floats]:
        """All rows, and their probabilities over all words [rows, W]; nan where a context was never seen."""
        contexts, _ = self.contexts(latest)
        values = np.zeros((len(contexts), len(self.words)))
        for probabilities_W, row in zip(values, map(self.row, contexts), strict=True):
            if row is None:
                probabilities_W[:] = np.nan
            else:
                probabilities_W[self._numbers(list(row))] = list(row.values())
        return contexts, values

    # ------------------------------------------------------------ scoring

    def probabilities(self, sentences: Iterable[Sequence[str]], mask: bool = False) -> Floats:
        """The smoothed probability of each word and each end, in the order of the text. [P − 1]

            P(next | context) = (count + distinct · P(next | shorter context)) / (total + distinct)

        count is how often next followed the context, total how often anything did, distinct how many different
        words did (Witten and Bell). The shorter context of a pair is its latest word, of a word the text as a
        whole, and below that all words, the end and one unknown word are equally likely. With skips, each
        vote is smoothed in this way, and their mean is taken.
        """
        boundary = self.boundary
        numbers = array("q", [boundary])
        for sentence in filter(len, sentences):
            numbers.extend(self.number.get(word, self.unknown) for word in sentence)
            numbers.append(boundary)
        text_P = np.frombuffer(numbers, np.int64)
        latest_P, next_P = text_P[:-1], text_P[1:]
        p = np.full(len(next_P), 1 / self.size)
        p = self.unigrams.smooth(np.zeros_like(latest_P), next_P, p)
        p = self.bigrams.smooth(latest_P, next_P, p)
        if self.order == "2":
            pair_P = np.concatenate([[-1], text_P[:-2] * self.size + latest_P[1:]])
            return self.pairs.smooth(np.where(latest_P == boundary, -1, pair_P), next_P, p)
        if self.order == "skip":
            return self._mean_vote(text_P, p, mask)
        return p

    def score(self, sentences: Iterable[Sequence[str]], mask: bool = False) -> TextScore:
        """How well the words and ends of these sentences are predicted, on average."""
        sentences = [sentence for sentence in sentences if sentence]
        bits = float(-np.log2(self.probabilities(sentences, mask)).mean())
        words = sum(map(len, sentences))
        unknown = sum(word not in self.number for sentence in sentences for word in sentence)
        return TextScore(bits, 2**bits, words, len(sentences), unknown)

    def _mean_vote(self, text_P: Ints, alone: Floats, mask: bool) -> Floats:
        total, votes = np.zeros_like(alone), np.zeros_like(alone)
        for earlier, latest in _skips(text_P, self.boundary, self.size):
            context = text_P[earlier] * self.size + text_P[latest]
            # Looked up in rising order, numbers lie near the last ones in memory: far faster in large tables.
            rising = np.argsort(context * self.size + text_P[latest + 1])
            context, latest = context[rising], latest[rising]
            voting = self._may_vote(self.pairs.find(context), mask)
            context, latest = context[voting], latest[voting]
            total[latest] += self.pairs.smooth(context, text_P[latest + 1], alone[latest])
            votes[latest] += 1
        return np.where(votes > 0, total / np.maximum(votes, 1), alone)

    def _pair_keys(self, text_P: Ints) -> Ints:
        """A key for each pair of words and what follows it: two adjacent words, or with skips any two."""
        if self.order == "1":
            return np.zeros(0, np.int64)
        if self.order == "2":
            inside = text_P[1:-1] != self.boundary
            return ((text_P[:-2] * self.size + text_P[1:-1]) * self.size + text_P[2:])[inside]
        number = _count_skips(text_P, self.boundary, self.size)
        if number > MOST_SKIPS:
            raise RegardError(
                f"The text has {number:,} pairs of an earlier and a latest word.",
                f"At most {MOST_SKIPS:,} fit; they grow with the square of a sentence's length.",
                "Put one sentence on a line, give less text, or use order 2.",
            )
        keys = np.empty(number, np.int64)
        start = 0
        for earlier, latest in _skips(text_P, self.boundary, self.size):
            pair = text_P[earlier] * self.size + text_P[latest]
            keys[start : start + len(pair)] = pair * self.size + text_P[latest + 1]
            start += len(pair)
        return keys


@dataclass(frozen=True)
class VoteTable:
    """One prediction with skips, as matrices; see the head of this file."""

    words: list[str]  # W, sorted
    candidates: list[str]  # N, words that get a vote, and maybe END
    query_W: Floats
    masks_WW: Floats  # K: a row for each latest word
    present_W: Floats
    seen_W: Bools  # whether the earlier word ever stood before the latest one
    transitions_WN: Floats

    @property
    def mask_W(self) -> Floats:
        return self.query_W @ self.masks_WW

    @property
    def attended_W(self) -> Floats:
        return self.mask_W * self.present_W

    @property
    def votes_N(self) -> Floats:
        return self.attended_W @ self.transitions_WN


@dataclass(frozen=True)
class TextScore:
    """How well a chain predicts a text."""

    bits_per_word: float  # the end of a sentence counts as a word
    perplexity: float
    words: int
    sentences: int
    unknown: int  # words that the model has never seen


def split_words(text: str) -> list[str]:
    """The words between spaces and dashes: lower-cased, without the punctuation before and after them."""
    marks = "".join(letter for letter in set(text) if unicodedata.category(letter)[0] in "PSC")
    parts = (part.strip(marks) for part in re.sub("--+|[—–]", " ", text).lower().split())
    return [part for part in parts if part]


def _skips(text_P: Ints, boundary: int, size: int) -> Iterator[tuple[Ints, Ints]]:
    """Positions of earlier and latest words of the same sentence, one distance after the other."""
    positions, ends = _first_occurrences(text_P, boundary, size)
    distance = 1
    while (near := positions + distance < ends).any():
        positions, ends = positions[near], ends[near]
        yield positions, positions + distance
        distance += 1


def _count_skips(text_P: Ints, boundary: int, size: int) -> int:
    positions, ends = _first_occurrences(text_P, boundary, size)
    return int((ends - positions - 1).sum())


def _first_occurrences(text_P: Ints, boundary: int, size: int) -> tuple[Ints, Ints]:
    """Where each word occurs in a sentence for the first time, and where that sentence ends."""
    is_boundary = text_P == boundary
    _, first = np.unique(np.cumsum(is_boundary) * size + text_P, return_index=True)
    positions = np.sort(first[~is_boundary[first]])
    boundaries = np.flatnonzero(is_boundary)
    return positions, boundaries[np.searchsorted(boundaries, positions)]
