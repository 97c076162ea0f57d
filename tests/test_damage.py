"""Flipped bits and cut off files of a run are noticed or do no harm: a few cases of benchmarks/damage.py."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from damage import Damage, Subject, planned, try_out

RUNS = ["classifier", "image_classifier", "words"]


@pytest.fixture(params=RUNS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    run: Any = request.getfixturevalue(request.param)
    path = Path(shutil.copytree(run.folder.path, tmp_path / "run", symlinks=True))
    subject = Subject(request.param, path, run.folder.path, finished=True)
    subject.usual_warnings = set()  # nothing is resumed here
    assert subject.expected and subject.checkpoints
    return subject


def test_no_damage_is_used_without_a_word(subject: Subject):
    outcomes = [(damage, try_out(subject, damage)) for damage in planned([subject], 60, random.Random(1), resumed=0)]
    assert [(str(damage), what) for damage, (outcome, what) in outcomes if outcome == "failed"] == []
    assert {outcome for _, (outcome, _) in outcomes} == {"refused", "said", "harmless"}


def test_any_bit_of_what_an_answer_follows_from_is_checked(subject: Subject):
    chance = random.Random(2)
    decisive = ["model.safetensors", "config.toml", "tokenizer.json", "labels.json", "scale.json", "vectors.txt"]
    for name in [name for name in decisive if name in subject.files]:
        for _ in range(5):
            outcome, what = try_out(subject, Damage(0, name, chance.randrange(8 * len(subject.files[name]))))
            assert (outcome, name in what) == ("refused", True), what
