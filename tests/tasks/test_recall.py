"""Associative recall: what each mixer can remember, learned for real (10 symbols, sequences of 256)."""

import json

import pytest

import regard

SMALL = ["synthetic.vocabulary=10", "synthetic.length=256", "synthetic.test_sequences=500"]
SMALL += ["training.tokens_per_batch=4096", "training.validate_every=100", "training.log_every=50"]


@pytest.mark.parametrize(
    ("mixer", "steps", "least"),
    [("attention", 220, 99.0), ("hyena", 220, 99.0), ("gru", 60, 20.0)],  # a GRU learns too, but slowly
)
def test_recall(mixer, steps, least, tmp_path):
    changes = [f"model.mixer={mixer}", f"training.steps={steps}"]
    run = regard.train("recall", *SMALL, *changes, out=tmp_path / "run")
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
    assert metrics["accuracy"] >= least  # chance: 20
