"""`regard markov`, as a student would use it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from command import regard

PROGRAM = "Check the program log and find out whether it ran"


def tables(shown: str) -> list[list[list[str]]]:
    """The blocks of what was printed, as cells."""
    return [[line.split() for line in block.splitlines()] for block in shown.rstrip("\n").split("\n\n")]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """39 different words: too many for a table that shows all of them."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"The cat sees the dog, w{number}.\n" for number in range(35)))
    return path


def test_the_first_example_prints_the_lectures_table():
    _, table = tables(regard("markov", "--example", "1").stdout)
    assert table == [
        ["directories", "files", "me", "my", "photos", "please", "show"],
        ["directories", "0", "0", "0", "0", "0", "1", "0"],
        ["files", "0", "0", "0", "0", "0", "1", "0"],
        ["me", "0", "0", "0", "1", "0", "0", "0"],
        ["my", ".2", ".3", "0", "0", ".5", "0", "0"],
        ["photos", "0", "0", "0", "0", "0", "1", "0"],
        ["please", "0", "0", "0", "0", "0", "0", "0"],
        ["show", "0", "0", "1", "0", "0", "0", "0"],
    ]


def test_columns_stand_under_their_names():
    lines = regard("markov", "--example", "2").stdout.split("\n\n")[1].splitlines()
    the = next(line for line in lines if line.startswith("the"))
    for word, share in (("battery", ".4"), ("program", ".6")):
        assert the[: lines[0].index(word) + len(word)].endswith(share)


def test_the_second_example_prints_the_lectures_second_order_table():
    shown = regard("markov", "--example", "2", "--order", "2", "--after", "the program ran").stdout
    _, table, legend, _, guess = tables(shown)
    assert table == [
        ["battery", "check", "down", "please", "program", "ran", "the", "whether"],
        ["battery", "ran", "0", "0", "1", "0", "0", "0", "0", "0"],
        ["check", "whether", "0", "0", "0", "0", "0", "0", "1", "0"],
        ["program", "ran", "0", "0", "0", "1", "0", "0", "0", "0"],
        ["ran", "down", "0", "0", "0", "1", "0", "0", "0", "0"],
        ["the", "battery", "0", "0", "0", "0", "0", "1", "0", "0"],
        ["the", "program", "0", "0", "0", "0", "0", "1", "0", "0"],
        ["whether", "the", ".4", "0", "0", "0", ".6", "0", "0", "0"],
        ["-", "0", "0", "0", "0", "0", "0", "0", "0"],
    ]
    assert legend[0][0] == "-" and guess == [["please", "1"]]


def test_the_third_example_prints_the_lectures_table_with_skips():
    _, latest, table = tables(regard("markov", "--example", "3", "--order", "skip").stdout)
    assert "'ran';" in latest[0]
    rows = {" ".join(cells[:2]): cells[2:] for cells in table[1:]}
    assert table[0] == ["down", "please"] and len(rows) == 13
    assert rows.pop("battery, ran") == ["1", "0"] and rows.pop("program, ran") == ["0", "1"]
    for never in ("down, ran", "please, ran", "ran, ran"):
        assert rows.pop(never) == []
    assert all(cells == [".5", ".5"] for cells in rows.values())


def test_votes_are_summed_as_in_the_lecture():
    shown = regard("markov", "--example", "3", "--order", "skip", "--after", PROGRAM, "--rows", "0").stdout
    votes = tables(shown)[-1]
    assert votes[0] == ["down", "please"]
    voters = [cells[0].rstrip(",") for cells in votes[1:-2]]
    assert voters == ["and", "check", "find", "it", "log", "out", "program", "the", "whether"]
    assert votes[-2:] == [["sum", "of", "votes", "4", "5"], ["normalised", ".44", ".56"]]


