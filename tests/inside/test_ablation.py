"""Ablations equal those of a model whose weights or layers were changed by hand."""

from contextlib import contextmanager

import pytest
import torch

from regard.errors import UsageError
from regard.inside import variants
from regard.inside.ablation import Off, ablate
from regard.inside.sites import sites_of
from regard.inside.trace import trace
from small_models import log_p

ATOL = 1e-5


@pytest.fixture(scope="module")
def traced(subject):
    return trace(subject)


@contextmanager
def instead(module, forward):
    """Inside, a module computes something else."""
    module.forward = forward
    try:
        yield
    finally:
        del module.forward


@contextmanager
def without_columns(part, head):
    """Inside, the columns of W_out that read a head are zero."""
    weight = part.to_out.weight.data
    before, width = weight.clone(), weight.shape[1] // part.heads
    weight[:, head * width : (head + 1) * width] = 0
    try:
        yield
    finally:
        weight.copy_(before)


def test_ablating_a_head_equals_zeroing_its_columns_of_w_out(traced):
    subject = traced.subject
    parts = [part for part in traced.parts() if part.heads]
    offs = [Off(heads=(f"{part.name}.{head}",)) for part in parts for head in range(part.heads)]
    if not parts:  # other mixers than attention
        with pytest.raises(UsageError, match="has no heads"):
            traced.ablate(heads=[f"{subject.last.name}.0.mixer.0"])
        return
    rows = iter(ablate(subject, offs))
    for part in parts:
        for head in range(part.heads):
            with without_columns(part.module, head):
                expected_AW = subject.logits()[0]
            torch.testing.assert_close(next(rows), expected_AW, atol=ATOL, rtol=0)
            assert not torch.equal(expected_AW, traced.logits_AW)


def test_an_ablated_part_adds_nothing(traced):
    subject = traced.subject
    parts = list(traced.parts())
    rows = ablate(subject, [Off(parts=(part.name,)) for part in parts])
    for part, logits_AW in zip(parts, rows, strict=True):
        with instead(part.module, lambda x_BTD, *_: torch.zeros_like(x_BTD)):
            torch.testing.assert_close(logits_AW, subject.logits()[0], atol=ATOL, rtol=0)


def test_ablating_a_layer_equals_ablating_all_its_parts(traced):
    for stack in traced.stacks:
        layer = stack.layers[0]
        parts = traced.ablate(parts=[part.name for part in layer.parts])
        assert torch.equal(traced.ablate(layers=[layer.name]).logits_AW, parts.logits_AW)


def test_mean_ablation_gives_a_head_the_same_output_at_every_position(traced):
    subject = traced.subject
    for part in (part for part in traced.parts() if part.heads):
        mean_HV = part.attention().heads_BHTV[0].mean(1)  # written out
        width = mean_HV.shape[1]
        to_out = part.module.to_out
        head = part.heads - 1

        def replaced(x_BTX, to_out=to_out, columns=slice(head * width, None), mean_V=mean_HV[head]):
            x_BTX = x_BTX.clone()
            x_BTX[..., columns] = mean_V
            return torch.nn.functional.linear(x_BTX, to_out.weight, to_out.bias)

        with instead(to_out, replaced):
            expected_AW = subject.logits()[0]
        got_AW = traced.ablate(heads=[f"{part.name}.{head}"], by="mean").logits_AW
        torch.testing.assert_close(got_AW, expected_AW, atol=ATOL, rtol=0)


def test_means_are_over_all_positions_of_the_reference(make):
    subject = make("language", layer_scale=0.5)
    one, other = trace(subject), trace(subject.with_tokens([[3, 4, 8]]))
    part = "layers.1.feedforward"
    wrote = torch.cat([each["layers"].layers[1].part("feedforward").wrote_TD for each in (one, other)])
    scaled_D = wrote.mean(0) / one["layers"].layers[1].part("feedforward").scale_D
    with instead(sites_of(subject)[part], lambda x_BTD: scaled_D.expand_as(x_BTD)):
        expected_AW = subject.logits()[0]
    got_AW = one.ablate(parts=[part], by="mean", reference=[one, other]).logits_AW
    torch.testing.assert_close(got_AW, expected_AW, atol=ATOL, rtol=0)
    assert (one.ablate(parts=[part], by="mean").logits_AW - got_AW).abs().max() > 1e-3
    with pytest.raises(UsageError, match="another model"):
        one.ablate(parts=[part], by="mean", reference=[trace(make("language"))])


