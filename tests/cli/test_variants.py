"""What a comparison is of: combinations, seeds, and settings that fit another length of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.variants import Request, Variant, length_of, rows_of_their_own, seeds_of, settings_of, variants_of
from regard.errors import RegardError
from regard.files import locked

AS_IT_IS = Variant("as it is", [])


def request(recipe: Path | str, *overrides: str, vary: tuple[str, ...] = (), variants: tuple[str, ...] = ()) -> Request:
    return Request(str(recipe), list(overrides), list(vary), list(variants))


def trained_for(one: Request, steps: int, before: int = 20):
    """The [training] of a variant that changes nothing, for this many steps; the recipe has `before`."""
    lengths = length_of(one, AS_IT_IS, settings_of(one, AS_IT_IS), before, steps)
    return settings_of(one, AS_IT_IS, lengths).training


def test_every_combination_is_a_variant_and_a_comma_in_brackets_divides_nothing():
    variants = variants_of(request("demo", vary=("model.width=16, 32", 'data.train=["a","b"],["c,d"]')))
    assert [variant.overrides for variant in variants] == [
        ["model.width=16", 'data.train=["a","b"]'],
        ["model.width=16", 'data.train=["c,d"]'],
        ["model.width=32", 'data.train=["a","b"]'],
        ["model.width=32", 'data.train=["c,d"]'],
    ]
    assert variants[0].name == 'width=16 train=["a","b"]' and variants[0].folder == "width=16_train=_a_b"
    assert len({variant.folder for variant in variants}) == 4


def test_a_named_variant_changes_several_settings():
    variants = variants_of(request("demo", variants=("small one: model.width=16 model.layers=1", "as it is:")))
    assert variants == [Variant("small one", ["model.width=16", "model.layers=1"]), Variant("as it is", [])]


def test_same_last_names_are_shown_whole():
    variants = variants_of(request("demo", vary=("model.dropout=0.1", "tokenizer.dropout=0.2")))
    assert variants[0].name == "model.dropout=0.1 tokenizer.dropout=0.2"


def test_seeds_are_a_number_or_a_list():
    assert (seeds_of("3"), seeds_of("4,5, 9"), seeds_of("7,"), seeds_of("0,1")) == ([1, 2, 3], [4, 5, 9], [7], [0, 1])


@pytest.mark.parametrize("steps", [5, 9, 17, 100, 1001])
def test_another_length_has_some_validations_and_a_short_warm_up(tiny_recipe: Path, steps: int):
    training = trained_for(request(tiny_recipe), steps)
    assert training.steps == steps
    assert 5 <= -(-steps // training.validate_every) <= 8
    assert training.warmup == min(10, steps // 10)
    assert training.log_every <= max(1, steps // 20)


def test_the_recipes_own_length_needs_nothing(tiny_recipe: Path):
    one = request(tiny_recipe)
    assert length_of(one, AS_IT_IS, settings_of(one, AS_IT_IS), 20, 20) == []


def test_averages_cover_the_same_share_of_another_length(tiny_recipe: Path, tmp_path: Path):
    training = trained_for(request(tiny_recipe, "training.average_checkpoints=2"), 200)
    # Two checkpoints, five steps apart, of 20 steps: of 200 steps, fifty apart.
    assert (training.save_every, training.validate_every) == (50, 50)
    (tmp_path / "moving.toml").write_text(tiny_recipe.read_text().replace("steps = 20", "steps = 20\nema = 0.9"))
    assert trained_for(request(tmp_path / "moving.toml"), 200).ema == pytest.approx(0.99)


def test_what_the_command_sets_stays(tiny_recipe: Path):
    chosen = request(tiny_recipe, "training.warmup=50", "training.validate_every=100", "training.save_every=25")
    training = trained_for(chosen, 200)
    assert (training.warmup, training.validate_every, training.save_every) == (50, 100, 25)


@pytest.mark.parametrize(
    ("mixers", "overrides", "expected"),
    [
        (("attention", "gru"), (), ["training.packing=no"]),
        (("attention", "local"), (), []),
        (("gru",), (), []),
        (("attention", "gru"), ("training.packing=auto",), []),
    ],
)
def test_all_get_a_row_for_each_sentence_where_one_mixer_needs_it(tiny_recipe: Path, mixers, overrides, expected):
    one = request(tiny_recipe, *overrides)
    variants = [Variant(mixer, [f"model.mixer={mixer}"]) for mixer in mixers]
    assert rows_of_their_own(one, variants, [settings_of(one, variant) for variant in variants]) == expected


def test_a_folder_is_for_one_comparison_at_a_time(tmp_path: Path):
    with locked(tmp_path), pytest.raises(RegardError, match="is in use"), locked(tmp_path):
        pass
    with locked(tmp_path):
        assert (tmp_path / ".lock").exists()
