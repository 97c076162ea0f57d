"""The embeddings task: a run of real text leaves vectors that say something."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from regard.tasks.common import train_task
from safetensors.numpy import load_file

from regard.data.samples import english_german
from regard.data.word_vectors import WordVectors
from regard.explain.neighbourhood import draw_neighbourhood
from regard.recipes import resolve
from regard.tasks.embeddings import EmbeddingsTask
from regard.training.folder import RunFolder
from regard.training.loop import Interrupted, Trainer


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four thousand English sentences, one a line."""
    folder = tmp_path_factory.mktemp("text")
    lines = [english for english, _ in english_german.pairs(4000, seed=3)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def train(text: Path, out: Path, *overrides: str) -> dict:
    small = [
        f"data.root={json.dumps(str(text))}",
        "embeddings.width=32",
        "training.steps=300",
        "training.learning_rate=0.01",
        "training.epsilon=1e-8",
        "training.validate_every=100",
        "training.log_every=20",
        "embeddings.words_per_batch=512",
        "embeddings.subsample=0.01",
    ]
    config = resolve("words", [*small, *overrides])
    return train_task(config, RunFolder.create(out, config), EmbeddingsTask)


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "words"
    train(text, out)
    return out


def test_a_finished_run_has_its_vectors_beside_the_model(run):
    vectors = WordVectors.read(run / "vectors.txt")
    weights = load_file(run / "model.safetensors")
    np.testing.assert_array_equal(weights["input"][1:], vectors.vectors)
    assert vectors.vectors.shape == (len(vectors.words), 32)
    assert (run / "tokenizer.json").exists()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["task"] == "embeddings"
    assert summary["steps"] == 300


def test_words_stand_by_falling_count_and_are_all_words(run, text):
    vectors = WordVectors.read(run / "vectors.txt")
    words = (text / "text.txt").read_text().lower().replace(".", " ").replace(",", " ").split()
    counts = [words.count(word) for word in vectors.words]
    # Counted here with the hundredth that is held out.
    assert all(after <= before * 1.02 + 3 for before, after in itertools.pairwise(counts))
    assert all(word.isalnum() for word in vectors.words)


def test_the_loss_on_held_out_text_falls(run):
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    losses = [record["valid_loss"] for record in records if "valid_loss" in record]
    assert len(losses) == 3
    assert losses[-1] < losses[0] < 6 * np.log(2)


def test_a_stopped_and_resumed_run_gives_the_same_vectors(run, text, tmp_path, monkeypatch):
    original = Trainer._update

    def stop_at_150(self, step, batch):
        self.stop_asked = step == 150
        return original(self, step, batch)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "_update", stop_at_150)
        train(text, tmp_path / "again")
    folder = RunFolder.open(tmp_path / "again")
    train_task(folder.read_config(), folder, EmbeddingsTask)
    assert (tmp_path / "again" / "vectors.txt").read_bytes() == (run / "vectors.txt").read_bytes()


def test_a_picture_of_words_and_their_neighbours_is_drawn(run, tmp_path):
    vectors = WordVectors.read(run / "vectors.txt")
    draw_neighbourhood(vectors, vectors.words[5:8], tmp_path / "words.png", per_word=5)
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "words.png").stat().st_size > 10_000
