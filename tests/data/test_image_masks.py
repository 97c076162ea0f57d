"""Masks beside images: how they are found, what is wrong with bad ones, and that they are brought to size alike."""

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from regard.data.image_masks import fit_mask, mask_sources, read_mask, unfit
from regard.data.images import BadImage, read_image
from regard.data.mask_cache import NOTHING, mask_splits, masked_images
from regard.data.survey import survey_masks
from regard.errors import RegardError
from regard.settings import ImageSettings, MaskData

SMALL = ImageSettings(size=8, colour=False, fit="stretch")


def save(path, array, palette=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(array, np.uint8))
    if palette:
        image.putpalette([value for number in range(256) for value in (number, 255 - number, 7)])
    image.save(path)


def picture(seed, side=8):
    return np.random.default_rng(seed).integers(0, 256, (side, side))


def mask(seed, side=8, classes=3):
    return np.random.default_rng(1000 + seed).integers(0, classes, (side, side))


def write_some(folder, numbers, split="", names=("images", "masks")):
    for number in numbers:
        save(folder / split / names[0] / f"{number}.png", picture(number))
        save(folder / split / names[1] / f"{number}.png", mask(number))


def data(tmp_path, **settings):
    return MaskData(root=str(tmp_path), cache=str(tmp_path / "cache"), held_out=0.2, **settings)


def whole(splits):
    return [splits.train, splits.valid, splits.test]


# ---------------------------------------------------------------- what goes with what


def test_a_mask_is_found_by_its_name_and_read_exactly(tmp_path):
    write_some(tmp_path / "pets", range(20))
    splits = mask_splits(data(tmp_path, images="pets"), SMALL)
    assert splits.classes == ["0", "1", "2"] and not splits.skipped
    found = {name: (images, n) for images in whole(splits) for n, name in enumerate(images.names)}
    assert len(found) == 20 and all(len(images) for images in whole(splits))
    for number in range(20):
        images, n = found[f"images/{number}.png"]
        np.testing.assert_array_equal(images.pixels_NHWC[n, ..., 0], picture(number))
        np.testing.assert_array_equal(images.classes(slice(None))[n], mask(number))


@pytest.mark.parametrize("layout", ["train/images/{}", "images/train/{}", "a/b/train/images/cats/{}"])
def test_folders_tell_the_split_and_other_endings_go_together(tmp_path, layout):
    for split, numbers in {"train": range(4), "val": range(4, 6), "test": range(6, 9)}.items():
        for number in numbers:
            place = layout.replace("train", split)
            save(tmp_path / "d" / place.format(f"{number}.bmp"), picture(number))
            save(tmp_path / "d" / place.replace("images", "masks").format(f"{number}.png"), mask(number))
    splits = mask_splits(data(tmp_path, images="d"), SMALL)
    assert [len(images) for images in whole(splits)] == [4, 2, 3]


