"""Things that many tests need: a tiny corpus, tiny settings, and one small trained run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import regard
from regard import console
from regard.data.samples import english_german
from tiny import CLASSIFY, TINY_IMAGES, TINY_TEXT, person, stripes

# Two workers on two cores: one thread each, which also makes results independent of the machine's size.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


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
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same English sentences as running text, as documents, and with labels."""
    folder = tmp_path_factory.mktemp("texts")
    sentences = [source for source, _ in english_german.pairs(2_400, seed=7)]
    (folder / "text.txt").write_text("".join(line + "\n" for line in sentences), encoding="utf-8")
    documents = [json.dumps({"text": " ".join(sentences[n : n + 4])}) + "\n" for n in range(0, 2000, 4)]
    (folder / "documents.jsonl").write_text("".join(documents), encoding="utf-8")
    for name, part in {"train": sentences[:2000], "test": sentences[2000:]}.items():
        lines = [f"{person(sentence)}\t{sentence}\n" for sentence in part]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def language(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A character model of the sentences, trained for real: it has learned to spell a little."""
    out = tmp_path_factory.mktemp("runs") / "language"
    settings = ["data.text=text.txt", "training.steps=150", "training.tokens_per_batch=1024", "training.row_length=64"]
    regard.train("shakespeare-cpu", *TINY_TEXT, *settings, "training.validate_every=150", out=out, data=texts)
    return regard.load(out)


@pytest.fixture(scope="session")
def masked(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A masked model of the documents over whole words."""
    out = tmp_path_factory.mktemp("runs") / "masked"
    settings = ["data.text=documents.jsonl", "tokenizer.kind=word", "tokenizer.vocabulary=600", "data.held_out=0.1"]
    settings += ["training.steps=600", "training.tokens_per_batch=1024", "training.row_length=64"]
    settings += ["training.learning_rate=0.005", "training.validate_every=600"]
    # With learned positions a tiny model needs far longer to find its neighbours.
    settings += ["training.optimizer=muon", "model.positions=rotary"]
    regard.train("bert-small", *TINY_TEXT, *settings, out=out, data=texts)
    return regard.load(out)


@pytest.fixture(scope="session")
def classifier(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Who a sentence is about, learned from scratch."""
    out = tmp_path_factory.mktemp("runs") / "classifier"
    words = ["tokenizer.kind=word", "tokenizer.vocabulary=600"]
    regard.train("starter-classify", *TINY_TEXT, *CLASSIFY, *words, out=out, data=texts)
    return regard.load(out)


@pytest.fixture(scope="session")
def words(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Vectors of the words of the sentences."""
    out = tmp_path_factory.mktemp("runs") / "words"
    settings = ["data.text=text.txt", "embeddings.width=16", "embeddings.words_per_batch=1024", "training.steps=80"]
    settings += ["training.validate_every=80", "data.held_out=0.1", "training.epsilon=0.0039"]
    regard.train("words", *settings, out=out, data=texts)
    return regard.load(out)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of PNG files: stripes of three directions, in train (90 of each) and test (20 of each)."""
    folder = tmp_path_factory.mktemp("pictures")
    for split, shades in {"train": range(100, 190), "test": range(200, 220)}.items():
        for kind in ("across", "down", "slanted"):
            place = folder / split / kind
            place.mkdir(parents=True)
            for shade in shades:
                Image.fromarray(stripes(kind, shade, phase=shade % 4)).save(place / f"{shade}.png")
    return folder


@pytest.fixture(scope="session")
def image_classifier(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tells the directions of stripes apart."""
    out = tmp_path_factory.mktemp("runs") / "images"
    regard.train("digits", *TINY_IMAGES, f"data.images={pictures}", out=out)
    return regard.load(out)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small translator of the built-in sentences, trained for real: good, not perfect."""
    out = tmp_path_factory.mktemp("runs") / "trained"
    regard.train("demo", "training.steps=150", "training.validate_every=150", "decoding.beam=1", out=out)
    return regard.load(out)
