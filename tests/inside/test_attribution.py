"""Attributions are complete where they must be, and equal to their definitions."""

import pytest
import torch

from regard.errors import UsageError
from regard.inside.faithfulness import visible_units
from regard.inside.rollout import rollout_of_answer
from regard.inside.sites import watching
from regard.inside.trace import input_stacks, trace
from small_models import log_p


@pytest.fixture(scope="module")
def traced(subject):
    return trace(subject)


def of_kinds(*kinds):
    return pytest.mark.parametrize("subject", kinds, indirect=True)


def test_integrated_gradients_sum_to_the_difference_from_an_empty_input(traced):
    attribution = traced.attribute()
    assert list(attribution.stacks) == [stack.name for stack in input_stacks(traced)]
    for name, values in attribution.stacks.items():
        assert values.labels == (traced[name].stack.pieces,)
    answer = traced.first_answer
    predicted = traced.subject.answers[answer]
    empty = [(name, t) for name, v in attribution.stacks.items() for t in range(len(v.values))]
    nothing = traced.ablate(positions=[(name, t) for name, t in empty if t not in traced[name].stack.fixed])
    difference = float(traced.logits_AW[answer, predicted.token] - nothing.logits_AW[answer, predicted.token])
    total = sum(float(values.values.sum()) for values in attribution.stacks.values())
    assert abs(total - difference) <= 0.01 * abs(difference)
    assert attribution.notes["difference"] == pytest.approx(difference, abs=1e-4)
    assert attribution.notes["error"] <= 0.01
    assert all(attribution[name].values[t] == 0 for name, t in empty if t in traced[name].stack.fixed)


@pytest.mark.parametrize(
    ("kind", "fixed"),
    [
        ("language", []),
        ("translator", [("encoder", 4), ("decoder", 0)]),
        ("masked", [("layers", 0), ("layers", 2), ("layers", 4), ("layers", 5)]),
        ("vit", []),
        ("vit-both", [("layers", 0), ("layers", 1), ("layers", 2)]),
        ("swin", []),
    ],
)
def test_special_tokens_masks_and_class_tokens_hold_no_input(make, kind, fixed):
    traced = trace(make(kind))
    assert [(stack.name, t) for stack in traced.stacks for t in sorted(stack.stack.fixed)] == fixed
    assert not set(fixed) & set(visible_units(traced, traced.first_answer))


def test_an_answer_that_depends_on_special_tokens_only_is_still_measured(make):
    """The first answer of a language model that begins with <start>."""
    subject = make("language").with_tokens([[1, 9, 30]])
    assert visible_units(trace(subject), 0) == [("layers", 0)]
    assert trace(subject).attribute("occlusion", answer=0).faithful(orders=1).deletion_curve.values.shape == (2, 2)


@of_kinds("language", "language-hyena", "language-gru", "translator", "translator-bahdanau", "vit", "captioner")
def test_gradient_times_input_is_the_slope_when_a_position_is_scaled(traced):
    attribution = traced.attribute("gradient-input", answer=0, token=3)
    step, slopes = 0.002, []
    for stack in input_stacks(traced):
        content_TD = stack.layers[0].before_TD - stack.embedding.without_content_TD
        content_TD[sorted(stack.stack.fixed)] = 0
        length = len(content_TD)
        change_NTD = torch.diag_embed(content_TD.T).permute(1, 2, 0) * step  # row t: position t alone
        change_BTD = torch.cat([change_NTD, -change_NTD])
        with watching(
            traced.subject, edits={f"{stack.name}.embedding": lambda x_BTD, change_BTD=change_BTD: x_BTD + change_BTD}
        ):
            up_N, down_N = traced.subject.logits(2 * length)[:, 0, 3].split(length)
        slope_T = (up_N - down_N) / (2 * step)
        torch.testing.assert_close(torch.from_numpy(attribution[stack.name].values), slope_T, atol=4e-3, rtol=0.02)
        slopes.append(slope_T)
    assert torch.cat(slopes).abs().max() > 0.02


def test_all_gradient_methods_are_exact_for_a_linear_model(make, silent):
    traced = trace(silent(make("language", tie_embeddings="none")))
    embedding, head = traced.last.embedding, traced.subject.model.to_logits
    for answer, token in ((2, 11), (-1, 4)):
        position = traced.subject.answers[answer].position
        expected_T = torch.zeros(len(traced.last.stack.pieces))
        expected_T[position] = (embedding.content_TD[position] @ head.weight[token]).detach()
        for method in ("integrated-gradients", "gradient-input"):
            attribution = traced.attribute(method, answer, token)
            torch.testing.assert_close(torch.from_numpy(attribution["layers"].values), expected_T, atol=1e-5, rtol=0)
            assert attribution.notes["error"] < 1e-4


@of_kinds("language", "translator-additive", "vit-both")
def test_occlusion_is_the_effect_of_emptying_each_position_alone(traced):
    attribution = traced.attribute("occlusion", answer=0)
    for name, values in attribution.stacks.items():
        changes = [traced.ablate(positions=[(name, t)]).change.values[0] for t in range(len(values.values))]
        assert values.values == pytest.approx([-change for change in changes], abs=1e-5)
    for_token = traced.attribute("occlusion", answer=0, token=3)
    name, without = input_stacks(traced)[0].name, traced.ablate(positions=[(input_stacks(traced)[0].name, 0)])
    before, after = (log_p(traced.subject, each.logits_AW)[0][3] for each in (traced, without))
    lost = before - after
    assert for_token[name].values[0] == pytest.approx(float(lost), abs=1e-5)


@of_kinds("vit", "swin", "language")
def test_rollout_is_an_attribution_too(traced):
    attribution = traced.attribute("rollout")
    (values,) = attribution.stacks.values()
    assert values.values.tolist() == rollout_of_answer(traced).values.tolist()


@of_kinds("language", "language-gru")
def test_later_positions_do_not_contribute_to_an_answer(traced):
    for method in ("integrated-gradients", "occlusion"):
        values = traced.attribute(method, answer=2)["layers"].values
        assert abs(values[3:]).max() < 1e-6 < abs(values[:3]).min()


def test_the_number_of_nodes_can_be_set_and_the_error_is_reported(make):
    traced = trace(make("language"))
    few, many = traced.attribute(steps=1), traced.attribute(steps=64)
    assert (few.notes["nodes"], many.notes["nodes"]) == (1, 64)
    assert few.notes["error"] > 0.05 > many.notes["error"]


def test_unknown_methods_are_refused(make):
    with pytest.raises(UsageError, match="attribution method 'gradients'"):
        trace(make("language")).attribute("gradients")
