"""Markov chains: the lecture's tables come out, predictions are what their formulas say, attention is their product."""

from __future__ import annotations

from collections import Counter
from math import log2, nan

import numpy as np
import pytest

from regard.data.samples import english_german
from regard.errors import RegardError
from regard.models import markov
from regard.models.markov import END, ORDERS, Markov, split_words

SHOW = ["show me my directories please"] * 2 + ["show me my files please"] * 3 + ["show me my photos please"] * 5
RAN = ["Check whether the battery ran down please."] * 40 + ["Check whether the program ran please."] * 60
LOG = [
    "Check the program log and find out whether it ran please.",
    "Check the battery log and find out whether it ran down please.",
]
PROGRAM = ["check", "the", "program", "log", "and", "find", "out", "whether", "it", "ran"]
BATTERY = ["check", "the", "battery", "log", "and", "find", "out", "whether", "it", "ran"]


def fit(lines: list[str], order: str) -> Markov:
    return Markov.fit([split_words(line) for line in lines], order)


def random_text(seed: int, sentences: int = 60, vocabulary: int = 9) -> list[list[str]]:
    """Short sentences of few words, with words said twice, in which some pairs are never seen."""
    generator = np.random.default_rng(seed)
    likely = generator.dirichlet(np.full(vocabulary, 0.5))
    lengths = generator.integers(1, 9, sentences)
    return [[f"w{number}" for number in generator.choice(vocabulary, length, p=likely)] for length in lengths]


# ---------------------------------------------------------------- the lecture's tables


def test_first_example_is_the_lectures_first_order_table():
    model = fit(SHOW, "1")
    contexts, values = model.table()
    assert model.words == ["directories", "files", "me", "my", "photos", "please", "show"]
    assert contexts == [(word,) for word in model.words]
    np.testing.assert_array_equal(
        values,
        [
            [0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 1, 0, 0, 0],
            [0.2, 0.3, 0, 0, 0.5, 0, 0],
            [0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 0, 0, 0, 0],
            [0, 0, 1, 0, 0, 0, 0],
        ],
    )


def test_second_example_is_the_lectures_first_order_table():
    model = fit(RAN, "1")
    assert model.words == ["battery", "check", "down", "please", "program", "ran", "the", "whether"]
    np.testing.assert_array_equal(
        model.table()[1],
        [
            [0, 0, 0, 0, 0, 1, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 1, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 1, 0, 0],
            [0, 0, 0.4, 0.6, 0, 0, 0, 0],
            [0.4, 0, 0, 0, 0.6, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 1, 0],
        ],
    )


def test_second_example_is_the_lectures_second_order_table():
    contexts, values = fit(RAN, "2").table()
    rows = {" ".join(context): row.tolist() for context, row in zip(contexts, values, strict=True)}
    assert rows == {
        "battery ran": [0, 0, 1, 0, 0, 0, 0, 0],
        "check whether": [0, 0, 0, 0, 0, 0, 1, 0],
        "program ran": [0, 0, 0, 1, 0, 0, 0, 0],
        "ran down": [0, 0, 0, 1, 0, 0, 0, 0],
        "the battery": [0, 0, 0, 0, 0, 1, 0, 0],
        "the program": [0, 0, 0, 0, 0, 1, 0, 0],
        "whether the": [0.4, 0, 0, 0, 0.6, 0, 0, 0],
    }
    assert list(rows) == sorted(rows)


def test_third_example_is_the_lectures_table_with_skips():
    model = fit(LOG, "skip")
    contexts, values = model.table("ran")
    assert contexts == [(word, "ran") for word in model.words]
    down, please = model.number["down"], model.number["please"]
    expected = {
        "and": (0.5, 0.5),
        "battery": (1, 0),
        "check": (0.5, 0.5),
        "down": (nan, nan),
        "find": (0.5, 0.5),
        "it": (0.5, 0.5),
        "log": (0.5, 0.5),
        "out": (0.5, 0.5),
        "please": (nan, nan),
        "program": (0, 1),
        "ran": (nan, nan),
        "the": (0.5, 0.5),
        "whether": (0.5, 0.5),
    }
    assert list(expected) == model.words
    np.testing.assert_array_equal(values[:, [down, please]], list(expected.values()))
    others = np.delete(values, [down, please], axis=1)
    assert np.nansum(others) == 0


