"""A token is forced, and the model generates the rest."""

import pytest
import torch

from regard.data.tokenizers import END, START
from regard.errors import UsageError

SENTENCE = "The old man sees the dog."


def tokens_of(subject) -> list[int]:
    return [answer.token for answer in subject.answers]


def test_a_translator_searches_again_with_the_forced_prefix(trained):
    trace = trained.trace(SENTENCE)
    written = tokens_of(trace.subject)
    token = next(t for t in trace.candidates(5).logits.notes["tokens"][1] if t not in (written[1], END))
    forced = trace.force(1, token).subject
    [best] = trained.translator().translate([SENTENCE], best=1, forced=[[written[0], token]])[0]
    assert tokens_of(forced)[:2] == [written[0], token]
    assert tokens_of(forced) == [*best.tokens, END]
    assert forced.output_text == best.text != trace.subject.output_text
    assert forced.tokens[0] == trace.subject.tokens[0]


def test_forcing_the_same_token_changes_nothing(trained):
    trace = trained.trace(SENTENCE)
    for answer in (0, 2, -1):
        assert tokens_of(trace.force(answer, trace.subject.answers[answer].token).subject) == tokens_of(trace.subject)


def test_a_translation_forced_to_end_ends(trained):
    trace = trained.trace(SENTENCE)
    assert tokens_of(trace.force(2, END).subject) == [*tokens_of(trace.subject)[:2], END]
    assert tokens_of(trace.force(0, END).subject) == [END]


def greedy(model, ids: list[int], count: int, never) -> list[int]:
    """Greedy decoding with a full forward pass for every token."""
    for _ in range(count):
        with torch.no_grad():
            logits_W = model(torch.tensor([ids], device=next(model.parameters()).device))[0, -1].clone()
        logits_W[list(never)] = -torch.inf
        ids = [*ids, int(logits_W.argmax())]
    return ids


def test_a_language_model_continues_greedily(language):
    plain, more = language.subject("The old"), language.subject("The old", more=9)
    assert more.tokens[0] == greedy(language.model, plain.tokens[0], 9, plain.never)
    assert more.output_text == language.tokenizer.decode([more.tokens[0][7:]])[0] != ""
    assert plain.output_text == ""


def test_a_forced_token_changes_the_rest_of_a_text(language):
    trace = language.trace("The old", more=9)
    [ids], [s] = trace.subject.tokens, language.tokenizer.encode(["s"])[0]
    assert trace.force(6, s).subject.tokens[0] == greedy(language.model, [*ids[:7], s], 8, trace.subject.never)
    assert trace.force(2, s, more=3).subject.tokens[0] == greedy(language.model, [*ids[:3], s], 3, trace.subject.never)
    assert trace.force(-1, s).subject.tokens[0] == [*ids, s]


def test_a_text_never_grows_past_the_context(language):
    subject = language.subject("The old", more=100_000)
    assert len(subject.tokens[0]) == language.context


def test_what_cannot_be_forced_is_refused(trained, classifier):
    with pytest.raises(UsageError, match="No word can be forced"):
        classifier.trace("We sleep.").force(0, 1)
    trace = trained.trace(SENTENCE)
    with pytest.raises(UsageError, match="never generated"):
        trace.force(0, START)
    with pytest.raises(UsageError, match="There is no answer 99"):
        trace.force(99, 5)
