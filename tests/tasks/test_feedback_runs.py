"""Runs with feedback: they learn, are resumed exactly, write, and say what they cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.errors import UsageError
from regard.recipes import resolve
from tiny import TINY_TEXT

SHORT = ["synthetic.test_sequences=50", "synthetic.length=6", "model.width=16", "model.heads=2", "model.feedforward=16"]
SHORT += ["model.feedback_span=4", "training.tokens_per_batch=96", "model.dropout=0.1"]
TEXT = [*TINY_TEXT, "data.text=text.txt", "training.tokens_per_batch=512", "training.row_length=16"]
TEXT += ["model.feedback_span=8", "model.positions=none"]


def of_length(steps: int) -> list[str]:
    return [f"training.steps={steps}", f"training.validate_every={steps}", f"training.save_every={steps}"]


@pytest.mark.parametrize("feedback", ["shared", "separate"])
def test_a_run_that_is_stopped_and_resumed_gives_the_same_weights(feedback, tmp_path):
    changes = [*SHORT, f"model.feedback={feedback}", *of_length(3)]
    whole = regard.train("permutations", *changes, "training.steps=6", out=tmp_path / "whole")
    regard.train("permutations", *changes, out=tmp_path / "parts")
    parts = regard.train("permutations", *changes, "training.steps=6", out=tmp_path / "parts", resume=True)
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def language(texts, tmp_path_factory) -> Path:
    changes = [*TEXT, "model.feedback=separate", *of_length(30), "training.learning_rate=0.01"]
    return regard.train("shakespeare-cpu", *changes, out=tmp_path_factory.mktemp("runs") / "feedback", data=texts)


def test_a_language_model_learns_and_writes(language):
    run = regard.load(language)
    assert run.folder.read_json("summary.json")["metrics"]["loss"] < 3.5  # of all bytes alike: 5.5
    # Longer than the context; beside others, a text is the same as alone.
    prompts = ["The ", "A dog"]
    texts = run.generate(prompts, temperature=0.0, max_tokens=60)
    assert [len(text) > 20 for text in texts] == [True, True]
    assert [run.generate(prompt, temperature=0.0, max_tokens=60)[0] for prompt in prompts] == texts
    assert len(run.generate("The ", max_tokens=20, int8=True)[0]) > 5


def test_it_starts_from_its_own_kind_and_a_classifier_cannot(language, texts, tmp_path):
    start = f"training.start_from={language}"
    again = regard.train("shakespeare-cpu", *TEXT[-5:-2], *of_length(1), start, out=tmp_path / "again", data=texts)
    assert regard.load(again).settings.model.feedback == "separate"
    with pytest.raises(UsageError, match="has feedback"):
        regard.train("starter-classify", start, out=tmp_path / "classifier", data=texts)


def test_nothing_can_be_looked_up(language):
    with pytest.raises(UsageError, match="take back"):
        resolve(
            "shakespeare-cpu",
            ["model.feedback=shared", "model.positions=none", "decoding.lookup=4", "decoding.temperature=0"],
        )
    with pytest.raises(UsageError, match="Feedback cannot take back"):
        regard.load(language).generate("The", lookup=4, temperature=0.0)


def test_layers_cannot_be_read_one_by_one(language):
    with pytest.raises(UsageError, match="one by one"):
        list(regard.load(language).model.trunk.layers)


@pytest.mark.parametrize("change", ["model.mixer=local", "model.mixer=hyena", "model.positions=rotary"])
def test_what_does_not_fit_is_refused_in_a_recipe(change):
    with pytest.raises(UsageError, match="feedback = "):
        resolve("permutations", [change])


@pytest.mark.parametrize("recipe", ["demo", "bert-small", "starter-classify", "digits"])
def test_models_that_are_not_causal_have_no_feedback(recipe):
    with pytest.raises(UsageError, match="feedback"):
        resolve(recipe, ["model.feedback=shared"])