def test_a_list_tells_the_split_and_folders_have_other_names(tmp_path):
    write_some(tmp_path / "pets", range(9), names=("pictures", "trimaps"))
    lines = [{"name": str(n), "split": "trainval" if n < 5 else "val" if n < 7 else "test"} for n in range(9)]
    (tmp_path / "pets" / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    named = data(tmp_path, images="pets", image_folder="pictures", mask_folder="trimaps", split_file="list.jsonl")
    assert [len(images) for images in whole(mask_splits(named, SMALL))] == [5, 2, 2]
    (tmp_path / "pets" / "list.jsonl").write_text('{"name": "1"}\n')
    with pytest.raises(RegardError, match="Line 1 of"):
        mask_sources(named, "train")[0].fingerprint()
    with pytest.raises(RegardError, match="The list of splits"):
        mask_splits(named.model_copy(update={"split_file": "other.jsonl"}), SMALL)


@pytest.mark.parametrize("masks_first", [True, False])
def test_an_archive_gives_the_same_as_its_folder(tmp_path, masks_first):
    write_some(tmp_path / "pets", range(10))
    with tarfile.open(tmp_path / "pets.tar.xz", "w:xz") as archive:
        for folder in sorted(("images", "masks"), reverse=masks_first):
            archive.add(tmp_path / "pets" / folder, f"pets/{folder}")
    folder, packed = (mask_splits(data(tmp_path, images=name), SMALL) for name in ("pets", "pets.tar.xz"))
    assert folder.fingerprints == packed.fingerprints
    for one, other in zip(whole(folder), whole(packed), strict=True):
        np.testing.assert_array_equal(one.pixels_NHWC, other.pixels_NHWC)
        np.testing.assert_array_equal(one.masks_NHW, other.masks_NHW)


def test_a_changed_mask_changes_the_fingerprint(tmp_path):
    write_some(tmp_path / "pets", range(10))
    before = mask_splits(data(tmp_path, images="pets"), SMALL)
    for number in range(10):
        save(tmp_path / "pets" / "masks" / f"{number}.png", (mask(number) + 1) % 3)
    after = mask_splits(data(tmp_path, images="pets"), SMALL)
    assert all(before.fingerprints[split] != after.fingerprints[split] for split in before.fingerprints)


# ---------------------------------------------------------------- bad masks


def test_what_cannot_be_used_is_named_and_left_out(tmp_path):
    folder = tmp_path / "pets"
    write_some(folder, range(10))
    save(folder / "images" / "alone.png", picture(50))
    for number, name in enumerate(("larger", "colours", "damaged", "empty", "unknown"), start=60):
        save(folder / "images" / f"{name}.png", picture(number))
    save(folder / "masks" / "larger.png", mask(1, side=9))
    save(folder / "masks" / "colours.png", np.zeros((8, 8, 3)))
    (folder / "masks" / "damaged.png").write_bytes((folder / "masks" / "1.png").read_bytes()[:50])
    (folder / "masks" / "empty.png").write_bytes(b"")
    save(folder / "masks" / "unknown.png", np.full((8, 8), 77))
    splits = mask_splits(data(tmp_path, images="pets", values=[0, 1, 2]), SMALL)
    assert sum(map(len, whole(splits))) == 10
    said = dict(line.split(": ", 1) for line in splits.skipped)
    assert said["images/alone.png"] == "It has no mask."
    assert said["images/larger.png"] == "It has 8 x 8 pixels, and its mask 9 x 9."
    assert "RGB" in said["images/colours.png"]
    assert "damaged" in said["images/damaged.png"] and "empty" in said["images/empty.png"]
    assert said["images/unknown.png"] == "Its mask has numbers that are no classes: 77."
    assert len(said) == 6
    figures, advice = survey_masks(data(tmp_path, images="pets", values=[0, 1, 2]), SMALL)
    assert figures["left_out"] == 6 and any("Left out: 6" in line for line in advice)


def test_a_class_that_only_the_test_has_is_unknown(tmp_path):
    write_some(tmp_path / "one", range(8))
    write_some(tmp_path / "two", range(20, 24))
    save(tmp_path / "two" / "masks" / "21.png", np.full((8, 8), 5))
    splits = mask_splits(data(tmp_path, images="one", test=["two"]), SMALL)
    assert len(splits.test) == 3 and splits.skipped == ["images/21.png: Its mask has numbers that are no classes: 5."]
    assert len(masked_images([tmp_path / "two"], data(tmp_path), SMALL, [0, 1, 2])) == 3


def test_clear_errors_for_what_is_not_there(tmp_path):
    with pytest.raises(RegardError, match="No training data"):
        mask_sources(data(tmp_path), "train")
    write_some(tmp_path / "pets", range(3), names=("images", "labels"))
    with pytest.raises(RegardError) as caught:
        mask_sources(data(tmp_path, images="pets"), "train")
    assert "has no masks" in caught.value.what and "data.mask_folder" in caught.value.fix
    write_some(tmp_path / "good", range(5))
    with pytest.raises(RegardError, match="names 2 classes, and the masks have 3"):
        mask_splits(data(tmp_path, images="good", classes=["a", "b"]), SMALL)


def test_the_number_to_ignore_is_no_class(tmp_path):
    folder = tmp_path / "pets"
    write_some(folder, range(6))
    whole_mask = mask(0)
    save(folder / "masks" / "0.png", np.where(whole_mask == 2, 255, whole_mask))
    splits = mask_splits(data(tmp_path, images="pets", ignore=255), SMALL)
    assert splits.classes == ["0", "1", "2"]
    images = next(images for images in whole(splits) if "images/0.png" in images.names)
    its_classes = images.classes(slice(None))[images.names.index("images/0.png")]
    np.testing.assert_array_equal(its_classes == NOTHING, whole_mask == 2)
    other = mask_splits(data(tmp_path, images="pets", ignore=1, values=[2, 0], classes=["two", "none"]), SMALL)
    assert other.skipped == ["images/0.png: Its mask has numbers that are no classes: 255."]
    assert other.train.values == [2, 0] and other.classes == ["two", "none"]  # in the order that they are named


# ---------------------------------------------------------------- one mask


def test_a_palette_is_read_by_its_indices(tmp_path):
    save(tmp_path / "p.png", mask(3), palette=True)
    np.testing.assert_array_equal(read_mask(tmp_path / "p.png"), mask(3))
    content = io.BytesIO()
    Image.fromarray(mask(4) > 0).save(content, "PNG")
    np.testing.assert_array_equal(read_mask(content.getvalue()), (mask(4) > 0).astype(np.uint8))
    with pytest.raises(BadImage, match="missing"):
        read_mask(tmp_path / "nowhere.png")


@pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
@pytest.mark.parametrize("shape", [(30, 20), (21, 33), (16, 24)])
def test_a_mask_is_brought_to_size_as_its_image_is(tmp_path, fit, shape):
    """An image that is white where its mask is 1 is so afterwards, but for the blur along the edges."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    mask_hw = ((y - shape[0] / 3) ** 2 + (x - shape[1] / 2) ** 2 < 36).astype(np.uint8)
    save(tmp_path / "i.png", mask_hw * 255)
    settings = ImageSettings(size=[16, 24], colour=False, fit=fit)
    pixels = read_image(tmp_path / "i.png", settings)[..., 0]
    fitted = fit_mask(mask_hw, settings, outside=9)
    assert ((pixels > 127) == (fitted == 1)).mean() > 0.98
    assert (fitted == 9).any() == (fit == "pad" and shape != (16, 24))
    if shape == (16, 24):
        np.testing.assert_array_equal(fitted, mask_hw)


@pytest.mark.parametrize("fit", ["stretch", "pad"])
def test_maps_go_back_to_the_size_of_the_image(fit):
    settings = ImageSettings(size=[16, 24], fit=fit)
    y, x = np.mgrid[:50, :37]
    mask_hw = ((y > 20) & (x > 10)).astype(np.uint8)
    fitted = fit_mask(mask_hw, settings, outside=0)
    maps = np.stack([fitted == 0, fitted == 1]).astype(np.float32)
    back = np.concatenate([part.argmax(0) for part in unfit(maps, (37, 50), settings)])
    assert back.shape == mask_hw.shape
    assert (back == mask_hw).mean() > 0.93
