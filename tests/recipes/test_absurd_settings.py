"""Recipes that are nested, endless or beyond all measure: an error of three lines."""

from __future__ import annotations

import os

import pytest

from expect import error_of
from regard.errors import UsageError
from regard.recipes import from_toml, recipe_text, resolve

DOTS = ".".join("a" * 20_000)
DEEP = "[" * 20_000 + "]" * 20_000
TEXTS = {
    "a list": f"a = {DEEP}",
    "a key": f"{DOTS} = 1",
    "a table": f"[{DOTS}]",
    "quoted parts": ".".join(['"a="'] * 20_000) + " = 1",
    "tables in tables": "a = " + "{a = " * 20_000 + "1" + "}" * 20_000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_recipe_nested_20_000_deep_is_an_error(text):
    error = error_of(from_toml, text)
    assert isinstance(error, UsageError) and "cannot be read as TOML" in error.what


@pytest.mark.parametrize("override", [f"model.width={DEEP}", f"{DOTS}=1", f"model.width={{{DOTS}=1}}"], ids=range(3))
def test_an_override_nested_20_000_deep_is_an_error(override):
    assert isinstance(error_of(resolve, "reverse", [override]), UsageError)


def test_a_number_of_5_000_digits_is_an_error():
    assert "cannot be read" in error_of(from_toml, f"seed = {'9' * 5000}").what


@pytest.mark.parametrize(
    "setting",
    [
        "model.layers=100000000",
        "model.width=1000000000",
        "model.heads=1000000000",
        "model.feedforward=1000000000000",
        "model.max_positions=1000000000000",
        "training.tokens_per_batch=1000000000000",
        "system.threads=1000000000",
    ],
)
def test_a_size_beyond_all_measure_is_an_error_that_names_it_and_the_limit(setting):
    error = error_of(resolve, "reverse", [setting])
    assert setting.partition("=")[0] in error.what and "less than or equal to" in error.why


def test_a_recipe_is_a_file_of_a_megabyte_at_most(tmp_path):
    (tmp_path / "large.toml").write_text("# \n" * 400_000)
    assert "larger than 1 MiB" in error_of(recipe_text, str(tmp_path / "large.toml")).why
    os.mkfifo(tmp_path / "pipe.toml")
    assert "not a file" in error_of(recipe_text, str(tmp_path / "pipe.toml")).why
