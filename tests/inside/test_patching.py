"""Effects of patching, compared with plain hooks."""

import math

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from regard.inside.image_subjects import image
from regard.inside.patching import patched
from regard.inside.readout import SpanReadout
from regard.inside.sites import sites_of
from regard.inside.subjects import caption
from regard.inside.trace import trace
from regard.models.segmenter import SegmentingSwin


def other_input(subject):
    """The same model and length, another input."""
    if subject.with_tokens is not None:
        first, *rest = subject.tokens
        changed = [first[0], *(11 if token == first[1] else token for token in first[1:])]
        return subject.with_tokens([changed, *([row[0], *(token + 1 for token in row[1:])] for row in rest)])
    height, width = (16, 16) if len(subject.stacks) == 2 and subject.stacks[0].name == "stage 1" else (8, 12)
    generator = torch.Generator().manual_seed(8)
    if subject.last.name == "decoder":
        return caption(subject.model, torch.randn(1, height, width, generator=generator), [10, 11, 7], str)
    while True:  # until the surest box of a detector is at the same position
        other = image(subject.model, torch.randn(1, height, width, generator=generator), list("abcde"))
        if other.answers[0].position == subject.answers[0].position:
            return other


def compared(traced):
    """Two words that can both be answers; for a reader, positions in its context."""
    return (4, 5) if isinstance(traced.subject.readout, SpanReadout) else (3, 4)


def difference(logits_AW, tokens):
    return float(logits_AW[-1, tokens[0]] - logits_AW[-1, tokens[1]])


@pytest.fixture(scope="module")
def pair(subject):
    return trace(other_input(subject)), trace(subject)  # clean, corrupted


def test_patching_a_whole_layer_gives_one_and_nothing_gives_zero(pair):
    clean, corrupted = pair
    answer, tokens = -1, compared(corrupted)
    d_clean, d_corrupted = (difference(each.logits_AW, tokens) for each in pair)
    embedded = {f"{stack.name}.embedding": ... for stack in corrupted.stacks if stack.name not in ("stage 2",)}
    read = corrupted.stacks if isinstance(corrupted.subject.model, SegmentingSwin) else [corrupted.last]
    patches = [{f"{stack.name}.1": ... for stack in read}, embedded, {}]
    d_N = patched(corrupted, clean, patches, answer, tokens).tolist()
    # What is copied comes from the text itself, which is not patched.
    expected = [d_clean, d_clean, d_corrupted] if not _copies(corrupted) else [None, None, d_corrupted]
    for got, value in zip(d_N, expected, strict=True):
        assert value is None or got == pytest.approx(value, abs=1e-4)
    assert abs(d_clean - d_corrupted) > 1e-3


def _copies(traced):
    return getattr(traced.subject.model, "copying", None) is not None


