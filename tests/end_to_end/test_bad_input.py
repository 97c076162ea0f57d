"""Every mistake a user can make: three lines that say what, why and what next; no traceback, nothing half-made."""

from __future__ import annotations

import json
import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from command import regard, tree
from regard.files import sha256


@dataclass(frozen=True)
class Mistake:
    """A command, and what its error must say. {bad}, {corpus}, {recipe} and {run} are filled in."""

    command: str
    says: tuple[str, ...]
    code: int = 1
    stdin: bytes = b""


def train(settings: str, *says: str, code: int = 1) -> Mistake:
    return Mistake(f"train {{recipe}} --out new {settings}", says, code)


MISTAKES = {
    # data
    "missing data file": train('data.train=["no.en","no.de"]', "no.en' is missing", "--data DIR"),
    "missing data folder": train("--data {bad}/nowhere", "nowhere/train.en' is missing", "--data DIR"),
    "unequal line counts": train(
        'data.train=["{bad}/short.en","{corpus}/train.de"]', "not aligned", "999 lines, the second 1,000"
    ),
    "empty corpus": train('data.train=["{bad}/empty","{bad}/empty"]', "training data is empty"),
    "blank corpus": train('data.train=["{bad}/blank","{bad}/blank"]', "training data is empty"),
    "empty test data": train('data.test=["{bad}/empty","{bad}/empty"]', "test data is empty"),
    "invalid UTF-8": train(
        'data.train=["{bad}/utf8.en","{corpus}/train.de"]', "Line 7 of", "utf8.en", "not valid UTF-8", "bad_lines"
    ),
    "line of 10 MB": train(
        'data.train=["{bad}/long.en","{corpus}/train.de"]', "Line 3 of", "longer than 1,000,000 bytes", "bad_lines"
    ),
    "three files": train('data.train=["a","b","c"]', "data.train lists 3 files"),
    # recipes and settings
    "unknown recipe": Mistake("train demoo", ("no recipe 'demoo'", "Did you mean 'demo'?"), 2),
    "missing recipe file": Mistake("train {bad}/no.toml", ("Cannot read the recipe", "no.toml"), 2),
    "recipe that is not TOML": Mistake("train {bad}/broken.toml", ("as TOML", "line 2"), 2),
    "unknown task": Mistake("init nonsense", ("no task 'nonsense'", "translate"), 2),
    "unknown key": train("training.stepz=5", "'training.stepz'", "Did you mean 'steps'?", code=2),
    "unknown section": train("trainign.steps=5", "'trainign'", "Did you mean 'training'?", code=2),
    "wrong type": train("training.steps=many", "'training.steps' cannot be 'many'", "integer", code=2),
    "negative learning rate": train("training.learning_rate=-1", "cannot be -1", "greater than 0", code=2),
    "heads that do not divide the width": train("model.heads=5", "heads = 5 does not divide width = 32", code=2),
    "word that is no override": train("faster", "'faster' is not a setting", "training.steps=500", code=2),
    "option that is none": train("--faster", "No such option: --faster", code=2),
    "vocabulary too small": train("tokenizer.vocabulary=100", "tokenizer.vocabulary = 100", "259", code=2),
    "no such device": train("system.device=cuda", "'cuda' is not available", '"cpu"'),
    # places
    "existing folder": Mistake("train {recipe} --out {run}", ("already there", "--resume", "--out DIR")),
    "place that cannot be written": Mistake("train {recipe} --out {recipe}/run", ("Cannot write",)),
    "resume with another width": Mistake(
        "train {run} --resume model.width=16", ("model.width = 16", "started with 64"), 2
    ),
    "resume with other data": Mistake(
        'train {run} --resume data.train=["{corpus}/test.en","{corpus}/test.de"]', ("data.train", "train.en"), 2
    ),
    # run folders
    "evaluate what is no run": Mistake("evaluate {corpus}", ("not a run folder", "no config.toml", "regard train")),
    "translate what is not there": Mistake("translate {bad}/nowhere", ("not a run folder", "does not exist")),
    "explain what is no run": Mistake("explain {recipe} hello -o new.png", ("not a run folder",)),
    "run without model yet": Mistake("translate {bad}/unfinished", ("has no model.safetensors yet", "--resume")),
    "truncated model": Mistake("translate {bad}/truncated", ("Cannot read the weights", "restored")),
    "model of another shape": Mistake("translate {bad}/reshaped", ("do not fit its config.toml",)),
    "damaged config.toml": Mistake("translate {bad}/misconfigured", ("misconfigured/config.toml", "as TOML"), 2),
    # the other verbs
    "unknown split": Mistake("evaluate {run} --split nonsense", ("no split 'nonsense'", "--split test"), 2),
    "picture of another kind": Mistake("explain {run} hello -o new.jpg", ("unknown extension", ".png"), 2),
    "missing file to translate": Mistake("translate {run} no.txt", ("'no.txt' is missing",)),
    "invalid UTF-8 on standard input": Mistake(
        "translate {run} -o new.txt",
        ("Line 2 of the input cannot be used", "not valid UTF-8"),
        stdin=b"fine\nbad \xff\n",
    ),
    "n best samples": Mistake("translate {run} --best 3 --temperature 1", ("do not go together",), 2),
}


