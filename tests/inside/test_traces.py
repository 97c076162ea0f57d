"""A trace is what the model computed."""

from dataclasses import replace

import pytest
import torch

from regard.errors import UsageError
from regard.inside.lens import kl_of_sigmoids, kl_of_softmax
from regard.inside.trace import trace


@pytest.fixture(scope="module")
def traced(subject):
    return trace(subject)


def test_the_formulas_give_the_logits_of_the_fast_path(traced):
    assert traced.difference < 1e-5
    traced.subject.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(traced.logits_AW, traced.subject.forward(1)[0], atol=1e-6, rtol=0)


def test_dropout_is_off_during_a_trace_and_restored_afterwards(subject):
    subject.model.train()
    first, second = subject.logits(), subject.logits(rows=2)
    assert subject.model.training
    torch.testing.assert_close(first.expand_as(second), second, atol=1e-5, rtol=0)


def test_blocks_add_the_outputs_of_their_parts(traced):
    for stack in traced.stacks:
        for layer in stack.layers:
            x_TD = layer.before_TD
            for part in layer.parts:
                read_TD = layer.norm_of(part)(x_TD) if layer.block.pre_norm else x_TD
                torch.testing.assert_close(part.read_TD, read_TD, atol=1e-5, rtol=0)
                x_TD = x_TD + part.wrote_TD
                x_TD = x_TD if layer.block.pre_norm else layer.norm_of(part)(x_TD)
            torch.testing.assert_close(layer.after_TD, x_TD, atol=1e-5, rtol=0)


def test_heads_sum_to_the_output_of_their_part(traced):
    for part in traced.parts():
        if part.heads:
            written_TD = part.heads_HTD().sum(0) + (0 if part.bias_D is None else part.bias_D)
            torch.testing.assert_close(written_TD, part.wrote_TD, atol=1e-5, rtol=0)


def test_attention_weights_are_probabilities_over_the_keys(traced):
    lengths = [len(stack.stack.pieces) for stack in traced.stacks]
    for number, stack in enumerate(traced.stacks):
        for part in (part for layer in stack.layers for part in layer.parts if part.attends):
            weights_HTS = part.attention().weights_BHTS[0]
            looked_at = lengths[number - 1] if part.cross else lengths[number]
            assert weights_HTS.shape[1:] == (lengths[number], looked_at)
            rows = weights_HTS.sum(-1)
            torch.testing.assert_close(rows, torch.ones_like(rows), atol=1e-5, rtol=0)


def test_content_and_position_sum_to_the_input_of_the_first_block(traced):
    for stack in traced.stacks:
        torch.testing.assert_close(stack.embedding.terms_XTD.sum(0), stack.layers[0].before_TD, atol=1e-5, rtol=0)


