"""Keys and the random numbers that follow from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from regard.data.keys import GOLDEN, sample_keys, scramble, uniforms, whole


def test_numbers_are_those_of_splitmix64():
    # The published first outputs of the generator from the state 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    key = torch.tensor([1234567])
    for n, expected in enumerate(published, start=1):
        assert scramble(key + torch.tensor(n) * GOLDEN).item() % 2**64 == expected
    assert uniforms(key, 4)[:, 0].tolist() == [(expected >> 40) / 2**24 for expected in published]


def test_arrays_and_tensors_are_scrambled_alike():
    bits = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 1000)
    assert np.array_equal(scramble(torch.from_numpy(bits)).numpy(), scramble(bits))


def test_no_two_of_many_keys_are_the_same():
    parts = np.mgrid[0:4, 0:30, 0:500].reshape(3, -1)
    of_seed = [sample_keys(seed, *parts[1:, parts[0] == seed]) for seed in range(4)]
    assert len(np.unique(np.concatenate(of_seed))) == parts.shape[1]


def test_any_seed_gives_keys():
    epochs, samples = np.zeros(3, np.int64), np.arange(3)
    assert len({*sample_keys(-1, epochs, samples), *sample_keys(2**63, epochs, samples)}) == 6
    assert sample_keys(5, epochs, samples).dtype == np.int64


@pytest.mark.parametrize("along", ["samples", "epochs", "numbers"])
def test_numbers_look_uniform(along):
    count = 8000
    counted, zeros = np.arange(count), np.zeros(count, np.int64)
    if along == "numbers":
        found = uniforms(torch.from_numpy(sample_keys(1, np.zeros(1, np.int64), np.zeros(1, np.int64))), count)[:, 0]
    else:
        chosen = sample_keys(1, counted, zeros) if along == "epochs" else sample_keys(1, zeros, counted)
        found = uniforms(torch.from_numpy(chosen), 3)[1]
    assert found.min() >= 0
    assert found.max() < 1
    assert abs(found.mean().item() - 0.5) < 4 * (1 / 12 / count) ** 0.5
    assert stats.chisquare(np.histogram(found, 50, (0, 1))[0]).pvalue > 1e-4
    # Neighbours have nothing to do with one another.
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 4 / count**0.5


def test_half_of_the_bits_change_with_any_of_seed_epoch_and_sample():
    samples = np.arange(2000)
    epochs = np.full(2000, 7)
    for other in (
        sample_keys(2, epochs, samples),
        sample_keys(1, epochs + 1, samples),
        sample_keys(1, epochs, samples + 1),
    ):
        changed = np.bitwise_count((sample_keys(1, epochs, samples) ^ other).view(np.uint64))
        assert 31.5 < changed.mean() < 32.5


def test_whole_numbers_never_reach_their_bound():
    largest = torch.tensor([1 - 2**-24])
    for below in range(1, 3000):
        assert whole(largest, below).item() == below - 1
