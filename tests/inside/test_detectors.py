"""The traced answer of a detector is its surest box, with the score that detection gives it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.explain.image_maps import EXPLAINED, OTHER, picture_of
from regard.explore.arithmetic import arithmetic
from regard.explore.session import TracedInput
from regard.inside.image_subjects import detected
from regard.inside.trace import trace
from small_models import pixels


@pytest.fixture(params=["dense", "set"])
def traced(request, make):
    return trace(make("detector", head=request.param))


def scores(traced) -> torch.Tensor:
    """The scores of every box and class, by the detector itself."""
    model = traced.subject.model.eval()
    with torch.no_grad():
        return model.scores(model(pixels(8, 12)[None])[0])[0]


def test_the_answer_is_the_surest_box_with_its_score(traced):
    surest_K = scores(traced)[scores(traced).amax(1).argmax()]
    torch.testing.assert_close(traced.p_AW[0, :5], surest_K, atol=1e-6, rtol=0)
    candidates = traced.candidates(5).probabilities
    assert candidates.notes["words"][0][0] == "abcde"[int(surest_K.argmax())]
    assert candidates.values[0, 0] == pytest.approx(float(surest_K.max()), abs=1e-6)
    assert f"{float(surest_K.max()):.2f}" in traced.subject.output_text


def test_any_proposal_can_be_explained(traced):
    """Its scores are those of the detector, and its parts sum to its logit."""
    scores_LK, found = scores(traced), [(2, 1), (0, 4), (1, 0)]
    for box, (proposal, kind) in enumerate(found):
        subject = detected(traced.subject.model, pixels(8, 12), list("abcde"), found, box)
        of_box = trace(subject)
        torch.testing.assert_close(of_box.p_AW[0, :5], scores_LK[proposal], atol=1e-6, rtol=0)
        assert subject.answers[0].token == kind
        assert subject.output_text == f"{'abcde'[kind]}, box {box + 1} of 3, {float(scores_LK[proposal, kind]):.2f}"
        assert subject.answers[0].position == subject.model.token_of(proposal)
        assert (len(subject.boxes), subject.box) == (3, box)
        assert of_box.contributions().notes["error"] < 1e-4
        assert of_box.lens().agreement.values[-1] == 100


def test_all_boxes_are_drawn_and_the_explained_one_in_red(make):
    subject = make("detector")
    small = replace(subject, picture_HWC=np.zeros((8, 12, 1), np.uint8), boxes=[(0, 0, 3, 3), (5, 2, 9, 6)], box=1)
    picture_HWC = picture_of(small)
    red, grey = (np.argwhere((picture_HWC == colour).all(-1)).tolist() for colour in (EXPLAINED, OTHER))
    assert (red[0], red[-1], len(red)) == ([2, 5], [6, 9], 16)
    assert (grey[0], grey[-1], len(grey)) == ([0, 0], [3, 3], 12)


def test_classes_are_independent_unless_one_of_them_is_nothing(traced):
    dense = traced.subject.independent
    assert traced.p_AW.shape[1] == (5 if dense else 6)
    assert (abs(float(traced.p_AW.sum()) - 1) < 1e-6) is not dense
    assert dense or traced.subject.name_of(5) == "nothing"


def test_the_arithmetic_of_a_probability_ends_at_its_value(traced):
    for token in range(traced.p_AW.shape[1]):
        told = arithmetic(TracedInput(None, 0, {}, traced), "probabilities", 0, token)
        assert told["lines"][-1]["value"] == pytest.approx(float(traced.p_AW[0, token]), abs=1e-6)
        assert "Σ" not in told["lines"][-1]["formula"] if traced.subject.independent else len(told["lines"]) == 2


def test_ablation_measures_the_change_of_the_log_score(traced):
    part = "layers.1.mixer"
    off = traced.ablate(parts=[part])
    token = traced.subject.answers[0].token
    after = off.logits_AW[0].sigmoid() if traced.subject.independent else off.logits_AW[0].softmax(-1)
    assert float(off.change.values[0]) == pytest.approx(
        float(after[token].log() - traced.p_AW[0, token].log()), abs=1e-5
    )
    drop = traced.attribute("occlusion")
    assert drop.notes["f_x"] == pytest.approx(float(traced.p_AW[0, token].log()), abs=1e-5)
    assert drop.faithful().deletion_curve.values[0, 0] == pytest.approx(float(traced.p_AW[0, token]), abs=1e-6)


def test_a_set_of_boxes_has_a_lens_and_contributions(make):
    traced = trace(make("detector", head="set"))
    assert traced.lens().agreement.values[-1] == 100
    for token in (0, 5):  # a class, and "nothing"
        parts = traced.contributions(0, token)
        assert float(parts.values.sum()) == pytest.approx(float(traced.logits_AW[0, token]), abs=1e-4)
