"""Vectors of a run of any kind, and of a file."""

import numpy as np
import pytest
from regard.runs.embeddings import vectors_of

from regard.errors import RegardError


@pytest.mark.parametrize("kind", ["words", "language", "masked", "classifier", "trained"])
def test_every_kind_of_run_has_vectors(kind, request):
    run = request.getfixturevalue(kind)
    vectors = vectors_of(run.folder.path)
    assert len(vectors.words) == len(set(vectors.words)) == len(vectors.vectors)
    assert np.isfinite(vectors.vectors).all()
    word = vectors.words[len(vectors.words) // 2]
    assert word not in [near for near, _ in vectors.nearest(word, 3)]


def test_a_token_of_a_run_has_the_row_of_its_table(masked):
    vectors = vectors_of(masked.folder.path)
    token = masked.tokenizer.encode(["teacher"])[0][0]
    own = masked.model.trunk.embedding.table.weight[token].detach().numpy()
    assert np.array_equal(vectors.vectors[vectors.row("teacher")], own)


def test_a_file_of_vectors_is_read(words, tmp_path):
    words.vectors.write(tmp_path / "vectors.txt")
    again = vectors_of(tmp_path / "vectors.txt")
    assert again.words == words.vectors.words
    assert np.array_equal(again.vectors, words.vectors.vectors)


def test_held_out_words_are_guessed_better_than_by_chance(words):
    found = words.evaluate(split="valid").metrics["loss"]
    assert found < 6 * np.log(2)  # one right and five wrong words, a coin for each


def test_a_folder_without_vectors_is_refused(tmp_path):
    with pytest.raises(RegardError):
        vectors_of(tmp_path)
