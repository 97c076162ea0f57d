"""Settings of image models: what follows from others, and what does not fit together."""

from __future__ import annotations

import pytest

from regard.errors import UsageError
from regard.recipes import from_toml, resolve
from regard.recipes.writing import to_toml


@pytest.mark.parametrize(
    ("recipe", "overrides", "named"),
    [
        ("digits", ["model.patch=3"], ["8 x 8", "3 x 3"]),
        ("digits", ["images.size=[8, 12]", "model.patch=[2, 5]"], ["8 x 12", "2 x 5"]),
        ("digits", ["images.size=[8]"], ["size = [8]"]),
        ("digits", ["model.patch=[1, 2, 3]"], ["patch = [1, 2, 3]"]),
        ("digits", ["images.size=100000"], ["100000", "4,096"]),
        ("digits", ["images.size=1024", "model.patch=2"], ["number of patches", "262,144"]),
        ("digits-pixels", ["images.size=512"], ["262,144"]),
        ("digits", ["data.images=somewhere"], ["data.sample", "data.images"]),
        ("digits", ["augmentation.crop=8"], ["crop = 8", "8 x 8"]),
        ("digits", ["training.micro_batches=300"], ["micro_batches = 300", "64 images"]),
        ("digits", ["model.positions=sinusoidal-2d", "model.width=6", "model.heads=3"], ["width = 6", "4"]),
        ("digits", ["training.select=bleu"], ['"bleu"', "classify-image"]),
        ("cifar10-swin", ["model.window=5"], ["16 x 16", "windows of 5"]),
        ("cifar10-swin", ["model.stages=[1, 1, 1, 1, 1, 1]"], ["1 x 1", "merged in twos"]),
        ("cifar10-swin", ["model.pooling=first"], ["model.stages (Swin)", 'use model.pooling = "mean"']),
        ("cifar10-swin", ["model.mixer=hyena"], ["model.stages (Swin)", 'use model.mixer = "attention"']),
        ("cifar10-swin", ["model.positions=learned"], ["model.stages (Swin)", 'use model.positions = "none"']),
        ("cifar10-swin", ["model.key_width=8"], ["model.stages (Swin)", "use model.key_width = 0"]),
        ("digits-pixels", ["images.colour=true"], ["pixels.palette", "images.colour"]),
        ("digits-pixels", ["model.positions=learned", "model.max_positions=63"], ["64", "max_positions = 63"]),
        ("demo", ["model.positions=sinusoidal-2d"], ["sinusoidal-2d"]),
    ],
)
def test_image_settings_that_do_not_fit_together_are_refused(
    recipe: str, overrides: list[str], named: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(recipe, overrides)
    assert "do not fit together" in caught.value.what
    said = f"{caught.value.why} {caught.value.fix}".casefold()
    assert all(name.casefold() in said for name in named), said


def test_an_image_may_have_two_different_sides_and_so_may_a_patch() -> None:
    settings = resolve("digits", ["images.size=[8, 12]", "model.patch=[2, 4]"])
    assert (settings.images.height, settings.images.width, settings.images.channels) == (8, 12, 1)
    assert (settings.model.patch_height, settings.model.patch_width) == (2, 4)
    assert settings.row[1] == 4 * 3
    assert from_toml(to_toml(settings)) == settings


def test_a_class_is_not_read_from_the_last_of_the_patches() -> None:
    with pytest.raises(UsageError, match=r"'model\.pooling' cannot be 'last'"):
        resolve("digits", ["model.pooling=last"])


def test_a_window_is_said_to_have_no_effect_where_there_are_no_stages() -> None:
    assert resolve("cifar10-swin").remarks() == resolve("digits").remarks() == []
    [window, narrow] = resolve("digits", ["model.window=7", "model.narrow=sides"]).remarks()
    assert "model.window has no effect" in window
    assert "model.narrow has no effect" in narrow


def test_windows_on_a_narrow_grid_fill_it_in_one_way_or_the_other() -> None:
    """4 x 10 patches and windows of 5: squares of 4 do not fill it, 4 x 5 patches do."""
    narrow = ["images.size=[8, 20]", "model.stages=[2]", "model.window=5"]
    with pytest.raises(UsageError, match="windows of 4 do not fill") as caught:
        resolve("cifar10-swin", narrow)
    assert 'model.narrow = "sides"' in caught.value.fix
    assert resolve("cifar10-swin", [*narrow, "model.narrow=sides"]).model.window == 5
    assert resolve("cifar10-swin", [*narrow, "images.size=[8, 16]"]).model.narrow == "square"


def test_stages_count_their_blocks() -> None:
    assert resolve("cifar10-swin", ["model.stages=[1, 2]", "model.layers=9"]).model.layers == 3


def test_filters_of_hyena_are_as_long_as_an_image_has_tokens() -> None:
    patches = resolve("digits", ["model.mixer=hyena", "model.pooling=first", "model.registers=2"])
    assert patches.model.hyena["filter_length"] == 16 + 1 + 2
    assert resolve("digits-pixels", ["model.mixer=hyena"]).model.hyena["filter_length"] == 64


def test_the_setting_of_how_much_goes_into_an_update_is_that_of_the_task() -> None:
    assert resolve("digits").BATCH == "training.images_per_batch"
    assert resolve("demo").BATCH == "training.tokens_per_batch"
    assert resolve("words").BATCH == "embeddings.words_per_batch"
    assert resolve("digits").batch_size == 64


@pytest.mark.parametrize("setting", ["training.tokens_per_batch=512", "tokenizer.kind=byte", "training.row_length=64"])
def test_settings_of_texts_have_no_effect_on_images(setting: str) -> None:
    with pytest.raises(UsageError, match="no effect on the task 'classify-image'"):
        resolve("digits", [setting])
