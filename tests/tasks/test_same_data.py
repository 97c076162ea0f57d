"""A run notices when its data is not what it was: resuming stops, scoring says so; copies are the same data."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.errors import RegardError
from tiny import CLASSIFY, TINY_IMAGES, TINY_TEXT

FEW = ["training.steps=2", "training.validate_every=2", "training.save_every=2"]
LANGUAGE = ["data.text=text.txt", "data.test=test.tsv", "training.tokens_per_batch=512", "training.row_length=64"]
WORDS = ["tokenizer.kind=word", "tokenizer.vocabulary=600"]


def one_image_less(folder: Path) -> None:
    (folder / "down" / sorted(path.name for path in (folder / "down").iterdir())[0]).unlink()


def one_line_less(file: Path) -> None:
    file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")


def one_pair_less(file: Path) -> None:
    for language in ("en", "de"):
        one_line_less(file.with_suffix(f".{language}"))


# What is trained, on which of the folders that conftest makes, and how to spoil its data: training, test.
KINDS: dict[str, tuple[str, list[str], str, Callable[[Path], None], str, str]] = {
    "translate": ("tiny.toml", [], "corpus", one_pair_less, "train.en", "test.en"),
    "classify": ("starter-classify", [*TINY_TEXT, *CLASSIFY, *WORDS], "texts", one_line_less, "train.tsv", "test.tsv"),
    "language": ("shakespeare-cpu", [*TINY_TEXT, *LANGUAGE], "texts", one_line_less, "text.txt", "test.tsv"),
    "images": ("digits", [*TINY_IMAGES, "data.images=."], "pictures", one_image_less, "train", "test"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_changed_data_is_noticed(kind, tiny_recipe, request, tmp_path, capsys):
    recipe, overrides, fixture, spoil, train, test = KINDS[kind]
    data, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(request.getfixturevalue(fixture), data)
    recipe = str(tiny_recipe) if recipe == "tiny.toml" else recipe
    regard.train(recipe, *overrides, *FEW, out=run, data=data)

    moved = tmp_path / "elsewhere"
    shutil.copytree(data, moved)
    shutil.rmtree(data)
    regard.train(recipe, *overrides, *FEW, "training.steps=3", out=run, data=moved, resume=True)
    model = regard.load(run)
    model.evaluate(baselines=False) if kind in ("classify", "images") else model.evaluate()
    assert "changed" not in capsys.readouterr().err

    spoil(moved / test)
    model.evaluate(baselines=False) if kind in ("classify", "images") else model.evaluate()
    assert "test data" in (said := " ".join(capsys.readouterr().err.split())) and "has changed" in said

    spoil(moved / train)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RegardError, match=r"training data of .* has changed"):
        regard.train(recipe, *overrides, *FEW, "training.steps=4", out=run, data=moved, resume=True)
    assert {path: path.read_bytes() for path in before} == before


def test_images_of_other_classes_are_not_scored_as_if_they_were_the_old_ones(pictures, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(pictures, data)
    run = regard.train("digits", *TINY_IMAGES, *FEW, "data.images=.", out=tmp_path / "run", data=data)
    for split in ("train", "test"):
        (data / split / "across").rename(data / split / "sideways")
    with pytest.raises(RegardError, match="classes of the images are not those of"):
        regard.load(run).evaluate(baselines=False)