def test_third_example_votes_as_in_the_lecture():
    model = fit(LOG, "skip")
    for sentence, votes, masked in ((PROGRAM, (4, 5), (0, 1)), (BATTERY, (5, 4), (1, 0))):
        every, informative = model.vote_table(sentence, mask=False), model.vote_table(sentence, mask=True)
        assert every.candidates == informative.candidates == ["down", "please"]
        assert tuple(every.votes_N) == votes and tuple(informative.votes_N) == masked
    assert model.distribution(PROGRAM) == pytest.approx({"down": 4 / 9, "please": 5 / 9})
    assert model.distribution(PROGRAM, mask=True) == {"please": 1}
    assert model.distribution(BATTERY, mask=True) == {"down": 1}


def test_third_example_masks_all_but_battery_and_program():
    found = fit(LOG, "skip").vote_table(PROGRAM, mask=True)
    kept = [(found.words[row], found.words[column]) for row, column in np.argwhere(found.masks_WW)]
    assert kept == [("ran", "battery"), ("ran", "program")]
    assert [found.words[place] for place in np.flatnonzero(found.query_W)] == ["ran"]
    assert [found.words[place] for place in np.flatnonzero(found.mask_W)] == ["battery", "program"]
    assert [found.words[place] for place in np.flatnonzero(found.attended_W)] == ["program"]


def test_the_word_to_show_is_the_one_that_earlier_words_help_with():
    # In the third example 'the' is as uncertain as 'ran', but no earlier word helps.
    assert fit(LOG, "skip").most_helped_word() == "ran"
    assert fit(RAN, "skip").most_helped_word() == "ran"
    assert fit(SHOW, "skip").most_helped_word() == "my"


# ---------------------------------------------------------------- tables and predictions of any text


@pytest.mark.parametrize("order", ORDERS)
def test_rows_sum_to_one_or_nothing(order: str):
    model = Markov.fit(random_text(1), order)
    sums = np.concatenate([model.table(latest)[1].sum(axis=1) for latest in model.words])
    seen = sums[~np.isnan(sums)]
    assert np.isclose(seen, 1).sum() > 5
    np.testing.assert_allclose(seen[~np.isclose(seen, 1)], 0)
    assert np.isnan(sums).any() == (order == "skip")


def test_a_prediction_is_what_followed_in_the_text():
    text = random_text(2)
    for so_far in (["w1"], ["w1", "w0"], ["w2", "w1", "w0"]):
        after: dict[str, Counter[str]] = {"1": Counter(), "2": Counter()}
        for sentence in text:
            padded = ["start", *sentence, END]
            for place in range(1, len(padded) - 1):
                if padded[place] == so_far[-1]:
                    after["1"][padded[place + 1]] += 1
                    if padded[place - 1] == [*["start"], *so_far][-2]:
                        after["2"][padded[place + 1]] += 1
        for order, counts in after.items():
            assert counts, so_far
            expected = {word: times / counts.total() for word, times in counts.items()}
            assert Markov.fit(text, order).distribution(so_far) == pytest.approx(expected)


def test_skips_count_each_earlier_word_once_however_often_it_was_said():
    model = Markov.fit([["a", "a", "b", "c"], ["a", "b", "d"], ["b", "d"]], "skip")
    assert model.row(["a", "b"]) == {"c": 0.5, "d": 0.5}
    assert model.row(["a", "a"]) == {"b": 1}
    assert model.row(["b", "a"]) is None
    assert model.row(["b", "c"]) == {}
    once, twice = model.distribution(["a", "b"]), model.distribution(["a", "a", "b"])
    assert once == twice == {"c": 0.5, "d": 0.5}
    assert model.distribution(["b"]) == pytest.approx({"c": 1 / 3, "d": 2 / 3})


