"""BPE dropout: the cuttings of a word come as often as the paper's algorithm, and the library, give them."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from functools import cache

import pytest
from tokenizers import Tokenizer, models

from regard.data.bpe_dropout import cut
from regard.data.samples import english_german
from regard.data.tokenizers import SPECIALS, TextTokenizer, train_tokenizer
from regard.settings import TokenizerSettings

SAMPLES = 6000
Ranks = dict[tuple[int, int], tuple[int, int]]
Cutting = tuple[int, ...]


def learn(texts: list[str], vocabulary: int) -> tuple[TextTokenizer, Ranks]:
    tokenizer = train_tokenizer(texts, TokenizerSettings(kind="bpe", vocabulary=vocabulary))
    return tokenizer, {(left, right): (rank, joined) for rank, (left, right, joined) in enumerate(tokenizer.merges())}


WORDS = [" the", " nicht", " girl", " Mann", " a", " Sie"]
LEARNED = learn([text for pair in english_german.pairs(1500, seed=6) for text in pair], 900)


def bytes_of(tokenizer: TextTokenizer, word: str) -> list[int]:
    id_of = {tokenizer.piece(token): token for token in range(len(SPECIALS), 259)}
    return [id_of[letter] for letter in word]


def sample(pieces: list[int], ranks: Ranks, probability: float) -> Counter[Cutting]:
    draw = random.Random(5).random
    return Counter(tuple(cut(pieces, ranks, probability, draw)) for _ in range(SAMPLES))


def by_definition(pieces: list[int], ranks: Ranks, probability: float) -> dict[Cutting, float]:
    """The exact probability of every cutting (Provilkov et al., 2020, algorithm 1).

    Every possible merge is dropped with probability p, then the best that is left is made, until none is left. So of
    the candidates in order of rank the k-th is made with probability p ** (k - 1) * (1 - p).
    """

    @cache
    def outcomes(state: Cutting) -> dict[Cutting, float]:
        candidates = sorted(
            (*ranks[pair], place) for place, pair in enumerate(itertools.pairwise(state)) if pair in ranks
        )
        found: Counter[Cutting] = Counter({state: probability ** len(candidates)})
        for skipped, (_, joined, place) in enumerate(candidates):
            for end, chance in outcomes((*state[:place], joined, *state[place + 2 :])).items():
                found[end] += probability**skipped * (1 - probability) * chance
        return found

    return outcomes(tuple(pieces))


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("word", WORDS)
def test_cuttings_come_as_often_as_the_paper_says(word, probability):
    tokenizer, ranks = LEARNED
    expected = by_definition(bytes_of(tokenizer, word), ranks, probability)
    assert sum(expected.values()) == pytest.approx(1)
    found = sample(bytes_of(tokenizer, word), ranks, probability)
    assert set(found) <= set(expected)
    for cutting, chance in expected.items():
        error = math.sqrt(SAMPLES * chance * (1 - chance)) + 1
        assert abs(found[cutting] - SAMPLES * chance) < 4.5 * error, [tokenizer.piece(piece) for piece in cutting]


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("word", ["lamp", "branch", "frühwald"])
def test_cuttings_come_as_often_as_in_the_library(word, probability):
    """For a word whose merges never compete for a letter.

    Where they do, the library differs from the paper: a merge that has become impossible stays in its queue, and when
    its turn comes, the merges dropped so far get another chance. The test above covers those words.
    """
    tokenizer, ranks = learn([word], 259 + len(word.encode()))
    (token,) = tokenizer.encode([word])[0]
    assert tokenizer.piece(token) == f" {word}"
    model = json.loads(tokenizer.to_json())["model"]
    library = Tokenizer(models.BPE(model["vocab"], [tuple(merge) for merge in model["merges"]], dropout=probability))
    names = {number: name for name, number in model["vocab"].items()}
    pieces = spelled(token, tokenizer)
    theirs = Counter(
        tuple(encoding.ids) for encoding in library.encode_batch(["".join(names[p] for p in pieces)] * SAMPLES)
    )
    ours = sample(pieces, ranks, probability)
    for cutting, _ in (ours + theirs).most_common(10):
        chance = (ours[cutting] + theirs[cutting]) / (2 * SAMPLES)
        error = math.sqrt(2 * SAMPLES * chance * (1 - chance)) + 1
        # The library's draws are different in every run: wide enough for one false alarm in ten thousand.
        assert abs(ours[cutting] - theirs[cutting]) < 5 * error, [tokenizer.piece(piece) for piece in cutting]


def spelled(token: int, tokenizer: TextTokenizer) -> list[int]:
    """A token as the bytes it was merged from."""
    parts = {joined: (left, right) for left, right, joined in tokenizer.merges()}
    return [byte for part in parts[token] for byte in spelled(part, tokenizer)] if token in parts else [token]


def test_without_dropout_a_word_is_put_together_again():
    tokenizer, ranks = LEARNED
    for word in WORDS:
        whole = tokenizer.encode([word.strip()])[0]
        assert cut(bytes_of(tokenizer, word), ranks, 0.0, random.Random(1).random) == whole


def test_with_certain_dropout_a_word_stays_in_bytes():
    tokenizer, ranks = LEARNED
    assert cut(bytes_of(tokenizer, " the"), ranks, 1.0, random.Random(1).random) == bytes_of(tokenizer, " the")
