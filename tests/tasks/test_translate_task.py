"""A trained translator: every line that it is given is translated and counted, or it says which is not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from torch.nn import functional as F
from typer.testing import CliRunner

import regard
from expect import error_of
from regard.cli.app import app
from regard.data.pair_batches import Rectangle
from regard.data.ragged import Ragged
from regard.data.sentences import split_sentences
from regard.data.tokenised import TokenisedPairs
from regard.data.tokenizers import END, START
from regard.decoding.translate import Translation, joined
from regard.run import read_recipe
from tiny import TINY_TEXT

LINE = "The dog sleeps. I see the old farmer. We read a book."


@pytest.fixture(scope="module")
def sentences(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """The first test pairs, as sources and targets."""
    lines = [line.split("\t") for line in Path(trained.settings.data.root, "test.tsv").read_text().splitlines()[:8]]
    return [source for source, _ in lines], [target for _, target in lines]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What went to standard error, as one line."""
    return " ".join(capsys.readouterr().err.split())


def with_positions(trained: Any, most: int, longest: int) -> Any:
    """The same run as if its model had so many positions, and had been trained on sentences so long."""
    task = regard.load(trained.folder.path)
    model = task.settings.model.model_copy(update={"positions": "learned", "max_positions": most})
    task.settings = task.settings.model_copy(update={"model": model}).with_section("data", max_length=longest)
    return task


# ---------------------------------------------------------------- scores


def test_blank_lines_are_scored_as_they_stand_and_stay_in_the_output(trained, sentences, tmp_path, capsys):
    sources, targets = (list(side) for side in sentences)
    sources[2], targets[5] = "", "  "
    (tmp_path / "a.en").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("\n".join(targets) + "\n", encoding="utf-8")
    found = trained.evaluate([str(tmp_path / "a.en"), str(tmp_path / "a.de")], beam=1)
    assert len(found.outputs) == len(sources)
    assert found.outputs[2] == "" and all(found.outputs[:2] + found.outputs[3:])
    assert (found.count, found.details["lines"], found.details["blank"], found.details["left_out"]) == (8, 8, 2, 0)
    assert "2 of 8 pairs have a blank side" in said(capsys)
    # What sacreBLEU makes of the same files.
    assert found.metrics["bleu"] == pytest.approx(BLEU().corpus_score(found.outputs, [targets]).score)
    assert found.metrics["chrf"] == pytest.approx(CHRF().corpus_score(found.outputs, [targets]).score)


def test_lines_that_are_skipped_keep_their_place_and_are_counted(trained, sentences, tmp_path, capsys):
    rows = [f"{source}\t{target}".encode() for source, target in zip(*sentences, strict=True)]
    rows[1], rows[4] = b"\xff\tx", b"no second column"
    (tmp_path / "a.tsv").write_bytes(b"\n".join(rows) + b"\n")
    task = regard.load(trained.folder.path)
    task.settings = task.settings.with_section("data", bad_lines="skip")
    found = task.evaluate([str(tmp_path / "a.tsv")], beam=1)
    assert [number for number, output in enumerate(found.outputs) if not output] == [1, 4]
    assert (len(found.outputs), found.count, found.details["left_out"]) == (8, 6, 2)
    assert f"2 lines of '{tmp_path / 'a.tsv'}' are left out: line 2:" in said(capsys)