@pytest.mark.parametrize("mask", [False, True])
def test_the_product_of_matrices_is_the_sum_of_the_votes(mask: bool):
    text = random_text(3) + random_text(4, sentences=5, vocabulary=14)
    model = Markov.fit(text, "skip")
    crossed_out = 0
    for sentence in text:
        latest = sentence[-1]
        direct: Counter[str] = Counter()
        alone = model.distribution([latest])
        for earlier in set(sentence[:-1]):
            vote = model.distribution([earlier, latest])  # one earlier word: its row alone
            if mask and vote == pytest.approx(alone):
                crossed_out += 1
            else:
                direct.update(vote)
        found = model.vote_table(sentence, mask)
        small = model.vote_table(sentence, mask, among=sentence)
        assert set(direct) <= set(found.candidates)
        np.testing.assert_allclose(found.votes_N, [direct[word] for word in found.candidates], atol=1e-12)
        np.testing.assert_allclose(small.votes_N, found.votes_N)
        if direct:
            expected = {word: votes / direct.total() for word, votes in direct.items()}
            assert model.distribution(sentence, mask) == pytest.approx(expected)
        else:
            assert model.distribution(sentence, mask) == alone
    assert (crossed_out > 0) == mask


def test_a_pair_never_seen_leaves_the_prediction_to_the_latest_word():
    model = fit(RAN, "2")
    assert model.distribution(["please", "ran"]) == model.distribution(["down", "ran"]) == {"down": 0.4, "please": 0.6}
    assert model.rests_on(["please", "ran"]) == "latest" and model.rests_on(["battery", "ran"]) == "pair"


def test_sentences_of_one_word_have_no_votes():
    model = Markov.fit([["a"], ["b"], ["b"]], "skip")
    assert model.distribution(["a"], mask=True) == {END: 1}
    assert model.distribution([]) == pytest.approx({"a": 1 / 3, "b": 2 / 3})
    assert 0 < model.score([["a", "b", "a"]], mask=True).perplexity < 100
    assert model.distribution(["a", "b"], mask=True) == {END: 1}


# ---------------------------------------------------------------- sampling


@pytest.mark.parametrize(("order", "mask"), [("1", False), ("2", False), ("skip", False), ("skip", True)])
def test_samples_are_reproduced_by_their_seed(order: str, mask: bool):
    model = Markov.fit(random_text(5), order)
    first, again, other = (
        [model.sample(generator, mask=mask) for _ in range(20)] for generator in map(np.random.default_rng, (7, 7, 8))
    )
    assert first == again != other


def test_samples_are_as_frequent_as_probable():
    drawn, generator = 4000, np.random.default_rng(1)
    model = fit(SHOW, "1")
    counts = Counter(" ".join(model.sample(generator)) for _ in range(drawn))
    assert set(counts) == set(SHOW)
    for sentence, share in (("directories", 0.2), ("files", 0.3), ("photos", 0.5)):
        # Within four standard errors.
        error = (share * (1 - share) / drawn) ** 0.5
        assert abs(counts[f"show me my {sentence} please"] / drawn - share) < 4 * error


def test_samples_with_skips_follow_the_votes_and_with_a_mask_the_informative_ones():
    model, drawn, generator = fit(LOG, "skip"), 2000, np.random.default_rng(2)
    every = Counter(model.sample(generator, PROGRAM, longest=1)[0] for _ in range(drawn))
    assert abs(every["down"] / drawn - 4 / 9) < 4 * (20 / 81 / drawn) ** 0.5
    assert {model.sample(generator, PROGRAM, mask=True)[0] for _ in range(200)} == {"please"}


def test_a_sample_ends_though_the_chain_may_not():
    model = Markov.fit([["a"] * 1000], "1")
    assert model.sample(np.random.default_rng(0), ["a"], longest=7) == ["a"] * 7


# ---------------------------------------------------------------- scoring


@pytest.mark.parametrize(("order", "mask"), [("1", False), ("2", False), ("skip", False), ("skip", True)])
def test_smoothed_probabilities_sum_to_one(order: str, mask: bool):
    text = random_text(6)
    model = Markov.fit(text, order)
    for so_far in [*text[:8], ["w1", "never heard", "w0"], ["never heard"]]:
        following = [*model.words, "also unknown"]
        total = sum(model.probabilities([[*so_far, word]], mask)[len(so_far)] for word in following)
        total += model.probabilities([so_far], mask)[-1]
        assert total == pytest.approx(1)


