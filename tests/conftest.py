"""Things that many tests need: a tiny corpus, tiny settings, and a small trained run of each kind."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command import share_fork_server
from imports import freeze_imports
from kinds import KINDS
from regard import console
from regard.data.samples import english_german
from regard.tasks.task import Task
from small_data import (
    write_boxed,
    write_captioned,
    write_conversations,
    write_descriptions,
    write_games,
    write_pairs,
    write_pictures,
    write_questions,
    write_shapes,
    write_texts,
)
from tiny import CLASSIFY, TINY_IMAGES, TINY_TEXT

# Two workers on two cores: one thread each, which also makes results independent of the machine's size.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
gc.disable()  # until all is imported, of which nothing is garbage
imports_are_frozen: dict[str, int] = {}


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        share_fork_server()


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tokenised data goes to a folder of the test session, never to the user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    console.be_quiet(True)


@pytest.fixture(autouse=True)
def imports_are_no_garbage() -> None:
    """Every training collects garbage several times. To go over all that was imported takes longer than to train."""
    if (imported := len(sys.modules)) != imports_are_frozen.get("modules"):
        imports_are_frozen["modules"] = imported
        freeze_imports()


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing them takes four times as long as a tiny training; the tests of them do."""
    monkeypatch.setattr(Task, "draw", lambda task: None)


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power; what a disk may do is tried by `end_to_end/test_faults.py`, whose trainings do wait."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A function that gives a folder: the first worker that needs it makes it, and each worker has its own copy."""
    ours = tmp_path_factory.getbasetemp()
    # As pytest-xdist has it, each worker's folder is below that of the session.
    everyones = (ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours) / "made-once"
    everyones.mkdir(exist_ok=True)

    def give(name: str, make: Callable[[Path], object]) -> Path:
        folder, unfinished = everyones / name, everyones / f"{name}.unfinished"
        with (everyones / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                shutil.rmtree(unfinished, ignore_errors=True)
                make(unfinished)
                unfinished.rename(folder)
        return Path(shutil.copytree(folder, tmp_path_factory.mktemp("runs") / name, symlinks=True))

    return give


@pytest.fixture(scope="session")
def train_once(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[..., Any]:
    """A function that gives a loaded run: train_once(name, recipe, *settings, data=folder)."""

    def give(name: str, recipe: str, *settings: str, data: Path | None = None) -> Any:
        return regard.load(made_once(name, lambda out: regard.train(recipe, *settings, out=out, data=data)))

    return give


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, valid and test files of 1,000, 40 and 40 built-in pairs."""
    folder = tmp_path_factory.mktemp("corpus")
    write_pairs(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_recipe(corpus: Path) -> Path:
    """A recipe over the tiny corpus: 20 steps, a checkpoint every 5."""
    recipe = corpus / "tiny.toml"
    recipe.write_text(
        "# A tiny recipe\n"
        'task = "translate"\n'
        "[data]\n"
        'train = ["train.en", "train.de"]\nvalid = ["valid.en", "valid.de"]\ntest = ["test.en", "test.de"]\n'
        "max_length = 64\n"
        '[tokenizer]\nkind = "bpe"\nvocabulary = 600\n'
        '[model]\nlayers = 1\nwidth = 32\nheads = 2\nfeedforward = 64\nnorm = "pre"\n'
        "[training]\nsteps = 20\ntokens_per_batch = 512\nrow_length = 64\n"
        'schedule = "constant"\nlearning_rate = 0.003\nwarmup = 10\nvalidate_every = 10\n'
        "save_every = 5\nlog_every = 5\n"
        "[decoding]\nbeam = 2\n",
        encoding="utf-8",
    )
    return recipe


@pytest.fixture(scope="session")
def descriptions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, valid and test files of 500, 20 and 20 built-in texts with their summaries."""
    folder = tmp_path_factory.mktemp("descriptions")
    write_descriptions(folder)
    return folder


@pytest.fixture(scope="session")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, valid and test files of 200, 20 and 20 built-in conversations."""
    folder = tmp_path_factory.mktemp("conversations")
    write_conversations(folder)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same English sentences as running text, as documents, and with labels."""
    folder = tmp_path_factory.mktemp("texts")
    write_texts(folder)
    return folder


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions about short stories: train.jsonl and test.tsv."""
    folder = tmp_path_factory.mktemp("questions")
    write_questions(folder)
    return folder


@pytest.fixture(scope="session")
def language(texts: Path, train_once: Callable[..., Any]) -> Any:
    """A character model of the sentences, trained for real: it has learned to spell a little."""
    settings = ["data.text=text.txt", "training.steps=150", "training.tokens_per_batch=1024", "training.row_length=64"]
    settings += ["training.validate_every=150"]
    return train_once("language", "shakespeare-cpu", *TINY_TEXT, *settings, data=texts)


@pytest.fixture(scope="session")
def masked(texts: Path, train_once: Callable[..., Any]) -> Any:
    """A masked model of the documents over whole words."""
    settings = ["data.text=documents.jsonl", "tokenizer.kind=word", "tokenizer.vocabulary=600", "data.held_out=0.1"]
    settings += ["training.steps=600", "training.tokens_per_batch=1024", "training.row_length=64"]
    settings += ["training.learning_rate=0.005", "training.validate_every=600"]
    # With learned positions a tiny model needs far longer to find its neighbours.
    settings += ["training.optimizer=muon", "model.positions=rotary"]
    return train_once("masked", "bert-small", *TINY_TEXT, *settings, data=texts)


@pytest.fixture(scope="session")
def classifier(texts: Path, train_once: Callable[..., Any]) -> Any:
    """Who a sentence is about, learned from scratch."""
    words = ["tokenizer.kind=word", "tokenizer.vocabulary=600"]
    return train_once("classifier", "starter-classify", *TINY_TEXT, *CLASSIFY, *words, data=texts)


@pytest.fixture(scope="session")
def words(texts: Path, train_once: Callable[..., Any]) -> Any:
    """Vectors of the words of the sentences."""
    settings = ["data.text=text.txt", "embeddings.width=16", "embeddings.words_per_batch=1024", "training.steps=80"]
    settings += ["training.validate_every=80", "data.held_out=0.1", "training.epsilon=0.0039"]
    return train_once("words", "words", *settings, data=texts)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of PNG files: stripes of three directions, in train (90 of each) and test (20 of each)."""
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder)
    return folder


@pytest.fixture(scope="session")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with games of tic-tac-toe, played at random: train.tsv and test.tsv."""
    folder = tmp_path_factory.mktemp("games")
    write_games(folder)
    return folder


@pytest.fixture(scope="session")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of PNG files of stripes with captions beside them."""
    folder = tmp_path_factory.mktemp("captioned")
    write_captioned(folder)
    return folder


@pytest.fixture(scope="session")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of PNG files with rectangles, and train.jsonl and test.jsonl that say where they are."""
    folder = tmp_path_factory.mktemp("boxed")
    write_boxed(folder)
    return folder


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of PNG files with masks: a block and a bar, in train (64) and test (12)."""
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder)
    return folder


