"""Masks and boxes move with the pixels: held against loops over pixels, Pillow, and boxes drawn as masks."""

import itertools
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from regard.data.augmentation import Augmentation, crop_and_flip
from regard.data.geometry import from_centre, move_boxes, move_masks, move_pixels, one_after_another, scaled_by
from regard.data.image_operations import OPERATIONS, change, motion_around_centre
from regard.data.keys import sample_keys
from regard.settings import MovingAugmentation

HEIGHT, WIDTH = 40, 48
OUTSIDE = 255
EVERYTHING = {"crop": 5, "flip": 0.5, "scale": 0.3, "operations": 2, "strength": 0.7}


def augmentation(**settings) -> Augmentation:
    return Augmentation(MovingAugmentation(**settings), HEIGHT, WIDTH)


def keys(count: int, first: int = 0) -> Tensor:
    return torch.from_numpy(sample_keys(1, np.zeros(count, np.int64), np.arange(first, first + count)))


def random_masks(count: int, classes: int = 5) -> Tensor:
    return torch.randint(0, classes, (count, HEIGHT, WIDTH), generator=torch.Generator().manual_seed(count))


def blobs(count: int) -> Tensor:
    """Masks of large areas: what survives being sampled twice."""
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    centres = torch.randint(10, 30, (count, 2), generator=torch.Generator().manual_seed(3))
    return ((y - centres[:, :1, None]) ** 2 + (x - centres[:, 1:, None]) ** 2 < 90).long()


def moved_by_hand(mask_HW: np.ndarray, motion_23: np.ndarray, outside: int) -> np.ndarray:
    """Pixel by pixel."""
    moved = np.full_like(mask_HW, outside)
    for y, x in itertools.product(range(HEIGHT), range(WIDTH)):
        old_x, old_y = motion_23 @ np.array([x + 0.5, y + 0.5, 1.0])
        if 0 <= math.floor(old_x) < WIDTH and 0 <= math.floor(old_y) < HEIGHT:
            moved[y, x] = mask_HW[math.floor(old_y), math.floor(old_x)]
    return moved


# ---------------------------------------------------------------- masks


def test_a_mask_is_cropped_and_flipped_exactly_as_pixels_are():
    masks, settings = random_masks(64), MovingAugmentation(crop=7, flip=0.5)
    moved = move_masks(masks, augmentation(crop=7, flip=0.5).motion(keys(64)), outside=0)
    as_pixels = crop_and_flip(masks[..., None].byte(), keys(64), settings)[..., 0]
    assert torch.equal(moved, as_pixels.long())
    assert not torch.equal(moved, masks)


def test_a_mask_moves_as_by_hand():
    motion = augmentation(**EVERYTHING).motion(keys(6))
    masks = random_masks(6)
    moved = move_masks(masks, motion, OUTSIDE)
    for mask, its_motion, result in zip(masks.numpy(), motion.double().numpy(), moved.numpy(), strict=True):
        by_hand = moved_by_hand(mask, its_motion, OUTSIDE)
        assert (result != by_hand).mean() < 0.002  # float32 falls on the other side of an edge here and there


@pytest.mark.parametrize("settings", [{"scale": 0.4}, {"operations": 1, "strength": 1.0}, EVERYTHING])
def test_a_mask_stays_on_the_pixels_that_it_was_on(settings):
    """An image that shows its own mask, in white on black, still shows it when both have moved."""
    masks, motion = blobs(40), augmentation(**settings).motion(keys(40))
    moved = move_pixels(masks[:, None].float() * 200, motion)[:, 0] > 100
    assert (moved != move_masks(masks, motion, 0).bool()).float().mean() < 0.004
    assert (moved != masks.bool()).any()


def test_the_motion_is_that_of_the_augmented_image():
    """Pixels go through crop, scale and every operation in turn; their motion is computed in one."""
    masks, augment, count = blobs(200), augmentation(**EVERYTHING), 200
    pixels = (masks * 255)[..., None].byte()
    changed = augment.changed(pixels, keys(count))[:, 0]
    moved = move_masks(masks, augment.motion(keys(count)), 0).bool()
    # A tonal operation may turn black and white around or flatten them: the shape of the area still fits.
    flat = changed.flatten(1) - changed.flatten(1).mean(1, keepdim=True)
    shape = moved.flatten(1).float() - moved.flatten(1).float().mean(1, keepdim=True)
    alike = (flat * shape).sum(1).abs() / (flat.norm(dim=1) * shape.norm(dim=1)).clamp(min=1e-6)
    still = masks.flatten(1).float() - masks.flatten(1).float().mean(1, keepdim=True)
    unmoved = (flat * still).sum(1).abs() / (flat.norm(dim=1) * still.norm(dim=1)).clamp(min=1e-6)
    assert alike.median() > 0.85 > 0.6 > unmoved.median()