def test_ablating_a_position_equals_zeroing_the_vector_of_its_word(make):
    subject = make("language", tie_embeddings="none")
    table = subject.model.trunk.embedding.table.weight.data
    assert subject.tokens[0].count(30) == 1
    before = table[30].clone()
    table[30] = 0
    expected_AW = subject.logits()[0]
    table[30] = before
    got = trace(subject).ablate(positions=[("layers", subject.tokens[0].index(30))])
    torch.testing.assert_close(got.logits_AW, expected_AW, atol=ATOL, rtol=0)


def test_positions_of_every_stack_can_be_ablated(traced):
    for stack in traced.stacks:
        place = len(stack.stack.pieces) // 2
        seen_BTD = []

        def look(_, inputs, seen_BTD=seen_BTD):
            seen_BTD.append(inputs[0])

        handle = stack.stack.blocks[0].register_forward_pre_hook(look)
        traced.ablate(positions=[(stack.name, place)])
        handle.remove()
        expected_TD = stack.layers[0].before_TD.clone()
        expected_TD[place] = stack.embedding.position_TD[place] + stack.embedding.constant_TD[place]
        torch.testing.assert_close(seen_BTD[0][0], expected_TD, atol=ATOL, rtol=0)


def test_ablation_returns_the_new_answers_and_the_change_of_log_probability(traced):
    gone = traced.ablate(layers=[layer.name for stack in traced.stacks for layer in stack.layers])
    before_AW, after_AW = (log_p(traced.subject, each.logits_AW) for each in (traced, gone))
    for number, answer in enumerate(traced.subject.answers):
        change = float(after_AW[number, answer.token] - before_AW[number, answer.token])
        assert gone.change.values[number] == pytest.approx(change, abs=1e-5)
        after_W = after_AW[number].clone()
        after_W[list(traced.subject.never)] = -torch.inf
        assert gone.words[number] == traced.subject.name_of(int(after_W.argmax()))
        assert gone.likeliest.values[number] == pytest.approx(float(after_W.exp().max()), abs=1e-5)
    nothing = traced.ablate()
    assert torch.equal(nothing.logits_AW, traced.logits_AW) and not nothing.change.values.any()


def test_chunks_change_nothing(make, monkeypatch):
    subject = make("translator")
    offs = [Off(heads=(f"decoder.{n}.cross.{h}",), positions=(("encoder", n),)) for n in range(2) for h in range(4)]
    together = ablate(subject, offs, by="mean")
    monkeypatch.setattr(variants, "MOST_NUMBERS", 3 * variants.MOST_NUMBERS // variants.rows_at_once(subject))
    assert variants.rows_at_once(subject) == 3
    torch.testing.assert_close(ablate(subject, offs, by="mean"), together, atol=ATOL, rtol=0)


@pytest.mark.parametrize(
    ("off", "words"),
    [
        ({"heads": ["layers.0.mixer.4"]}, "is not a head of this model"),
        ({"heads": ["layers.0.mixer"]}, "is not a head of this model"),
        ({"heads": ["layers.0.feedforward.0"]}, "has no heads"),
        ({"parts": ["layers.0.cross"]}, "is not a part of this model"),
        ({"parts": ["layers.0.mixer.heads"]}, "is not a part of this model"),
        ({"layers": ["layers.2"]}, "is not a layer of this model"),
        ({"positions": [("encoder", 1)]}, "is not a stack of this model"),
        ({"positions": [("layers", 6)]}, "There is no position 6"),
        ({"layers": ["layers.1"], "by": "nothing"}, "method 'nothing'"),
    ],
)
def test_unknown_names_cannot_be_ablated(make, off, words):
    with pytest.raises(UsageError, match=words):
        trace(make("language")).ablate(**off)
