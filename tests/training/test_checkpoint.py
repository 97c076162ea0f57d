"""Checkpoints: whole or not there, checked, pruned, averaged."""

import resource
from pathlib import Path

import pytest
import torch

from regard.training.checkpoint import Checkpoint, CheckpointError, Checkpoints, load_weights, weights_of


def checkpoint(value: float) -> Checkpoint:
    return Checkpoint({"w": torch.full((3, 2), value)}, {"exp_avg/w": torch.ones(3, 2)}, {}, {"step": value})


@pytest.fixture
def store(tmp_path: Path) -> Checkpoints:
    store = Checkpoints(tmp_path / "checkpoints", every=10, keep=3, warn=(warnings := []).append)
    store.warnings = warnings
    return store


def test_what_is_saved_comes_back(store):
    store.save(10, checkpoint(1.5), best=10)
    assert store.newest() == 10
    found = store.load(10)
    assert torch.equal(found.weights["w"], torch.full((3, 2), 1.5))
    assert found.state == {"step": 1.5}
    assert (store.folder / "last").resolve().name == (store.folder / "best").resolve().name == "step-10"


def test_pruning_keeps_the_newest_regular_ones_the_best_and_two_of_any_kind(store):
    for step in (10, 20, 30, 40, 50, 53, 57):
        store.save(step, checkpoint(step), best=10)
    assert store.steps() == [10, 30, 40, 50, 53, 57]
    assert store.regular_steps() == [10, 30, 40, 50]


def flip_a_bit(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


def truncate(folder: Path) -> None:
    path = folder / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-5])


def lose_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def lose_a_file(folder: Path) -> None:
    (folder / "state.json").unlink()


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, lose_the_manifest, lose_a_file])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(store, damage):
    store.save(10, checkpoint(1), best=10)
    store.save(20, checkpoint(2), best=10)
    damage(store.folder / "step-20")
    assert store.newest() == 10
    assert store.load(10).weights["w"][0, 0] == 1
    assert "step-20" in store.warnings[0]
    assert "damaged" in store.warnings[0]


def test_a_failed_save_leaves_the_others_and_no_half(store):
    """A limit on file size makes writing fail half-way, as a full disk would."""
    store.save(10, checkpoint(1), best=10)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limit[1]))
    try:
        with pytest.raises(CheckpointError):
            store.save(20, checkpoint(2), best=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [path.name for path in sorted(store.folder.iterdir())] == ["best", "last", "step-10"]
    assert store.newest() == 10


def test_saving_a_step_again_never_takes_the_good_copy_away(store, monkeypatch):
    """An interrupt on a regular checkpoint's step saves it a second time."""
    store.save(10, checkpoint(1), best=10)
    monkeypatch.setattr(Path, "rename", lambda path, target: (_ for _ in ()).throw(OSError("no room")))
    store.save(10, checkpoint(1), best=10)
    assert store.newest() == 10 and not store.warnings


def test_a_damaged_step_is_saved_again(store):
    store.save(10, checkpoint(1), best=10)
    flip_a_bit(store.folder / "step-10")
    store.save(10, checkpoint(2), best=10)
    assert store.newest() == 10 and store.load(10).weights["w"][0, 0] == 2


def test_older_checkpoints_that_cannot_be_removed_do_no_harm(store, monkeypatch):
    for step in (10, 20, 30):
        store.save(step, checkpoint(step), best=30)

    def busy(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError("busy")

    monkeypatch.setattr("shutil.rmtree", busy)
    store.save(40, checkpoint(40), best=40)
    assert "step 40 is saved, but older ones could not be removed: busy" in store.warnings[0]
    assert store.newest() == 40 and store.load(40).weights["w"][0, 0] == 40


@pytest.mark.parametrize("content", ["[]", "7", "{}", '{"sha256": []}', '{"sha256": {}}', '{"sha256": {"../x": "1"}}'])
def test_a_manifest_of_another_form_is_a_damaged_checkpoint(store, content):
    store.save(10, checkpoint(1), best=10)
    store.save(20, checkpoint(2), best=10)
    (store.folder / "step-20" / "manifest.json").write_text(content)
    assert store.newest() == 10
    assert "step-20" in store.warnings[0] and "\n" not in store.warnings[0]


def test_the_mean_of_checkpoints_is_the_mean(store):
    for step, value in ((10, 1.0), (20, 2.0), (30, 6.0)):
        store.save(step, checkpoint(value), best=10)
    assert store.mean([10, 20, 30])["w"].tolist() == [[3.0, 3.0]] * 3


def test_tied_weights_are_stored_once_and_load_into_both():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    assert list(weights_of(model)) == ["0.weight"]
    load_weights(model, {"0.weight": torch.ones(4, 4)})
    assert model[1].weight.sum() == 16


def test_weights_of_another_model_are_refused():
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="bias"):
        load_weights(model, {"weight": torch.ones(2, 2)})


def test_checkpoints_checked_side_by_side_keep_their_order_and_each_damaged_one_is_named(store):
    for step in (10, 20, 30):
        store.save(step, checkpoint(step), best=10)
    flip_a_bit(store.folder / "step-10")
    lose_a_file(store.folder / "step-20")
    assert store.whole([10, 20, 30]) == [30]
    assert ["step-10" in warning for warning in store.warnings] == [True, False]
    assert ["step-20" in warning for warning in store.warnings] == [False, True]
    assert store.whole([]) == []


def test_the_mean_is_of_sums_in_double_precision_and_changes_no_file(store):
    values = [torch.rand(50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in range(3)]
    for step, value in zip((10, 20, 30), values, strict=True):
        store.save(step, Checkpoint({"w": value.float(), "d": value}, {}, {}, {}), best=30)
    mean = store.mean([10, 20, 30])
    exact = sum(value.float().double() for value in values) / 3
    assert torch.equal(mean["w"], exact.float())
    assert torch.equal(mean["d"], (sum(values) / 3).float())
    assert store.whole([10, 20, 30]) == [10, 20, 30]