def test_a_tonal_operation_moves_nothing():
    tonal = torch.tensor([OPERATIONS.index(name) for name in ("colour", "solarize", "equalize", "identity")])
    motion = from_centre(motion_around_centre(tonal, torch.full((4,), 0.7), HEIGHT, WIDTH), HEIGHT, WIDTH)
    assert torch.equal(motion, torch.tensor([[1.0, 0, 0], [0, 1, 0]]).expand(4, 2, 3))
    masks = random_masks(4)
    assert torch.equal(move_masks(masks, motion, OUTSIDE), masks)


@pytest.mark.parametrize("name", ["rotate", "shear-x", "shear-y", "translate-x", "translate-y"])
def test_operations_move_masks_where_they_move_pixels(name):
    masks = blobs(8)
    choice, amount = torch.full((8,), OPERATIONS.index(name)), torch.linspace(-1, 1, 8)
    pixels = change(masks[:, None].float() * 255, choice, amount)[:, 0]
    motion = from_centre(motion_around_centre(choice, amount, HEIGHT, WIDTH), HEIGHT, WIDTH)
    moved = move_masks(masks, motion, 0).bool()
    assert ((pixels > 191) == moved).float().mean() > 0.97  # 128 comes in from outside
    assert (moved != masks.bool()).any()


