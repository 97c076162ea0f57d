"""Word vectors: those that a training leaves, and those of a run of any kind."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from regard.data.word_vectors import WordVectors
from regard.errors import RegardError
from regard.explain.neighbourhood import draw_neighbourhood
from regard.tasks.embeddings import word_vectors


def test_a_finished_run_has_its_vectors_beside_the_model(words):
    vectors = WordVectors.read(words.folder.path / "vectors.txt")
    assert vectors.vectors.shape == (len(vectors.words), 16)
    np.testing.assert_array_equal(load_file(words.folder.model)["input"][1:], vectors.vectors)


def test_words_stand_by_falling_count_and_are_all_words(words, texts):
    written = (texts / "text.txt").read_text().lower()
    trained_on = re.findall(r"\w+", written[: int(0.9 * len(written))])
    counts = [trained_on.count(word) for word in words.vectors.words]
    assert len(counts) > 100
    assert all(after <= before + 1 for before, after in itertools.pairwise(counts))  # one may lie across the edge
    assert all(word.isalnum() for word in words.vectors.words)


def test_held_out_words_are_guessed_better_than_by_chance(words):
    assert words.evaluate(split="valid").metrics["loss"] < 0.8 * 6 * np.log(2)  # a coin for one right and five wrong


@pytest.mark.parametrize("kind", ["words", "language", "masked", "classifier", "translate"])
def test_every_kind_of_run_over_text_has_vectors(kind, request, tiny_run):
    run = tiny_run(kind) if kind == "translate" else request.getfixturevalue(kind).folder.path
    vectors = word_vectors(run)
    assert len(vectors.words) == len(set(vectors.words)) == len(vectors.vectors)
    assert np.isfinite(vectors.vectors).all()
    word = vectors.words[len(vectors.words) // 2]
    assert word not in [near for near, _ in vectors.nearest(word, 3)]


def test_a_token_of_a_run_has_the_row_of_its_table(masked):
    vectors = word_vectors(masked.folder.path)
    token = masked.tokenizer.encode(["teacher"])[0][0]
    own = masked.model.trunk.embedding.table.weight[token].detach().numpy()
    assert np.array_equal(vectors.vectors[vectors.row("teacher")], own)


def test_a_file_of_vectors_is_read(words, tmp_path):
    words.vectors.write(tmp_path / "vectors.txt")
    again = word_vectors(tmp_path / "vectors.txt")
    assert again.words == words.vectors.words
    assert np.array_equal(again.vectors, words.vectors.vectors)


@pytest.mark.parametrize("task", ["", "classify-image"])
def test_what_has_no_vectors_is_refused(task, tiny_run, tmp_path):
    with pytest.raises(RegardError, match="no word vectors" if task else "not a run folder"):
        word_vectors(tiny_run(task) if task else tmp_path)


def test_a_picture_of_words_and_their_neighbours_is_drawn(words, tmp_path):
    draw_neighbourhood(words.vectors, words.vectors.words[5:8], tmp_path / "words.png", per_word=5)
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "words.png").stat().st_size > 10_000
