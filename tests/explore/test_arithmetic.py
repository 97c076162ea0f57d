"""The arithmetic of any cell gives its number, for every kind of model."""

import random
import re
from functools import cache

import pytest
import torch

from regard.errors import UsageError
from regard.explore.arithmetic import arithmetic
from regard.explore.matrices import tensor
from regard.explore.session import TracedInput
from regard.explore.steps import steps
from regard.explore.sums import Line, fmt, norm_lines
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
def traced(request):
    torch.manual_seed(1)
    return TracedInput(None, 0, {}, trace(KINDS_HERE[request.param]()))


def matrices_of(traced):
    """Every matrix of every step, once."""
    names = {}
    for stack in traced.trace.stacks:
        for layer in range(len(stack.layers)):
            for step in steps(traced, stack.name, layer)["steps"]:
                names |= dict.fromkeys(figure["matrix"] for figure in step["figures"])
    return list(names)


def test_the_terms_of_any_cell_sum_to_its_number(traced):
    rng = random.Random(3)
    derived = 0
    for name in matrices_of(traced):
        values = tensor(traced, name)
        for _ in range(2):
            *head, row, column = (rng.randrange(size) for size in values.shape)
            content = arithmetic(traced, name, row, column, head=head[0] if head else None, most=10_000)
            cell = float(values[(*head, row, column)])
            if cell == -torch.inf:
                assert content["cell"] is None and content["note"]
                assert content["lines"][-1]["value"] is None
                continue
            assert content["cell"] == cell
            for line in content["lines"]:
                if line["terms"]:
                    shown = [line["terms"][0][kind] is not None for kind in ("of", "left", "right", "right")]
                    assert len(line["heads"]) == 1 + sum(shown), "each column has a head"
                    total = sum(term["product"] for term in line["terms"]) + sum(
                        each["value"] for each in line["added"]
                    )
                    assert line["sum"] == pytest.approx(total, abs=1e-9)
                    assert line["count"] == len(line["terms"]) and line["rest"] == 0
                    products = [term for term in line["terms"] if term["right"] is not None]
                    assert all(each["product"] == pytest.approx(each["left"] * each["right"]) for each in products)
            if content["lines"]:
                assert content["lines"][-1]["value"] == pytest.approx(cell, abs=1e-5, rel=1e-5), name
                derived += 1
            else:
                assert content["note"] and traced.trace.subject.readout is None, f"{name} has no arithmetic"
    assert derived > 20


@pytest.mark.parametrize("kind", ["language-gru", "language-hyena", "translator-bahdanau", "translator-additive"])
def test_terms_of_other_mixers_lead_back_to_their_input(kind):
    """From the output of a recurrence or Hyena, every term that comes from a cell can be opened in turn."""
    traced = TracedInput(None, 0, {}, trace(KINDS_HERE[kind]()))
    part = next(part for part in traced.trace.parts() if part.name.endswith("0.mixer"))
    waiting, visited = [(f"{part.name}.wrote", None, 2, 5)], set()
    while waiting and len(visited) < 60:
        name, head, row, column = waiting.pop()
        if (name, head, row, column) in visited or not name.startswith(part.name):
            continue
        visited.add((name, head, row, column))
        content = arithmetic(traced, name, row, column, head=head)
        values = tensor(traced, name)
        number = float(values[row, column] if head is None else values[head, row, column])
        assert content["lines"][-1]["value"] == pytest.approx(number, abs=1e-5, rel=1e-5)
        waiting += [term["at"] for line in content["lines"] for term in line["terms"][:2] if term["at"]]
        waiting = [tuple(cell) for cell in waiting]
    assert f"{part.name}.read" in {name for name, *_ in visited}


