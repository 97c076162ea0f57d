"""Splits: what is held out follows from the content of a sample alone, and only what is not named is held out."""

from __future__ import annotations

from collections import Counter

import pytest

from expect import error_of
from regard.data.splits import SPLITS, Division, divided, hash_fraction, named_path

SAMPLES = [f"sentence {n}" for n in range(4000)]


@pytest.mark.parametrize("held_out", [("valid",), ("test",), ("valid", "test")])
def test_the_shares_are_about_what_was_asked_for(held_out):
    counts = Counter(map(Division(held_out, 0.1).split, SAMPLES))
    assert set(counts) == {"train", *held_out}
    # 4,000 samples at 10 %: a standard deviation is 0.5 %.
    assert all(abs(counts[split] / len(SAMPLES) - 0.1) < 0.02 for split in held_out)


def test_a_larger_share_takes_from_train_alone():
    few, more = (Division(("valid",), share) for share in (0.1, 0.3))
    assert {s for s in SAMPLES if few.split(s) == "valid"} < {s for s in SAMPLES if more.split(s) == "valid"}


def test_the_split_of_a_sentence_never_changes():
    """A change here moves sentences of finished runs from test to train."""
    splits = [Division(("valid", "test"), 0.2).split(f"sentence {n}") for n in range(12)]
    assert " ".join(splits) == "train valid test test valid train train train train train valid valid"
    assert hash_fraction(b"") == 0.8666040914613156


@pytest.mark.parametrize("named", [(), ("valid",), ("test",), ("valid", "test")])
def test_only_what_is_not_named_is_held_out_of_train(named):
    files = {split: f"{split}.tsv" if split in ("train", *named) else "" for split in SPLITS}
    sources = divided(files, 0.1)
    missing = tuple(split for split in ("valid", "test") if split not in named)
    division = Division(missing, 0.1) if missing else None
    assert sources["train"] == ("train.tsv", division)
    assert all(sources[split] == (f"{split}.tsv", None) for split in named)
    assert all(sources[split] == ("train.tsv", division) for split in missing)


def test_a_path_starts_from_the_root_unless_it_is_absolute(tmp_path):
    (tmp_path / "a.tsv").write_text("")
    for listed, root in (("a.tsv", str(tmp_path)), (str(tmp_path / "a.tsv"), "/nowhere")):
        assert named_path(listed, root, "data.train", "[]") == tmp_path / "a.tsv"
    error = error_of(named_path, "b.tsv", str(tmp_path), "data.train", "[]")
    assert str(tmp_path / "b.tsv") in error.what and "--data" in error.fix
    assert "data.valid" in error_of(named_path, ["a.tsv"], str(tmp_path), "data.valid", "[]").what