@pytest.fixture(scope="module")
def bad(corpus: Path, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files and runs, each with something wrong."""
    folder = tmp_path_factory.mktemp("bad")
    lines = (corpus / "train.en").read_bytes().splitlines(keepends=True)
    (folder / "short.en").write_bytes(b"".join(lines[:-1]))
    (folder / "empty").write_bytes(b"")
    (folder / "blank").write_bytes(b" \n\n\t\n")
    (folder / "utf8.en").write_bytes(b"".join([*lines[:6], b"gr\xfc\xdfe\n", *lines[7:]]))
    (folder / "long.en").write_bytes(b"".join([*lines[:2], b"a" * 10_000_000 + b"\n", *lines[3:]]))
    (folder / "broken.toml").write_text('task = "translate"\nsteps = = 5\n')

    def broken(name: str) -> Path:
        copy = Path(shutil.copytree(run, folder / name, symlinks=True))
        (copy / "manifest.json").unlink()  # as in a run of an earlier version, so that something else must notice
        return copy

    (broken("unfinished") / "model.safetensors").unlink()
    os.truncate(broken("truncated") / "model.safetensors", 5000)
    reshaped = broken("reshaped") / "config.toml"
    reshaped.write_text(reshaped.read_text().replace("feedforward = 128", "feedforward = 256"))
    with (broken("misconfigured") / "config.toml").open("a") as file:
        file.write("[[[")
    return folder


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_gets_three_lines_and_leaves_nothing(
    mistake: Mistake, bad: Path, corpus: Path, tiny_recipe: Path, run: Path, tmp_path: Path
):
    before = tree(bad), tree(run), tree(corpus)
    words = mistake.command.split(" ")
    places = {"{bad}": bad, "{corpus}": corpus, "{recipe}": tiny_recipe, "{run}": run}
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    result = regard(*words, stdin=mistake.stdin, cwd=tmp_path, code=mistake.code)
    assert result.stdout == ""
    assert len(result.error) == 3, result.stderr
    assert all(line.strip() for line in result.error)
    for part in mistake.says:
        assert part in "\n".join(result.error)
    assert tree(tmp_path) == set(), "something is left where the command was given"
    assert (tree(bad), tree(run), tree(corpus)) == before
    assert not [path for path in Path(os.environ["XDG_CACHE_HOME"]).rglob("*") if path.name.endswith(".tmp")]


def test_bad_lines_can_be_skipped(bad: Path, corpus: Path, tiny_recipe: Path, tmp_path: Path):
    files = json.dumps([str(bad / "utf8.en"), str(corpus / "train.de")])
    few = ["training.steps=2", "training.validate_every=2", "training.save_every=2"]
    shown = regard("train", tiny_recipe, "--out", tmp_path / "run", *few, f"data.train={files}", "data.bad_lines=skip")
    assert "999 pairs" in shown.stderr
    assert shown.stderr.count(f"1 line of '{bad / 'utf8.en'}' is left out: line 7: It is not valid UTF-8") == 1


def test_a_loss_that_overflows_stops_training_and_leaves_the_checkpoint_alone(tiny_recipe: Path, tmp_path: Path):
    out = tmp_path / "run"
    command = ["train", tiny_recipe, "--out", out, "--resume", "model.norm=post", "training.learning_rate=1e30"]
    command += ["training.save_every=1"]
    first = regard(*command, code=1)
    saved = {path: sha256(path) for path in (out / "checkpoints" / "step-1").iterdir()}
    assert saved
    again = regard(*command, code=1)
    assert first.error == again.error
    assert "Training stopped at step 2: the loss is nan" in again.error[0]
    assert "training.learning_rate" in again.error[2]
    assert "the checkpoint at step 1 is whole" in again.error[2]
    assert {path: sha256(path) for path in (out / "checkpoints" / "step-1").iterdir()} == saved
    assert not (out / "model.safetensors").exists()


def test_out_of_memory_names_the_setting_to_change(tiny_recipe: Path, tmp_path: Path):
    # Masks of two rows of 65,536 tokens need 4 GiB each, so that there is nothing to compute before it fails.
    large = ["training.row_length=65536", "training.tokens_per_batch=131072"]
    command = ["train", tiny_recipe, "--out", tmp_path / "run", *large]
    result = regard(*command, limits={resource.RLIMIT_AS: 3 * 2**30}, code=1)
    assert len(result.error) == 3
    assert "Out of memory" in result.error[0]
    assert "training.micro_batches = 2" in result.stderr  # fewer rows were tried, down to one
    assert "training.row_length" in result.error[2]
    assert tree(tmp_path) == set()
