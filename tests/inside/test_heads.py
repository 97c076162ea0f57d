"""Scores of heads equal their definitions, and detect known heads."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.inside import subjects
from regard.inside.heads import DRAWS, SCORES, is_defined, ordinary_words, random_tokens
from regard.inside.trace import trace
from regard.models.causal import Causal
from regard.settings import CausalModel
from small_models import log_p


@pytest.fixture(scope="module")
def traced(subject):
    return trace(subject)


@pytest.fixture(scope="module")
def scores(traced):
    return traced.heads() if any(part.attends for part in traced.parts()) else None


def test_scores_of_the_weights_equal_their_definitions(traced, scores):
    if scores is None:
        with pytest.raises(UsageError, match="no heads"):
            traced.heads()
        return
    for row, part in enumerate(part for part in traced.parts() if part.attends):
        for head, weights_TS in enumerate(part.attention().weights_BHTS[0].numpy()):
            chosen = [(t, w_S[w_S > 0]) for t, w_S in enumerate(weights_TS) if (w_S > 0).sum() > 1]
            entropy = [-(seen * np.log(seen)).sum() / math.log(len(seen)) for _, seen in chosen]
            assert scores["entropy"].values[row, head] == pytest.approx(np.mean(entropy), abs=1e-5)
            first = [weights_TS[t, 0] for t, _ in chosen]
            assert scores["first"].values[row, head] == pytest.approx(np.mean(first), abs=1e-5)
            before, itself = scores["previous"].values[row, head], scores["self"].values[row, head]
            if part.cross:
                assert math.isnan(before) and math.isnan(itself)
                continue
            if traced[part.name.split(".")[0]].stack.words is None:  # patches have neighbours in two directions
                assert math.isnan(before)
            else:
                assert before == pytest.approx(np.mean([weights_TS[t, t - 1] for t, _ in chosen if t]), abs=1e-5)
            own = [weights_TS[t, t] for t, _ in chosen]
            assert itself == pytest.approx(np.mean(own), abs=1e-5)


def test_a_score_has_numbers_where_it_is_defined_and_only_there(traced, scores):
    for row, part in enumerate(part for part in traced.parts() if part.attends):
        numbers = {score: bool(np.isfinite(scores[score].values[row]).any()) for score in SCORES}
        assert {score: is_defined(score, part, traced) for score in SCORES} == numbers


def test_importance_is_the_loss_without_the_columns_of_w_out(traced, scores):
    parts = [part for part in traced.parts() if part.attends]
    said_A1 = torch.tensor([[answer.token] for answer in traced.subject.answers])
    before_A1 = log_p(traced.subject, traced.logits_AW).gather(1, said_A1)
    for row, part in enumerate(parts):
        if not part.heads:  # additive attention
            assert np.isnan(scores["importance"].values[row]).all()
            continue
        weight, width = part.module.to_out.weight.data, part.module.to_out.in_features // part.heads
        before, head = weight.clone(), part.heads - 1
        weight[:, head * width :] = 0
        after_AW = log_p(traced.subject, traced.subject.logits()[0])
        lost = (before_A1 - after_AW.gather(1, said_A1)).mean()
        weight.copy_(before)
        assert scores["importance"].values[row, head] == pytest.approx(float(lost), abs=1e-5)
        assert np.isnan(scores["importance"].values[row, part.heads :]).all()


def test_scores_are_missing_where_they_are_not_defined(traced, scores):
    if scores is None:
        return
    text = type(traced.subject.model).__name__
    backwards = traced.last.causal and len(traced.stacks) == 1
    assert np.isfinite(scores["induction"].values).all() == backwards
    for row, part in enumerate(scores["copying"].labels[0]):
        in_words = text in ("Causal", "Masked") or part.startswith("decoder")
        copies = in_words and part.endswith(".mixer") and traced.last.layers[0].part("mixer").heads > 0
        assert np.isfinite(scores["copying"].values[row]).all() == copies


def test_only_what_is_asked_for_is_measured(make):
    traced = trace(make("language"))
    assert list(traced.heads(["previous"])) == ["previous"]
    with pytest.raises(UsageError, match="no score 'entropie'"):
        traced.heads(["entropie"])


def test_learned_positions_shorten_what_is_repeated(make):
    traced = trace(make("language", positions="learned", max_positions=14))
    assert np.isfinite(traced.heads(["induction"])["induction"].values).all()


def test_a_head_that_passes_on_what_it_reads_copies():
    """Words are unit vectors. The first head adds what it reads, the second takes it away, the third confuses words."""
    words = 16
    model = Causal(
        CausalModel(layers=1, width=48, heads=3, feedforward=0, norm="pre", positions="rotary", tie_embeddings="none"),
        words,
    )
    for weight in (model.trunk.embedding.table.weight, model.to_logits.weight):
        weight.data = torch.eye(words, 48)
    values_HVD = torch.eye(words, 48).repeat(3, 1, 1)
    values_HVD[2] = values_HVD[2].roll(1, 0)
    attention = model.trunk.blocks[0].mixer
    attention.to_qkv.weight.data[2 * 48 :] = values_HVD.flatten(0, 1)
    out_HVD = torch.eye(words, 48) * torch.tensor([1.0, -1.0, 1.0])[:, None, None]
    attention.to_out.weight.data = out_HVD.flatten(0, 1).T.contiguous()
    copying = trace(subjects.causal(model, [3, 4, 5], str)).heads(["copying"])["copying"]
    assert copying.values.tolist() == [[1.0, 0.0, 0.0]]


# ---------------------------------------------------------------- induction


def repeating(rows: int, words: int, before: int, period: int) -> torch.Tensor:
    """Different words in any order; the last of them, as many as the period, come again."""
    drawn = torch.rand(rows, words).argsort(1)[:, : before + period] + 3
    return torch.cat([drawn, drawn[:, before:]], dim=1)


@pytest.fixture(scope="module")
def repeats():
    """Two layers of attention alone, trained to continue what they have seen before."""
    torch.manual_seed(1)
    settings = {"layers": 2, "width": 64, "heads": 2, "feedforward": 0, "dropout": 0.0, "norm": "pre"}
    model = Causal(CausalModel(**settings, positions="rotary", tie_embeddings="none"), 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    for _ in range(200):
        before, period = int(torch.randint(0, 5, ())), int(torch.randint(4, 11, ()))
        tokens_BT = repeating(24, 29, before, period)
        again = before + period
        loss = F.cross_entropy(model(tokens_BT)[:, again:-1].flatten(0, 1), tokens_BT[:, again + 1 :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def test_induction_heads_are_found_and_the_model_needs_them(repeats):
    tokens = repeating(1, 29, 0, 8)[0].tolist()
    traced = trace(subjects.causal(repeats, tokens, str))
    scores = traced.heads(period=8)
    induction = scores["induction"].values
    assert induction[1].max() > 0.6 > 0.3 > induction[0].max(), "chance is about 1 / 12"
    assert scores["previous"].values[0].max() > 0.6, "they read what a head before them wrote"

    induction_heads = [f"layers.{layer}.mixer.{head}" for layer, head in np.argwhere(induction > 0.5).tolist()]
    again = slice(8, -1)  # answers that can be known
    p_answer = traced.p_AW[torch.arange(16), torch.tensor([answer.token for answer in traced.subject.answers])]
    assert p_answer[again].mean() > 0.7
    assert traced.ablate(heads=induction_heads).change.values[again].mean() < -2


def test_induction_is_the_weight_on_what_followed_the_last_time(repeats):
    traced = trace(subjects.causal(repeats, [3, 4, 5, 6], str))
    expected = np.zeros((2, 2))
    for draw in range(DRAWS):
        ids = random_tokens(range(3, 32), 6, seed=2 + draw)
        assert len(set(ids)) == 6 and min(ids) > 2
        for layer, part in enumerate(trace(traced.subject.with_tokens([ids + ids])).parts()):
            for head, weights_TS in enumerate(part.attention().weights_BHTS[0]):
                after = [weights_TS[q, ids.index(ids[q - 6]) + 1] for q in range(6, 12)]
                expected[layer, head] += np.mean(after) / DRAWS
    np.testing.assert_allclose(traced.heads(["induction"], seed=2, period=6)["induction"].values, expected, atol=1e-5)


@pytest.mark.parametrize("colours", [2, 3])
def test_pixels_are_repeated_in_their_own_colours(colours):
    """Every colour is an ordinary word, also those whose numbers are marks in a text; <start> comes first."""
    settings = CausalModel(layers=1, width=16, heads=2, positions="rotary")
    subject = subjects.causal(Causal(settings, colours + 1), [colours, 0, 1, 0], str, [colours], pixels=(2, 2))
    assert ordinary_words(subject) == list(range(colours))
    assert set(random_tokens(ordinary_words(subject), 12, seed=0)) == set(range(colours))
    assert np.isfinite(trace(subject).heads(["induction"], period=4)["induction"].values).all()


def test_a_vocabulary_of_one_word_has_no_induction():
    subject = subjects.causal(Causal(CausalModel(layers=1, width=16, heads=2), 5), [3, 4, 3], str, never=[4])
    assert ordinary_words(subject) == [3]
    assert np.isnan(trace(subject).heads(["induction"])["induction"].values).all()
