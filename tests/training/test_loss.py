"""Losses against torch's own and against the formula."""

import pytest
import torch
from torch.nn import functional as F

from regard.data.batch import Batch
from regard.training.loss import cross_entropy, divergence, mixed_cross_entropy, training_loss


def example():
    torch.manual_seed(1)
    logits, labels = torch.randn(3, 5, 11), torch.randint(1, 11, (3, 5))
    labels[1, 3:] = 0
    return logits, labels


def test_smoothed_loss_is_the_formula_summed_over_real_targets():
    logits, labels = example()
    epsilon = 0.1
    expected = torch.zeros(())
    for row in range(3):
        for place in range(5):
            if labels[row, place]:
                log_p = logits[row, place].log_softmax(-1)
                expected -= (1 - epsilon) * log_p[labels[row, place]] + epsilon * log_p.mean()
    torch.testing.assert_close(cross_entropy(logits, labels, epsilon), expected)


def test_padding_has_no_influence():
    logits, labels = example()
    changed = logits.clone()
    changed[1, 3:] = 100.0
    assert cross_entropy(logits, labels, 0.1) == cross_entropy(changed, labels, 0.1)
    assert divergence(logits, logits * 2, labels) == divergence(
        changed, torch.where(changed == 100.0, changed, logits * 2), labels
    )


def test_divergence_is_the_symmetric_kl_of_torch():
    logits, labels = example()
    other = torch.randn_like(logits)
    p, q = logits.log_softmax(-1), other.log_softmax(-1)
    kl = F.kl_div(q, p, reduction="none", log_target=True) + F.kl_div(p, q, reduction="none", log_target=True)
    expected = 0.5 * kl.sum(-1)[labels != 0].sum()
    torch.testing.assert_close(divergence(logits, other, labels), expected)
    assert divergence(logits, logits, labels).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [0.0, 1.0, 2.0, 5.0])
def test_r_drop_is_the_mean_of_both_losses_and_half_its_weight_times_their_mean_divergence(weight, smoothing):
    logits, labels = example()
    again = logits + 0.5 * torch.randn_like(logits)  # as another dropout would give
    real = labels != 0

    def loss(of: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(of[real], labels[real], label_smoothing=smoothing, reduction="sum")

    def kl(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        p, log_p, log_q = one[real].softmax(-1), one[real].log_softmax(-1), other[real].log_softmax(-1)
        return (p * (log_p - log_q)).sum()

    def logits_of(batch: Batch) -> torch.Tensor:
        assert torch.equal(batch.labels, torch.cat([labels, labels]) if weight else labels)
        return torch.cat([logits, again]) if weight else logits

    both = 0.5 * (loss(logits) + loss(again)) + weight / 2 * 0.5 * (kl(logits, again) + kl(again, logits))
    found = training_loss(logits_of, Batch(labels), smoothing, weight)
    torch.testing.assert_close(found, both if weight else loss(logits))


def test_nothing_is_smoothed_unless_asked():
    logits, labels = example()
    assert cross_entropy(logits, labels) == cross_entropy(logits, labels, 0.0) != cross_entropy(logits, labels, 0.1)
    classes, share = labels[:, 0], torch.rand(3)
    plain, none = (mixed_cross_entropy(logits[:, 0], classes, classes, share, *given) for given in ((), (0.0,)))
    assert plain == none


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_two_classes_in_one_image_are_torchs_loss_with_soft_targets(smoothing):
    torch.manual_seed(2)
    logits, share = torch.randn(6, 4), torch.rand(6)
    labels, others = torch.randint(0, 4, (6,)), torch.randint(0, 4, (6,))
    targets = share[:, None] * F.one_hot(labels, 4) + (1 - share[:, None]) * F.one_hot(others, 4)
    expected = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(mixed_cross_entropy(logits, labels, others, share, smoothing), expected)
