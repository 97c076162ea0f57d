"""Questions about changes: parts switched off, tokens replaced, activations of another input patched in.

Shapes: A answers · W words or classes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError, UsageError
from regard.explore.session import TOKEN_FIELDS, TracedInput, tokens_must_fit, with_tokens
from regard.inside.ablation import By, Off
from regard.inside.lens import answer_names
from regard.inside.named import named
from regard.inside.patching import What
from regard.inside.subject import Stack, Subject
from regard.inside.trace import trace
from regard.inside.variants import log_p_of_answers

Names = Sequence[str]
Positions = Sequence[tuple[str, int]]


def ablate(
    traced: TracedInput,
    heads: Names = (),
    parts: Names = (),
    layers: Names = (),
    positions: Positions = (),
    by: By = "zero",
) -> dict[str, Any]:
    """The answers with these switched off, compared with the original ones."""
    off = traced.trace.ablate(heads, parts, layers, positions, by)
    return _compared(traced, off.logits_AW) | {"off": off.off.names, "by": by}


def change(traced: TracedInput, tokens: list[list[int]]) -> dict[str, Any]:
    """The answers with other tokens, the same number of them, compared with the original ones."""
    subject = traced.trace.subject
    with tokens_must_fit():
        changed = with_tokens(subject, tokens)
    if [len(stack.pieces) for stack in changed.stacks] != [len(stack.pieces) for stack in subject.stacks]:
        raise UsageError(
            "These are not as many tokens.", "Answers are compared one by one.", "Change or swap tokens only."
        )
    pieces = [stack.pieces for stack in changed.stacks]
    return _compared(traced, changed.logits()[0]) | {"pieces": pieces, "input": traced.fields | {"tokens": tokens}}


def input_for_tokens(traced: TracedInput, tokens: list[list[int]]) -> dict[str, Any]:
    """The input that leads to these tokens: their text, if it is tokenised as these tokens, else the tokens themselves.

    With a changed source, the model generates a new output; a changed output is given.
    """
    subject = traced.trace.subject
    with tokens_must_fit():
        changed = with_tokens(subject, tokens)
    plain = {name: value for name, value in traced.fields.items() if name not in ("target", *TOKEN_FIELDS)}
    as_text = plain | {"text": changed.input_text}
    output_changed = len(tokens) > 1 and subject.tokens is not None and tokens[-1] != subject.tokens[-1]
    if output_changed:
        as_text["target"] = changed.output_text
    try:
        read = traced.session.traced(traced.run, as_text).trace.subject.tokens if "text" in traced.fields else None
    except RegardError:
        read = None
    same = read is not None and read[0] == tokens[0] and (not output_changed or read[-1] == tokens[-1])
    return {"input": as_text if same else plain | {"tokens": tokens}}


def _compared(traced: TracedInput, logits_AW: Tensor) -> dict[str, Any]:
    """The likeliest token of each answer before and after, and how the log-probability of the output changed."""
    original = traced.trace
    before_A, after_A = log_p_of_answers(original.subject, torch.stack([original.logits_AW, logits_AW]))
    axes = [("answer", answer_names(original))]
    return {
        "before": _likeliest(original.subject, original.logits_AW),
        "after": _likeliest(original.subject, logits_AW),
        "p_output": after_A.exp().tolist(),
        "change": named("change of log-probability", after_A - before_A, axes, "nats").to_json(),
    }


def _likeliest(subject: Subject, logits_AW: Tensor) -> dict[str, Any]:
    best_A = subject.likeliest(logits_AW)
    p_A = subject.log_p(logits_AW).exp().gather(1, best_A[:, None])[:, 0]
    words = [subject.name_of(token) for token in best_A.tolist()]
    return {"tokens": best_A.tolist(), "words": words, "probabilities": p_A.tolist()}


def regenerate(
    traced: TracedInput,
    heads: Names = (),
    parts: Names = (),
    layers: Names = (),
    positions: Positions = (),
    by: By = "zero",
    tokens: list[list[int]] | None = None,
    most: int = 64,
) -> dict[str, Any]:
    """The greedy output with these off, or for other tokens, beside the greedy output without the change."""
    from regard.inside.regeneration import MOST, regenerate

    subject = traced.trace.subject
    with tokens_must_fit():
        changed = subject if tokens is None else with_tokens(subject, tokens)
    off = Off(tuple(heads), tuple(parts), tuple(layers), tuple(positions))
    for stack, _ in off.positions:
        traced.trace[stack]  # raises the error that lists the stacks
    most, longest = max(1, min(most, MOST)), _context_length(traced)
    before = traced.cached(f"written {most}", lambda: regenerate(subject, Off(), most=most, longest=longest))
    reference = [traced.trace] if tokens is None else [trace(changed)]
    after = regenerate(changed, off, by, reference, most, longest)
    return {
        when: {"tokens": ids, "words": [subject.name_of(token) for token in ids], "ended": len(ids) < most}
        for when, ids in {"before": before, "after": after}.items()
    }


def _context_length(traced: TracedInput) -> int | None:
    """Positions that the model can read; None: any number."""
    task: Any = traced.task
    return getattr(task, "context", None) or getattr(task, "longest_source", None)


def patch(
    traced: TracedInput, other: dict[str, Any], what: What = "residual", answer: int | None = None
) -> dict[str, Any]:
    """Which activations of another input, patched into this one, restore the other's answer.

    A decoder reads an output beside the input: both inputs are then run with this one's output, and the likeliest
    words of each are compared.
    """
    from regard.inside.patching import patch as patch_in

    if answer is not None:
        _check_answer(traced, answer)
    here, there = traced.trace, traced.session.traced(traced.run, other).trace
    tokens: tuple[int, int] | None = None
    ours, theirs = here.subject.tokens, there.subject.tokens
    if ours is not None and theirs is not None and len(ours) > 1:
        there = trace(with_tokens(there.subject, [*theirs[:-1], *ours[-1:]]))
        ours_A, theirs_A = (here.subject.likeliest(trace.logits_AW) for trace in (here, there))
        if answer is None:
            differ = (ours_A != theirs_A).nonzero()[:, 0].tolist()
            if not differ:
                raise UsageError(
                    "There is nothing to restore.",
                    "Both inputs have the same likeliest token at every position of this output.",
                    "Take another input.",
                )
            answer = differ[0]
        tokens = int(theirs_A[answer]), int(ours_A[answer])
    effect = patch_in(here, there, what, answer, tokens).to_json()
    return effect | {"other": {stack.name: stack.pieces for stack in there.subject.stacks}}


def _check_answer(traced: TracedInput, answer: int) -> None:
    count = len(traced.trace.subject.answers)
    if not 0 <= answer < count:
        raise UsageError(f"There is no answer {answer}.", f"There are {count}, counted from 0.", "Choose another.")


def vocabulary(traced: TracedInput, prefix: str, stack: str = "", most: int = 20) -> dict[str, Any]:
    """Tokens of a stack whose words start with `prefix`, the most frequent first."""
    stacks = traced.trace.subject.stacks
    searched = next((candidate for candidate in stacks if candidate.name == stack), stacks[0])
    if searched.words is None:
        raise UsageError(
            "There is no vocabulary to search here.", f"'{searched.name}' does not read words.", "Choose another."
        )
    words = traced.cached(f"words of {searched.name}", lambda: _words(searched))
    query = prefix.strip().casefold()
    ids = [token for token, word in enumerate(words) if word.strip().casefold().startswith(query)]
    ids.sort(key=lambda token: words[token].strip().casefold() != query)  # exact matches first; the sort is stable
    ids = ids[: max(1, min(most, 20))]
    return {"tokens": ids, "words": [words[token] for token in ids]}


def _words(stack: Stack) -> list[str]:
    assert stack.words is not None
    embed: Any = stack.embed
    return [stack.words(token) for token in range(embed.table.num_embeddings)]
