"""The one loop that measures a loss, against the sums written out."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from regard.hardware import Hardware
from regard.settings import SystemSettings
from regard.training import measure as measuring
from regard.training.measure import Measured, measure

CPU = Hardware.choose(SystemSettings(device="cpu"))


@dataclass
class Rows:
    labels: Tensor
    logits: Tensor
    nothing: int

    def to(self, device):
        return self


def rows(shape: tuple[int, ...], nothing: int, seed: int) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, shape, generator=generator)
    labels[0] = 2
    return Rows(labels, torch.randn(*shape, 4, generator=generator), nothing)


@pytest.mark.parametrize("shape", [(5, 3), (6,), (4, 1)])
@pytest.mark.parametrize("nothing", [0, -1])
def test_every_figure_is_what_it_says(shape, nothing):
    batches = [rows(shape, nothing, seed) for seed in (1, 2, 3)]
    model = nn.Dropout(0.5).train()
    found = measure(model, batches, lambda batch: model(batch.logits), CPU)
    total, right, targets, whole, asked = 0.0, 0, 0, 0, 0
    for batch in batches:
        for labels, logits in zip(batch.labels, batch.logits, strict=True):
            pairs = [
                (int(label), row.log_softmax(-1))
                for label, row in zip(labels.view(-1), logits.view(-1, 4), strict=True)
                if label != nothing
            ]
            hits = [int(log_p.argmax()) == label for label, log_p in pairs]
            total -= sum(float(log_p[label]) for label, log_p in pairs)
            right, targets = right + sum(hits), targets + len(hits)
            whole, asked = whole + (bool(hits) and all(hits)), asked + bool(hits)
    assert (found.targets, found.right, found.rows, found.right_rows) == (targets, right, asked, whole)
    assert found.total == pytest.approx(total, rel=1e-5)
    assert found.loss == pytest.approx(total / targets, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(total / targets), rel=1e-5)
    assert (found.accuracy, found.whole) == (100 * right / targets, 100 * whole / asked)
    assert not model.training


def test_nothing_to_measure_is_no_error_and_a_hopeless_model_has_a_finite_perplexity():
    assert measure(nn.Identity(), [], lambda batch: batch, CPU).loss == 0.0
    assert math.isfinite(Measured(1e6, 1, 0, 1, 0).perplexity)


@dataclass
class Splittable(Rows):
    def split(self, pieces):
        parts = zip(self.labels.tensor_split(pieces), self.logits.tensor_split(pieces), strict=True)
        return [Splittable(*part, self.nothing) for part in parts]


def test_what_does_not_fit_is_measured_in_smaller_batches():
    whole = [rows((7, 3), 0, seed) for seed in (1, 2, 3)]
    batches = [Splittable(batch.labels, batch.logits, 0) for batch in whole]
    model, asked = nn.Identity(), []

    def logits_of(batch):
        asked.append(len(batch.labels))
        if len(batch.labels) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return batch.logits

    found, expected = measure(model, batches, logits_of, CPU), measure(model, whole, lambda batch: batch.logits, CPU)
    counts = [(each.targets, each.right, each.rows, each.right_rows) for each in (found, expected)]
    assert counts[0] == counts[1] and found.total == pytest.approx(expected.total, rel=1e-6)
    assert asked == [7, 3, *[1] * 21]  # the later ones are small from the start


def test_one_row_that_does_not_fit_is_not_tried_again():
    def full(batch):
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        measure(nn.Identity(), [Splittable(*vars(rows((2, 3), 0, 1)).values())], full, CPU)


def test_logits_are_taken_to_float32_some_at_a_time(monkeypatch):
    batch = rows((5, 3), 0, 1)
    at_once, sizes, whole = measuring.cross_entropy, [], measure(nn.Identity(), [batch], lambda one: one.logits, CPU)

    def watched(logits: Tensor, labels: Tensor, ignore: int) -> Tensor:
        sizes.append(logits.numel())
        return at_once(logits, labels, ignore=ignore)

    monkeypatch.setattr(measuring, "cross_entropy", watched)
    monkeypatch.setattr(measuring, "AT_A_TIME", 9)
    in_parts = measure(nn.Identity(), [batch], lambda one: one.logits, CPU)
    assert sizes == [8] * 7 + [4]
    assert in_parts.total == pytest.approx(whole.total, rel=1e-6)
