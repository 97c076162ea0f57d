"""Every operation of RandAugment against Pillow: the same image, the same amount, levels 0 … 255."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.nn import functional as F

from regard.data.image_operations import (
    GEOMETRIC,
    OF_LEVELS,
    OF_PIXELS,
    OPERATIONS,
    TONAL,
    Levels,
    change,
    channel_means,
    grey,
)

HEIGHT, WIDTH = 24, 32
AMOUNTS = (-1.0, -0.37, 0.0, 0.2, 0.64, 1.0)
OUTSIDE = (1, 2, 3)  # no pixel of the picture has it, so it marks where Pillow looked outside


def picture(colour: bool = True, height: int = HEIGHT, width: int = WIDTH) -> Image.Image:
    """Smooth waves with some noise: edges, shades and a histogram that is neither full nor flat."""
    generator = np.random.default_rng(3)
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / 3 + shift) + np.cos(y / (4 + shift)) for shift in ((0, 1, 2) if colour else (0,))]
    levels = 115 + 45 * np.stack(waves, axis=-1) + generator.normal(0, 6, (height, width, len(waves)))
    pixels = levels.clip(10, 220).astype(np.uint8)
    return Image.fromarray(pixels if colour else pixels[..., 0])


def tensor(image: Image.Image) -> Tensor:
    pixels = np.asarray(image, dtype=np.float32)
    return torch.from_numpy(pixels.reshape(image.height, image.width, -1)).permute(2, 0, 1)[None].contiguous()


def apply(name: str, image: Image.Image, amount: float) -> Tensor:
    return change(tensor(image), torch.tensor([OPERATIONS.index(name)]), torch.tensor([amount]))


def pillow(name: str, image: Image.Image, amount: float) -> Image.Image:
    height, width = image.height, image.width
    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "colour": ImageEnhance.Color,
        "sharpness": ImageEnhance.Sharpness,
    }
    matrices = {
        "shear-x": (1, 0.3 * amount, -0.3 * amount * height / 2, 0, 1, 0),
        "shear-y": (1, 0, 0, 0.3 * amount, 1, -0.3 * amount * width / 2),
        "translate-x": (1, 0, 10 / 32 * amount * width, 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, 10 / 32 * amount * height),
    }
    if name in enhancers:
        return enhancers[name](image).enhance(1 + 0.9 * amount)
    if name in matrices:
        size = (width, height)
        return image.transform(
            size, Image.Transform.AFFINE, matrices[name], Image.Resampling.BILINEAR, fillcolor=OUTSIDE
        )
    if name == "rotate":
        return image.rotate(30 * amount, Image.Resampling.BILINEAR, fillcolor=OUTSIDE)
    if name == "posterize":
        return ImageOps.posterize(image, 8 - round(4 * abs(amount)))
    if name == "solarize":
        return ImageOps.solarize(image, 256 * (1 - abs(amount)))
    return {"autocontrast": ImageOps.autocontrast, "equalize": ImageOps.equalize}[name](image)


def is_outside(image: Tensor) -> Tensor:
    return (image == torch.tensor(OUTSIDE)[None, :, None, None]).all(1, keepdim=True).float()


def test_tones_of_levels_are_computed_for_levels_and_not_for_pixels():
    """However large the image is, as many numbers: one for each level of each channel."""
    for side in (8, 40):
        x = torch.randint(0, 256, (2, 3, side, side), generator=torch.Generator().manual_seed(side)).float()
        levels = Levels.counted(grey(x), x.flatten(2).long())
        for name, operation in OF_LEVELS.items():
            assert operation(levels, torch.tensor([0.3, -0.8])).numel() <= 2 * 3 * 256, name
        assert levels.count_BCL.sum(2).tolist() == [[side * side] * 3] * 2
        assert torch.equal(levels.darkest_BC1[..., 0], x.amin((2, 3)))
        assert torch.equal(levels.lightest_BC1[..., 0], x.amax((2, 3)))
    assert {*OF_LEVELS, *OF_PIXELS} == set(TONAL)


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("name", TONAL)
def test_tone_is_as_in_pillow(name, colour):
    image = picture(colour)
    for amount in AMOUNTS:
        difference = (apply(name, image, amount) - tensor(pillow(name, image, amount))).abs()
        # Pillow cuts off what we round; and its grey, in whole numbers, may round the other way.
        most = {"posterize": 0, "solarize": 0, "equalize": 0, "colour": 2}.get(name, 1)
        assert difference.max() <= most, amount
        assert difference.mean() < 0.6, amount


def test_saturation_leaves_grey_images():
    image = picture(colour=False)
    for amount in AMOUNTS:
        assert torch.equal(apply("colour", image, amount), tensor(image))


@pytest.mark.parametrize("name", GEOMETRIC)
def test_geometry_is_as_in_pillow(name):
    image = picture()
    for amount in AMOUNTS:
        expected = tensor(pillow(name, image, amount))
        outside = is_outside(expected)
        # At the very edge we blend with the outside, which Pillow does not.
        near_outside = F.max_pool2d(outside, 3, stride=1, padding=1).bool()
        inside = ~near_outside
        inside[..., [0, -1], :] = False
        inside[..., [0, -1]] = False
        difference = (apply(name, image, amount) - expected).abs().masked_select(inside)
        assert difference.numel() > 0.3 * expected.numel()
        assert difference.max() <= 1, amount


@pytest.mark.parametrize("name", GEOMETRIC)
def test_what_comes_from_outside_is_grey(name):
    result = apply(name, picture(), 1.0)
    expected = tensor(pillow(name, picture(), 1.0))
    deep = F.max_pool2d(-is_outside(expected), 5, stride=1, padding=2) == -1
    assert deep.any()
    assert (result.masked_select(deep) == 128).all()


def test_no_amount_is_no_change():
    x = tensor(picture())
    for name in set(OPERATIONS) - {"autocontrast", "equalize"}:
        assert torch.equal(apply(name, picture(), 0.0), x), name
    assert torch.equal(apply("identity", picture(), 1.0), x)


def test_every_operation_but_identity_changes_the_picture():
    x = tensor(picture())
    for name in set(OPERATIONS) - {"identity"}:
        assert not torch.equal(apply(name, picture(), 1.0), x), name


def test_results_are_whole_levels_within_the_range():
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (14 * 20, 3, 9, 7), generator=generator).float()
    choices = torch.arange(len(x)) % len(OPERATIONS)
    y = change(x, choices, torch.rand(len(x), generator=generator) * 2 - 1)
    assert torch.equal(y, y.round())
    assert y.min() >= 0
    assert y.max() <= 255


def test_each_image_gets_the_operation_it_drew():
    images = torch.cat([tensor(picture())] * len(OPERATIONS))
    together = change(images, torch.arange(len(OPERATIONS)), torch.full((len(OPERATIONS),), -0.7))
    for row, name in enumerate(OPERATIONS):
        assert torch.equal(together[row : row + 1], apply(name, picture(), -0.7)), name


@pytest.mark.parametrize("level", [0, 77, 255])
def test_an_image_of_one_level_stays_within_the_range(level):
    image = Image.new("RGB", (WIDTH, HEIGHT), (level, level, level))
    for name in ("autocontrast", "equalize", "contrast", "colour", "sharpness"):
        assert torch.equal(apply(name, image, 0.8), tensor(image)), name


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 5)])
def test_images_of_a_few_pixels_work(size):
    image = picture(True, *size)
    for name in OPERATIONS:
        assert apply(name, image, 0.5).shape == (1, 3, *size)
    assert torch.equal(apply("equalize", image, 0.5), tensor(ImageOps.equalize(image)))


def test_grey_is_as_in_pillow():
    assert (grey(tensor(picture())) - tensor(picture().convert("L"))).abs().max() <= 1


def test_means_are_exact_on_images_whose_sum_no_float_can_hold():
    x = torch.full((1, 1, 512, 512), 255.0)
    x[..., 0, 0] = 254
    assert channel_means(x).double().item() == pytest.approx(255 - 1 / 512**2, abs=2e-5)
    levels = torch.randint(0, 256, (2, 3, 512, 512), generator=torch.Generator().manual_seed(2))
    assert torch.equal(channel_means(levels.float())[..., 0, 0], levels.sum((2, 3)) / 512**2)
