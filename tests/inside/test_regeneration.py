"""Regeneration with heads, parts or positions switched off."""

import pytest
import torch

from regard.data.tokenizers import END, START
from regard.errors import UsageError
from regard.inside.ablation import Off
from regard.inside.regeneration import regenerate
from regard.inside.trace import trace

SENTENCE = "The old farmer helps the child."


def greedy(model, source, count):
    """Greedy decoding with a full forward pass for every token."""
    device = next(model.parameters()).device
    source_1S = torch.tensor([source], device=device)
    target = [START]
    while len(target) <= count:
        target_1T = torch.tensor([target], device=device)
        inputs = [
            (x, torch.ones_like(x), torch.arange(x.shape[1], device=device)[None]) for x in (source_1S, target_1T)
        ]
        with torch.no_grad():
            logits_W = model(*inputs[0], *inputs[1])[0, -1].clone()
        logits_W[[0, START]] = -torch.inf
        token = int(logits_W.argmax())
        if token == END:
            break
        target.append(token)
    return target[1:]


@pytest.mark.parametrize("heads", [[1], [0, 1, 2, 3]])
def test_regeneration_equals_greedy_decoding_without_these_heads(trained, heads):
    subject, module = trained.subject(SENTENCE), trained.model.decoder[0].cross
    assert module.heads == 4
    own = regenerate(subject, Off())
    assert own == greedy(trained.model, subject.tokens[0], 64)
    regenerated = regenerate(subject, Off(heads=tuple(f"decoder.0.cross.{head}" for head in heads)), most=12)
    before = module.to_out.weight.detach().clone()
    try:
        with torch.no_grad():
            module.to_out.weight.unflatten(1, (4, -1))[:, heads] = 0
        assert regenerated == greedy(trained.model, subject.tokens[0], 12)
    finally:
        with torch.no_grad():
            module.to_out.weight.copy_(before)
    assert len(heads) == 1 or regenerated != own


def test_a_language_model_continues_up_to_its_context(make):
    subject = make("language")
    ids = list(subject.tokens[0])
    for _ in range(5):
        ids.append(int(subject.with_tokens([ids]).logits()[0, -1].argmax()))
    assert regenerate(subject, Off(), most=5) == ids[6:]
    assert regenerate(subject, Off(), most=5, longest=8) == ids[6:8]
    assert regenerate(subject, Off(parts=("layers.0.feedforward",)), most=5) != ids[6:]


def test_a_position_that_is_off_stays_off_while_the_text_grows(make):
    subject = make("translator")
    last = ("decoder", 3)
    tokens = regenerate(subject, Off(positions=(last,)), most=6)
    for step in range(len(tokens)):
        now = subject.with_tokens([subject.tokens[0], [START, *tokens[:step]]])
        off = Off(positions=(last,) if step >= 3 else ())
        logits_W = trace(now).ablate(positions=off.positions).logits_AW[-1]
        logits_W[list(subject.never)] = -torch.inf
        assert int(logits_W.argmax()) == tokens[step]


def test_a_class_cannot_be_regenerated(make):
    with pytest.raises(UsageError, match="regenerated here"):
        regenerate(make("text_classifier"), Off())
