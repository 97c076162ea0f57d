"""Things that many tests need: a tiny corpus, tiny settings, and one small trained run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import regard
from regard import console
from regard.data.samples import english_german
from regard.runs.translation import TranslationRun

# Two workers on two cores: one thread each, which also makes results independent of the machine's size.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# A model that trains in seconds. Tests add what they are about.
TINY = [
    "tokenizer.vocabulary=600",
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "model.feedforward=64",
    "training.tokens_per_batch=512",
    "training.row_length=64",
    "data.max_length=64",
    "training.schedule=constant",
    "training.learning_rate=0.003",
    "training.warmup=10",
    "training.log_every=5",
    "decoding.beam=2",
]


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tokenised data goes to a folder of the test session, never to the user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    console.be_quiet(True)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, valid and test files of 1,000, 40 and 40 built-in pairs."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs = english_german.pairs(1_080, seed=5)
    for name, part in {"train": pairs[:1000], "valid": pairs[1000:1040], "test": pairs[1040:]}.items():
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in part), encoding="utf-8")
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
def trained(tmp_path_factory: pytest.TempPathFactory) -> TranslationRun:
    """A small translator of the built-in sentences, trained for real: good, not perfect."""
    out = tmp_path_factory.mktemp("runs") / "trained"
    regard.train("demo", "training.steps=150", "training.validate_every=150", "decoding.beam=1", out=out)
    return regard.load(out)
