"""Word vectors: read and written as others do, neighbours, analogies, and a start for a model's table."""

import gzip

import numpy as np
import pytest
import torch

from regard.data.tokenizers import train_tokenizer
from regard.data.word_vectors import WordVectors, initialise_table
from regard.errors import RegardError
from regard.settings import TokenizerSettings


@pytest.fixture
def royal() -> WordVectors:
    """Axes: royal, male, female, fruit."""
    table = {
        "king": [1, 1, 0, 0],
        "queen": [1, 0, 1, 0],
        "man": [0, 1, 0, 0],
        "woman": [0, 0, 1, 0],
        "prince": [0.8, 1, 0, 0.1],
        "apple": [0, 0, 0, 1],
    }
    return WordVectors(list(table), np.array(list(table.values()), np.float32))


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_what_is_written_is_read_back_exactly(tmp_path, name):
    generator = np.random.default_rng(0)
    words = ["king", "naïve", "東京", "42"]
    vectors = WordVectors(words, generator.normal(size=(4, 7)).astype(np.float32) * 1e-5)
    vectors.write(tmp_path / "vectors.txt")
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "vectors.txt").read_bytes()))
    again = WordVectors.read(tmp_path / name)
    assert again.words == words
    np.testing.assert_array_equal(again.vectors, vectors.vectors)


def test_the_file_is_as_gensim_writes_it(tmp_path, royal):
    royal.write(tmp_path / "vectors.txt")
    lines = (tmp_path / "vectors.txt").read_text().split("\n")
    assert lines[0] == "6 4"
    assert lines[1] == "king 1.0 1.0 0.0 0.0"
    assert lines[-1] == ""


def test_glove_without_a_first_line_and_word2vec_with_a_space_at_line_ends_are_read(tmp_path):
    (tmp_path / "glove.txt").write_text("the 0.1 -2e-3\nof 1 2\n")
    (tmp_path / "word2vec.txt").write_text("2 2\nthe 0.1 -2e-3 \nof 1 2 \n")
    for name in ("glove.txt", "word2vec.txt"):
        found = WordVectors.read(tmp_path / name)
        assert found.words == ["the", "of"]
        np.testing.assert_allclose(found.vectors, [[0.1, -0.002], [1, 2]])


@pytest.mark.parametrize(
    ("content", "line", "why"),
    [
        ("2 3\na 1 2 3\nb 1 2\n", 3, "2 numbers where 3"),
        ("a 1 2 3\nb 1 x 3\n", 2, "not a word and its numbers"),
        ("a 1 2\nb nan 2\n", 2, "not finite"),
        ("3 2\na 1 2\nb 1 2\n", 1, "announces 3 words, but 2"),
        ("", 1, "no word"),
        ("word\n", 1, "0 numbers"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, content, line, why):
    path = tmp_path / "bad.txt"
    path.write_text(content)
    with pytest.raises(RegardError) as error:
        WordVectors.read(path)
    assert error.value.what.startswith(f"Line {line} of")
    assert why in error.value.why


def test_bytes_that_are_not_text_are_named(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a 1 2\n\xff 1 2\n")
    with pytest.raises(RegardError, match="Line 2 of"):
        WordVectors.read(path)


def test_a_missing_file_is_an_error_without_traceback(tmp_path):
    with pytest.raises(RegardError, match="Cannot read"):
        WordVectors.read(tmp_path / "none.txt")


def test_neighbours_are_ordered_by_cosine_and_leave_the_word_out(royal):
    found = royal.nearest("king", 2)
    assert [word for word, _ in found] == ["prince", "man"]
    assert found[0][1] == pytest.approx(1.8 / np.sqrt(2 * 1.65), rel=1e-5)
    assert len(royal.nearest("king", 100)) == 5


@pytest.mark.parametrize("expression", ["king-man+woman", " king - man + woman ", "woman+king-man"])
def test_king_less_man_plus_woman_is_queen(royal, expression):
    found = royal.analogy(expression, 3)
    assert found[0][0] == "queen"
    assert not {"king", "man", "woman"} & {word for word, _ in found}


def test_the_length_of_a_vector_plays_no_part_in_an_analogy(royal):
    longer = WordVectors(royal.words, royal.vectors * np.array([[5], [1], [9], [1], [1], [1]], np.float32))
    assert longer.analogy("king-man+woman", 1) == royal.analogy("king-man+woman", 1)


@pytest.mark.parametrize("expression", ["", "king-", "+", "king man", "king--man"])
def test_what_is_no_sum_of_words_is_an_error(royal, expression):
    with pytest.raises(RegardError, match="not a sum of words"):
        royal.analogy(expression, 1)


def test_an_unknown_word_suggests_the_nearest(royal):
    with pytest.raises(RegardError, match="Did you mean 'queen'"):
        royal.nearest("quene")
    with pytest.raises(RegardError, match="Did you mean 'woman'"):
        royal.analogy("king-man+womann")


def test_vectors_go_to_the_rows_of_their_words_in_the_table_s_own_scale(royal):
    text = "the king and the queen saw a man. king"
    tokenizer = train_tokenizer([text], TokenizerSettings(kind="word", vocabulary=400))
    table = torch.nn.Parameter(torch.randn(tokenizer.size, 4, generator=torch.Generator().manual_seed(0)) * 0.3)
    before = table.detach().clone()
    copied = initialise_table(table, tokenizer, royal)
    tokens = {piece.strip(): token for token in range(tokenizer.size) if (piece := tokenizer.piece(token)).strip()}
    rows = [tokens[word] for word in ("king", "queen", "man")]
    assert copied == 3
    ratios = table[rows].detach() / torch.from_numpy(royal.vectors[:3])
    scale = ratios[royal.vectors[:3] != 0]
    torch.testing.assert_close(scale, scale[:1].expand_as(scale))
    assert table[rows].square().mean().item() == pytest.approx(before.square().mean().item(), rel=1e-4)
    others = [token for token in range(tokenizer.size) if token not in rows]
    torch.testing.assert_close(table[others].detach(), before[others])


def test_another_width_says_which_to_set(royal):
    tokenizer = train_tokenizer(["king"], TokenizerSettings(kind="word", vocabulary=400))
    with pytest.raises(RegardError, match=r"model\.width=4"):
        initialise_table(torch.zeros(tokenizer.size, 8), tokenizer, royal)
