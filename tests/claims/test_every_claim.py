"""Every claim in its tiny version: it comes out as it should, and another way when an ingredient is broken."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

import pytest
from broken import BROKEN, OUTCOMES

from regard import claims
from regard.claims.frame.claim import DECKS, GROUPS, Budget, Claim, Measured


@pytest.fixture(scope="session")
def budget(tmp_path_factory: pytest.TempPathFactory) -> Budget:
    """Trainings are shared by all claims and by all workers, as in the command.

    By those that are broken, too: what breaks a claim is in its own file, or in what it does with a model that is
    trained; how models are trained is never patched.
    """
    ours = tmp_path_factory.getbasetemp()
    everyones = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours
    return Budget("tiny", everyones / "claims", "cpu")


def file_of(name: str) -> ModuleType:
    return import_module(f"regard.claims.{name.replace('-', '_')}")


def measured_by(claim: Claim, budget: Budget) -> Measured:
    return claim.measure(budget, claim.seeds("tiny"))


@pytest.mark.parametrize("name", claims.names())
def test_a_claim_comes_out_says_what_it_measured_and_is_drawn(name, budget):
    claim = claims.load(name)
    about, measured = claim.about, measured_by(claim, budget)
    verdict = claim.verdict(measured)
    assert verdict.outcome == OUTCOMES.get(name, "holds"), verdict.words
    assert bool(verdict.on) == (verdict.outcome == "depends")
    assert about.group in GROUPS and set(about.decks) <= set(DECKS)
    for figure in about.figures:
        assert measured[figure].shape == (len(claim.seeds("tiny")),)
    drawn = claim.picture(measured)
    title = drawn.get_suptitle().replace("\n", " ")
    assert title == about.text
    assert any(axis.get_xlabel() or axis.get_ylabel() for axis in drawn.axes) or name == "next-word"


@pytest.mark.parametrize("name", claims.names())
def test_a_broken_ingredient_turns_the_verdict(name, monkeypatch, budget):
    BROKEN[name](monkeypatch, file_of(name))
    claim = claims.load(name)
    verdict = claim.verdict(measured_by(claim, budget))
    assert verdict.outcome != OUTCOMES.get(name, "holds"), verdict.words


@pytest.mark.parametrize("name", ["svm", "svm-sequence", "svm-factors"])
def test_a_solution_that_is_not_proved_proves_nothing(name):
    good = {
        "correlation": [1, 1],
        "picked_is_best": [1, 1],
        "nuclear": [1, 1],
        "frobenius": [0, 0],
        "difference": [1, 1],
    }
    outcomes = [claims.load(name).verdict(Measured({**good, "gap": [1e-9, gap]})).outcome for gap in (1e-9, 1e-3)]
    assert outcomes == ["holds", "does not hold"]


def test_the_same_seed_measures_the_same(budget):
    claim = claims.load("permutation")
    one, other = (claim.measure(budget, [3]) for _ in range(2))
    assert all((one[name] == other[name]).all() for name in one)
