"""The synthetic task: a tiny model learns made-up sequences for real, and its run can be used."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from regard.data.batch import DataState
from regard.data.synthetic import chance, held_out, spell
from regard.errors import UsageError
from regard.recipes import complete, resolve, validate
from regard.tasks.synthetic import Synthetic
from regard.training.folder import RunFolder

TINY = ["synthetic.length=10", "synthetic.vocabulary=8", "synthetic.test_sequences=200", "model.layers=2"]
TINY += ["model.width=32", "model.heads=2", "model.feedforward=64", "training.tokens_per_batch=640"]
TINY += ["training.steps=50", "training.validate_every=25", "training.log_every=20"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four symbols written backwards."""
    return regard.train("reverse", *TINY, out=tmp_path_factory.mktemp("runs") / "reverse")


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def test_a_tiny_model_learns_to_reverse(run):
    metrics = summary(run)["metrics"]
    assert metrics["accuracy"] > 90  # by chance: 12.5
    assert metrics["whole"] > 70
    assert metrics["loss"] < 0.4


def test_validation_and_test_are_scored_on_different_sequences(run):
    loaded = regard.load(run)
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    best = max((record for record in records if "valid_loss" in record), key=lambda record: record["valid_accuracy"])
    assert loaded.evaluate(split="valid").metrics["loss"] == pytest.approx(best["valid_loss"], rel=1e-5)
    assert loaded.evaluate(split="valid").metrics["loss"] != loaded.evaluate(split="test").metrics["loss"]


def test_what_greedy_writing_gets_right_is_the_share_of_whole_sequences(run):
    loaded = regard.load(run)
    batch = held_out(loaded.settings.synthetic, "test")
    question = 6  # <start>, four symbols, and the mark
    written = batch.tokens_BT[:, :question]
    with torch.inference_mode():
        for _ in range(4):
            written = torch.cat([written, loaded.model(written)[:, -1:].argmax(-1)], dim=1)
    right = (written[:, question:] == batch.labels[:, -4:]).all(1).float().mean().item()
    assert 100 * right == pytest.approx(loaded.evaluate().metrics["whole"])


def test_config_json_says_what_the_weights_need(run):
    config = json.loads((run / "config.json").read_text())
    assert config["architecture"] == "causal"
    assert config["vocabulary"] == len(regard.load(run).model.to_logits.weight)
    assert config["synthetic"]["kind"] == "reverse"


def test_a_sample_shows_five_sequences_with_what_was_expected_and_what_came(run):
    blocks = (run / "samples" / "step-50.txt").read_text().strip().split("\n\n")
    assert len(blocks) == 5
    settings = regard.load(run).settings.synthetic
    valid = held_out(settings, "valid")
    right = 0
    for row, block in enumerate(blocks):
        read, expected, came = (line.split() for line in block.splitlines())
        assert read == ["read", *(spell(settings, token) for token in valid.tokens_BT[row].tolist())]
        assert expected == ["expected", *read[2:6][::-1]]
        assert (came[0], len(came)) == ("came", 5)
        right += sum(a == b for a, b in zip(expected[1:], came[1:], strict=True))
    assert right > 10  # of 20; by chance 2.5


@pytest.mark.parametrize("kind", ["copy", "sort", "recall", "recall-one-shot", "recall-multi", "permutations"])
def test_every_kind_trains_and_is_scored(kind, tmp_path):
    few = [*TINY, f"synthetic.kind={kind}", "training.steps=2", "training.validate_every=2"]
    few += ["synthetic.vocabulary=6"] if kind == "permutations" else []
    run = regard.train("reverse", *few, out=tmp_path / "run")
    evaluation = regard.load(run).evaluate()
    assert evaluation.metrics == summary(run)["metrics"]
    assert evaluation.details["chance"] == chance(resolve("reverse", few).synthetic)


SHORTER = ["synthetic.length=32", "training.tokens_per_batch=1024"]
LONGER = [*SHORTER, "training.steps=300", "training.validate_every=300"]


# Chance is 20 %. Each value belongs to one of five keys: who remembers the last pair only, and guesses among the other
# values, gets 40 %, and with the last two pairs 57 %. A GRU learns slowly.
@pytest.mark.parametrize(
    ("mixer", "least", "more"), [("attention", 90, SHORTER), ("hyena", 75, []), ("gru", 85, LONGER)]
)
def test_a_mixer_learns_to_recall_the_value_of_a_key(mixer, least, more, tmp_path):
    small = ["synthetic.vocabulary=10", "synthetic.length=64", "synthetic.test_sequences=500", "model.width=32"]
    small += ["model.feedforward=64", "training.tokens_per_batch=2048", "training.steps=160"]
    small += ["training.validate_every=160", f"model.mixer={mixer}"]
    run = regard.train("recall", *small, *more, out=tmp_path / "run")
    assert summary(run)["metrics"]["accuracy"] > least


# ---------------------------------------------------------------- the command line


def command(*arguments: str | Path):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_evaluate_prints_the_figures_with_the_chance_level(run):
    shown = command("evaluate", run)
    assert shown.exit_code == 0
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert set(lines) == {"loss", "accuracy", "whole"}
    assert f"{summary(run)['metrics']['accuracy']:.2f}" in lines["accuracy"]
    assert "chance: 12.50" in lines["accuracy"]
    result = json.loads(command("evaluate", run, "--json").stdout)
    assert (result["sequences"], result["chance"], result["kind"]) == (200, 12.5, "reverse")


def test_files_cannot_be_scored(run, tmp_path):
    (tmp_path / "text.txt").write_text("3 1 2\n")
    failed = command("evaluate", run, tmp_path / "text.txt").exception
    assert isinstance(failed, UsageError)
    assert "no files" in failed.what


@pytest.mark.parametrize("verb", [["generate"], ["translate"], ["classify"], ["fill", "A [MASK]."]])
def test_a_verb_for_text_refuses_the_run_and_names_the_right_one(run, verb):
    failed = command(verb[0], run, *verb[1:]).exception
    assert isinstance(failed, UsageError)
    assert "made-up sequences" in failed.what
    assert f"regard evaluate {run}" in failed.fix


@pytest.mark.parametrize("setting", ["training.row_length=32", "data.held_out=0.1", "tokenizer.kind=byte"])
def test_settings_of_text_are_refused(setting):
    with pytest.raises(UsageError, match="has no effect on the task 'synthetic'"):
        resolve("reverse", [setting])


@pytest.mark.parametrize(
    ("training", "named"),
    [
        ({"tokens_per_batch": 23}, "synthetic.length = 24"),
        ({"tokens_per_batch": 72, "micro_batches": 4}, "only 3 rows"),
        ({"select": "bleu"}, "bleu"),
    ],
)
def test_training_that_does_not_fit_the_sequences_is_refused(training, named):
    with pytest.raises(UsageError) as caught:
        validate({"task": "synthetic", "synthetic": {"length": 24}, "training": training})
    assert named in str(caught.value)


def test_a_batch_counts_whole_sequences():
    settings = resolve("reverse", ["synthetic.length=24", "training.tokens_per_batch=71"])
    task = Synthetic(settings, RunFolder("nowhere"))
    task.prepare()
    batch, _ = next(task.stream.batches(DataState()))
    assert batch.tokens_BT.shape == (2, 24 - 1)  # nothing follows the last token


def test_filters_of_hyena_are_as_long_as_the_sequences():
    given = {"task": "synthetic", "synthetic": {"length": 24}, "model": {"mixer": "hyena"}}
    assert complete(validate(given)).model.hyena["filter_length"] == 24