@pytest.mark.parametrize("what", ["residual", "heads", "parts"])
def test_effects_equal_those_of_plain_hooks(pair, what):
    clean, corrupted = pair
    if what == "heads" and not any(part.heads for part in corrupted.parts()):
        with pytest.raises(UsageError, match="no heads"):
            corrupted.patch(clean, what, answer=-1, tokens=(3, 4))
        return
    tokens = compared(corrupted)
    effects = corrupted.patch(clean, what, answer=-1, tokens=tokens)
    d_clean, d_corrupted = (difference(each.logits_AW, tokens) for each in pair)
    assert effects.notes["clean"] == pytest.approx(d_clean) and effects.notes["corrupted"] == pytest.approx(d_corrupted)
    rows, columns = effects.values.shape
    for row, column in {(0, 0), (rows - 1, 0), (rows // 2, 2), (rows - 1, columns - 1)}:
        name = effects.labels[0][row]
        size = (
            int(sites_of(corrupted.subject)[name].heads)
            if what == "heads"
            else len(corrupted[name.split(".")[0]].stack.pieces)
        )
        if column >= size:
            assert math.isnan(effects.values[row, column])
            continue
        logits_AW = _by_hand(clean, corrupted, name, column, heads=what == "heads")
        expected = (difference(logits_AW, tokens) - d_corrupted) / (d_clean - d_corrupted)
        assert effects.values[row, column] == pytest.approx(expected, abs=2e-4)


@torch.no_grad()
def _by_hand(clean, corrupted, name, position, heads):
    module = sites_of(clean.subject)[name]
    module = module.to_out if heads else module
    passed = []

    def note(_, inputs, output):
        passed.append(inputs[0] if heads else output)

    def put(_, inputs, output):
        if not heads:
            output = output.clone()
            output[:, position] = passed[0][:, position]
            return output
        width = module.in_features // sites_of(clean.subject)[name].heads
        joined = inputs[0].clone()
        joined[..., position * width : (position + 1) * width] = passed[0][
            ..., position * width : (position + 1) * width
        ]
        return torch.nn.functional.linear(joined, module.weight, module.bias)

    for hook, subject in ((note, clean.subject), (put, corrupted.subject)):
        handle = module.register_forward_hook(hook)
        logits_AW = subject.logits()[0]
        handle.remove()
    return logits_AW


def test_the_difference_is_between_the_answers_of_both_runs(make):
    corrupted = make("language")
    clean = corrupted.with_tokens([[5, 9, 31, 9, 12, 8]])
    tokens = [subject.answers[-1].token for subject in (clean, corrupted)]
    assert tokens[0] != tokens[1]
    effects = trace(corrupted).patch(trace(clean))
    assert effects.notes["answer"] == 5 and effects.notes["tokens"] == [str(token) for token in tokens]
    assert effects.values[0, 0] == 0, "the first word is the same"
    assert not effects.values[1:, :2].any(), "nor is anything else before the word that differs"
    torch.testing.assert_close(float(effects.values[-1, -1]), 1.0, atol=1e-5, rtol=0)


def test_spans_are_compared_by_their_first_position(make):
    corrupted = make("reader")
    others = (corrupted.with_tokens([[1, 9, 30, 2, 9, word, 7, 2]]) for word in range(3, 40))
    clean = next(other for other in others if other.answers[0].token != corrupted.answers[0].token)
    effects = trace(corrupted).patch(trace(clean), answer=0)
    begins = [subject.answers[0].token for subject in (clean, corrupted)]
    assert effects.notes["tokens"] == [corrupted.name_of(token) for token in begins]
    assert effects.values[0, 5] == pytest.approx(1, abs=1e-4), "the word that differs restores all of it"


def test_outputs_are_compared_where_they_first_differ(make):
    corrupted = make("translator")
    clean = corrupted.with_tokens([[5, 9, 31, 12, 2], [1, 9, 8, 14, 15]])
    effects = trace(corrupted).patch(trace(clean))
    assert effects.notes["answer"] == 2 and effects.notes["tokens"] == ["14", "7"]
    assert effects.axes == ("layer", "position") and effects.labels[0][0] == "encoder.embedding"
    assert np.isfinite(effects.values).all(), "both stacks have five positions"


@pytest.mark.parametrize(
    ("ids", "words"),
    [([5, 9, 30], "differ in length"), ([5, 9, 30, 9, 12, 7], "have the same answer")],
)
def test_inputs_that_cannot_be_compared_are_refused(make, ids, words):
    subject = make("language")
    with pytest.raises(UsageError, match=words):
        trace(subject).patch(trace(subject.with_tokens([ids])))


def test_two_models_and_unknown_activations_are_refused(make):
    one, other = trace(make("language")), trace(make("language"))
    with pytest.raises(UsageError, match="different models"):
        one.patch(other)
    again = trace(one.subject.with_tokens([[5, 9, 31, 9, 12, 8]]))
    with pytest.raises(UsageError, match="cannot be patched"):
        one.patch(again, "logits")
    with pytest.raises(UsageError, match="nothing to restore"):
        one.patch(trace(one.subject), tokens=(3, 4))
