"""Linear probes: they find what is there to be read, and nothing else."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from regard.data.image_cache import Images
from regard.errors import RegardError
from regard.evaluation.probe import (
    _read_squares,
    commonest,
    layer_features,
    probe,
    probe_layers,
    probe_squares,
    probe_table,
)
from regard.models.causal import Causal
from regard.settings import CausalModel


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


CPU = torch.device("cpu")


def test_squares_read_all_at_once_are_those_that_scikit_learn_reads_one_by_one():
    train, train_labels = features(300, seed=1)
    test, _ = features(300, seed=2)
    noisy = np.random.default_rng(4).permutation(train_labels)
    labels_NS = np.stack([train_labels % 3, noisy % 2, np.zeros_like(noisy)], 1)
    guessed_NS = _read_squares(train[1], labels_NS, test[1], CPU)
    for square in (0, 1):
        expected = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(
            train[1], labels_NS[:, square]
        )
        assert (expected.predict(test[1]) == guessed_NS[:, square]).mean() > 0.99
    assert not guessed_NS[:, 2].any()


def test_of_every_layer_squares_are_scored_and_the_best_is_found():
    train, train_labels = features(300, seed=1)
    test, test_labels = features(200, seed=2)
    squares = [np.stack([labels % 2, labels // 2], 1) for labels in (train_labels, test_labels)]
    result = probe_squares(train, squares[0], test, squares[1], CPU)
    noise, *apart = [each["accuracy"] for each in result["layers"]]
    assert 35 < noise < 65 and min(apart) > 98 and result["best_layer"] in (1, 2)
    assert np.mean(result["squares"]) == pytest.approx(max(apart))
    assert 35 < result["commonest_class"] < 65
    assert "300 positions, tested on 200" in probe_table(result)


def test_what_the_commonest_class_of_training_gives():
    assert commonest(np.array([3, 3, 1]), np.array([3, 1, 1, 1])) == pytest.approx(25.0)


def images(labels: np.ndarray, seed: int) -> Images:
    """Noise whose first two pixels tell the class, where there is one."""
    pixels_NHWC = np.random.default_rng(seed).integers(0, 256, (len(labels), 2, 2, 1), np.uint8)
    pixels_NHWC[:, 0, :, 0] = 200 * np.stack([labels % 2, labels // 2], 1).clip(0)
    return Images(pixels_NHWC, labels, [str(n) for n in range(len(labels))])


def pixels_and_their_noise(pixels_NHWC: np.ndarray) -> list[np.ndarray]:
    flat = pixels_NHWC.reshape(len(pixels_NHWC), -1).astype(np.float32)
    return [flat[:, 2:], flat]


def test_only_labelled_images_are_probed_and_always_the_same():
    labels = np.random.default_rng(7).integers(-1, 4, 300)
    train, test = images(labels, 1), images(labels[::-1].copy(), 2)
    result = probe_layers(pixels_and_their_noise, train, test, seed=1, most_train=200)
    assert result == probe_layers(pixels_and_their_noise, train, test, seed=1, most_train=200)
    assert (result["train_images"], result["test_images"]) == (200, int((labels >= 0).sum()))
    assert [each["layer"] for each in result["layers"]] == [0, 1] and result["best_layer"] == 1
    assert result["layers"][0]["accuracy"] < 45 < 95 < result["layers"][1]["accuracy"]
    rows = [line.split() for line in probe_table(result).splitlines()[3:]]
    assert [row[-1] for row in rows[:2]] == [rows[0][-1], "best"] and rows[0][:2] == ["0", "(embedding)"]


@pytest.mark.parametrize(
    ("train", "test", "why"),
    [([-1, -1], [0, 1], "None of them has a label"), ([1, 1], [0, 1], "one class"), ([0, 1], [-1], "No test image")],
)
def test_images_without_classes_are_refused(train, test, why):
    with pytest.raises(RegardError, match=why):
        probe_layers(pixels_and_their_noise, images(np.array(train), 1), images(np.array(test), 2), seed=1)


def test_the_features_are_the_means_of_the_embedding_and_of_every_block():
    torch.manual_seed(1)
    settings = CausalModel(layers=3, width=16, heads=2, feedforward=32, dropout=0.0, norm="pre")
    model = Causal(settings, 20).eval()
    tokens = torch.randint(0, 20, (4, 9))
    means = layer_features(model.trunk.layers, map(model, tokens.split(3)))
    with torch.no_grad():
        model(tokens)  # the hooks are gone
        x = model.trunk.embedding(tokens, torch.arange(9)[None])
        expected = [x.mean(1)]
        context = model.trunk._context(tokens, None, None)
        for block in model.trunk.blocks:
            x = block(x, context)
            expected.append(x.mean(1))
    np.testing.assert_allclose(np.stack(means), torch.stack(expected), atol=1e-6)
