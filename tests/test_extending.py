"""The parts in docs/extending.md, exactly as they are written there: short, and as good as those that Regard brings."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from regard import registry
from tiny import TINY_TEXT, tagged_sentences

DOCUMENT = Path(__file__).parent.parent / "docs" / "extending.md"
FILES: dict[str, str] = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", DOCUMENT.read_text(), re.S))


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files of the document, and data to tag; what they register is forgotten after the test."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(f"# {name}\n{text}", encoding="utf-8")
    for number, split in enumerate(("train", "valid", "test")):
        (tmp_path / f"tagged-{split}.tsv").write_text(tagged_sentences(300 if not number else 40, seed=number))
    for kind, table in registry.KINDS.items():
        monkeypatch.setitem(registry.KINDS, kind, dict(table))
    monkeypatch.setattr(registry, "_plugins", {})
    yield tmp_path


def test_a_mixer_takes_under_60_lines_and_a_task_under_150():
    assert len(FILES["decay.py"].splitlines()) + 1 < 60
    assert len(FILES["tag.py"].splitlines()) + 1 < 150


def test_the_mixer_keeps_the_contract_of_all_mixers(plugins, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "layers"))
    registry.load_plugins([plugins / "decay.py"])
    contract = importlib.import_module("test_mixers")
    decay = {"mixer": "decay"}
    contract.test_steps_equal_forward(decay)
    contract.test_steps_after_a_prefill_equal_forward(decay, 9)
    contract.test_a_selected_state_continues_as_the_row_it_was_copied_from(decay, False)
    contract.test_the_future_never_changes_the_past(decay)
    contract.test_in_both_directions_the_end_changes_the_beginning(decay)
    for causal in (True, False):
        contract.test_padding_changes_nothing_nor_does_a_neighbour_where_rows_are_shared(decay, causal)
        contract.test_gradients_are_those_of_finite_differences(decay, causal)


def test_a_run_with_the_mixer_has_its_settings_and_asks_for_its_file(plugins, texts):
    settings = [*TINY_TEXT, "model.mixer=decay", "model.decay.half_life=8.0", "data.text=text.txt"]
    settings += ["training.steps=40", "training.validate_every=40", "training.tokens_per_batch=512"]
    files = [plugins / "decay.py"]
    run = regard.train("shakespeare-cpu", *settings, out=plugins / "run", data=texts, plugins=files)
    assert "[model.decay]\nhalf_life = 8.0 " in (run / "config.toml").read_text()
    losses = [record["loss"] for record in map(json.loads, (run / "metrics.jsonl").open()) if "loss" in record]
    assert losses[-1] < losses[0] - 0.5
    assert len(regard.load(run).generate("The ", max_tokens=20, temperature=1.0)[0]) > 0
    assert f"--plugin {files[0]}" in json.loads((run / "summary.json").read_text())["next"][0]


def test_the_optimizer_and_the_positions_train(plugins, texts):
    registry.load_plugins([plugins / "plain.py"])
    settings = [*TINY_TEXT, "training.optimizer=sgd", "model.positions=ramp", "data.text=text.txt"]
    settings += ["training.steps=3", "training.validate_every=3", "training.tokens_per_batch=512"]
    run = regard.load(regard.train("shakespeare-cpu", *settings, out=plugins / "run", data=texts))
    assert type(run.model.trunk.embedding.positions).__name__ == "Ramp"
    assert run.settings.parts == {
        "tasks": "language",
        "mixers": "attention",
        "positions": "ramp",
        "optimizers": "sgd",
    }


def test_the_task_learns_to_tag_and_resumes_to_the_byte(plugins):
    files, recipe = [plugins / "tag.py"], str(plugins / "tagger.toml")
    run = regard.train(recipe, out=plugins / "whole", plugins=files)
    tagger = regard.load(run)
    assert tagger.evaluate().metrics["accuracy"] > 95
    assert tagger.tag(["the old dog sees a unicorn"])[0][:5] == ["DET", "ADJ", "NOUN", "VERB", "DET"]
    part = regard.train(recipe, "training.steps=30", out=plugins / "part")
    regard.train(str(part), "training.steps=60", resume=True)
    assert (part / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
