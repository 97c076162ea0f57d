"""Linear probes: they find what is there to be read, and nothing else."""

import numpy as np
import pytest
import torch

from regard.settings import ModelSettings
from regard.evaluation.probe import commonest, means_of_layers, probe
from regard.models.causal import Causal


def features(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of three layers: noise; four classes far apart along two directions; the same, squeezed and moved."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, count)
    apart = np.stack([labels % 2, labels // 2], 1) * 8 + generator.normal(size=(count, 2))
    hidden = np.concatenate([apart, generator.normal(size=(count, 10))], 1)
    noise = generator.normal(size=(count, 12))
    return np.stack([noise, hidden, hidden * 1e-3 + 50]).astype(np.float32), labels


def test_a_linear_classifier_finds_the_layers_in_which_classes_lie_apart():
    train, train_labels = features(400, seed=1)
    test, test_labels = features(400, seed=2)
    noise, plain, squeezed = probe(train, train_labels, test, test_labels)
    assert 15 < noise < 35  # four classes: 25 by chance
    assert plain > 98 and squeezed > 98


def test_of_shuffled_labels_it_finds_nothing():
    train, train_labels = features(400, seed=1)
    test, test_labels = features(400, seed=2)
    shuffled = np.random.default_rng(3).permutation(train_labels)
    assert max(probe(train, shuffled, test, test_labels)) < 45


def test_what_the_commonest_class_of_training_gives():
    assert commonest(np.array([3, 3, 1]), np.array([3, 1, 1, 1])) == pytest.approx(25.0)


def test_the_means_are_of_the_embedding_and_of_every_block():
    torch.manual_seed(1)
    settings = ModelSettings(layers=3, width=16, heads=2, feedforward=32, dropout=0.0, norm="pre")
    model = Causal(settings, 20).eval()
    tokens = torch.randint(0, 20, (4, 9))
    with torch.no_grad(), means_of_layers(model.trunk.layers) as means:
        model(tokens)
    with torch.no_grad():
        model(tokens)  # nothing is kept any more
        x = model.trunk.embedding(tokens, torch.arange(9)[None])
        expected = [x.mean(1)]
        context = model.trunk._context(tokens, None, None)
        for block in model.trunk.blocks:
            x = block(x, context)
            expected.append(x.mean(1))
    torch.testing.assert_close(torch.stack(means), torch.stack(expected))
