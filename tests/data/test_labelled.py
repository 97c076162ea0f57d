"""Reading labelled text: every form of file, every way a file can be wrong, and the hold-out split."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from expect import error_of
from regard.data.labelled import Example, check_labels, labelled_source, labelled_splits, labels_of, read_examples
from regard.data.lines import LONGEST_LINE
from regard.errors import UsageError
from regard.settings import LabelledData

EXAMPLES = [Example("pos", "A fine film."), Example("neg", 'Dull, and "long".'), Example("pos", "Größe 句子 🙂")]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def as_tsv(examples) -> str:
    return "".join(f"{label}\t{text}\n" for label, text in examples)


def as_jsonl(examples) -> str:
    return "".join(json.dumps(example._asdict()) + "\n" for example in examples)


def write_csv(path: Path, rows) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def settings(folder: Path = Path("."), **values) -> LabelledData:
    return LabelledData(root=str(folder), **values)


def read(path: Path, **values) -> list[Example]:
    return list(read_examples(path, settings(**values)))


# --- Forms of files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_each_form_gives_the_same_examples(tmp_path, ending):
    tsv = write(tmp_path, f"a.tsv{ending}", as_tsv(EXAMPLES))
    jsonl = write(tmp_path, f"a.jsonl{ending}", as_jsonl(EXAMPLES))
    words = write(tmp_path, f"a.words{ending}", as_tsv(EXAMPLES).replace("\t", " "))
    rows = write_csv(tmp_path / "plain.csv", [Example._fields, *EXAMPLES])
    table = write(tmp_path, f"a.csv{ending}", rows.read_bytes())
    assert read(tsv) == read(jsonl) == read(table) == read(words, form="label-first") == EXAMPLES


def test_the_form_set_counts_more_than_the_name(tmp_path):
    assert read(write(tmp_path, "a.csv", "pos\ta,b\n"), form="tsv") == [Example("pos", "a,b")]


def test_a_name_that_tells_no_form_is_a_usage_error_before_anything_is_read(tmp_path):
    write(tmp_path, "a.txt.gz", "pos good\n")
    error = error_of(labelled_splits, settings(tmp_path, train=["a.txt.gz"]))
    assert isinstance(error, UsageError)
    assert "a.txt.gz" in error.what
    assert "data.form" in error.fix


def test_tsv_takes_the_columns_named_and_no_quotes(tmp_path):
    path = write(tmp_path, "a.tsv", '7\t"open\tpos\n8\tfine\tneg\n')
    assert read(path, columns=[2, 1]) == [Example("pos", '"open'), Example("neg", "fine")]


def test_csv_takes_the_columns_its_header_names_and_a_text_of_several_lines(tmp_path):
    rows = [["id", "review", "stars"], ["1", 'two\nlines, "quoted"', "5"], ["2", "short", "1"]]
    path = write_csv(tmp_path / "a.csv", rows)
    found = read(path, text_field="review", label_field="stars")
    assert found == [Example("5", 'two\nlines, "quoted"'), Example("1", "short")]


def test_csv_without_the_columns_names_the_header_it_found(tmp_path):
    path = write_csv(tmp_path / "a.csv", [["id", "review", "label"], ["1", "good", "pos"]])
    error = error_of(read, path, bad_lines="skip")
    assert "no column 'text'" in error.what
    assert "'label'" not in error.what
    assert "id, review, label" in error.why
    assert "data.text_field" in error.fix
    assert "empty" in error_of(read, write(tmp_path, "b.csv", "")).why


def test_csv_takes_a_text_longer_than_pythons_own_limit(tmp_path):
    text = "word " * 40_000
    assert read(write_csv(tmp_path / "a.csv", [["label", "text"], ["pos", text]])) == [Example("pos", text)]


def test_json_labels_are_written_as_in_the_file(tmp_path):
    labels = [1, -2, "three", True, False]
    path = write(tmp_path, "a.jsonl", "".join(json.dumps({"y": label, "x": "t"}) + "\n" for label in labels))
    found = read(path, label_field="y", text_field="x")
    assert [example.label for example in found] == ["1", "-2", "three", "true", "false"]


def test_label_first_splits_at_any_space_and_label_until_cuts_the_label(tmp_path):
    path = write(tmp_path, "trec", "NUM:date When : was it ?\nHUM\t  Who ?\n")
    found = read(path, form="label-first", label_until=":")
    assert found == [Example("NUM", "When : was it ?"), Example("HUM", "Who ?")]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.words"])
def test_windows_line_ends_and_a_byte_order_mark_are_not_part_of_the_text(tmp_path, name):
    content = {
        "a.tsv": "pos\tgood\n",
        "a.csv": "label,text\npos,good\n",
        "a.jsonl": '{"label": "pos", "text": "good"}\n',
        "a.words": "pos good\n",
    }[name]
    path = write(tmp_path, name, b"\xef\xbb\xbf" + content.replace("\n", "\r\n").encode())
    form = "label-first" if name == "a.words" else "auto"
    assert read(path, form=form) == [Example("pos", "good")]


def test_latin_1_is_read_as_such(tmp_path):
    path = write(tmp_path, "a.tsv", "Käse\tcrème brûlée\n".encode("latin-1"))
    assert read(path, encoding="latin-1") == [Example("Käse", "crème brûlée")]


def test_only_a_line_feed_ends_a_line(tmp_path):
    path = write(tmp_path, "a.tsv", "pos\tone\u2028two\x0bthree\rfour\n")
    assert read(path) == [Example("pos", "one\u2028two\x0bthree\rfour")]


# --- Lines that cannot be used ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "pos\tgood\n\n \nneg\t  \nneg\tbad\n"),
        ("a.csv", "label,text\npos,good\n\n  \nneg,\nneg,bad\n"),
        ("a.jsonl", '{"label":"pos","text":"good"}\n\n{"label":"neg","text":" "}\n{"label":"neg","text":"bad"}\n'),
        ("a.words", "pos good\n\nneg\nneg bad\n"),
    ],
)
def test_empty_lines_and_empty_texts_are_left_out(tmp_path, name, content):
    form = "label-first" if name == "a.words" else "auto"
    assert read(write(tmp_path, name, content), form=form) == [Example("pos", "good"), Example("neg", "bad")]


BAD = {
    "an empty label in a TSV": ("a.tsv", b"\tno label\n", "label is empty"),
    "an empty label in a CSV": ("a.csv", b",no label\n", "label is empty"),
    "an empty label in JSON": ("a.jsonl", b'{"label": " ", "text": "no label"}\n', "label is empty"),
    "too few columns": ("a.tsv", b"pos good\n", "1 column"),
    "bytes that are not UTF-8": ("a.tsv", b"pos\tcaf\xe9\n", "not valid UTF-8"),
    "bytes that are not UTF-8 in quotes": ("a.csv", b'pos,"caf\xe9"\n', "not valid UTF-8"),
    "a comma outside quotes": ("a.csv", b"pos,good, really\n", "3 columns where the header has 2"),
    "text after a quote": ("a.csv", b'pos,"good" really\n', "not valid CSV"),
    "no JSON": ("a.jsonl", b"{label: pos}\n", "not valid JSON"),
    "no object": ("a.jsonl", b'["pos", "good"]\n', "not a JSON object"),
    "no label": ("a.jsonl", b'{"text": "good"}\n', "'label'"),
    "a label of no kind": ("a.jsonl", b'{"label": 0.5, "text": "good"}\n', "'label'"),
    "no text": ("a.jsonl", b'{"label": "pos", "text": null}\n', "'text'"),
    "half a character": ("a.jsonl", b'{"label": "pos", "text": "\\ud83d"}\n', "half a character"),
    "a huge line": ("a.tsv", b"pos\t" + b"x" * 3 * LONGEST_LINE + b"\n", "longer than"),
    "a huge field": ("a.csv", b"pos," + b"x" * 3 * LONGEST_LINE + b"\n", "field larger"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_an_error_with_file_and_line_or_is_skipped(tmp_path, case):
    name, bad, why = BAD[case]
    good = {"a.tsv": "pos\tgood\n", "a.csv": "pos,good\n", "a.jsonl": '{"label": "pos", "text": "good"}\n'}[name]
    first = "label,text\n" if name == "a.csv" else good
    path = write(tmp_path, name, first.encode() + bad + good.encode())
    error = error_of(read, path)
    assert error.what == f"Line 2 of '{path}' cannot be used."
    assert why in error.why
    assert 'data.bad_lines="skip"' in error.fix
    expected = [Example("pos", "good")] * (1 if name == "a.csv" else 2)
    assert read(path, bad_lines="skip") == expected


def test_a_bad_record_of_csv_is_named_by_the_line_it_starts_on_and_the_next_is_read_whole(tmp_path):
    rows = b'label,text\npos,"one\ntwo"\nneg,"bad \xff\nbyte"\npos,"three\nfour"\n'
    path = write(tmp_path, "a.csv", rows)
    assert "Line 4 " in error_of(read, path).what
    assert read(path, bad_lines="skip") == [Example("pos", "one\ntwo"), Example("pos", "three\nfour")]


def test_a_quote_that_never_ends_is_found(tmp_path):
    path = write(tmp_path, "a.csv", 'label,text\npos,"open\nneg,bad\n')
    error = error_of(read, path)
    assert "Line 2 " in error.what
    assert "not valid CSV" in error.why


def test_a_cut_gzip_file_is_a_clear_error(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(as_tsv(EXAMPLES).encode())[:-9])
    assert str(path) in error_of(read, path).what


# --- Splits ----------------------------------------------------------------------------------------------

MANY = [Example(f"c{n % 3}", f"text number {n}") for n in range(2000)]


def test_files_named_are_read_one_after_the_other(tmp_path):
    for number, example in enumerate(EXAMPLES):
        write(tmp_path, f"{number}.tsv", as_tsv([example]))
    found = labelled_splits(settings(tmp_path, train=["0.tsv", "1.tsv"], valid=["2.tsv"], test=["1.tsv"]))
    assert {name: list(source) for name, source in found.items()} == {
        "train": EXAMPLES[:2],
        "valid": EXAMPLES[2:],
        "test": EXAMPLES[1:2],
    }
    assert list(found["train"]) == EXAMPLES[:2], "every iteration reads from the start"


def test_other_files_are_read_as_the_settings_say_from_where_the_command_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "other.tsv", "good\tpos:5\n")
    data = settings(Path("/nowhere"), columns=[1, 0], label_until=":")
    assert list(labelled_source(["other.tsv"], data)) == [Example("pos", "good")]
    assert "gone.tsv" in error_of(labelled_source, ["gone.tsv"], data).what


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_missing_file_is_noticed_at_once(tmp_path, split):
    write(tmp_path, "a.tsv", as_tsv(EXAMPLES))
    files = {"train": ["a.tsv"], "valid": ["a.tsv"], "test": ["a.tsv"], split: ["a.tsv", "gone.tsv"]}
    error = error_of(labelled_splits, settings(tmp_path, **files))
    assert "gone.tsv" in error.what
    assert str(tmp_path) in error.why


def test_no_training_data_and_lists_of_lists_are_errors(tmp_path):
    assert "data.train" in error_of(labelled_splits, settings(tmp_path)).why
    assert "list within a list" in error_of(labelled_splits, settings(tmp_path, train=[["a.tsv"], ["b.tsv"]])).what


def test_equal_texts_never_straddle_and_stay_where_they_were(tmp_path):
    write(tmp_path, "a.tsv", as_tsv(MANY))
    write(tmp_path, "twice.tsv", as_tsv([*MANY, *(Example("other", text) for _, text in reversed(MANY))]))
    once = labelled_splits(settings(tmp_path, train=["a.tsv"], held_out=0.1))
    twice = labelled_splits(settings(tmp_path, train=["twice.tsv"], held_out=0.1))
    for name in ("train", "valid", "test"):
        assert {example.text for example in twice[name]} == {example.text for example in once[name]}
        assert len(list(twice[name])) == 2 * len(list(once[name]))


def test_the_fingerprint_changes_with_the_data_and_with_how_it_is_read(tmp_path):
    write(tmp_path, "a.tsv", as_tsv(EXAMPLES))

    def fingerprint(**values) -> str:
        return labelled_splits(settings(tmp_path, train=["a.tsv"], **values))["train"].fingerprint

    before = fingerprint()
    assert fingerprint(form="tsv", max_length=9) == before
    changes = [
        {"columns": [1, 0]},
        {"label_until": ":"},
        {"encoding": "latin-1"},
        {"bad_lines": "skip"},
        {"held_out": 0.2},
        {"form": "label-first"},
        {"test": ["a.tsv"]},
    ]
    assert len({before, *(fingerprint(**change) for change in changes)}) == 1 + len(changes)
    write(tmp_path, "a.tsv", as_tsv(EXAMPLES[::-1]))
    assert fingerprint() != before


# --- Labels ----------------------------------------------------------------------------------------------


def train_of(folder: Path, content: str):
    write(folder, "a.tsv", content)
    return labelled_splits(settings(folder, train=["a.tsv"], held_out=0.0))["train"]


def test_the_labels_are_sorted_and_each_is_named_once(tmp_path):
    assert labels_of(train_of(tmp_path, as_tsv(EXAMPLES))) == ["neg", "pos"]


def test_a_single_class_is_an_error_that_counts_the_texts(tmp_path):
    error = error_of(labels_of, train_of(tmp_path, "pos\tone\npos\ttwo\n"))
    assert error.what == "All 2 training texts have the label 'pos'."
    assert "a.tsv" in error.why


def test_no_training_text_at_all_is_an_error(tmp_path):
    assert "no training texts" in error_of(labels_of, train_of(tmp_path, "pos\t\n")).what


def test_labels_all_different_are_no_labels(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.labelled.MOST_CLASSES", 100)
    many = "".join(f"{number}\ttext\n" for number in range(101))
    assert "more than 100 different labels" in error_of(labels_of, train_of(tmp_path, many)).what


def test_a_label_of_a_thousand_letters_is_a_bad_line(tmp_path):
    assert "is it the text?" in error_of(labels_of, train_of(tmp_path, "x" * 1001 + "\ttext\n")).why


NO_LABELS = {
    "an object": {"a": 1},
    "a text": "ab",
    "numbers": [1, 2],
    "one": ["a"],
    "none": [],
    "twice": ["a", "b", "a"],
    "nested": [["a"], ["b"]],
    "empty": ["a", ""],
}


@pytest.mark.parametrize("content", NO_LABELS.values(), ids=NO_LABELS)
def test_what_is_no_list_of_labels_is_an_error(content):
    assert "run/labels.json" in error_of(check_labels, content, Path("run/labels.json")).what
    assert check_labels(["b", "a"], Path("labels.json")) == ["b", "a"]