def test_a_score_is_the_one_computed_by_hand():
    train = [["a", "b"], ["a", "c"]]
    # Below: a, b, c, the end and an unknown word, each 1/5. As a whole: a 2, b 1, c 1, end 2 of 6; 4 kinds.
    a, b, end, x = ((times + 4 / 5) / 10 for times in (2, 1, 2, 0))
    # After the start: a, 2 times. After a: b 1, c 1. After b: the end, once.
    a_first, b_after_a, x_after_a, end_after_b = (2 + a) / 3, (1 + 2 * b) / 4, 2 * x / 4, (1 + end) / 2
    first = Markov.fit(train, "1")
    assert first.probabilities([["a", "b"], ["a", "x"]]) == pytest.approx(
        [a_first, b_after_a, end_after_b, a_first, x_after_a, end]
    )
    score = first.score([["a", "b"]])
    bits = -(log2(a_first) + log2(b_after_a) + log2(end_after_b)) / 3
    assert (score.bits_per_word, score.perplexity) == pytest.approx((bits, 2**bits))
    assert (score.words, score.sentences, score.unknown) == (2, 1, 0)
    assert first.score([["a", "x"]]).unknown == 1
    # The pair (start, a) is as a alone, and smoothed once more; after (a, b) the end was seen once.
    second = Markov.fit(train, "2").probabilities([["a", "b"]])
    assert second == pytest.approx([a_first, (1 + 2 * b_after_a) / 4, (1 + end_after_b) / 2])
    # With skips: no vote after a; one vote of a after b; then those of a and b after c, of which b was never heard.
    end_after_c = end_after_b
    skip = Markov.fit(train, "skip").probabilities([["a", "b"], ["b", "a", "c"]])
    assert skip[:3] == pytest.approx([a_first, b_after_a, (1 + end_after_b) / 2])
    assert skip[-1] == pytest.approx((1 + end_after_c) / 2)
    # With a mask the vote of a after b goes: it says what b says.
    assert Markov.fit(train, "skip").probabilities([["a", "b"]], mask=True)[-1] == pytest.approx(end_after_b)


def test_with_skips_the_mean_of_the_votes_is_scored():
    model = fit(LOG, "skip")
    alone = fit(LOG, "1").probabilities([[*PROGRAM, "please"]])[10]
    both, sure = (1 + 2 * alone) / 4, (1 + alone) / 2  # a row of please 1, down 1; and a row of please 1
    assert model.probabilities([[*PROGRAM, "please"]])[10] == pytest.approx((8 * both + sure) / 9)
    assert model.probabilities([[*PROGRAM, "please"]], mask=True)[10] == pytest.approx(sure)


def test_more_context_fits_the_training_text_better():
    text = [split_words(english) for english, _ in english_german.pairs(1500, seed=3)]
    perplexity = {order: Markov.fit(text, order).score(text).perplexity for order in ORDERS}
    assert perplexity["2"] < 0.9 * perplexity["1"]
    assert perplexity["skip"] < 0.9 * perplexity["1"]


# ---------------------------------------------------------------- words and limits


def test_words_are_lower_case_and_without_punctuation():
    assert split_words("“Don't!” — said the well-known Ärztin, (twice) -- end...") == [
        "don't", "said", "the", "well-known", "ärztin", "twice", "end",
    ]  # fmt: skip
    assert split_words("  … ?! - ") == [] and split_words("नमस्ते दुनिया।") == ["नमस्ते", "दुनिया"]
    assert END not in split_words(END)


def test_rows_are_limited_to_the_most_frequent():
    model = Markov.fit([["a", "b"], ["c", "b"], ["c", "b"], ["d", "e"]], "1")
    assert model.contexts(most=2) == ([("b",), ("c",)], 5)
    skip = Markov.fit([["a", "b"], ["c", "b"], ["c", "b"], ["d", "e"]], "skip")
    assert skip.contexts("b", most=1) == ([("c", "b")], 2)
    assert len(skip.contexts("b")[0]) == 5


def test_unknown_words_and_empty_texts_are_explained():
    with pytest.raises(RegardError, match=r"'batery' is unknown(.|\n)*Did you mean 'battery'"):
        fit(RAN, "1").distribution(["the", "batery"])
    with pytest.raises(RegardError, match="empty"):
        Markov.fit([[], []], "1")


def test_more_skips_than_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(markov, "MOST_SKIPS", 44)
    assert fit(["a b c d e f g h i"], "skip").word_count == 9  # 36 pairs
    with pytest.raises(RegardError, match=r"45 pairs(.|\n)*one sentence on a line"):
        fit(["a b c d e f g h i j"], "skip")
