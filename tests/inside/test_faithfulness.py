"""Deletion and insertion: equal to brute force, and best for the best order."""

import dataclasses

import numpy as np
import pytest

from regard.errors import UsageError
from regard.explain.attribution import in_one_line
from regard.inside.faithfulness import MOST_GROUPS, areas, faithfulness, visible_units
from regard.inside.trace import trace
from small_models import log_p


def p_without(traced, units, answer, token):
    """One set of positions emptied, alone."""
    log_p_AW = log_p(traced.subject, traced.ablate(positions=units).logits_AW)
    return float(log_p_AW[answer, token].exp())


@pytest.mark.parametrize("kind", ["language", "translator", "vit-both"])
def test_it_equals_emptying_one_set_at_a_time(make, kind):
    traced = trace(make(kind))
    answer, token = (1, 3) if len(traced.subject.answers) > 1 else (0, 3)
    attribution = traced.attribute("gradient-input", answer, token)
    measured = attribution.faithful(orders=2, seed=4)
    units = visible_units(traced, answer)
    scores = np.array([attribution[stack].values[position] for stack, position in units])
    generator = np.random.default_rng(4)
    orders = [np.argsort(-scores), generator.permutation(len(units)), generator.permutation(len(units))]

    def p(empty):
        return p_without(traced, [units[u] for u in empty], answer, token)

    deletion = [[p(order[:n]) for n in range(len(units) + 1)] for order in orders]
    insertion = [p(orders[0][n:]) for n in range(len(units) + 1)]
    np.testing.assert_allclose(measured.deletion_curve.values, deletion, atol=1e-5)
    np.testing.assert_allclose(measured.insertion_curve.values[0], insertion, atol=1e-5)
    reversed_insertion = [p(orders[1][::-1][n:]) for n in range(len(units) + 1)]
    np.testing.assert_allclose(measured.insertion_curve.values[1], reversed_insertion, atol=1e-5)
    assert measured.deletion == pytest.approx(np.trapezoid(deletion[0]) / len(units), abs=1e-5)
    assert measured.insertion == pytest.approx(np.trapezoid(insertion) / len(units), abs=1e-5)
    random = [np.trapezoid(curve) / len(units) for curve in deletion[1:]]
    assert measured.deletion_random == pytest.approx(np.mean(random), abs=1e-5) == measured.insertion_random
    area = np.trapezoid(deletion[0]) / len(units)
    assert measured.deletion_beats == sum(area < area_random for area_random in random)
    area = np.trapezoid(insertion) / len(units)
    assert measured.insertion_beats == sum(area > area_random for area_random in random)

    tops = [int(np.ceil(k / 10 * len(units))) for k in range(1, 11)]
    lost = [[p([]) - p(order[:top]) for top in tops] for order in orders]
    missing = [[p([]) - p(order[top:]) for top in tops] for order in orders]
    assert measured.comprehensiveness == pytest.approx(np.mean(lost[0]), abs=1e-5)
    assert measured.sufficiency == pytest.approx(np.mean(missing[0]), abs=1e-5)
    assert measured.comprehensiveness_random == pytest.approx(np.mean(lost[1:]), abs=1e-5)
    assert measured.sufficiency_random == pytest.approx(np.mean(missing[1:]), abs=1e-5)


def test_the_area_is_that_of_trapezia():
    even = np.array([0.0, 0.5, 1.0])
    assert areas(np.array([1.0, 0.5, 0.0]), even) == 0.5
    assert areas(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), even).tolist() == [0.75, 0.0]
    assert areas(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.75, 1.0])) == 0.875


def voters(make, silent):
    """A model in which every word votes for a class, or against it, and nothing else happens."""
    subject = silent(make("text_classifier", pooling="mean", norm="pre"))
    head = subject.model.to_classes
    head.bias.data.zero_()
    head.weight.data[[kind for kind in range(5) if kind != subject.answers[0].token]] = 0
    return subject


def test_no_order_beats_that_of_the_votes(make, silent):
    traced = trace(voters(make, silent))
    token = traced.subject.answers[0].token
    votes_T = (traced.last.embedding.content_TD @ traced.subject.model.to_classes.weight[token]).detach().numpy()
    best = faithfulness(traced, {"layers": votes_T})
    worst = faithfulness(traced, {"layers": -votes_T})
    assert (best.deletion_curve.values[0] <= best.deletion_curve.values[1:] + 1e-6).all()
    assert (best.insertion_curve.values[0] >= best.insertion_curve.values[1:] - 1e-6).all()
    assert best.deletion < best.deletion_random < worst.deletion
    assert best.insertion > best.insertion_random > worst.insertion
    assert best.deletion_beats >= 9 and best.insertion_beats >= 9, "a random order may be the best one too"
    assert worst.deletion_beats <= 1 and worst.insertion_beats <= 1
    assert best.comprehensiveness > best.comprehensiveness_random > worst.comprehensiveness
    assert best.sufficiency < best.sufficiency_random < worst.sufficiency
    for method in ("integrated-gradients", "occlusion"):
        assert traced.attribute(method).faithful().deletion == pytest.approx(best.deletion, abs=1e-6)


def test_long_inputs_are_emptied_in_groups(make):
    traced = trace(make("swin"))
    measured = faithfulness(traced, {"stage 1": np.arange(256)}, orders=1)
    assert measured.deletion_curve.values.shape == (2, MOST_GROUPS + 1)
    last = [("stage 1", position) for position in range(248, 256)]
    assert measured.deletion_curve.values[0, 1] == pytest.approx(
        p_without(traced, last, 0, traced.subject.answers[0].token), abs=1e-5
    )
    assert measured.deletion_curve.labels[1][:3] == ["0 %", "3 %", "6 %"]


def test_positions_that_the_answer_cannot_see_are_left_out(make):
    language, masked, pair = (trace(make(kind)) for kind in ("language-gru", "masked", "translator"))
    assert visible_units(language, 1) == [("layers", 0), ("layers", 1)]
    assert visible_units(masked, 0) == [("layers", 1), ("layers", 3)], "neither marks nor what is masked"
    assert visible_units(pair, 1) == [*(("encoder", t) for t in range(4)), ("decoder", 1)], "without <end> and <start>"
    assert visible_units(pair, 1, {"decoder": None}) == [("decoder", 1)]


def test_there_is_always_something_to_compare_with(make):
    traced = trace(make("language"))
    with pytest.raises(UsageError, match="random order is needed"):
        traced.attribute("occlusion").faithful(orders=0)


def test_a_single_position_is_reported_as_not_measured(make):
    traced = trace(make("language").with_tokens([[1, 9, 30]]))
    measured = faithfulness(traced, {"layers": np.arange(3.0)}, answer=1)
    assert measured.positions == 1 and measured.deletion == measured.deletion_random
    assert "nothing is measured" in in_one_line(measured)
    assert "better than" in in_one_line(faithfulness(traced, {"layers": np.arange(3.0)}, answer=2))


@pytest.mark.parametrize(
    ("beats", "verdict"),
    [
        ((10, 10), "The scores are better than 10"),
        ((10, 4), "by one measure only"),
        ((9, 9), "not clearly better than chance"),
    ],
)
def test_the_verdict_says_what_the_scores_beat(make, beats, verdict):
    measured = faithfulness(trace(make("language")), {"layers": np.arange(6.0)})
    measured = dataclasses.replace(measured, deletion_beats=beats[0], insertion_beats=beats[1])
    assert verdict in measured.verdict and f"{beats[1]} of 10 by insertion" in measured.verdict
