"""Augmentation: what it does to an image, how often, and that it depends on nothing but the key."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from regard.data.augmentation import Augmentation, beta_quantiles, quantile
from regard.data.keys import sample_keys, uniforms
from regard.settings import AugmentationSettings

EVERYTHING = {"crop": 3, "flip": 0.5, "operations": 2, "strength": 0.8, "erase": 0.4, "mixup": 0.3, "cutmix": 1.0}


def augmentation(height: int = 12, width: int = 16, **settings) -> Augmentation:
    return Augmentation(AugmentationSettings(**settings), height, width)


def keys(count: int, seed: int = 1, epoch: int = 0, first: int = 0) -> Tensor:
    samples = np.arange(first, first + count)
    return torch.from_numpy(sample_keys(seed, np.full(count, epoch), samples))


def images(count: int, height: int = 12, width: int = 16, channels: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, height, width, channels), generator=generator, dtype=torch.uint8)


def plain(value: int, count: int, height: int = 12, width: int = 16) -> Tensor:
    return torch.full((count, height, width, 1), value, dtype=torch.uint8)


# ---------------------------------------------------------------- random numbers


@pytest.mark.parametrize("a", [0.2, 1.0, 4.0])
def test_parts_are_beta_distributed(a):
    parts = quantile(beta_quantiles(a), uniforms(keys(20_000), 1)[0]).double().numpy()
    assert abs(parts.mean() - 0.5) < 4 * stats.beta(a, a).std() / len(parts) ** 0.5
    edges = np.array([0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1])
    expected = len(parts) * np.diff(stats.beta(a, a).cdf(edges))
    assert (np.abs(np.histogram(parts, edges)[0] - expected) < 4 * expected**0.5 + 1).all()
    steps = torch.linspace(0.001, 0.999, 777)
    np.testing.assert_allclose(quantile(beta_quantiles(a), steps), stats.beta(a, a).ppf(steps.double()), atol=3e-4)


# ---------------------------------------------------------------- one image


def test_nothing_on_is_the_image_itself():
    pixels = images(6)
    x, share = augmentation()(pixels, keys(6), None, None)
    assert np.array_equal(x.numpy(), pixels.permute(0, 3, 1, 2).numpy() / np.float32(255))
    assert x.dtype == share.dtype == torch.float32
    assert x.is_contiguous()
    assert share.tolist() == [1.0] * 6


def test_crops_fall_on_every_place_and_keep_pixels():
    edge, count = 2, 1500
    pixels = images(1, 6, 5).expand(count, -1, -1, -1)
    x, _ = augmentation(6, 5, crop=edge)(pixels, keys(count), None, None)
    padded = np.pad(pixels[0].permute(2, 0, 1).numpy() / np.float32(255), ((0, 0), (edge, edge), (edge, edge)))
    places = {padded[:, y : y + 6, x : x + 5].tobytes(): 0 for y in range(5) for x in range(5)}
    for image in x.numpy():
        places[image.tobytes()] += 1  # a KeyError where it is not a cut of the padded image
    assert len(places) == (2 * edge + 1) ** 2
    assert stats.chisquare(list(places.values())).pvalue > 1e-4


def test_images_are_flipped_at_the_rate_set():
    pixels = images(2000, 4, 5)
    straight = pixels.permute(0, 3, 1, 2) / 255
    x, _ = augmentation(4, 5, flip=0.3)(pixels, keys(2000), None, None)
    flipped = (x == straight.flip(3)).flatten(1).all(1)
    assert torch.equal(~flipped, (x == straight).flatten(1).all(1))
    assert abs(flipped.float().mean().item() - 0.3) < 0.04
    always, _ = augmentation(4, 5, flip=1.0)(pixels, keys(2000), None, None)
    assert torch.equal(always, straight.flip(3))


@pytest.mark.parametrize(("height", "width"), [(32, 32), (12, 40), (40, 12)])
def test_a_rectangle_of_the_mean_colour_is_erased(height, width):
    count = 1000
    pixels = images(1, height, width).expand(count, -1, -1, -1)
    x, share = augmentation(height, width, erase=0.6)(pixels, keys(count), None, None)
    mean = (pixels[0].double().mean((0, 1)) / 255).float()[None, :, None, None]
    erased = ((x - mean).abs() < 1e-6).all(1)
    kept = ~erased[:, None]
    assert torch.equal(x.masked_select(kept), (pixels / 255).permute(0, 3, 1, 2).masked_select(kept))
    area = erased.sum((1, 2)).double()
    some = area > 0
    assert abs(some.double().mean().item() - 0.6) < 0.07
    # All of the bounding box is erased: it is a rectangle. Half a row or column may be gained or lost by rounding.
    tall, wide = erased.any(2).sum(1).double(), erased.any(1).sum(1).double()
    assert torch.equal(area, tall * wide)
    rounding = torch.maximum(tall, wide)[some] / 2
    assert (area[some] >= 0.02 * height * width - rounding).all()
    assert (area[some] <= 0.33 * height * width + rounding).all()
    fits = some & (tall < height) & (wide < width)
    assert ((tall + 0.5) ** 2 / (area - tall / 2))[fits].min() > 0.3
    assert ((tall - 0.5) ** 2 / (area + tall / 2))[fits].max() < 1 / 0.3
    assert abs(area[some].mean().item() / (height * width) - 0.175) < 0.02
    assert share.tolist() == [1.0] * count


def test_operations_are_drawn_evenly_and_within_the_strength():
    pixels = images(1, 16, 16).expand(4000, -1, -1, -1)
    weak, _ = augmentation(16, 16, operations=1, strength=0.0)(pixels, keys(4000), None, None)
    changed = (weak != pixels.permute(0, 3, 1, 2) / 255).flatten(1).any(1)
    # With no strength only autocontrast and equalize change anything: 2 of 14.
    assert 0 < changed.float().mean() < 2 / 14 + 0.03
    strong, _ = augmentation(16, 16, operations=1, strength=1.0)(pixels, keys(4000), None, None)
    assert len(torch.unique(strong.flatten(1), dim=0)) > 2000
    mild, _ = augmentation(16, 16, operations=1, strength=0.1)(pixels, keys(4000), None, None)
    assert (mild - weak).abs().mean() < 0.5 * (strong - weak).abs().mean()


def test_grey_images_work():
    x, share = augmentation(**EVERYTHING)(
        images(9, channels=1), keys(9), images(9, channels=1, seed=1), keys(9, first=9)
    )
    assert x.shape == (9, 1, 12, 16)
    assert share.shape == (9,)


# ---------------------------------------------------------------- two images


def test_the_share_of_cutmix_is_the_count_of_pixels():
    count, height, width = 500, 12, 16
    x, share = augmentation(cutmix=1.0)(plain(255, count), keys(count), plain(0, count), keys(count, first=count))
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert torch.equal((share * height * width).round(), x.sum((1, 2, 3)))
    torch.testing.assert_close(share, x.mean((1, 2, 3)), atol=1e-6, rtol=0)
    # Rectangles that the border cuts cover less than the part drawn, never more than rounding gives them.
    covered = (x[:, 0] == 0).float()
    assert torch.equal(covered.sum((1, 2)), covered.amax(2).sum(1) * covered.amax(1).sum(1))
    assert 0.5 < share.mean() < 0.8


def test_the_share_of_mixup_is_its_weight():
    x, share = augmentation(mixup=0.7)(plain(255, 400), keys(400), plain(0, 400), keys(400, first=400))
    torch.testing.assert_close(x, share[:, None, None, None].expand_as(x), atol=1e-6, rtol=0)
    own, other = images(400), images(400, seed=1)
    x, share = augmentation(mixup=0.7)(own, keys(400), other, keys(400, first=400))
    own, other = own.permute(0, 3, 1, 2) / 255, other.permute(0, 3, 1, 2) / 255
    torch.testing.assert_close(x, share[:, None, None, None] * own + (1 - share)[:, None, None, None] * other)
    assert stats.kstest(share.numpy(), stats.beta(0.7, 0.7).cdf).pvalue > 1e-3


def test_mixup_and_cutmix_have_equal_chance():
    count = 2000
    x, share = augmentation(mixup=1.0, cutmix=1.0, mix=0.8)(
        plain(255, count), keys(count), plain(0, count), keys(count, first=count)
    )
    blended = ((x > 0) & (x < 1)).flatten(1).any(1)
    assert abs(blended.float().mean().item() - 0.4) < 0.05
    untouched = share == 1
    assert (x[untouched] == 1).all()
    assert 0.17 < untouched.float().mean() < 0.26  # a rectangle may round to nothing


def test_the_other_image_is_changed_under_its_own_key():
    """All of the other image, put in by hand, is what it would be by itself."""
    settings = {"crop": 3, "flip": 0.5, "operations": 2, "erase": 0.5}
    alone = augmentation(**settings)
    both = augmentation(**settings, mixup=0.5)
    own, other, own_keys, other_keys = images(50), images(50, seed=1), keys(50), keys(50, first=50)
    x, share = both(own, own_keys, other, other_keys)
    weight = share[:, None, None, None]
    expected = weight * alone(own, own_keys)[0] + (1 - weight) * alone(other, other_keys)[0]
    torch.testing.assert_close(x, expected, atol=1e-5, rtol=0)


def test_others_are_needed_only_where_images_are_mixed():
    assert not augmentation(crop=1).mixes
    assert not augmentation(mixup=1.0, mix=0.0).mixes
    assert augmentation(mixup=1.0).mixes
    assert augmentation(cutmix=1.0).mixes
    with pytest.raises(ValueError, match="other images"):
        augmentation(mixup=1.0)(images(2), keys(2), None, None)


# ---------------------------------------------------------------- all together


def test_the_key_alone_decides():
    augment = augmentation(**EVERYTHING)
    own, other, other_keys = images(1).expand(40, -1, -1, -1), images(40, seed=1), keys(40, first=40)
    x, share = augment(own, keys(40), other, other_keys)
    again, same_share = augmentation(**EVERYTHING)(own, keys(40), other, other_keys)
    assert torch.equal(x, again)
    assert torch.equal(share, same_share)
    for different in (keys(40, seed=2), keys(40, epoch=1), keys(40, first=1)):
        assert (augment(own, different, other, other_keys)[0] != x).flatten(1).any(1).float().mean() > 0.9


@pytest.mark.parametrize("size", [(12, 16), (17, 17), (32, 32)])
def test_a_batch_may_be_split_anywhere(size):
    augment = augmentation(*size, **EVERYTHING)
    parts = (images(61, *size), keys(61), images(61, *size, seed=1), keys(61, first=61))
    whole_x, whole_share = augment(*parts)
    for length in (1, 7, 32):
        split = [augment(*piece) for piece in zip(*(part.split(length) for part in parts), strict=True)]
        assert torch.equal(torch.cat([x for x, _ in split]), whole_x)
        assert torch.equal(torch.cat([share for _, share in split]), whole_share)


def test_setting_one_thing_leaves_the_draws_of_others():
    """The same samples are flipped, whether or not they are cropped and erased as well."""
    pixels = torch.zeros(200, 12, 16, 1, dtype=torch.uint8)
    pixels[:, :, 8:] = 255
    flips = []
    for settings in ({}, {"crop": 1}, {"erase": 1.0}, {"crop": 1, "erase": 0.5}):
        x, _ = augmentation(flip=0.5, **settings)(pixels, keys(200), None, None)
        flips.append(x[..., :8].mean((1, 2, 3)) > x[..., 8:].mean((1, 2, 3)))
    assert 0.3 < flips[0].float().mean() < 0.7
    assert all(torch.equal(flips[0], others) for others in flips[1:])


def test_values_stay_between_0_and_1():
    x, share = augmentation(**EVERYTHING)(images(500), keys(500), images(500, seed=1), keys(500, first=500))
    assert x.min() >= 0
    assert x.max() <= 1
    assert share.min() >= 0
    assert share.max() <= 1


def test_no_number_is_looked_at_on_the_way():
    """Tensors without contents go through: so nothing waits for the device, and no shape depends on a value."""
    parts = [part.to("meta") for part in (images(5), keys(5), images(5), keys(5))]
    x, share = augmentation(**EVERYTHING)(*parts)
    assert x.shape == (5, 3, 12, 16)
    assert share.shape == (5,)


def test_the_global_generator_is_left_alone():
    state = torch.get_rng_state()
    augmentation(**EVERYTHING)(images(5), keys(5), images(5, seed=1), keys(5, first=5))
    after = torch.get_rng_state()
    assert torch.equal(state, after)


def test_low_precision_elsewhere_changes_nothing():
    parts = (images(20), keys(20), images(20, seed=1), keys(20, first=20))
    x, share = augmentation(**EVERYTHING)(*parts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low_x, low_share = augmentation(**EVERYTHING)(*parts)
    assert torch.equal(x, low_x)
    assert torch.equal(share, low_share)


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@needs_cuda
def test_a_gpu_gives_the_same_images():
    pixels = images(64)
    x, share = augmentation()(pixels.cuda(), keys(64).cuda(), None, None)
    assert torch.equal(x.cpu(), augmentation()(pixels, keys(64), None, None)[0])
    assert share.tolist() == [1.0] * 64
    parts = (images(512), keys(512), images(512, seed=1), keys(512, first=512))
    x, share = augmentation(**EVERYTHING)(*parts)
    gpu_x, gpu_share = augmentation(**EVERYTHING)(*(part.cuda() for part in parts))
    torch.testing.assert_close(gpu_share.cpu(), share, atol=1e-6, rtol=0)
    # Where a rounding tips a level over, a later operation may make more of it: in few pixels.
    assert ((gpu_x.cpu() - x).abs() > 1e-4).float().mean() < 1e-3


@needs_cuda
def test_a_cuda_graph_replays_it_with_new_keys():
    augment = augmentation(**EVERYTHING)
    parts = [part.cuda() for part in (images(64), keys(64), images(64, seed=1), keys(64, first=64))]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        augment(*parts)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x, share = augment(*parts)
    for epoch in (3, 4):
        parts[1].copy_(keys(64, epoch=epoch))
        graph.replay()
        expected_x, expected_share = augment(*parts)
        assert torch.equal(x, expected_x)
        assert torch.equal(share, expected_share)
