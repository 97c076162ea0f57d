"""Whatever stops a training, going on with it gives the same bytes as never stopping; and the page ends at once."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import urllib.request
from pathlib import Path

import pytest

from command import REGARD, Result, finish, forked_regard, regard, running, tree, wait_until, when
from regard.files import LOCK, sha256

SETTINGS = [
    "training.steps=40",
    "training.tokens_per_batch=1024",
    "training.validate_every=20",
    "training.validate_bleu=false",
    "decoding.max_ratio=0.1",
    "training.save_every=5",
    "training.keep_checkpoints=5",
]


@pytest.fixture(scope="module")
def whole(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    regard("train", tiny_recipe, *SETTINGS, "--out", out)
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run", symlinks=True))


def newest(run: Path) -> int:
    """The newest step that has a checkpoint; 0 if there is none."""
    return max((int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*")), default=0)


def losses(run: Path) -> list[tuple[int, float]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(record["step"], record["valid_loss"]) for record in records if "valid_loss" in record]


def check_same(run: Path, whole: Path) -> None:
    """The same model, figures and files; only the time it took may differ."""
    assert sha256(run / "model.safetensors") == sha256(whole / "model.safetensors")
    assert losses(run) == losses(whole)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (run, whole)]
    assert summaries[0]["metrics"] == summaries[1]["metrics"]
    hidden = [path for path in tree(run) if path.name.startswith(".") and path.name != LOCK]
    assert not hidden, "a temporary file is left"


# ---------------------------------------------------------------- signals


def signalled(number: signal.Signals) -> str:
    return f"os.kill(os.getpid(), {number:d})"


@pytest.mark.parametrize(("number", "program"), [(signal.SIGINT, lambda: REGARD), (signal.SIGTERM, forked_regard)])
def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(number, program, tiny_recipe: Path, tmp_path: Path):
    """The installed command and a fork, in a training that would not end by itself."""
    endless = ["training.steps=1000000", "training.validate_every=1000000"]
    run = tmp_path / "my run"
    with running("train", tiny_recipe, *endless, "--out", "my run", cwd=tmp_path, program=program()) as process:
        wait_until(lambda: newest(run) > 0, process)
        process.send_signal(number)
        result = finish(process)
    assert result.code == 130
    assert result.stdout == ""
    assert f"Stopped. Step {newest(run)} is saved. Continue with: " in result.stderr
    command = shlex.split(result.stderr.splitlines()[-1].partition("Continue with: ")[2])
    assert command == ["regard", "train", "my run", "--resume"]


def test_a_stopped_training_goes_on_to_the_same_end(tiny_recipe: Path, whole: Path, tmp_path: Path):
    command = ["train", tiny_recipe, *SETTINGS, "--out", tmp_path / "run", "--resume"]
    for number, step in ((signal.SIGINT, 10), (signal.SIGTERM, 25)):
        # In the middle of saving one checkpoint, so it is stopped after that step.
        regard(*command, before=when("os.rename", f"/step-{step}'", signalled(number)), code=130)
        assert newest(tmp_path / "run") == step
    assert resumed_from(regard(*command)) == 25
    check_same(tmp_path / "run", whole)


def resumed_from(result: Result) -> int:
    """The step that a resumed training says it goes on from."""
    line = next(line for line in result.stderr.splitlines() if line.startswith("Continuing from step "))
    return int(line.removeprefix("Continuing from step ").rstrip("."))


def test_ctrl_c_before_the_first_checkpoint_leaves_nothing(tiny_recipe: Path, tmp_path: Path):
    reading = when("open", "/train.de", signalled(signal.SIGINT))
    # Another vocabulary than before: the data is not in the cache, and reading it comes first.
    result = regard(
        "train", tiny_recipe, "tokenizer.vocabulary=550", "--out", tmp_path / "run", before=reading, code=130
    )
    assert result.stderr.endswith("Stopped. Nothing was saved yet; give the same command again.\n")
    assert tree(tmp_path) == set()


def test_a_second_signal_while_a_run_is_removed_leaves_no_half_of_it(tiny_recipe: Path, tmp_path: Path):
    first = when("open", "/run/.config.json.tmp", signalled(signal.SIGTERM))
    # Only when a folder is removed, its files are named from there.
    second = when("os.remove", "('tokenizer.json'", signalled(signal.SIGTERM))
    both = first + second.replace("waiting", "again").replace("look", "see")
    regard("train", tiny_recipe, *SETTINGS, "--out", tmp_path / "run", before=both, code=130)
    assert tree(tmp_path), "the second signal came"
    assert not (tmp_path / "run").exists()


# Files of a save, before and after the checkpoint is in its place.
MOMENTS = [
    ("open", "/.step-5.tmp/"),
    ("os.rename", "/step-5'"),
    ("open", "step-15.tmp/state.json"),
    ("os.rename", "/last'"),
]
MOMENTS += [("open", "/metrics.jsonl"), ("os.rename", "/step-30'"), ("os.rename", "/model.safetensors'")]


def test_a_kill_at_any_moment_changes_nothing(tiny_recipe: Path, whole: Path, tmp_path: Path):
    command = ["train", tiny_recipe, *SETTINGS, "--out", tmp_path / "run", "--resume"]
    for event, path in MOMENTS:
        regard(*command, before=when(event, path, signalled(signal.SIGKILL)), code=-signal.SIGKILL)
    regard(*command)
    check_same(tmp_path / "run", whole)


# ---------------------------------------------------------------- damage


def test_damaged_checkpoints_are_named_and_the_one_before_is_used(copy: Path, whole: Path):
    checkpoints = copy / "checkpoints"
    flip_a_bit(checkpoints / "step-40" / "model.safetensors")
    os.truncate(checkpoints / "step-35" / "optimizer.safetensors", 1000)
    (checkpoints / "step-30" / "manifest.json").unlink()
    (copy / "model.safetensors").unlink()
    result = regard("train", copy, "--resume")
    warnings = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    for step, name in ((40, "model.safetensors"), (35, "optimizer.safetensors"), (30, "manifest.json")):
        assert [line for line in warnings if f"step-{step}'" in line and name in line and "damaged" in line], warnings
    assert "Continuing from step 25." in result.stderr
    check_same(copy, whole)


def test_a_new_checkpoint_pushes_out_damaged_ones_of_later_steps(copy: Path, whole: Path):
    for step in (40, 35, 30, 25):
        flip_a_bit(copy / "checkpoints" / f"step-{step}" / "state.json")
    next_save = when("open", "/.step-30.tmp/state.json", signalled(signal.SIGKILL))
    regard("train", copy, "--resume", "training.keep_checkpoints=2", before=next_save, code=-signal.SIGKILL)
    result = regard("train", copy, "--resume", "training.keep_checkpoints=5")
    assert "Warning" not in result.stderr
    assert 25 <= resumed_from(result) < 40
    check_same(copy, whole)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# ---------------------------------------------------------------- no room


def test_a_checkpoint_that_does_not_fit_on_the_disk_leaves_the_one_before(copy: Path, whole: Path):
    shutil.rmtree(copy / "checkpoints" / "step-40")
    size = (copy / "model.safetensors").stat().st_size
    held = tree(copy / "checkpoints" / "step-35")
    # As on a full disk, a write fails half-way: the weights fit, the optimizer's state does not.
    result = regard("train", copy, "--resume", limits={resource.RLIMIT_FSIZE: size + 1000})
    assert "Warning: The checkpoint at step 40 could not be saved" in result.stderr
    assert "The one at step 35 is untouched." in result.stderr
    assert newest(copy) == 35
    assert tree(copy / "checkpoints" / "step-35") == held
    check_same(copy, whole)


def test_a_run_that_cannot_be_written_stops_and_says_how_to_go_on(copy: Path, whole: Path):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    result = regard("train", copy, "--resume", limits={resource.RLIMIT_FSIZE: 100}, code=1)
    assert len(result.error) == 3
    assert "could not be read or written" in result.error[0]
    assert "Free some room" in result.error[2]
    assert result.error[2].endswith(f"Continue with: regard train {copy} --resume")
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


# ---------------------------------------------------------------- a finished run


def test_resuming_a_finished_run_does_no_harm(copy: Path, whole: Path):
    held = tree(copy)
    assert "All 40 steps are done already." in regard("train", copy, "--resume").stderr
    assert tree(copy) == held
    check_same(copy, whole)


def test_a_finished_run_can_be_given_more_steps(copy: Path):
    regard("train", copy, "training.steps=45", "--resume")
    assert json.loads((copy / "summary.json").read_text())["steps"] == 45
    assert newest(copy) == 45
    assert "steps = 45 " in (copy / "config.toml").read_text(), "so that --resume alone keeps to it"


def test_ctrl_c_ends_the_page_in_the_middle_of_a_long_computation(run: Path, tmp_path: Path):
    """Of 3,500 positions, an attribution with its faithfulness takes minutes, in a thread that cannot be stopped."""
    with running("explore", run, "--no-browser", cwd=tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        asked = {"run": 0, "input": {"text": "The old farmer helps the child. " * 300}, "what": "attribution"}
        request = urllib.request.Request(
            f"{address}api/ask", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with pytest.raises(TimeoutError):  # it is not refused either
            urllib.request.urlopen(request, timeout=2)
        process.send_signal(signal.SIGINT)
        result = finish(process)
    assert result.code == 0
    assert "Traceback" not in result.stderr
