"""A summariser: it learns, reads the beginning of long texts, repeats nothing, and is scored beside simpler ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
from command import regard as command
from expect import error_of
from regard.cli.app import app
from regard.data.pairs import pair_source, pair_splits
from regard.data.samples import package_descriptions
from regard.data.tokenizers import END, START
from regard.errors import UsageError
from regard.evaluation.rouge import rouge
from regard.run import open_run, read_recipe
from regard.settings import SummaryData
from regard.tasks.summarize import Summarize

SMALL = ["model.width=64", "model.feedforward=128", "model.layers=1", "training.optimizer=muon"]
SMALL += ["training.steps=80", "training.validate_every=80", "training.warmup=10", "training.learning_rate=0.01"]
SMALL += ["training.tokens_per_batch=256"]
FILES = ["data.sample=", *(f'data.{split}=["{split}.tsv"]' for split in ("train", "valid", "test"))]


@pytest.fixture(scope="module")
def summariser(descriptions: Path, train_once: Any) -> Any:
    """Of the made-up descriptions, trained for a few seconds: it knows how a summary is built."""
    return train_once("summariser", "summaries", *SMALL, *FILES, "decoding.beam=2", data=descriptions)


@pytest.fixture(scope="module")
def texts(descriptions: Path) -> list[str]:
    return [line.split("\t")[0] for line in (descriptions / "test.tsv").read_text().splitlines()]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def repeats(tokens: list[int], size: int) -> bool:
    runs = [tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1)]
    return len(set(runs)) < len(runs)


# ---------------------------------------------------------------- the built-in texts


def test_no_summary_is_in_two_splits_and_none_is_the_beginning_of_its_text():
    corpus = package_descriptions.corpus(train=600, valid=50, test=50)
    summaries = [summary for part in (corpus.train, corpus.valid, corpus.test) for _, summary in part]
    assert len(set(summaries)) == 700
    first = [" ".join(text.split()[:8]) for text, _ in corpus.test]
    assert rouge(first, [[summary] for _, summary in corpus.test])["rouge1"] < 20
    assert package_descriptions.pairs(5, seed=2) == package_descriptions.pairs(9, seed=2)[:5]


def test_all_that_a_summary_says_is_in_its_text():
    for text, summary in package_descriptions.pairs(300, seed=4):
        what, place = summary.split(", ")
        kind, thing = what.split(" for ")
        merit = next((merit for merit in package_descriptions.MERITS if merit and kind.startswith(merit)), "")
        assert kind.removeprefix(merit).strip() in text and thing in text
        for said, ways in ((place, package_descriptions.PLACES), (merit, package_descriptions.MERITS)):
            assert any(way in text for way in ways[said])


# ---------------------------------------------------------------- scores


def test_it_beats_the_first_words_after_a_few_seconds_and_says_so(summariser):
    found = summariser.evaluate()
    scores = {score.name: score for score in found.scores}
    assert (found.count, found.unit) == (20, "texts")
    assert "rouge-score:0.1.2" in scores["rouge1"].signature
    simpler = {way["name"].split()[1]: way for way in found.details["baselines"]}
    assert simpler.keys() == {"sentence", "8", "training"} or simpler.keys() == {"sentence", "9", "training"}
    for words in ("sentence", "8" if "8" in simpler else "9"):
        assert scores["rouge1"].value > simpler[words]["rouge1"] + 15
    assert any(f"{simpler['sentence']['rouge1']:.2f}" in line for line in found.notes)
    assert "baselines" not in summariser.evaluate(baselines=False).details


def test_further_references_of_a_test_count_by_their_mean(summariser, tmp_path, texts):
    outputs = summariser.summarize(texts[:3])
    (tmp_path / "more.tsv").write_text("".join(f"{t}\tone\t{o}\n" for t, o in zip(texts, outputs, strict=False)))
    lines = [json.dumps({"text": t, "summary": ["one", o]}) + "\n" for t, o in zip(texts, outputs, strict=False)]
    (tmp_path / "more.jsonl").write_text("".join(lines))
    alone = summariser.evaluate([str(tmp_path / "more.tsv")], baselines=False).metrics
    run = open_run(summariser.folder.path)
    run.settings = run.settings.with_section("data", references=[2])
    run.hardware, run.model = summariser.hardware, summariser.model
    run.restore()
    for name in ("more.tsv", "more.jsonl"):
        found = run.evaluate([str(tmp_path / name)], baselines=False)
        assert found.metrics["rouge1"] == pytest.approx((alone["rouge1"] + 100) / 2)
        assert "nrefs:2" in found.scores[0].signature


# ---------------------------------------------------------------- long texts


def test_of_a_long_text_the_beginning_is_read_and_the_user_is_told(summariser, texts, capsys):
    most = summariser.settings.data.max_length
    long = " ".join(texts)
    ids = summariser.tokenizers.source.encode([long])[0]
    assert len(ids) > most
    assert summariser.translator().encode(long) == [*ids[: most - 1], END]
    [of_long, other] = summariser.summarize([long, texts[0]])
    told = said(capsys)
    assert "1 text is longer than the 128 tokens of data.max_length, and only the beginning was read" in told
    assert "line 1" in told
    kept = summariser.tokenizers.source.decode([ids[: most - 1]])[0]
    assert [of_long, other] == summariser.summarize([kept, texts[0]])
    assert not said(capsys)


def test_long_texts_are_cut_in_training_and_long_summaries_left_out(descriptions, tmp_path, capsys):
    settings = ["data.max_length=40", "data.max_summary=10", "training.steps=1", "training.validate_every=1"]
    quick = ["training.warmup=0", "training.validate_rouge=false", "decoding.max_ratio=0.01", "decoding.beam=1"]
    run = regard.train("summaries", *SMALL, *FILES, *settings, *quick, out=tmp_path / "run", data=descriptions)
    told = said(capsys)
    task = open_run(run)
    task.hardware = regard.load(run).hardware
    task.prepare()
    said(capsys)
    whole = task._tokenised()["train"]
    long, too_long = int((whole.source.lengths >= 40).sum()), int((whole.target.lengths >= 10).sum())
    assert long and too_long
    assert f"{long} of 500 training texts are longer than data.max_length = 40 tokens" in told
    assert f"{too_long} of 500 pairs are longer than data.max_summary = 10 tokens and are left out" in told
    assert (task.pairs["train"].source.lengths == np.minimum(whole.source.lengths, 39)).all()
    assert len(task.stream.usable) == 500 - too_long
    assert task.rectangle.source_length <= 4 * task.rectangle.target_length


@pytest.mark.parametrize("mixer", ["hyena", "gru"])
def test_other_mixers_read_texts_that_are_longer_than_a_row_of_summaries(mixer, descriptions, tmp_path):
    quick = ["training.steps=2", "training.validate_every=2", "decoding.beam=1", "decoding.max_ratio=0.1"]
    settings = [f"model.mixer={mixer}", "training.validate_rouge=false"]
    run = regard.train("summaries", *SMALL, *FILES, *settings, *quick, out=tmp_path / "run", data=descriptions)
    assert 0 <= json.loads((run / "summary.json").read_text())["metrics"]["rouge1"] <= 100


# ---------------------------------------------------------------- repetitions


def test_nothing_is_said_twice_unless_asked_for(descriptions, tmp_path, texts):
    """By a model that has learned next to nothing, and would go on about the same."""
    settings = ["training.steps=15", "training.validate_every=15", "training.validate_rouge=false"]
    run = regard.load(
        regard.train("summaries", *SMALL, *settings, *FILES, "decoding.beam=3", out=tmp_path / "run", data=descriptions)
    )

    def tokens(**decoding: Any) -> list[list[int]]:
        options = {"length_penalty": 9.0, **decoding}  # the longer, the better
        return [best[0].tokens for best in run.translator(**options).translate(texts, best=1)]

    assert run.settings.decoding.no_repeat == 3
    assert any(repeats(each, 3) for each in tokens(no_repeat=0))
    for options in ({}, {"beam": 1}, {"temperature": 1.5}):
        assert not any(repeats(each, 3) for each in tokens(**options))
    assert not any(repeats(each, 1) for each in tokens(no_repeat=1))
    assert read_recipe("demo").decoding.no_repeat == 0


# ---------------------------------------------------------------- copying


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"temperature": 1.0}, {"beam": 2, "slots": 3}])
def test_a_text_has_the_same_summaries_in_any_company(summariser, texts, options):
    writer = summariser.translator(**options)
    mixed = [texts[0], texts[0].split(".")[0], " ".join(texts[:3]), *texts[3:9]]
    together = writer.translate(mixed, best=2)
    for row, text in enumerate(mixed):
        [alone] = writer.translate([text], best=2, first_row=row)
        assert [h.text for h in alone] == [h.text for h in together[row]]
        close = 0.0 if "slots" in options else 1e-4  # with slots, to the bit
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]], abs=close, rel=0)


def test_what_greedy_decoding_writes_is_the_likeliest_of_whole_passes(summariser, texts):
    writer, model = summariser.translator(beam=1, no_repeat=0), summariser.model
    for text in texts[:5]:
        source = torch.tensor([writer.encode(text)])
        tokens = writer.translate([text])[0][0].tokens
        target = torch.tensor([[START, *tokens]])
        ones, places = torch.ones_like, torch.arange(1000)[None]
        with torch.inference_mode():
            logits = model(
                source,
                ones(source),
                places[:, : source.shape[1]],
                target,
                ones(target),
                places[:, : target.shape[1]],
            )
            logits[..., :END] = -torch.inf
        assert logits[0].argmax(-1).tolist() == [*tokens, END]


def test_it_is_explained_and_decoded_in_eight_bits_as_others_are(summariser, texts):
    trace = summariser.trace(texts[0])
    source, target = (len(stack.stack.pieces) for stack in trace.stacks)
    assert all(part.attention().weights_BHTS.shape[2:] == (target, source) for part in trace.parts() if part.cross)
    exact, rough = (summariser.summarize(texts, beam=1, int8=int8) for int8 in (False, True))
    assert sum(map(str.__eq__, exact, rough)) > len(texts) / 2


# ---------------------------------------------------------------- the verb


def lines_of(*arguments: object) -> list[str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_a_line_in_is_a_summary_out_from_a_file_a_pipe_and_json(summariser, texts, tmp_path):
    run, expected = summariser.folder.path, summariser.summarize(texts[:4])
    assert len(set(expected)) > 1
    (tmp_path / "a.txt").write_text("\n".join(texts[:4]) + "\n")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text, "other": ""}) + "\n" for text in texts[:4]))
    (tmp_path / "b.json").write_text(
        "".join(json.dumps({"body": text.replace(". ", ".\n")}) + "\n" for text in texts[:4])
    )
    for verb in ("summarize", "summarise"):
        assert lines_of(verb, run, tmp_path / "a.txt") == expected
    assert lines_of("summarize", run, tmp_path / "a.jsonl") == expected
    assert len(lines_of("summarize", run, tmp_path / "b.json", "--field", "body")) == 4
    piped = command("summarize", run, stdin=(tmp_path / "a.txt").read_text() + "\n")
    assert piped.stdout.splitlines() == [*expected, ""]
    found = [json.loads(line) for line in lines_of("summarize", run, tmp_path / "a.txt", "--json", "--best", 2)]
    assert [line["summaries"][0]["text"] for line in found] == expected
    assert all(len(line["summaries"]) == 2 for line in found)


def test_what_is_wrong_with_the_input_is_said(summariser, tmp_path, trained):
    from regard.cli.summarize import _in_field

    assert "Line 2 of the input" in error_of(list, _in_field(iter(['{"text": "a"}', "no"]), 0, "text")).what
    assert "field 'body'" in error_of(list, _in_field(iter(['{"text": "a"}']), 0, "body")).why
    assert "Line 7 of the input" in error_of(list, _in_field(iter(["no"]), 6, "text")).what
    assert "half a character" in error_of(list, _in_field(iter(['{"text": "\\ud800"}']), 0, "text")).why
    assert list(_in_field(iter(['{"text": "a"}', "", '{"text": "b"}']), 0, "text")) == ["a", "", "b"]
    for verb, run in (("summarize", trained), ("translate", summariser)):
        result = CliRunner().invoke(app, [verb, str(run.folder.path)])
        assert isinstance(result.exception, UsageError)
        assert f"regard {run.about.verb}" in result.exception.fix


# ---------------------------------------------------------------- files


def test_a_jsonl_with_bad_lines_names_them_or_leaves_them_out(tmp_path):
    path = tmp_path / "a.jsonl"
    good = [json.dumps({"text": f"text {n}", "summary": f"short {n}"}) for n in range(3)]
    half = '{"text": "a \\ud800", "summary": "b"}'
    wrong = {"no json": "not valid JSON", '{"text": "a"}': "'summary'", '{"summary": "a"}': "'text'", half: "half a"}
    for bad, why in wrong.items():
        path.write_text("\n".join([good[0], bad, *good[1:]]) + "\n")
        error = error_of(list, pair_source([str(path)], SummaryData()))
        assert "Line 2" in error.what and why in error.why
        kept = pair_source([str(path)], SummaryData(bad_lines="skip"))
        assert list(kept) == [(f"text {n}", f"short {n}") for n in range(3)]
    path.write_text("\n".join(good) + "\n")
    data = SummaryData(train=[str(path)], text_field="summary", summary_field="text", held_out=0.0)
    assert next(iter(pair_splits(data)["train"])) == ("short 0", "text 0")
    others = [SummaryData(train=[str(path)], held_out=0.0), data]
    assert len({pair_splits(each)["train"].fingerprint for each in others}) == 2


def test_the_doctor_knows_that_summaries_are_shorter(descriptions):
    figures, advice = Summarize.examine(read_recipe("summaries", FILES, descriptions))
    assert figures["train"]["source_lengths"]["mean"] > 3 * figures["train"]["target_lengths"]["mean"]
    assert not any("aligned" in line for line in advice)
    swapped = read_recipe("summaries", [*FILES, "data.columns=[1, 0]"], descriptions)
    assert any("right way round" in line for line in Summarize.examine(swapped)[1])
