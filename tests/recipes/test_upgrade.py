"""Settings of earlier versions: in a recipe or a command one line says what replaced them; an old run just opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import console
from regard.errors import UsageError
from regard.recipes import complete, from_toml, recipe_names, recipe_text, resolve
from regard.recipes.writing import flat, to_toml, toml_value
from regard.run import open_run

# What config.toml of an earlier version held in [model] and [training] of every run, with the values of then.
OLD = {
    "model": {
        "window": ("local", "window", 64),
        "hyena_order": ("hyena", "order", 2),
        "hyena_recurrence": ("hyena", "recurrence", "public"),
        "hyena_filter_length": ("hyena", "filter_length", 0),
        "hyena_filter_bands": ("hyena", "filter_bands", 8),
        "hyena_filter_width": ("hyena", "filter_width", 64),
    },
    "training": {
        "muon_learning_rate": ("muon", "learning_rate", 0.02),
        "muon_momentum": ("muon", "momentum", 0.95),
    },
}
SINCE = {"model": ["norm_epsilon", "narrow"], "decoding": ["slots"]}  # what came later
WITHOUT_EFFECT: dict[str, dict[str, dict[str, Any]]] = {
    "translate": {"model": {"logit_cap": 0.0}, "decoding": {"batch_tokens": 4096}},
    "masked": {"model": {"logit_cap": 0.0}},
    "language": {"decoding": {"batch_tokens": 4096}},
    "pixels": {"decoding": {"batch_tokens": 4096}},
    "classify-text": {"model": {"logit_cap": 0.0, "tie_embeddings": "all"}, "decoding": {"batch_tokens": 4096}},
}


def written_before(settings: Any) -> str:
    """The config.toml of an earlier version: no tables of parts, and every setting of each part beside the others."""
    tree = settings.model_dump()
    for section in OLD.keys() & tree.keys():
        tables = {name: tree[section].pop(name) for name in [*tree[section]] if isinstance(tree[section][name], dict)}
        for old, (part, name, value) in OLD[section].items():
            if part in tables or old not in tree[section]:  # Swin has its window in both versions
                tree[section][old] = tables.get(part, {}).get(name, value)
    for section in SINCE.keys() & tree.keys():
        tree[section] = {name: value for name, value in tree[section].items() if name not in SINCE[section]}
    for section, values in WITHOUT_EFFECT.get(settings.task, {}).items():
        tree[section] = tree.get(section, {}) | values
    top = [f"{name} = {toml_value(value)}" for name, value in tree.items() if not isinstance(value, dict)]
    for section, values in tree.items():
        if isinstance(values, dict):
            top += [f"[{section}]", *(f"{name} = {toml_value(value)}" for name, value in values.items())]
    return "\n".join(top) + "\n"


def in_use(settings: Any) -> dict[str, Any]:
    """All settings but those of parts that are not used."""
    tables = {f"model.{settings.parts.get('mixers')}", f"training.{settings.parts['optimizers']}"}
    return {
        key: value for key, value in flat(settings).items() if key.count(".") < 2 or key.rpartition(".")[0] in tables
    }


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """All that is said and warned of."""
    lines: list[str] = []
    monkeypatch.setattr(console, "say", lines.append)
    monkeypatch.setattr(console, "warn", lines.append)
    return lines


# ---------------------------------------------------------------- runs

OTHER_PARTS = [
    ("shakespeare-cpu", ["model.mixer=hyena", "model.hyena.order=3", "model.hyena.recurrence=paper"]),
    ("enwik8", ["model.mixer=local", "model.local.window=32"]),
    ("digits", ["model.mixer=local", "model.local.window=9"]),
    ("demo", ["model.mixer=gru", "training.optimizer=muon", "training.muon.momentum=0.9"]),
    ("cifar10-swin", ["training.muon.learning_rate=0.03"]),
]


@pytest.mark.parametrize(("recipe", "changes"), [*((name, []) for name in recipe_names()), *OTHER_PARTS])
def test_a_run_with_all_settings_of_an_earlier_version_opens_silently_as_the_same(recipe, changes, said):
    settings = resolve(recipe, changes)
    if flat(settings).get("model.stages"):
        settings = settings.with_section("model", narrow="sides")  # the only way there was
    text = written_before(settings)
    assert "hyena_order" in text or "muon_momentum" in text
    opened = from_toml(text, of_run=True)
    assert flat(opened) == in_use(settings)
    assert complete(opened) == opened
    assert said == []


def test_a_run_of_an_earlier_version_is_resumed_and_then_has_the_settings_of_now(language, tmp_path, said):
    config = language.folder.config
    before = config.read_text()
    config.write_text(written_before(language.settings))
    manifest = config.with_name("manifest.json")
    listed = manifest.read_bytes()
    manifest.unlink()  # which came later
    try:
        assert open_run(language.folder.path).settings == language.settings
        with pytest.raises(UsageError, match="already at step 150"):  # so all other settings are the same
            regard.train(str(language.folder.path), "training.steps=100", resume=True)
        regard.train(str(language.folder.path), resume=True)
        assert config.read_text() == before == to_toml(language.settings)
    finally:
        config.write_text(before)
        manifest.write_bytes(listed)
    assert not [line for line in said if " is now " in line]


# ---------------------------------------------------------------- recipes and commands


@pytest.mark.parametrize(
    ("recipe", "given", "old", "new"),
    [
        ("enwik8", ["model.mixer=hyena"], "model.hyena_order=3", "model.hyena.order=3"),
        ("enwik8", ["model.mixer=hyena"], "model.hyena_filter_width=16", "model.hyena.filter_width=16"),
        ("enwik8", ["model.mixer=local"], "model.window=32", "model.local.window=32"),
        ("digits", ["model.mixer=local"], "model.window=5", "model.local.window=5"),
        ("demo", ["training.optimizer=muon"], "training.muon_learning_rate=0.5", "training.muon.learning_rate=0.5"),
        ("digits", ["training.optimizer=muon"], "training.muon_momentum=0.5", "training.muon.momentum=0.5"),
    ],
)
def test_an_old_name_means_the_new_one_and_one_line_says_so(recipe, given, old, new, said, tmp_path):
    key, _, value = old.partition("=")
    one_line = [f"{key} is now {new.partition('=')[0]}."]
    expected = resolve(recipe, [*given, new])
    assert said == []
    assert resolve(recipe, [*given, old]) == expected
    assert said == one_line
    said.clear()
    section, _, name = key.partition(".")
    mine = tmp_path / f"{recipe}.toml"
    mine.write_text(recipe_text(recipe).replace(f"[{section}]\n", f"[{section}]\n{name} = {value}\n"))
    assert resolve(str(mine), given) == expected
    assert said == one_line


def test_windows_of_swin_are_still_set_as_before(said):
    assert resolve("cifar10-swin", ["model.window=8"]).model.window == 8
    assert said == []


def test_an_old_name_of_a_part_that_is_not_used_is_said_to_have_no_effect(said):
    resolve("shakespeare-cpu", ["model.mixer=gru", "model.hyena_order=3"])
    assert said == ["model.hyena_order is now model.hyena.order.", 'model.hyena has no effect: model.mixer is "gru".']


def test_a_value_that_the_new_name_does_not_take_is_refused_under_the_new_name():
    with pytest.raises(UsageError, match=r"'model\.hyena\.order' cannot be 'many'"):
        resolve("enwik8", ["model.mixer=hyena", "model.hyena_order=many"])


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        ("demo", "model.logit_cap=5.0"),
        ("demo", "decoding.batch_tokens=99"),
        ("shakespeare-cpu", "decoding.batch_tokens=99"),
        ("trec", "model.tie_embeddings=none"),
        ("trec", "decoding.batch_tokens=99"),
    ],
)
def test_a_setting_that_never_had_an_effect_is_left_out_and_that_is_said(recipe, setting, said):
    expected = resolve(recipe)
    assert resolve(recipe, [setting]) == expected
    [line] = said
    assert line.split()[0] in setting and "has no effect on this task" in line


def test_where_a_setting_has_an_effect_it_stays(said):
    assert resolve("shakespeare-cpu", ["model.logit_cap=5.0"]).model.logit_cap == 5
    assert resolve("demo", ["decoding.slots=99"]).decoding.slots == 99
    assert said == []


def test_a_recipe_may_hold_tables_of_parts_that_it_does_not_use(said, tmp_path: Path):
    (tmp_path / "mine.toml").write_text('task = "language"\n[model]\nmixer = "local"\n[model.hyena]\norder = 3\n')
    assert resolve(str(tmp_path / "mine.toml"), ["model.mixer=hyena"]).model.hyena["order"] == 3
    resolve(str(tmp_path / "mine.toml"))
    assert said == []
