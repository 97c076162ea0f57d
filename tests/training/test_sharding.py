"""A model of which every process holds a part is trained as one that each holds whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from command import regard as command
from kinds import KINDS
from regard.training.checkpoint import Checkpoints

# What a processor does with the last few numbers of a tensor, which fill no register, may have other last bits: so
# parts are multiples of 16 numbers.
SETTINGS = ["training.micro_batches=4", "system.threads=1", "training.clip_norm=1", "training.steps=4"]
SETTINGS += ["model.width=64", "model.feedforward=64"]
SHARDED = ["training.shard=true", "--processes", "2"]

LAST = ["training.validate_every=2", "training.save_every=2", "training.average_checkpoints=1"]  # not the best


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


def trained(task: str, out: Path, *words: str) -> dict[str, torch.Tensor]:
    kind = KINDS[task]
    command("train", kind.recipe, *kind.overrides, *SETTINGS, *words, "--out", out)
    return weights_of(out)


@pytest.mark.parametrize(
    "words",
    [
        ["training.optimizer=muon", "training.clip_norm=0.5"],
        ["training.ema=0.9"],
        ["training.average_checkpoints=2", "training.validate_every=4", "training.save_every=2"],
        ["model.mixer=hyena"],
        ["model.feedback=shared", "model.positions=learned"],
        ["training.consistency=1.0"],
    ],
    ids=lambda words: words[0],
)
def test_in_parts_is_as_whole(words, tmp_path):
    alone = trained("synthetic", tmp_path / "alone", *words)
    sharded = trained("synthetic", tmp_path / "sharded", *words, *SHARDED)
    assert_same(alone, sharded)


def assert_same(alone: dict[str, torch.Tensor], sharded: dict[str, torch.Tensor]) -> None:
    assert alone.keys() == sharded.keys()
    for name, weight in alone.items():
        assert torch.equal(weight, sharded[name]), name


def test_so_is_a_translator_which_is_decoded_while_it_validates(corpus, tmp_path):
    alone = trained("translate", tmp_path / "alone", "--data", corpus)
    assert_same(alone, trained("translate", tmp_path / "sharded", "--data", corpus, *SHARDED))
    metrics = [json.loads((tmp_path / run / "summary.json").read_text())["metrics"] for run in ("alone", "sharded")]
    assert metrics[0] == metrics[1] and "bleu" in metrics[0]


def test_a_run_may_be_taken_apart_and_put_together_on_the_way(tmp_path):
    settings = ["training.schedule=constant", *LAST]
    alone = trained("synthetic", tmp_path / "alone", *settings, "training.steps=8")
    for steps, words in ((2, []), (4, SHARDED), (6, ["training.shard=true", "--processes", "4"]), (8, [])):
        weights = trained("synthetic", tmp_path / "run", *settings, f"training.steps={steps}", *words, "--resume")
    assert_same(alone, weights)


def test_each_process_writes_its_rows_and_a_lost_file_is_noticed(tmp_path):
    trained("synthetic", tmp_path / "run", *LAST, *SHARDED)
    folder = tmp_path / "run" / "checkpoints"
    whole = weights_of(tmp_path / "run")
    parts = [load_file(folder / "step-4" / f"model-{number}-of-2.safetensors") for number in (1, 2)]
    for name, weight in whole.items():
        assert len(parts[0][name]) + len(parts[1][name]) == len(weight)
    checkpoints = Checkpoints(folder, every=2, keep=2, warn=lambda told: None)
    assert all(torch.equal(weight, whole[name]) for name, weight in checkpoints.load(4).weights.items())
    (folder / "step-4" / "model-2-of-2.safetensors").unlink()
    assert checkpoints.newest() == 2
