"""Sums along a tree: the same bits, whoever adds which part."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import UsageError
from regard.training.processes import Processes, check_share
from regard.training.tree import TreeSum, tree_sum


def terms(count: int) -> torch.Tensor:
    """Numbers of very different sizes, whose sum depends on the order."""
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 50, generator=generator) * 10 ** torch.randint(-6, 6, (count, 50), generator=generator)


def summed(rows: torch.Tensor) -> torch.Tensor:
    tree = TreeSum()
    for row in rows.clone():
        tree.add([row])
    return tree.total()[0]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_a_tree_adds_every_term_once(count):
    whole = terms(count)
    exact = torch.tensor([math.fsum(column) for column in whole.double().T.tolist()])
    torch.testing.assert_close(summed(whole).double(), exact.double(), rtol=1e-4, atol=1e-1)
    ones = TreeSum()
    for _ in range(count):
        ones.add([torch.ones(3), torch.ones(2, 2)])
    assert [tensor.unique().tolist() for tensor in ones.total()] == [[count], [count]]


def test_a_tree_of_eight_is_the_pairs_of_pairs():
    a, b, c, d, e, f, g, h = whole = terms(8)
    expected = ((a + b) + (c + d)) + ((e + f) + (g + h))
    assert torch.equal(summed(whole), expected) and torch.equal(tree_sum(whole), expected)


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_the_sum_has_the_same_bits_for_every_number_of_processes(processes):
    whole = terms(8)
    shares = [Processes(rank, processes).share(8) for rank in range(processes)]
    parts = torch.stack([summed(whole[share.start : share.stop]) for share in shares])
    assert torch.equal(tree_sum(parts), summed(whole))


def test_a_running_sum_has_other_bits():
    whole = terms(8)
    running = torch.zeros(50)
    for row in whole:
        running += row
    assert not torch.equal(running, summed(whole)), "or nothing of this would be needed"


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("each", [1, 2, 3])
def test_every_micro_batch_is_the_share_of_one_process(processes, each):
    shares = [Processes(rank, processes).share(processes * each) for rank in range(processes)]
    assert [index for share in shares for index in share] == list(range(processes * each))


@pytest.mark.parametrize(
    ("pieces", "count", "reduce", "told"),
    [
        (1, 2, "exact", "training.micro_batches = 1 cannot be dealt out to 2 processes."),
        (4, 8, "fast", "training.micro_batches = 4 cannot be dealt out to 8 processes."),
        (6, 3, "exact", "The sums of 3 processes cannot be exact."),
        (6, 2, "exact", "training.micro_batches = 6 cannot be added exactly by 2 processes."),
    ],
)
def test_micro_batches_that_cannot_be_dealt_out_are_a_mistake(pieces, count, reduce, told):
    with pytest.raises(UsageError) as error:
        check_share(pieces, count, reduce)
    assert error.value.what == told


@pytest.mark.parametrize(
    ("pieces", "count", "reduce"), [(1, 1, "exact"), (3, 1, "exact"), (4, 4, "exact"), (6, 3, "fast")]
)
def test_those_that_can_are_not(pieces, count, reduce):
    check_share(pieces, count, reduce)
