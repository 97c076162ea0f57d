"""What the page asks about changes: parts switched off, words changed, activations of another input.

Shapes: A answers · W words or classes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError, UsageError
from regard.explore.session import OF_TOKENS, Looked, fitting, with_tokens
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
    looked: Looked, heads: Names = (), parts: Names = (), layers: Names = (), positions: Positions = (), by: By = "zero"
) -> dict[str, Any]:
    """What the model says with these switched off, beside what it said."""
    off = looked.trace.ablate(heads, parts, layers, positions, by)
    return _beside(looked, off.logits_AW) | {"off": off.off.names, "by": by}


def change(looked: Looked, tokens: list[list[int]]) -> dict[str, Any]:
    """What the model says about other tokens in the place of these, as many of them."""
    here = looked.trace.subject
    with fitting():
        there = with_tokens(here, tokens)
    if [len(stack.pieces) for stack in there.stacks] != [len(stack.pieces) for stack in here.stacks]:
        raise UsageError(
            "These are not as many tokens.", "Answers are compared place by place.", "Change or swap tokens only."
        )
    pieces = [stack.pieces for stack in there.stacks]
    return _beside(looked, there.logits()[0]) | {"pieces": pieces, "input": looked.given | {"tokens": tokens}}


def opened(looked: Looked, tokens: list[list[int]]) -> dict[str, Any]:
    """The input to ask for where other tokens are to be looked into: their text, if it is read as these tokens.

    About another source the model then generates another output; one that was changed is given.
    """
    here = looked.trace.subject
    with fitting():
        there = with_tokens(here, tokens)
    plain = {name: value for name, value in looked.given.items() if name not in ("target", *OF_TOKENS)}
    as_text = plain | {"text": there.input_text}
    changed = len(tokens) > 1 and here.tokens is not None and tokens[-1] != here.tokens[-1]
    if changed:
        as_text["target"] = there.output_text
    try:
        found = looked.session.looked(looked.run, as_text).trace.subject.tokens if "text" in looked.given else None
    except RegardError:
        found = None
    same = found is not None and found[0] == tokens[0] and (not changed or found[-1] == tokens[-1])
    return {"input": as_text if same else plain | {"tokens": tokens}}


def _beside(looked: Looked, logits_AW: Tensor) -> dict[str, Any]:
    """The likeliest of each answer before and after, and how the log-probability of what was said changed."""
    traced = looked.trace
    before_A, after_A = log_p_of_answers(traced.subject, torch.stack([traced.logits_AW, logits_AW]))
    axes = [("answer", answer_names(traced))]
    return {
        "before": _likeliest(traced.subject, traced.logits_AW),
        "after": _likeliest(traced.subject, logits_AW),
        "said": after_A.exp().tolist(),
        "change": named("change of log-probability", after_A - before_A, axes, "nats").to_json(),
    }


def _likeliest(subject: Subject, logits_AW: Tensor) -> dict[str, Any]:
    best_A = subject.likeliest(logits_AW)
    p_A = subject.log_p(logits_AW).exp().gather(1, best_A[:, None])[:, 0]
    words = [subject.name_of(token) for token in best_A.tolist()]
    return {"tokens": best_A.tolist(), "words": words, "probabilities": p_A.tolist()}


def rewrite(
    looked: Looked,
    heads: Names = (),
    parts: Names = (),
    layers: Names = (),
    positions: Positions = (),
    by: By = "zero",
    tokens: list[list[int]] | None = None,
    most: int = 64,
) -> dict[str, Any]:
    """What the model writes with these off, or about other tokens, each time the likeliest; beside its own."""
    from regard.inside.regeneration import MOST, regenerate

    here = looked.trace.subject
    with fitting():
        there = here if tokens is None else with_tokens(here, tokens)
    off = Off(tuple(heads), tuple(parts), tuple(layers), tuple(positions))
    for stack, _ in off.positions:
        looked.trace[stack]  # or else it says which there are
    most, longest = max(1, min(most, MOST)), _longest(looked)
    own = looked.once(f"written {most}", lambda: regenerate(here, Off(), most=most, longest=longest))
    reference = [looked.trace] if tokens is None else [trace(there)]
    other = regenerate(there, off, by, reference, most, longest)
    said = {"before": own, "after": other}
    return {
        which: {"tokens": ids, "words": [here.name_of(token) for token in ids], "ended": len(ids) < most}
        for which, ids in said.items()
    }


def _longest(looked: Looked) -> int | None:
    """Positions that the model can read."""
    task: Any = looked.task
    return getattr(task, "context", None) or getattr(task, "longest_source", None)


def patch(looked: Looked, other: dict[str, Any], what: What = "residual", answer: int | None = None) -> dict[str, Any]:
    """What of another input, put in here, leads to what is said about that one.

    Where an output is read beside the input, both are read with the output of this one, and the words that are
    compared are the likeliest of each.
    """
    from regard.inside.patching import patch as patched

    here, there = looked.trace, looked.session.looked(looked.run, other).trace
    tokens: tuple[int, int] | None = None
    ours, theirs = here.subject.tokens, there.subject.tokens
    if ours is not None and theirs is not None and len(ours) > 1:
        there = trace(with_tokens(there.subject, [*theirs[:-1], *ours[-1:]]))
        ours_A, theirs_A = (here.subject.likeliest(each.logits_AW) for each in (here, there))
        if answer is None:
            differ = (ours_A != theirs_A).nonzero()[:, 0].tolist()
            if not differ:
                raise UsageError(
                    "There is nothing to restore.",
                    "Both inputs have the same likeliest token at every position of this output.",
                    "Take another input.",
                )
            answer = differ[0]
        _must_be_there(looked, answer)
        tokens = int(theirs_A[answer]), int(ours_A[answer])
    if answer is not None:
        _must_be_there(looked, answer)
    effect = patched(here, there, what, answer, tokens).to_json()
    return effect | {"other": {stack.name: stack.pieces for stack in there.subject.stacks}}


def _must_be_there(looked: Looked, answer: int) -> None:
    count = len(looked.trace.subject.answers)
    if not 0 <= answer < count:
        raise UsageError(f"There is no answer {answer}.", f"There are {count}.", f"Use one from 0 to {count - 1}.")


def vocabulary(looked: Looked, prefix: str, stack: str = "", most: int = 20) -> dict[str, Any]:
    """Tokens of a stack whose words begin like this, the commonest first: ids and words."""
    found = next((each for each in looked.trace.subject.stacks if each.name == stack), looked.trace.subject.stacks[0])
    if found.words is None:
        raise UsageError(
            "There is no vocabulary to search here.", f"'{found.name}' does not read words.", "Choose another."
        )
    names = looked.once(f"words of {found.name}", lambda: _names(found))
    wanted = prefix.strip().casefold()
    ids = [token for token, name in enumerate(names) if name.strip().casefold().startswith(wanted)]
    ids.sort(key=lambda token: names[token].strip().casefold() != wanted)  # the word itself first; others stay in order
    ids = ids[: max(1, min(most, 20))]
    return {"tokens": ids, "words": [names[token] for token in ids]}


def _names(stack: Stack) -> list[str]:
    assert stack.words is not None
    embed: Any = stack.embed
    return [stack.words(token) for token in range(embed.table.num_embeddings)]
