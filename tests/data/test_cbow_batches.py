"""Batches for CBOW: contexts inside lines, and the right shares of words."""

import numpy as np
import pytest

from corpora import zipf_text
from regard.data import cbow_batches
from regard.data.batch import DataState
from regard.data.cbow_batches import Lexicon, WordBatch, WordStream
from regard.data.tokenizers import END, TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import EmbeddingSettings, TokenizerSettings


def words_of(text: str, vocabulary: int = 1000) -> tuple[np.ndarray, TextTokenizer]:
    tokenizer = train_tokenizer([text], TokenizerSettings(kind="word", vocabulary=vocabulary))
    return np.array(tokenizer.encode([text])[0]), tokenizer


def stream_of(text: str, seed: int = 1, **settings: float) -> WordStream:
    ids, tokenizer = words_of(text)
    lexicon = Lexicon.from_text(ids, tokenizer, minimum_count=1)
    return WordStream(ids, lexicon, EmbeddingSettings(**{"words_per_batch": 512, **settings}), seed)


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks even in a small text."""
    monkeypatch.setattr(cbow_batches, "BLOCK", 3000)


def test_every_word_is_guessed_once_per_epoch_when_none_is_left_out(small_blocks):
    stream = stream_of(zipf_text(), subsample=0.0)
    guessed = np.concatenate([batch.labels.numpy().ravel() for batch in stream.in_order()])
    counts = np.bincount(guessed, minlength=len(stream.lexicon))
    np.testing.assert_array_equal(counts[1:], stream.lexicon.counts[1:])


def contexts(batch: WordBatch, window: int):
    """Each guessed word with the words of its context."""
    labels, words, left, right, _ = (tensor.numpy() for tensor in batch.tensors())
    for row, place in zip(*np.nonzero(labels), strict=True):
        middle = place + window
        before = words[row, middle - left[row, place] : middle]
        after = words[row, middle + 1 : middle + 1 + right[row, place]]
        assert words[row, middle] == labels[row, place]
        yield labels[row, place], [*before, *after], (left[row, place], right[row, place])


def test_contexts_are_the_words_around_and_never_cross_a_line_or_document():
    # Word "a7n3" is number 3 of line 7.
    lines = [" ".join(f"a{line}n{place}" for place in range(4 + line % 9)) for line in range(60)]
    ids, tokenizer = words_of("\n".join(lines), vocabulary=2000)
    ends = np.flatnonzero(["\n" in tokenizer.piece(token) for token in ids])
    ids[ends[::2]] = END  # every second line end becomes the end of a document
    lexicon = Lexicon.from_text(ids, tokenizer, minimum_count=1)
    stream = WordStream(ids, lexicon, EmbeddingSettings(window=3, subsample=0.0, words_per_batch=64), seed=1)
    seen = 0
    for batch in stream.in_order():
        for word, context, (left, right) in contexts(batch, 3):
            line, place = map(int, lexicon.words[word][1:].split("n"))
            around = [*range(place - left, place), *range(place + 1, place + right + 1)]
            assert [lexicon.words[other] for other in context] == [f"a{line}n{other}" for other in around]
            seen += 1
    assert seen == sum(len(line.split()) for line in lines)


def test_windows_shrink_evenly():
    stream = stream_of(" ".join(f"w{number % 50}" for number in range(20_000)), subsample=0.0)
    left = np.concatenate([batch.left_BT.numpy().ravel() for batch in stream.in_order()])
    np.testing.assert_allclose(np.bincount(left, minlength=6)[1:] / len(left), np.full(5, 0.2), atol=0.015)


def test_frequent_words_are_kept_at_the_rate_of_word2vec():
    stream = stream_of(zipf_text(lines=2000), subsample=0.01)
    found = sum(np.bincount(b.labels.numpy().ravel(), minlength=len(stream.lexicon)) for b in stream.in_order())
    shares = stream.lexicon.counts[1:] / stream.lexicon.counts.sum()
    expected = np.minimum(np.sqrt(0.01 / shares) + 0.01 / shares, 1)
    rates = found[1:] / stream.lexicon.counts[1:]
    assert expected[0] < 0.35
    np.testing.assert_allclose(rates[:10], expected[:10], atol=0.03)
    np.testing.assert_allclose(rates[-50:].mean(), 1.0, atol=0.02)


def test_wrong_words_are_drawn_in_proportion_to_count_to_the_three_quarters():
    stream = stream_of(zipf_text(lines=4000), subsample=0.0)
    wrong = np.concatenate([batch.wrong_BK.numpy().ravel() for batch in stream.in_order()])
    found = np.bincount(wrong, minlength=len(stream.lexicon)) / len(wrong)
    expected = stream.lexicon.counts**0.75 / (stream.lexicon.counts**0.75).sum()
    assert found[0] == 0
    assert np.abs(found - expected).max() < 4 * np.sqrt(expected.max() / len(wrong))


def test_only_frequent_words_are_words():
    text = "king, king king! 42 42 42 rare\n(king) <end> ... ... ...\nking"
    ids, tokenizer = words_of(text, vocabulary=270)
    lexicon = Lexicon.from_text(ids, tokenizer, minimum_count=3)
    # "king" with and without the space before it is one word.
    assert lexicon.words == ["", "king", "42"]
    assert lexicon.counts.tolist() == [0, 5, 3]
    kept = lexicon.word_of_token[ids]
    assert (kept == cbow_batches.SENTENCE_END).sum() == 2


def test_unknown_words_spelled_in_bytes_are_not_words():
    _, tokenizer = words_of("one two one two\n")
    ids = np.array(tokenizer.encode(["one zebra two\none"])[0])
    lexicon = Lexicon.from_text(ids, tokenizer, minimum_count=1)
    assert sorted(lexicon.words) == ["", "one", "two"]


def test_too_few_words_are_an_error_that_says_what_to_do():
    ids, tokenizer = words_of("one two three")
    with pytest.raises(RegardError, match="minimum_count"):
        Lexicon.from_text(ids, tokenizer, minimum_count=5)


def test_text_without_any_context_is_an_error():
    with pytest.raises(RegardError, match="two words"):
        next(stream_of("\n".join(["one", "two"] * 50)).batches(DataState()))