def test_the_command_writes_a_line_for_every_line_and_scores_before_it_writes(trained, sentences, tmp_path):
    sources, targets = (["", *side[:3], ""] for side in sentences)
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, targets, strict=True)))
    command = ["evaluate", str(trained.folder.path), str(tmp_path / "a.tsv"), "--json", "-o"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "out.txt")])
    shown = json.loads(result.stdout)
    assert (shown["sentences"], shown["lines"], shown["blank"]) == (5, 5, 2)
    written = (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")
    assert written == ["", *trained.translate(sources[1:4]), "", ""]
    (tmp_path / "folder").mkdir()
    failed = CliRunner().invoke(app, [*command, str(tmp_path / "folder")])
    assert isinstance(failed.exception, regard.RegardError)
    assert json.loads(failed.stdout)["metrics"] == shown["metrics"]


@pytest.mark.parametrize("apart", [False, True])
def test_the_loss_of_a_pair_longer_than_a_row_is_of_its_own_tokens_alone(trained, apart):
    """No <end> is expected, or read, where the sentence goes on."""
    room = 20
    pairs = [((4, 5, 6), (7, 8)), (tuple(range(10, 50)), tuple(range(60, 100))), ((9,) * room, (9,) * (room - 1))]
    task = regard.load(trained.folder.path)
    sides = (Ragged.from_lists(side) for side in zip(*pairs, strict=True))
    task.pairs = {"valid": TokenisedPairs(*sides)}
    task.rectangle = Rectangle(3, room, room, apart)
    total, targets = 0.0, 0
    for source, target in pairs:
        read, labels = torch.tensor([[*source, END][:room]]), torch.tensor([*target, END][:room])
        inputs = torch.tensor([[START, *target][: len(labels)]])
        places = torch.arange(room)[None]
        with torch.inference_mode():
            logits = task.model(
                read,
                torch.ones_like(read),
                places[:, : read.shape[1]],
                inputs,
                torch.ones_like(inputs),
                places[:, : inputs.shape[1]],
            )[0]
        total, targets = total + F.cross_entropy(logits, labels, reduction="sum").item(), targets + len(labels)
    assert task._loss_on("valid")["loss"] == pytest.approx(total / targets, rel=1e-5)


def test_validation_pairs_longer_than_the_positions_are_cut_and_counted(corpus, tmp_path, capsys):
    for side in ("en", "de"):
        long = " ".join((corpus / f"valid.{side}").read_text(encoding="utf-8").split("\n")[:20])
        (tmp_path / f"valid.{side}").write_text(f"{long}\nShort.\n", encoding="utf-8")
    files = [f'data.train=["{corpus}/train.en", "{corpus}/train.de"]', 'data.valid=["valid.en", "valid.de"]']
    settings = [*files, "data.max_length=32", "training.row_length=512", "training.tokens_per_batch=1024"]
    settings += ["model.positions=learned", "model.max_positions=32", "tokenizer.vocabulary=400", "decoding.beam=1"]
    settings += ["training.steps=1", "training.validate_every=1"]
    run = regard.train("starter", *TINY_TEXT, *settings, out=tmp_path / "run", data=tmp_path)
    assert "1 of 2 validation pairs are longer" in said(capsys)
    assert json.loads((run / "summary.json").read_text())["metrics"]["loss"] > 0


# ---------------------------------------------------------------- long lines


def test_what_is_dropped_of_a_long_line_is_said_with_its_line(trained, capsys):
    task = with_positions(trained, most=16, longest=10)
    words = "the dog sees the cat and the man sees the dog and the cat sees the man and the dog"
    cut, long, short = words, " ".join(words.split()[:11]), "The dog sleeps."
    counts = [len(ids) + 1 for ids in task.tokenizers.source.encode([cut, long, short])]
    assert counts[0] > 16 >= counts[1] > 10 >= counts[2]
    outputs = task.translate([short, cut, "", long], beam=1)
    err = said(capsys)
    assert "1 line is longer than the 16 positions of the model" in err
    assert f"line 2 ({counts[0] - 16} tokens dropped)" in err
    assert "1 line is longer than any sentence that the model was trained on (10 tokens)" in err
    assert f"line 4 ({counts[1]} tokens)" in err and "--split-sentences" in err
    assert len(outputs) == 4 and outputs[2] == ""
    task.translate([short], beam=1)
    assert said(capsys) == ""
    # One sentence that is too long by itself.
    task.translate([f"{short} {cut.capitalize()}"], beam=1, split_sentences=True)
    err = said(capsys)
    assert "1 sentence is longer than the 16 positions" in err and "--split-sentences" not in err


def test_many_long_lines_give_one_warning_that_names_the_first(trained, capsys):
    task = with_positions(trained, most=16, longest=10)
    task.translate(["the dog " * 12] * 40, beam=1, max_ratio=0.1)
    err = said(capsys)
    assert err.count("Warning") == 1
    assert "40 lines are longer" in err and "line 5 (" in err and "line 6 (" not in err and "…" in err


def test_the_filter_warns_of_the_line_of_the_input_and_not_among_the_translations(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cli.lines.LINES_AT_ONCE", 2)
    long = "The dog sleeps. " * 40
    (tmp_path / "lines.txt").write_text(f"The cat sleeps.\n\nWe read.\n{long}\n")
    command = ["translate", str(trained.folder.path), str(tmp_path / "lines.txt"), "--beam", "1"]
    result = CliRunner().invoke(app, command)
    lines = result.stdout.split("\n")
    assert len(lines) == 5 and lines[1] == lines[4] == ""
    assert "Warning" not in result.stdout
    assert "line 4 (" in " ".join(result.stderr.split())
    split = CliRunner().invoke(app, [*command, "--split-sentences"])
    assert split.stderr == ""
    assert split.stdout.split("\n")[:3] == lines[:3]
    assert split.stdout.split("\n")[3] == " ".join(trained.translate(["The dog sleeps."], beam=1) * 40)


# ---------------------------------------------------------------- sentences of a line


def test_a_line_split_into_sentences_is_the_translations_of_each_in_one_line(trained):
    lines = [LINE, "", "The dog sleeps."]
    assert len(split_sentences(LINE)) == 3
    found = trained.translate(lines, beam=2, split_sentences=True)
    assert found == [" ".join(trained.translate(split_sentences(line), beam=2)) for line in lines]


def test_the_best_of_a_split_line_are_the_best_combinations(trained):
    translator = trained.translator(beam=3)
    each = translator.translate(split_sentences(LINE))
    every = sorted(itertools.product(*each), key=lambda combination: -sum(h.score for h in combination))[:3]
    [found] = translator.translate([LINE], split=True)
    assert [h.text for h in found] == [" ".join(h.text for h in combination) for combination in every]
    assert [h.score for h in found] == pytest.approx([sum(h.score for h in combination) for combination in every])
    assert [h.tokens for h in found] == [[token for h in combination for token in h.tokens] for combination in every]


def test_a_space_stands_between_joined_sentences_but_not_after_a_wide_mark():
    def one(text: str) -> list[Translation]:
        return [Translation(text, -1.0, -2.0, [])]

    [found] = joined([one("你好。"), one("「好！」"), one("Hello."), [], one("Bye.")], most=5)
    assert (found.text, found.score, found.log_probability) == ("你好。「好！」Hello. Bye.", -4.0, -8.0)
    assert joined([], most=5) == joined([[]], most=5) == []


def test_a_prefix_is_of_the_first_sentence_of_a_line(trained):
    [text] = trained.translate([LINE], prefixes=["Heute"], beam=2, split_sentences=True)
    [plain] = trained.translate([LINE], beam=2, split_sentences=True)
    assert text.startswith("Heute") and text.count("Heute") == 1
    assert len(split_sentences(text)) == len(split_sentences(plain)) == 3


def test_samples_of_split_lines_depend_on_line_and_place_alone(trained):
    lines = [LINE, "", "The dog sleeps.", LINE]
    translator = trained.translator(temperature=1.0)

    def draw(lines: list[str], first: int = 0, split: bool = True) -> list[str]:
        return [found[0].text if found else "" for found in translator.translate(lines, first_row=first, split=split)]

    whole = draw(lines)
    assert draw(lines[:2]) + draw(lines[2:], first=2) == whole
    assert whole[2] == draw(lines, split=False)[2]
    assert whole[0] != whole[3]
    same = draw(["The dog sleeps. " * 6])[0]
    assert len(set(split_sentences(same))) > 1


def test_files_beside_the_built_in_pairs_are_not_ignored():
    error = error_of(read_recipe, "demo", ['data.train=["a.en", "a.de"]'])
    assert "data.sample and data.train are both set" in str(error)