def test_one_letter_stands_for_one_thing(traced):
    """z for the output of a head, o and f for those of parts, ℓ for logits; the same in the step and the arithmetic."""
    letters = {"heads": "z", "joined": "z", "logits": "ℓ", "probabilities": "p", "inner": "h", "weights": "a"}
    for stack in traced.trace.stacks:
        for step in steps(traced, stack.name, 0)["steps"]:
            assert not re.search(r"√[DK]\b|written|W_out|layer scale", f"{step['formula']} {step['sentence']}")
            figures = [figure for figure in step["figures"] if figure["draw"] != "map"]
            if step["id"] == "next-layer" or not figures:
                continue
            figure, result = figures[-1], re.split(" [=←]", step["formula"])[0].split("_")[0]
            quantity = figure["matrix"].rpartition(".")[2]
            head = 0 if figure["heads"] else None
            lines = arithmetic(traced, figure["matrix"], 0, 0, head=head, most=1)["lines"]
            if quantity in letters:
                assert lines == [] or lines[-1]["symbol"] in (letters[quantity], "ℓ′")
            elif quantity == "wrote":
                assert lines[-1]["symbol"] == result == ("f" if "feedforward" in figure["matrix"] else "o")
            else:
                assert lines[-1]["symbol"] != "z"


@pytest.mark.parametrize(
    ("name", "cell", "message"),
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
def test_a_cell_that_does_not_exist_is_refused_in_words(name, cell, message):
    with pytest.raises(UsageError) as refused:
        arithmetic(a_translator(), name, **cell)
    assert message in f"{refused.value.what} {refused.value.why}"


@pytest.mark.parametrize("kind", ["translator", "translator-bahdanau", "translator-additive", "translator-rnn"])
def test_the_decoder_of_a_translator_writes_token_by_token(kind):
    encoder, decoder = trace(KINDS_HERE[kind]()).stacks
    assert decoder.causal and not encoder.causal


def test_a_letter_that_changes_has_an_arrow():
    signs = {("x", "x + p"): "←", ("x̂", "(x − mean) · γ"): "=", ("h", "u · h_t−1"): "=", ("x", "x̂ W"): "="}
    assert {key: Line(*key, 0.0).sign for key in signs} == signs


@torch.no_grad()
def test_numbers_have_thousands_separators():
    assert [fmt(value) for value in (999.94, 999.96, 1130.4, -25_600.0)] == ["999.9", "1,000", "1,130", "(−25,600)"]
    width = 1_500
    line = norm_lines(torch.nn.LayerNorm(width), torch.arange(float(width)), None, 0)[0]
    assert line.formula == "Σ_i x_i / 1,500" and line.numbers.endswith(" / 1,500")
    assert line.to_json(1)["terms"][0]["name"] == "1,500"


@cache
def a_translator():
    return TracedInput(None, 0, {}, trace(KINDS["translator"]()))


def test_a_few_terms_and_the_rest_give_the_same_sum():
    few = arithmetic(a_translator(), "encoder.0.mixer.queries", 1, 2, head=1, most=4)["lines"][0]
    shown = sum(term["product"] for term in few["terms"]) + sum(each["value"] for each in few["added"])
    assert len(few["terms"]) == 4 and few["count"] == 32
    assert shown + few["rest"] == pytest.approx(few["sum"], abs=1e-9)
    sizes = [abs(term["product"]) for term in few["terms"]]
    assert sizes == sorted(sizes, reverse=True)


def test_terms_lead_from_cell_to_cell_back_to_the_token():
    name, head, row, column = "decoder.1.cross.scores", 2, 3, 1
    names = []
    while True:
        content = arithmetic(a_translator(), name, row, column, head=head)
        names.append(name)
        line = next((line for line in reversed(content["lines"]) if line["terms"]), None)
        if line is None or line["terms"][0]["at"] is None:
            break
        name, head, row, column = line["terms"][0]["at"]
        values = tensor(a_translator(), name)
        number = float(values[row, column] if head is None else values[head, row, column])
        term = line["terms"][0]
        if "mean" not in line["symbol"] and line["symbol"] != "variance":  # those are sums of squares and differences
            assert number == pytest.approx(term["left"] if term["of"] is None else term["of"], abs=1e-5)
    assert names[-1] in ("decoder.token", "decoder.place", "encoder.token", "encoder.place")
    assert len(names) > 8
