"""Every mixer, by one word in a recipe, in every kind of model: it trains, saves, loads and is used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from regard.tasks.common import without_effect

import regard
from regard.recipes import resolve
from regard.training.checkpoint import read_tensors
from tiny import CLASSIFY, TINY_TEXT

MIXERS = ["local", "hyena", "rnn", "lstm", "gru"]
every_mixer = pytest.mark.parametrize("mixer", MIXERS)


def losses(run: Path) -> list[float]:
    import json

    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


@every_mixer
def test_a_translator_learns_and_translates(mixer, tiny_recipe, tmp_path):
    changes = [f"model.mixer={mixer}", "training.steps=40", "training.validate_every=40", "training.save_every=20"]
    run = regard.train(
        str(tiny_recipe), *changes, "model.window=8", "training.learning_rate=0.01", out=tmp_path / "run"
    )
    found = losses(run)
    assert found[-1] < found[0] - 1.0
    model = regard.load(run)
    together = model.translate(["The dog sleeps.", "I see the old farmer.", "We read."])
    assert together[1] == model.translate(["I see the old farmer."])[0]


@every_mixer
def test_a_language_model_learns_and_writes(mixer, texts, tmp_path):
    changes = ["data.text=text.txt", "training.steps=60", "training.tokens_per_batch=1024", "training.row_length=64"]
    changes += ["training.validate_every=60", f"model.mixer={mixer}", "model.window=16"]
    run = regard.train("shakespeare-cpu", *TINY_TEXT, *changes, out=tmp_path / "run", data=texts)
    found = losses(run)
    assert found[-1] < found[0] - 0.5
    model = regard.load(run)
    # Longer than the context, so that the older half is forgotten on the way.
    text = model.generate("The ", temperature=0.8, max_tokens=100)
    assert len(text[0] if isinstance(text, list) else str(text)) > 50


@pytest.mark.parametrize("mixer", ["hyena", "gru", "local"])
@pytest.mark.parametrize("causal", ["true", "false"])
def test_a_classifier_learns_and_a_text_does_not_depend_on_its_neighbours(mixer, causal, texts, tmp_path):
    changes = [f"model.mixer={mixer}", f"model.causal={causal}", "model.window=8", "tokenizer.kind=word"]
    changes += ["tokenizer.vocabulary=600"]
    run = regard.train("starter-classify", *TINY_TEXT, *CLASSIFY, *changes, out=tmp_path / "run", data=texts)
    model = regard.load(run)
    assert model.folder.read_json("summary.json")["metrics"]["accuracy"] > 70
    sentences = ["I read my book.", "They see her.", "The old dog sleeps near the house of the farmer."]
    together = [guess.all for guess in model.classify(sentences)]
    alone = [model.classify([sentence])[0].all for sentence in sentences]
    for one, other in zip(together, alone, strict=True):
        assert dict(one) == pytest.approx(dict(other), abs=1e-5)


@pytest.mark.parametrize("mixer", ["hyena", "lstm", "local"])
def test_a_masked_model_learns(mixer, texts, tmp_path):
    changes = ["data.text=text.txt", "data.documents=together", "data.held_out=0.1", "training.steps=60"]
    changes += [
        "training.tokens_per_batch=1024",
        "training.row_length=64",
        "training.validate_every=60",
        "training.learning_rate=0.01",
    ]
    changes += [f"model.mixer={mixer}", "model.window=8", "tokenizer.kind=word", "tokenizer.vocabulary=600"]
    run = regard.train("bert-small", *TINY_TEXT, *changes, out=tmp_path / "run", data=texts)
    found = losses(run)
    assert found[-1] < found[0] - 0.5


@pytest.mark.parametrize("mixer", ["hyena", "gru"])
def test_a_run_that_is_stopped_and_resumed_gives_the_same_weights(mixer, tiny_recipe, tmp_path):
    changes = [f"model.mixer={mixer}"]
    whole = regard.train(str(tiny_recipe), *changes, out=tmp_path / "whole")
    regard.train(str(tiny_recipe), *changes, "training.steps=10", out=tmp_path / "parts")
    parts = regard.train(str(tiny_recipe), *changes, "training.steps=20", out=tmp_path / "parts", resume=True)
    left, right = (read_tensors(run / "model.safetensors") for run in (whole, parts))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_filters_are_made_for_the_length_of_rows():
    assert resolve("enwik8", ["model.mixer=hyena"]).model.hyena_filter_length == 1024
    assert resolve("enwik8", ["model.mixer=hyena", "model.hyena_filter_length=77"]).model.hyena_filter_length == 77
    assert resolve("demo", ["model.mixer=hyena"]).model.hyena_filter_length == resolve("demo").training.row_length


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("demo", ["model.mixer=gru", "training.packing=yes"], "run from one sentence"),
        ("enwik8", ["model.mixer=hyena", "data.documents=apart"], "from one document into the next"),
        ("demo", ["model.cross=none"], "nothing of the source"),
        ("enwik8", ["model.cross=additive"], "has no effect"),
        ("enwik8", ["model.mixer=hyena", "model.hyena_order=1"], "no convolution"),
        ("demo", ["model.mixer=mamba"], "cannot be 'mamba'"),
    ],
)
def test_what_does_not_fit_is_said(recipe, changes, said):
    with pytest.raises(regard.errors.UsageError, match=said):
        try:
            resolve(recipe, changes)
        except regard.errors.UsageError as error:
            raise regard.errors.UsageError(f"{error.what} {error.why}", error.why, error.fix) from None


def test_a_distilled_hyena_says_how_far_off_it_is_and_still_writes(texts, tmp_path):
    changes = ["data.text=text.txt", "training.steps=30", "training.tokens_per_batch=512", "training.row_length=64"]
    changes += ["training.validate_every=30", "model.mixer=hyena", "model.hyena_filter_width=8"]
    run = regard.train("shakespeare-cpu", *TINY_TEXT, *changes, out=tmp_path / "run", data=texts)
    model = regard.load(run)
    exact = model.generate("The ", temperature=0.0, max_tokens=50)
    rough, fine = model.distil(2), model.distil(31)
    assert fine < 0.05 < rough
    # Its filters are the same to five hundredths, so it writes the same for a while.
    assert model.generate("The ", temperature=0.0, max_tokens=50)[0][:5] == exact[0][:5]
    with pytest.raises(regard.errors.UsageError, match="exponentials"):
        model.distil(0)


def test_settings_of_another_mixer_are_said_to_do_nothing():
    def said(*changes: str) -> str:
        return " ".join(without_effect(resolve("shakespeare-cpu", changes)))

    assert said() == said("model.mixer=local") == said("model.mixer=hyena", "model.hyena_order=3") == ""
    assert "model.hyena_order has no effect" in said("model.mixer=gru", "model.hyena_order=3")
    assert "model.window has no effect" in said("model.window=4")
    assert "local attention is then attention" in said("model.mixer=local", "model.window=128")
