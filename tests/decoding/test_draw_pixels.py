"""Drawing pixel by pixel: the probabilities are those of the model, and each image is its own."""

import numpy as np
import pytest
import torch

from regard.decoding.pixels import SampledPixels, draw_pixels
from regard.models.causal import Causal
from regard.settings import CausalModel, SamplingSettings

COLOURS, LENGTH = 6, 12
START = COLOURS


def some_model(**options) -> Causal:
    torch.manual_seed(3)
    settings = CausalModel(
        layers=2, width=32, heads=2, feedforward=64, dropout=0.0, norm="pre", tie_embeddings="none", **options
    )
    return Causal(settings, COLOURS + 1).eval()


def nothing_given(count: int) -> np.ndarray:
    return np.zeros((count, 0), np.int64)


def drawn(model: Causal, given: np.ndarray, seed: int = 1, first: int = 0, **decoding) -> SampledPixels:
    settings = SamplingSettings(**{"temperature": 1.0, **decoding})
    return draw_pixels(model, given, LENGTH, settings, start=START, seed=seed, first=first)


def log_probabilities(model: Causal, codes: np.ndarray) -> torch.Tensor:
    """Of each pixel after those before it, in one pass; <start> is not a colour: [N, T]."""
    labels = torch.from_numpy(codes)
    tokens = torch.cat([torch.full((len(labels), 1), START), labels[:, :-1]], dim=1)
    with torch.no_grad():
        logits = model(tokens)
    logits[..., START] = -torch.inf
    return logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]


@pytest.mark.parametrize(
    "options", [{"positions": "learned", "max_positions": LENGTH}, {"positions": "rotary"}, {"mixer": "gru"}]
)
def test_the_probability_of_what_was_drawn_is_that_of_one_pass_over_it(options):
    model = some_model(**options)
    found = drawn(model, nothing_given(10))
    torch.testing.assert_close(
        torch.from_numpy(found.log_p_NT), log_probabilities(model, found.codes_NT), atol=1e-4, rtol=0
    )


def test_an_image_depends_on_the_seed_and_its_number_alone():
    model = some_model(positions="rotary")
    together = drawn(model, nothing_given(6)).codes_NT
    later = drawn(model, nothing_given(2), first=3).codes_NT
    assert (later == together[3:5]).all()
    assert len({tuple(image) for image in together.tolist()}) == 6
    assert (drawn(model, nothing_given(6), seed=2).codes_NT != together).any(1).all()


def test_what_is_given_is_kept_and_the_rest_follows_it():
    model = some_model(positions="rotary")
    given = np.random.default_rng(1).integers(0, COLOURS, (5, 7))
    found = drawn(model, given)
    assert (found.codes_NT[:, :7] == given).all()
    assert (found.log_p_NT[:, :7] == 0).all() and (found.log_p_NT[:, 7:] < 0).all()
    expected = log_probabilities(model, found.codes_NT)[:, 7:]
    torch.testing.assert_close(torch.from_numpy(found.log_p_NT[:, 7:]), expected, atol=1e-4, rtol=0)


def test_the_start_is_never_drawn_even_where_it_is_likeliest():
    model = some_model(positions="rotary")
    with torch.no_grad():
        model.to_logits.weight[START] = 10 * model.to_logits.weight[0]
    found = drawn(model, nothing_given(40), temperature=5.0).codes_NT
    assert set(np.unique(found)) == set(range(COLOURS))


def test_at_temperature_0_all_images_are_the_likeliest_one():
    model = some_model(positions="rotary")
    found = drawn(model, nothing_given(3), temperature=0.0).codes_NT
    assert (found == found[0]).all()
    for place in range(LENGTH):
        others = np.repeat(found[:1], COLOURS, axis=0)
        others[:, place] = np.arange(COLOURS)
        assert log_probabilities(model, others)[:, place].argmax().item() == found[0, place]


def test_colours_are_drawn_as_often_as_the_model_says():
    model = some_model(positions="rotary")
    count = 4000
    first = drawn(model, nothing_given(count)).codes_NT[:, 0]
    every = np.zeros((COLOURS, LENGTH), np.int64)
    every[:, 0] = np.arange(COLOURS)
    expected = log_probabilities(model, every)[:, 0].exp().numpy()
    assert np.abs(np.bincount(first, minlength=COLOURS) / count - expected).max() < 0.03
    few = drawn(model, nothing_given(500), top_k=2).codes_NT[:, 0]
    assert set(few.tolist()) == set(np.argsort(-expected)[:2].tolist())