def test_masked_votes_are_shown_as_the_product_that_attention_is():
    options = ["--example", "3", "--order", "skip", "--mask", "--after", PROGRAM]
    blocks = tables(regard("markov", *options, "--rows", "0").stdout)
    votes, vectors, product = blocks[3], blocks[-2], blocks[-1]
    kept = [cells for cells in votes[1:-2] if cells[-2:] != ["crossed", "out"]]
    assert kept == [["program,", "ran", "0", "1"]] and len(votes) == 12
    words = vectors[0]
    rows = {" ".join(cells[:-13]): cells[-13:] for cells in vectors[1:]}
    ones = {name: [words[place] for place in range(13) if cells[place] == "1"] for name, cells in rows.items()}
    assert ones.pop("query") == ["ran"]
    assert ones.pop("mask") == ones.pop("K ran") == ["battery", "program"]
    assert ones.pop("present") == ["and", "check", "find", "it", "log", "out", "program", "the", "whether"]
    assert ones.pop("attended") == ["program"]
    assert len(ones) == 12 and not any(ones.values())
    assert ["1", "program,", "ran", "0", "1"] in product and ["0", "battery,", "ran", "1", "0"] in product
    assert product[-1] == ["votes", "0", "1"]

    after = json.loads(regard("markov", *options, "--json").stdout)["after"]
    assert after["distribution"] == {"please": 1} and after["rests_on"] == "votes"
    assert after["attention"]["candidates"] == ["down", "please"] and after["attention"]["votes"] == [0, 1]
    assert sum(map(sum, after["attention"]["masks"])) == 2


def test_where_every_vote_is_crossed_out_the_latest_word_speaks():
    options = ["--example", "1", "--order", "skip", "--mask", "--rows", "0"]
    shown = regard("markov", *options, "--after", "show me my").stdout
    assert shown.endswith("only 'my' counts:\n\n  photos .5   files .3   directories .2\n")
    assert regard("markov", *options, "--after", "please").stdout.endswith("\n  <end> 1\n")


def test_a_text_comes_from_a_file_gzipped_or_from_a_pipe(text: Path, tmp_path: Path):
    (tmp_path / "text.gz").write_bytes(gzip.compress(text.read_bytes()))
    options = ["--order", "2", "--after", "the", "--samples", "3", "--json"]
    plain = json.loads(regard("markov", text, *options).stdout)
    assert plain == json.loads(regard("markov", "text.gz", *options, cwd=tmp_path).stdout)
    assert plain == json.loads(regard("markov", "-", *options, stdin=text.read_bytes()).stdout)
    assert (plain["sentences"], plain["words"], plain["vocabulary"]) == (35, 210, 39)
    assert plain["after"]["distribution"] == {"cat": 1}


def test_a_large_table_shows_the_most_frequent_rows_and_how_many_there_are_more(text: Path):
    _, rows, rest = tables(regard("markov", text, "--rows", "3").stdout)
    assert [cells[0] for cells in rows] == ["cat", "dog", "the"]
    assert rows[2] == ["the", "cat", ".5", "dog", ".5"]
    assert rows[1][-2:] == ["27", "more"]
    assert rest[0][0] == "36"
    found = json.loads(regard("markov", text, "--rows", "3", "--json").stdout)["table"]
    assert found["rows_in_all"] == 39 and [row["context"] for row in found["rows"]] == [["cat"], ["dog"], ["the"]]
    assert found["rows"][0]["next"] == {"sees": 1} and len(found["rows"][1]["next"]) == 35


def test_samples_are_drawn_under_a_seed(text: Path):
    options = ["--rows", "0", "--samples", "4"]
    first, again, other = (
        regard("markov", text, *options, "--seed", seed).stdout.split("\n\n")[-1] for seed in ("1", "1", "2")
    )
    assert first == again != other and len(first.splitlines()) == 4
    continued = json.loads(regard("markov", text, *options, "--after", "the cat", "--json").stdout)["samples"]
    assert all(sample.startswith("the cat sees the ") for sample in continued)