@pytest.fixture(scope="session")
def image_classifier(pictures: Path, train_once: Callable[..., Any]) -> Any:
    """Tells the directions of stripes apart."""
    return train_once("images", "digits", *TINY_IMAGES, f"data.images={pictures}")


@pytest.fixture(scope="session")
def trained(train_once: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small translator of the built-in sentences, trained for real: good, not perfect."""
    folder = tmp_path_factory.mktemp("sentences")
    pairs = english_german.pairs(9_160, seed=2)
    for name, part in {"train": pairs[160:], "valid": pairs[:60], "test": pairs[60:160]}.items():
        (folder / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in part), encoding="utf-8")
    files = ["data.sample=", *(f'data.{name}=["{name}.tsv"]' for name in ("train", "valid", "test"))]
    small = ["model.width=64", "model.feedforward=128", "training.tokens_per_batch=512", "training.row_length=32"]
    quick = ["training.optimizer=muon", "training.learning_rate=0.01", "training.warmup=10", "training.steps=180"]
    seldom = ["training.validate_every=180", "training.validate_bleu=false", "decoding.beam=1"]
    return train_once("trained", "demo", *files, *small, *quick, *seldom, data=folder)


@pytest.fixture(scope="session")
def pixels(train_once: Callable[..., Any]) -> Any:
    """A model of the pixels of the built-in digits: 120 steps, which are little more than one look at each digit."""
    settings = ["model.layers=2", "model.width=48", "model.heads=2", "model.feedforward=96", "model.dropout=0.0"]
    settings += ["training.images_per_batch=16", "training.warmup=10", "training.steps=120"]
    settings += ["training.validate_every=60", "model.positions=learned"]  # which are quicker at the start
    return train_once("pixels", "digits-pixels", *settings)


@pytest.fixture
def tiny_run(request: pytest.FixtureRequest, made_once: Callable[..., Path]) -> Callable[[str], Path]:
    """A function that gives a finished run of a task, trained once and copied for every test."""

    def give(task: str) -> Path:
        kind = KINDS[task]
        data = request.getfixturevalue(kind.data) if kind.data else None
        return made_once(f"tiny-{task}", lambda out: regard.train(kind.recipe, *kind.overrides, out=out, data=data))

    return give
