"""The traced answers of a segmenter are the classes of its patches."""

import pytest
import torch
from torch.nn import functional as F

from regard.inside.image_subjects import image
from regard.inside.rollout import attention_maps, read_from, readout_weights, rollout_of_answer
from regard.inside.trace import trace
from small_models import pixels

SEGMENTERS = ("segmenter", "segmenter-class-tokens", "segmenting-swin")


@pytest.fixture(params=SEGMENTERS)
def traced(request, make):
    return trace(make(request.param))


def pixel_logits(traced) -> torch.Tensor:
    """The logits of every pixel, by the segmenter itself: [H, W, K]."""
    model = traced.subject.model.eval()
    size = (16, 16) if traced.stacks[0].name == "stage 1" else (8, 12)
    with torch.no_grad():
        return model(pixels(*size)[None])[0]


def test_every_patch_has_the_class_with_the_highest_mean_logit_of_its_pixels(traced):
    logits_HWK, (rows, columns) = pixel_logits(traced), traced.stacks[0].stack.grid
    high, wide = (side // count for side, count in zip(logits_HWK.shape[:2], (rows, columns), strict=True))
    assert len(traced.subject.answers) == rows * columns
    for number, answer in enumerate(traced.subject.answers):
        row, column = divmod(number, columns)
        pixels_hwK = logits_HWK[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        mean_K = pixels_hwK.mean((0, 1))
        torch.testing.assert_close(traced.logits_AW[number], mean_K, atol=1e-5, rtol=0)
        torch.testing.assert_close(traced.p_AW[number], mean_K.softmax(-1), atol=1e-5, rtol=0)
        assert answer.label == "abcde"[int(mean_K.argmax())] == "abcde"[answer.token]
        if traced.stacks[0].name == "layers":
            assert traced.last.stack.pieces[answer.position] == f"{row + 1}, {column + 1}"


def test_the_explained_patch_is_the_surest_of_the_second_most_common_class(traced):
    labels = [answer.label for answer in traced.subject.answers]
    by_count = sorted(sorted(set(labels)), key=labels.count, reverse=True)
    assert len(by_count) > 1
    p_A = traced.p_AW.amax(-1)
    second = [number for number, label in enumerate(labels) if label == by_count[1]]
    assert traced.first_answer == max(second, key=lambda number: float(p_A[number]))
    assert traced.attribute("rollout").answer == traced.first_answer


def test_where_all_patches_are_alike_the_last_is_explained(make):
    model = make("segmenter").model
    with torch.no_grad():
        model.to_classes.project.weight.zero_()
    traced = trace(image(model, pixels(8, 12), list("abcde")))
    assert len({answer.label for answer in traced.subject.answers}) == 1
    assert traced.first_answer == 5


def test_the_output_is_the_share_of_each_class_in_short(traced):
    kinds = pixel_logits(traced).argmax(-1).flatten().tolist()
    shares = {label: kinds.count(number) / len(kinds) for number, label in enumerate("abcde")}
    present = sorted((label for label in shares if shares[label]), key=lambda label: -shares[label])
    expected = [f"{label} {100 * shares[label]:.0f} %" for label in present if shares[label] >= 0.005]
    assert traced.output_text == ", ".join(expected + ["…"] * (len(expected) < len(present)))


@pytest.mark.parametrize("answer", [0, 4])
def test_a_chosen_patch_is_explained_from_where_it_is_read(traced, answer):
    rolled = rollout_of_answer(traced, answer)
    assert rolled.values.sum() == pytest.approx(1, abs=1e-5)
    position = traced.subject.answers[answer].position
    if position is not None:
        torch.testing.assert_close(rolled.values, traced.rollout().values[position])
        assert read_from(traced, answer) == f"patch {traced.last.stack.pieces[position]}"
        maps = attention_maps(traced, answer).layers_HRS[0].flatten(1)
        weights_HS = traced.last.layers[0].part("mixer").attention().weights_BHTS[0, :, position]
        torch.testing.assert_close(maps, weights_HS[:, traced.last.stack.before :])
    exact = traced.subject.readout is not None
    assert rolled.notes["left_out"] == ("feed-forward layers" if exact else "feed-forward layers, and the head")


def test_a_patch_of_a_swin_is_read_from_the_nearest_patches_of_every_stage(make):
    traced = trace(make("segmenting-swin"))
    first, last = (stack.stack for stack in traced.stacks)
    x_TD = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    fine_DRS = F.interpolate(x_TD.T.view(1, 3, 8, 8), (16, 16), mode="bilinear", align_corners=False)[0]
    for answer in (0, 37, 255):
        row, column = divmod(answer, 16)
        torch.testing.assert_close(readout_weights(traced, answer, last) @ x_TD, fine_DRS[:, row, column])
        assert readout_weights(traced, answer, first).nonzero()[:, 0].tolist() == [answer]
        assert read_from(traced, answer, traced.stacks[0].stack) == f"patch {row + 1}, {column + 1}"
    assert read_from(traced, 37) == "the 4 patches of stage 2 nearest to patch 3, 6"


@pytest.mark.parametrize("kind", SEGMENTERS[:2])
@pytest.mark.parametrize("answer", [0, 4])
def test_scores_of_a_chosen_patch_are_of_its_own_class(make, kind, answer):
    """Of a Swin with random weights, integrals for any patch take long; the contract tests have its default one."""
    traced = trace(make(kind))
    predicted, first = traced.subject.answers[answer], traced.last.stack.before
    p = float(traced.p_AW[answer, predicted.token])
    gradients = traced.attribute("integrated-gradients", answer)
    assert gradients.notes["error"] <= 0.01 and gradients.notes["token"] == predicted.label
    assert gradients.notes["f_x"] == pytest.approx(float(traced.logits_AW[answer, predicted.token]), abs=1e-5)
    assert gradients.faithful().deletion_curve.values[0, 0] == pytest.approx(p, abs=1e-5)
    off = traced.ablate(positions=[("layers", first)])
    score = traced.attribute("occlusion", answer)["layers"].values[first]
    assert off.change.values[answer] == pytest.approx(-float(score), abs=1e-5)


def test_two_images_are_compared_at_the_explained_patch_where_they_differ(make):
    subject = make("segmenter")
    corrupted = trace(subject)
    for seed in range(20):
        pixels_CHW = torch.randn(1, 8, 12, generator=torch.Generator().manual_seed(seed))
        clean = trace(image(subject.model, pixels_CHW, list("abcde")))
        pairs = zip(subject.answers, clean.subject.answers, strict=True)
        differ = [number for number, (ours, theirs) in enumerate(pairs) if ours.token != theirs.token]
        if differ:
            expected = corrupted.first_answer if corrupted.first_answer in differ else differ[0]
            effect = corrupted.patch(clean)
            assert effect.notes["answer"] == expected
            assert effect.values[-1, expected] == pytest.approx(1, abs=1e-4), "read from this patch alone"
