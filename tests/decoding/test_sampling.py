"""Sampling: the right distribution, cut as asked, and reproducible."""

import pytest
import torch

from regard.decoding.sampling import draw, truncate


def test_draws_follow_the_softmax_at_a_temperature():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    count = 20_000
    p, tokens = truncate(logits.expand(count, 4), temperature=0.7)
    drawn, probability = draw(p, tokens, torch.rand(count, generator=torch.Generator().manual_seed(1)))
    expected = (logits[0] / 0.7).softmax(-1)
    torch.testing.assert_close(drawn.bincount(minlength=4) / count, expected, atol=0.015, rtol=0)
    torch.testing.assert_close(probability, expected[drawn])


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [(1, 1.0, {2}), (2, 1.0, {1, 2}), (0, 0.5, {2}), (0, 0.85, {1, 2}), (0, 0.9, {0, 1, 2}), (0, 1.0, {0, 1, 2, 3})],
)
def test_only_the_likeliest_tokens_are_kept(top_k, top_p, kept):
    """The four probabilities are about .09 .24 .64 .03."""
    p, tokens = truncate(torch.tensor([[0.0, 1.0, 2.0, -1.0]]), 1.0, top_k, top_p)
    assert set(tokens[p > 0].tolist()) == kept
    assert p.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 0.9999999, 1.0])
def test_a_draw_never_falls_on_a_token_that_was_cut_off(uniform):
    p, tokens = truncate(torch.randn(50, 1000, generator=torch.Generator().manual_seed(2)), 1.0, top_k=3)
    _, probability = draw(p, tokens, torch.full((50,), uniform))
    assert (probability > 0).all()
