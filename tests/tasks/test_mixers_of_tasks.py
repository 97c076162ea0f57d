"""Every mixer, by one word in a recipe, in every kind of model: it trains, saves, loads and is used."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard import console, registry
from regard.errors import UsageError
from regard.recipes import resolve
from regard.training.folder import RunFolder
from tiny import CLASSIFY, TINY_TEXT

# Attention is what all other tests train.
OTHERS = [name for name in registry.names("mixers") if name != "attention"]
every_other_mixer = pytest.mark.parametrize("mixer", OTHERS)
WORDS = ["tokenizer.kind=word", "tokenizer.vocabulary=600"]
TEXT = ["data.text=text.txt", "training.tokens_per_batch=1024", "training.row_length=64", "model.local.window=8"]


def of_length(steps: int) -> list[str]:
    return [f"training.steps={steps}", f"training.validate_every={steps}", f"training.save_every={steps}"]


def learned(run: Path) -> float:
    """By how much the loss has fallen."""
    losses = [record["loss"] for record in RunFolder(run).read_metrics() if "loss" in record]
    return losses[0] - losses[-1]


@pytest.mark.parametrize(("mixer", "cross"), [*((name, "multihead") for name in OTHERS), ("gru", "bahdanau")])
def test_a_translator_learns_and_translates(mixer, cross, tiny_recipe, tmp_path):
    changes = [f"model.mixer={mixer}", "model.local.window=8", "training.learning_rate=0.01", "decoding.beam=1"]
    changes += [f"model.cross={cross}", "decoding.max_ratio=0.1", "training.validate_bleu=false"]
    run = regard.train(str(tiny_recipe), *changes, *of_length(30), out=tmp_path / "run")
    assert learned(run) > 1.0
    model = regard.load(run)
    sentences = ["The dog sleeps.", "I see the old farmer.", "We read."]
    assert model.translate(sentences, beam=2)[1] == model.translate([sentences[1]], beam=2)[0]
    trace = model.trace(sentences[1])
    source, target = (len(stack.stack.pieces) for stack in trace.stacks)
    across = [part.attention().weights_BHTS for part in trace.parts() if part.cross]
    assert across and all(weights_BHTS.shape[2:] == (target, source) for weights_BHTS in across)
    assert trace.difference < 1e-5


@every_other_mixer
def test_a_language_model_learns_and_writes(mixer, texts, tmp_path):
    changes = [*TINY_TEXT, *TEXT, f"model.mixer={mixer}", *of_length(40)]
    run = regard.train("shakespeare-cpu", *changes, out=tmp_path / "run", data=texts)
    assert learned(run) > 0.5
    # Longer than the context, so that the older half is forgotten on the way.
    [text] = regard.load(run).generate("The ", temperature=0.8, max_tokens=100)
    assert len(text) > 50


@pytest.mark.parametrize(
    ("mixer", "causal"),
    [("hyena", "true"), ("hyena", "false"), ("gru", "true"), ("gru", "false"), ("local", "true"), ("local", "false")],
)
def test_a_classifier_learns_and_a_text_does_not_depend_on_its_neighbours(mixer, causal, texts, tmp_path):
    changes = [*CLASSIFY, *WORDS, f"model.mixer={mixer}", f"model.causal={causal}", "model.local.window=8"]
    run = regard.train("starter-classify", *TINY_TEXT, *changes, *of_length(60), out=tmp_path / "run", data=texts)
    model = regard.load(run)
    assert model.folder.read_json("summary.json")["metrics"]["accuracy"] > 60  # the most frequent class: below 50
    sentences = ["I read my book.", "They see her.", "The old dog sleeps near the house of the farmer."]
    for sentence, guess in zip(sentences, model.classify(sentences), strict=True):
        assert dict(model.classify([sentence])[0].all) == pytest.approx(dict(guess.all), abs=1e-5)


@pytest.mark.parametrize("mixer", ["hyena", "lstm", "local"])
def test_a_masked_model_learns(mixer, texts, tmp_path):
    changes = [
        *TINY_TEXT,
        *TEXT,
        *WORDS,
        "data.documents=together",
        "data.held_out=0.1",
        "training.learning_rate=0.01",
        *of_length(40),
    ]
    run = regard.train("bert-small", *changes, f"model.mixer={mixer}", out=tmp_path / "run", data=texts)
    assert learned(run) > 0.3


@pytest.mark.parametrize(
    "kind",
    [
        ["model.mixer=hyena"],
        ["model.mixer=gru", "model.cross=bahdanau"],
        ["model.copy=true", "training.consistency=1.0"],
    ],
)
def test_a_run_that_is_stopped_and_resumed_gives_the_same_weights(kind, tiny_recipe, tmp_path):
    changes = [
        *kind,
        *of_length(3),
        "training.validate_bleu=false",
        "decoding.beam=1",
        "decoding.max_ratio=0.1",
    ]
    whole = regard.train(str(tiny_recipe), *changes, "training.steps=6", out=tmp_path / "whole")
    regard.train(str(tiny_recipe), *changes, out=tmp_path / "parts")
    parts = regard.train(str(tiny_recipe), *changes, "training.steps=6", out=tmp_path / "parts", resume=True)
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_distilled_hyena_says_how_far_off_it_is_and_still_writes(texts, tmp_path):
    changes = [*TINY_TEXT, *TEXT, *of_length(30), "model.mixer=hyena", "model.hyena.filter_width=8"]
    model = regard.load(regard.train("shakespeare-cpu", *changes, out=tmp_path / "run", data=texts))
    exact = model.generate("The ", temperature=0.0, max_tokens=50)
    rough, fine = model.distil(2), model.distil(31)
    assert fine < 0.05 < rough
    # Its filters are the same to five hundredths, so it writes the same for a while.
    assert model.generate("The ", temperature=0.0, max_tokens=50)[0][:5] == exact[0][:5]
    with pytest.raises(UsageError, match="exponentials"):
        model.distil(0)


def test_what_has_no_long_filters_cannot_be_distilled(tiny_run):
    with pytest.raises(UsageError, match="no long filters"):
        regard.load(tiny_run("language")).distil(4)


# ---------------------------------------------------------------- settings


def test_filters_are_made_for_the_length_of_rows():
    assert resolve("enwik8", ["model.mixer=hyena"]).model.hyena["filter_length"] == 1024
    assert resolve("enwik8", ["model.mixer=hyena", "model.hyena.filter_length=77"]).model.hyena["filter_length"] == 77
    row = resolve("demo").training.row_length
    assert resolve("demo", ["model.mixer=hyena"]).model.hyena["filter_length"] == row


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("demo", ["model.mixer=gru", "training.packing=yes"], "run from one sentence"),
        ("enwik8", ["model.mixer=hyena", "data.documents=apart"], "from one document into the next"),
        ("demo", ["model.cross=none"], "nothing of the source"),
        ("demo", ["model.copy=true", "tokenizer.joint=false", "model.tie_embeddings=target"], "needs tokenizer.joint"),
        ("scenes-caption", ["model.copy=true"], "has no effect"),
        ("demo", ["model.cross=bahdanau"], "feeds a recurrence"),
        ("enwik8", ["model.cross=additive"], "has no effect"),
        ("enwik8", ["model.mixer=hyena", "model.hyena.order=1"], "no convolution"),
        ("enwik8", ["model.mixer=hyena", "model.hyena.ordr=1"], "Unknown setting 'model.hyena.ordr'"),
    ],
)
def test_what_does_not_fit_is_said(recipe, changes, said):
    with pytest.raises(UsageError, match=said):
        resolve(recipe, changes)


def test_settings_of_another_mixer_are_said_to_do_nothing(monkeypatch):
    def said(*changes: str) -> str:
        lines: list[str] = []
        monkeypatch.setattr(console, "warn", lines.append)
        return " ".join([*resolve("enwik8", changes).remarks(), *lines])

    assert said() == said("model.mixer=local") == said("model.mixer=hyena", "model.hyena.order=3") == ""
    assert said("model.mixer=gru", "model.hyena.order=3") == 'model.hyena has no effect: model.mixer is "gru".'
    assert said("model.local.window=4") == 'model.local has no effect: model.mixer is "attention".'
    assert "training.muon has no effect" in said("training.optimizer=adam", "training.muon.momentum=0.5")
    assert "local attention is then attention" in said("model.mixer=local", "model.local.window=1024")