def test_a_score_of_another_text_counts_what_is_unknown(text: Path, tmp_path: Path):
    (tmp_path / "other.txt").write_text("The cat sees the dog, w3.\n\nThe zebra sees.\n")
    for order in ("1", "2", "skip"):
        score = json.loads(
            regard("markov", text, "--order", order, "--score", "other.txt", "--json", cwd=tmp_path).stdout
        )["score"]
        assert (score["words"], score["sentences"], score["unknown"]) == (9, 2, 1)
        assert score["perplexity"] == pytest.approx(2 ** score["bits_per_word"])
    shown = regard("markov", text, "--order", "skip", "--rows", "0", "--score", "other.txt", cwd=tmp_path).stdout
    assert f"{score['bits_per_word']:.3f} bits per word, perplexity {score['perplexity']:.2f}" in shown


# ---------------------------------------------------------------- mistakes

MISTAKES = {
    "missing file": (["no.txt"], ("'no.txt' is missing", "Check the path"), 1),
    "folder": (["{bad}"], ("is a folder",), 1),
    "empty text": (["{bad}/empty.txt"], ("empty.txt' has no words", "one sentence per line"), 1),
    "empty input": (["-"], ("Standard input has no words",), 1),
    "punctuation": (["{bad}/marks.txt"], ("has no words",), 1),
    "text that is not UTF-8": (["{bad}/latin.txt"], ("Line 2 of", "not valid UTF-8", "convert"), 1),
    "half a gzip file": (["{bad}/half.gz"], ("Cannot read", "must be whole"), 1),
    "missing text to score": (["--example", "1", "--score", "no.txt"], ("'no.txt' is missing",), 1),
    "empty text to score": (["--example", "1", "--score", "{bad}/empty.txt"], ("has no words",), 1),
    "unknown word": (["--example", "2", "--after", "the batery"], ("'batery' is unknown", "'battery'"), 1),
    "no text": ([], ("text is missing", "--example 1"), 2),
    "two texts": (["{bad}/marks.txt", "--example", "1"], ("two texts", "Leave one of them out"), 2),
    "unknown example": (["--example", "4"], ("--example cannot be 4", "from 1 to 3", "--example 3"), 2),
    "input read twice": (["-", "--score", "-"], ("only once",), 2),
    "unknown order": (["--example", "1", "--order", "skips"], ("no order 'skips'", "'skip'"), 2),
    "mask without skips": (["--example", "1", "--order", "2", "--mask"], ("--mask has no effect", "--order skip"), 2),
    "after nothing": (["--example", "1", "--after", " ?"], ("--after has no words",), 2),
    "after too much": (["--example", "1", "--after", "my " * 101], ("101 words", "At most 100"), 2),
    "no samples": (["--example", "1", "--samples", "0"], ("--samples cannot be 0", "from 1 to 10,000"), 2),
    "negative samples": (["--example", "1", "--samples", "-3"], ("--samples cannot be -3",), 2),
    "too many samples": (
        ["--example", "1", "--samples", "1000000000"],
        ("--samples cannot be 1000000000", "10,000"),
        2,
    ),
    "seed of nothing": (["--example", "1", "--seed", "3"], ("--seed has no effect", "--samples"), 2),
    "negative seed": (["--example", "1", "--samples", "1", "--seed", "-1"], ("--seed cannot be -1", "0 or more"), 2),
    "negative rows": (["--example", "1", "--rows", "-1"], ("--rows cannot be -1", "0 or more"), 2),
    "rows that are no number": (["--example", "1", "--rows", "many"], ("'--rows'", "markov --help"), 2),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    (folder / "empty.txt").write_text("")
    (folder / "marks.txt").write_text("…\n--- ?!\n")
    (folder / "latin.txt").write_bytes("fine\nGrüße\n".encode("latin-1"))
    (folder / "half.gz").write_bytes(gzip.compress(b"a sentence\n" * 1000)[:40])
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_three_lines(name: str, bad: Path, tmp_path: Path):
    arguments, says, code = MISTAKES[name]
    result = regard("markov", *(word.format(bad=bad) for word in arguments), cwd=tmp_path, code=code)
    assert result.stdout == "" and len(result.error) == 3, result.stderr
    for part in says:
        assert part in "\n".join(result.error)
