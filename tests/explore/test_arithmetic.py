"""Any cell: the sum of its terms is the number that stands there, for every kind of model."""

import random
from functools import cache

import pytest
import torch

from regard.errors import UsageError
from regard.explore.arithmetic import arithmetic
from regard.explore.matrices import tensor
from regard.explore.session import Looked
from regard.explore.steps import steps
from regard.inside.trace import trace
from small_models import KINDS, language, masked, translator

KINDS_HERE = KINDS | {
    "language-gated": lambda: language(gated=True, positions="learned", activation="silu", bias=False),
    "language-rms-rotary": lambda: language(positions="rotary", norm_kind="rms"),
    "language-rnn": lambda: language(mixer="rnn", layer_scale=0.5),
    "language-lstm": lambda: language(mixer="lstm", bias=False),
    "language-hyena-paper": lambda: language(mixer="hyena", hyena={"recurrence": "paper", "order": 3}),
    "language-hyena-gates": lambda: language(mixer="hyena", hyena={"order": 3}, layer_scale=0.5, bias=False),
    "masked-hyena": lambda: masked(mixer="hyena", hyena={"recurrence": "paper", "order": 1}),
    "translator-bahdanau-lstm": lambda: translator(mixer="lstm", cross="bahdanau"),
    "translator-rnn": lambda: translator(mixer="rnn", cross="bahdanau"),
    "language-index": lambda: language(positions="index", norm="post", key_width=6, value_width=5),
}


@pytest.fixture(scope="module", params=KINDS_HERE)
def looked(request):
    torch.manual_seed(1)
    return Looked(None, 0, {}, trace(KINDS_HERE[request.param]()))


def shown(looked):
    """Every matrix of every step, once."""
    names = {}
    for stack in looked.trace.stacks:
        for layer in range(len(stack.layers)):
            for step in steps(looked, stack.name, layer)["steps"]:
                names |= {show["matrix"]: show for show in step["shows"]}
    return list(names)


def test_the_sum_of_the_terms_of_any_cell_is_its_number(looked):
    rng = random.Random(3)
    written = 0
    for name in shown(looked):
        values = tensor(looked, name)
        for _ in range(2):
            *head, row, column = (rng.randrange(size) for size in values.shape)
            told = arithmetic(looked, name, row, column, head=head[0] if head else None, most=10_000)
            cell = float(values[(*head, row, column)])
            if cell == -torch.inf:
                assert told["cell"] is None and told["note"]
                assert told["lines"][-1]["value"] is None
                continue
            assert told["cell"] == cell
            for line in told["lines"]:
                if line["terms"]:
                    total = sum(term["product"] for term in line["terms"]) + sum(
                        each["value"] for each in line["added"]
                    )
                    assert line["sum"] == pytest.approx(total, abs=1e-9)
                    assert line["count"] == len(line["terms"]) and line["rest"] == 0
                    products = [term for term in line["terms"] if term["right"] is not None]
                    assert all(each["product"] == pytest.approx(each["left"] * each["right"]) for each in products)
            if told["lines"]:
                assert told["lines"][-1]["value"] == pytest.approx(cell, abs=1e-5, rel=1e-5), name
                written += 1
            else:
                assert told["note"] and looked.trace.subject.readout is None, f"{name} tells nothing"
    assert written > 20


@pytest.mark.parametrize("kind", ["language-gru", "language-hyena", "translator-bahdanau", "translator-additive"])
def test_numbers_of_other_mixers_lead_back_to_what_they_read(kind):
    """From what a recurrence or Hyena wrote, every term that stands somewhere can be asked about in turn."""
    looked = Looked(None, 0, {}, trace(KINDS_HERE[kind]()))
    part = next(part for part in looked.trace.parts() if part.name.endswith("0.mixer"))
    waiting, seen = [(f"{part.name}.wrote", None, 2, 5)], set()
    while waiting and len(seen) < 60:
        name, head, row, column = waiting.pop()
        if (name, head, row, column) in seen or not name.startswith(part.name):
            continue
        seen.add((name, head, row, column))
        told = arithmetic(looked, name, row, column, head=head)
        values = tensor(looked, name)
        number = float(values[row, column] if head is None else values[head, row, column])
        assert told["lines"][-1]["value"] == pytest.approx(number, abs=1e-5, rel=1e-5)
        waiting += [term["at"] for line in told["lines"] for term in line["terms"][:2] if term["at"]]
        waiting = [tuple(cell) for cell in waiting]
    assert f"{part.name}.read" in {name for name, *_ in seen}


@pytest.mark.parametrize(
    ("name", "cell", "said"),
    [
        ("encoder.0.mixer.queries", {"row": 0, "column": 0, "head": 4}, "head"),
        ("encoder.0.mixer.queries", {"row": 0, "column": 0}, "head"),
        ("encoder.0.mixer.read", {"row": 5, "column": 0}, "5 × 32"),
        ("encoder.0.cross.read", {"row": 0, "column": 0}, "encoder.0.cross"),
        ("encoder.0.mixer.inner", {"row": 0, "column": 0}, "feed-forward"),
        ("encoder.content", {"row": 0, "column": 0}, "arithmetic"),
        ("7.hidden", {"row": 0, "column": 0}, "7.hidden"),
    ],
)
def test_a_cell_that_does_not_exist_is_refused_in_words(name, cell, said):
    with pytest.raises(UsageError) as refused:
        arithmetic(refusing(), name, **cell)
    assert said in f"{refused.value.what} {refused.value.why}"


@cache
def refusing():
    return Looked(None, 0, {}, trace(KINDS["translator"]()))


def test_few_terms_and_the_rest_are_the_same_sum():
    few = arithmetic(refusing(), "encoder.0.mixer.queries", 1, 2, head=1, most=4)["lines"][0]
    shown = sum(term["product"] for term in few["terms"]) + sum(each["value"] for each in few["added"])
    assert len(few["terms"]) == 4 and few["count"] == 32
    assert shown + few["rest"] == pytest.approx(few["sum"], abs=1e-9)
    sizes = [abs(term["product"]) for term in few["terms"]]
    assert sizes == sorted(sizes, reverse=True)


def test_a_term_says_where_its_number_stands():
    """Taking a number apart leads from term to term back to the token."""
    name, head, row, column = "decoder.1.cross.scores", 2, 3, 1
    seen = []
    while True:
        told = arithmetic(refusing(), name, row, column, head=head)
        seen.append(name)
        line = next((line for line in reversed(told["lines"]) if line["terms"]), None)
        if line is None or line["terms"][0]["at"] is None:
            break
        name, head, row, column = line["terms"][0]["at"]
        values = tensor(refusing(), name)
        number = float(values[row, column] if head is None else values[head, row, column])
        if line["symbol"] in ("q", "x", "z"):  # sums of numbers as they stand there, not of exponentials
            assert number == pytest.approx(line["terms"][0]["left"], abs=1e-5)
    assert seen[-1] in ("decoder.token", "decoder.place", "encoder.token", "encoder.place")
    assert len(seen) > 8