def test_what_comes_from_outside_is_marked():
    mask = torch.ones(1, HEIGHT, WIDTH, dtype=torch.long)
    moved = move_masks(mask, scaled_by(torch.tensor([0.5]), HEIGHT, WIDTH), OUTSIDE)
    inside = torch.full((HEIGHT, WIDTH), OUTSIDE)
    inside[HEIGHT // 4 : 3 * HEIGHT // 4, WIDTH // 4 : 3 * WIDTH // 4] = 1
    assert torch.equal(moved[0], inside)


# ---------------------------------------------------------------- pixels


def test_pixels_are_scaled_as_by_pillow():
    image = np.random.default_rng(1).integers(0, 255, (HEIGHT, WIDTH)).astype(np.float32)
    zoom = 1.25
    motion = scaled_by(torch.tensor([zoom]), HEIGHT, WIDTH)
    ours = move_pixels(torch.from_numpy(image)[None, None], motion)[0, 0].numpy()
    coefficients = motion[0].double().flatten().tolist()
    theirs = Image.fromarray(image).transform(
        (WIDTH, HEIGHT), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
    )
    np.testing.assert_allclose(ours, np.asarray(theirs), atol=0.05)


def test_scaling_changes_pixels_only_where_it_is_set():
    pixels = torch.randint(0, 256, (16, HEIGHT, WIDTH, 3), dtype=torch.uint8)
    plain, _ = augmentation(crop=2, flip=0.5)(pixels, keys(16))
    off, _ = augmentation(crop=2, flip=0.5, scale=0.0)(pixels, keys(16))
    on, _ = augmentation(crop=2, flip=0.5, scale=0.5)(pixels, keys(16))
    assert torch.equal(plain, off)
    assert all(not torch.equal(one, other) for one, other in zip(plain, on, strict=True))
    zoom = augmentation(scale=0.5).zoom(keys(4000))
    assert 1 / 1.5 <= zoom.min() < 0.7 and 1.45 < zoom.max() <= 1.5
    assert abs((zoom > 1).float().mean() - 0.5) < 0.03


# ---------------------------------------------------------------- boxes


def drawn_boxes(count: int, each: int = 4) -> Tensor:
    """Whole pixels, inside the image: [B, N, 4]."""
    rng = np.random.default_rng(7)
    x0, y0 = rng.integers(0, WIDTH - 12, (count, each)), rng.integers(0, HEIGHT - 12, (count, each))
    wide, high = rng.integers(4, 12, (2, count, each))
    return torch.from_numpy(np.stack([x0, y0, x0 + wide, y0 + high], axis=-1)).float()


def bounds(mask_HW: Tensor) -> list[int]:
    y, x = (mask_HW == 1).nonzero(as_tuple=True)
    return [int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1] if len(x) else []


@pytest.mark.parametrize(
    ("settings", "near"),
    [({"crop": 12, "flip": 0.5}, 0.0), ({"scale": 0.5, "flip": 0.5}, 1.01), (EVERYTHING, 3.5)],
)
def test_a_box_is_where_its_drawing_is(settings, near):
    """Each box is drawn as a mask, the mask is moved, and its bounds are taken; cropped boxes fit exactly."""
    boxes, motion = drawn_boxes(60), augmentation(**settings).motion(keys(60))
    moved, there = move_boxes(boxes, torch.ones(60, 4, dtype=torch.bool), motion, HEIGHT, WIDTH, 0.0, 0.0)
    compared = 0
    for image, box in itertools.product(range(60), range(4)):
        x0, y0, x1, y1 = boxes[image, box].long().tolist()
        mask = torch.zeros(1, HEIGHT, WIDTH, dtype=torch.long)
        mask[0, y0:y1, x0:x1] = 1
        expected = bounds(move_masks(mask, motion[image : image + 1], 0)[0])
        got = moved[image, box].tolist()
        cut = got[0] <= 0 or got[1] <= 0 or got[2] >= WIDTH or got[3] >= HEIGHT
        if not expected:
            assert cut
            continue
        # The centres of all pixels that it covers lie in the box.
        assert got[0] <= expected[0] + 0.501 and got[1] <= expected[1] + 0.501
        assert got[2] >= expected[2] - 0.501 and got[3] >= expected[3] - 0.501
        if not (cut and settings is EVERYTHING):  # cut, a box that was turned may hold less than its bounds
            assert there[image, box]
            np.testing.assert_allclose(got, expected, rtol=0, atol=near)
            compared += 1
    assert compared > 120


def test_boxes_that_leave_the_image_are_dropped():
    boxes = torch.tensor([[[0.0, 0, 8, 8], [20, 20, 28, 28], [40, 0, 48, 8], [3, 3, 9, 9]]])
    there = torch.tensor([[True, True, True, False]])
    right = torch.tensor([[[1.0, 0, -7], [0, 1, 0]]])  # everything moves right by 7
    moved, left = move_boxes(boxes, there, right, HEIGHT, WIDTH)
    assert left.tolist() == [[True, True, False, False]]
    assert moved[0].tolist() == [[7, 0, 15, 8], [27, 20, 35, 28], [0, 0, 0, 0], [0, 0, 0, 0]]
    half = torch.tensor([[[1.0, 0, -4], [0, 1, 0]]])
    moved, left = move_boxes(boxes, there, half, HEIGHT, WIDTH)
    assert left[0, 2] and moved[0, 2].tolist() == [44, 0, 48, 8]  # half of it is left: cut, and kept
    assert not move_boxes(boxes, there, half, HEIGHT, WIDTH, least_left=0.6)[1][0, 2]


def test_a_box_may_be_far_from_square_and_turn():
    """Turned by a known angle, a box is as wide as geometry says."""
    choice, amount = torch.tensor([OPERATIONS.index("rotate")]), torch.tensor([1.0])
    motion = from_centre(motion_around_centre(choice, amount, HEIGHT, WIDTH), HEIGHT, WIDTH)
    centre_x, centre_y = WIDTH / 2, HEIGHT / 2
    box = torch.tensor([[[centre_x - 10, centre_y - 2, centre_x + 10, centre_y + 2]]])
    moved, _ = move_boxes(box, torch.ones(1, 1, dtype=torch.bool), motion, HEIGHT, WIDTH)
    wide = 20 * math.cos(math.radians(30)) + 4 * math.sin(math.radians(30))
    high = 20 * math.sin(math.radians(30)) + 4 * math.cos(math.radians(30))
    expected = [centre_x - wide / 2, centre_y - high / 2, centre_x + wide / 2, centre_y + high / 2]
    np.testing.assert_allclose(moved[0, 0], expected, rtol=1e-5)


# ---------------------------------------------------------------- of all


def test_motions_follow_one_another():
    first, second = augmentation(**EVERYTHING).motion(keys(2))
    points = np.random.default_rng(1).uniform(0, 40, (10, 2))
    both = one_after_another(first[None], second[None])[0].double().numpy()
    for point in points:
        through = second.double().numpy() @ [*point, 1]
        np.testing.assert_allclose(both @ [*point, 1], first.double().numpy() @ [*through, 1], rtol=1e-4, atol=1e-3)


def test_a_motion_depends_on_its_key_alone():
    augment = augmentation(**EVERYTHING)
    whole, parts = augment.motion(keys(12)), [augment.motion(keys(4, first)) for first in (0, 4, 8)]
    assert torch.equal(whole, torch.cat(parts))
    assert len({motion.numpy().tobytes() for motion in whole}) == 12