def test_the_lens_at_the_last_layer_is_the_prediction(traced):
    if traced.subject.readout is None:
        with pytest.raises(UsageError, match="no lens"):
            traced.lens()
        return
    lens = traced.lens()
    assert lens.agreement.values[-1] == 100
    assert not lens.kl.values[-1].any() and lens.kl.values.min() >= 0
    assert abs(lens.kl.values[0]).max() > 1e-3, "after the embedding alone it says something else"
    answer_A = torch.tensor([answer.token for answer in traced.subject.answers])
    p_A = traced.p_AW.gather(1, answer_A[:, None])[:, 0]
    torch.testing.assert_close(torch.from_numpy(lens.answer.values[-1]), p_A, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kl", [kl_of_softmax, kl_of_sigmoids])
def test_kl_is_zero_up_to_rounding_and_never_negative(kl):
    generator = torch.Generator().manual_seed(1)
    logits_AW = 10 * torch.randn(50, 30, generator=generator)
    noise_AW = torch.randn(50, 30, generator=generator)
    assert not kl(logits_AW, logits_AW * (1 + 1e-7 * noise_AW)).any()
    assert kl(logits_AW, logits_AW + 1e-3 * noise_AW).min() > 0, "what is larger than rounding is told"
    other_AW = logits_AW + noise_AW
    expected = torch.distributions.kl_divergence(
        *(
            torch.distributions.Categorical(logits=each.double())
            if kl is kl_of_softmax
            else torch.distributions.Bernoulli(logits=each.double())
            for each in (logits_AW, other_AW)
        )
    )
    torch.testing.assert_close(kl(logits_AW, other_AW), expected if kl is kl_of_softmax else expected.sum(-1))


def test_contributions_sum_to_the_logit(traced):
    plain = traced.subject.readout
    if plain is None:
        with pytest.raises(UsageError, match="Contributions are not defined"):
            traced.contributions()
        return
    model, logits_AW = traced.subject.model, traced.logits_AW
    if getattr(model, "copying", None) is not None:  # copies of the source are added to what parts wrote
        with torch.no_grad():
            logits_AW = model.to_logits(model.decoder_norm(traced.last.layers[-1].after_TD))
        assert (logits_AW - traced.logits_AW).abs().max() > 1e-3
    cap = getattr(plain.head, "cap", 0.0)
    for answer, predicted in enumerate(traced.subject.answers):
        for token in (None, 4):
            parts = traced.contributions(answer, token)
            at = answer, predicted.token if token is None else token
            assert float(parts.values.sum()) == pytest.approx(float(logits_AW[at]), abs=1e-4)
            assert parts.notes["logit"] == pytest.approx(float(logits_AW[at]), abs=1e-4)
            assert parts.notes["final_logit"] == float(traced.logits_AW[at])
            assert parts.notes["error"] < 1e-4
    assert not cap or abs(logits_AW).max() <= cap


@pytest.mark.parametrize("kind", ["language", "translator-copying", "masked", "reader"])
def test_the_error_of_contributions_is_measured(make, kind):
    """It is large if the recorded output of a part is wrong."""
    traced = trace(make(kind))
    part = traced.last.layers[-1].parts[-1]
    assert traced.contributions(0).notes["error"] < 1e-4
    traced.last.layers[-1].parts[-1] = replace(part, wrote_TD=part.wrote_TD * 3)
    assert traced.contributions(0).notes["error"] > 1e-2


def test_the_repr_of_a_trace_is_one_line(traced):
    line = repr(traced)
    assert "\n" not in line and len(line) < 400
    assert traced.subject.answers[-1].label in line and f"difference {traced.difference:.1e}" in line
    for stack in traced.stacks:
        assert f"{stack.name}: {len(stack.layers)} layers, {len(stack.stack.pieces)} positions" in line
        assert len(repr(stack)) < 80 and len(repr(stack.layers[0])) < 80
    assert all(part.name in repr(part) and len(repr(part)) < 80 for part in traced.parts())


def test_impossible_requests_get_an_error_of_three_lines(make):
    traced = trace(make("translator"))
    wrong = [
        lambda: traced.contributions(answer=99),
        lambda: traced.contributions(answer="der"),
        lambda: traced.contributions(token=40),
        lambda: traced.contributions(token="alte"),
        lambda: traced.attribute(answer=5),
        lambda: traced.attribute(token=-1),
        lambda: traced.attribute(steps=0),
        lambda: traced.patch(from_="x"),
        lambda: traced.ablate(heads="encoder.0.mixer.9"),
    ]
    for ask in wrong:
        with pytest.raises(UsageError) as refused:
            ask()
        assert len(str(refused.value).splitlines()) == 3


def test_the_default_answer_is_the_least_certain_generated_token(make):
    traced = trace(make("translator"))
    p_answers = [float(p_W[answer.token]) for p_W, answer in zip(traced.p_AW, traced.subject.answers, strict=True)]
    assert p_answers[traced.first_answer] == min(p_answers)
    assert torch.equal(*(torch.as_tensor(traced.contributions(n).values) for n in (None, traced.first_answer)))
    assert trace(make("language")).first_answer == 5  # what comes next


def test_tokens_and_heads_can_be_given_by_name(make):
    traced = trace(make("translator"))
    assert traced.contributions(-1, token="17").notes["logit"] == float(traced.logits_AW[-1, 17])
    one, same = (traced.ablate(heads=heads).logits_AW for heads in ("encoder.0.mixer.3", ["encoder.0.mixer.3"]))
    assert torch.equal(one, same) and not torch.equal(one, traced.logits_AW)


def test_a_trace_needs_an_input(language):
    for given in ((), (5,), ("one", "two", "three", "four"), (["a"],)):
        with pytest.raises(UsageError, match=r"Use run\.trace\(text\)"):
            language.trace(*given)


def test_the_repr_of_an_array_is_its_shape(make):
    traced = trace(make("language"))
    parts = traced.contributions()
    assert repr(parts) == f"Named('contribution': {len(parts.values)} part, logit)"
    assert repr(traced.lens().kl) == "Named('KL': 3 layer × 6 answer, nats)"
    assert "array(" not in repr(traced.attribute()) + repr(traced.candidates()) + repr(traced.heads())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t["nix"],
        lambda t: t.rollout("nix"),
        lambda t: t.ablate(heads=5),
        lambda t: t.ablate(heads=[("decoder", 0, 1)]),
        lambda t: t.ablate(positions=[3]),
        lambda t: t.ablate(positions=("encoder", 2)),
        lambda t: t.attribute(method=None),
        lambda t: t.heads(scores=5),
    ],
)
def test_wrong_arguments_get_an_error_of_three_lines(make, wrong):
    with pytest.raises(UsageError) as refused:
        wrong(trace(make("translator")))
    assert len(str(refused.value).splitlines()) == 3


def test_a_single_score_of_heads_can_be_given_as_a_string(make):
    assert list(trace(make("language")).heads("entropy")) == ["entropy"]


def test_contributions_to_a_word_are_those_at_its_answer(make):
    traced = trace(make("translator"))
    for number, answer in enumerate(traced.subject.answers):
        if [each.label for each in traced.subject.answers].count(answer.label) == 1:
            contributions = traced.contributions(answer.label)
            assert contributions.notes["logit"] == float(traced.logits_AW[number, answer.token])


def test_half_a_surrogate_pair_is_refused(language):
    with pytest.raises(UsageError, match="not Unicode"):
        language.trace("The \ud800")
