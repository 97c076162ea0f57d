"""Candidates, compared with a naive softmax, top-k and top-p."""

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from regard.inside.trace import trace


def by_hand(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> dict[int, float]:
    """Probabilities of the words that are not truncated, word by word."""
    order = sorted(range(len(logits)), key=lambda word: -logits[word])
    order = [word for word in order if np.isfinite(logits[word])][: top_k or None]
    weights = np.exp((logits[order] - logits[order[0]]) / temperature)
    weights /= weights.sum()
    kept: dict[int, float] = {}
    for word, weight in zip(order, weights, strict=True):
        if sum(kept.values()) >= top_p:
            break
        kept[word] = weight
    return {word: weight / sum(kept.values()) for word, weight in kept.items()}


def test_candidates_follow_from_the_logits(subject):
    traced = trace(subject)
    candidates = traced.candidates(count=4, temperature=0.7, top_k=3, top_p=0.8)
    for number, answer in enumerate(subject.answers):
        logits = traced.logits_AW[number].double().numpy().copy()
        logits[[*subject.never, *(subject.never_at[number] if subject.never_at else ())]] = -np.inf
        one_by_one = dict(enumerate(traced.logits_AW[number].sigmoid().tolist()))  # classes that are there or not
        left = one_by_one if subject.independent else by_hand(logits, 0.7, 3, 0.8)
        tokens = candidates.probabilities.notes["tokens"][number]
        assert tokens == sorted(range(len(logits)), key=lambda word: -logits[word])[:4]
        assert candidates.probabilities.values[number] == pytest.approx(
            [left.get(token, 0.0) for token in tokens], abs=1e-5
        )
        assert candidates.logits.values[number] == pytest.approx(logits[tokens], abs=1e-5)
        assert candidates.answer.values[number] == pytest.approx(left.get(answer.token, 0.0), abs=1e-5)
        own = float(traced.logits_AW[number, answer.token])
        assert candidates.rank.values[number] == 1 + (logits > own).sum()
        assert candidates.logits.notes["words"][number] == [subject.name_of(token) for token in tokens]


def test_tokens_that_are_never_generated_are_not_candidates(make):
    traced = trace(make("translator"))
    candidates = traced.candidates(count=1000)
    listed = {token for row in candidates.logits.notes["tokens"] for token in row}
    assert listed == set(range(traced.logits_AW.shape[1])) - {0, 1}
    assert candidates.probabilities.values.sum(-1) == pytest.approx(1.0, abs=1e-5)
    assert candidates.probabilities.notes["over"] == "the 38 tokens that can be generated"
    assert "over" not in trace(make("text_classifier")).candidates().probabilities.notes


def test_at_temperature_zero_the_likeliest_is_certain(make):
    traced = trace(make("text_classifier"))
    candidates = traced.candidates(temperature=0.0)
    assert candidates.probabilities.values[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert candidates.logits.notes["tokens"][0][0] == int(torch.argmax(traced.logits_AW[0]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
    ],
)
def test_invalid_settings_are_refused(make, wrong):
    with pytest.raises(UsageError):
        trace(make("text_classifier")).candidates(**wrong)
