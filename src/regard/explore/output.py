"""Questions about the output: candidates, a forced word, the continuation, and the beam tree."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.explore.session import TOKEN_FIELDS, TracedInput
from regard.inside.subject import Subject

MOST_CANDIDATES = 20  # of an answer


def candidates(traced: TracedInput, answer: int = 0) -> dict[str, Any]:
    """The likeliest candidates for an answer, and the ids that are never generated.

    Their order is the same at every temperature.
    """
    subject = traced.trace.subject
    if not 0 <= answer < len(subject.answers):
        raise UsageError(f"There is no answer {answer}.", f"There are {len(subject.answers)}.", "Choose another.")
    likeliest = traced.cached("candidates", lambda: traced.trace.candidates(MOST_CANDIDATES))
    notes = likeliest.logits.notes
    count = int(np.isfinite(likeliest.logits.values[answer]).sum())
    return {
        "words": notes["words"][answer][:count],
        "tokens": notes["tokens"][answer][:count],
        "logits": likeliest.logits.values[answer][:count].tolist(),
        "probabilities": likeliest.probabilities.values[answer][:count].tolist(),
        "rank": int(likeliest.rank.values[answer]),
        "never": sorted(subject.never_of(answer)),
    }


def force(traced: TracedInput, answer: int, token: int, more: int | None = None) -> dict[str, Any]:
    """Another word in one place, with the rest regenerated: the input that gives this output, and its words.

    `more`: how many tokens a language model writes after it.
    """
    from regard.inside.forcing import force as force_in

    task: Any = traced.task
    subject = traced.trace.subject
    takes_beginning = "forced" in inspect.signature(task.subject).parameters
    if takes_beginning and "tokens" in traced.fields:
        raise UsageError(
            "No word can be forced here.", "Tokens of this input were changed.", "Go back to the text itself."
        )
    if not 0 <= token < traced.trace.logits_AW.shape[-1]:
        raise UsageError(f"There is no token {token}.", "The vocabulary has no such id.", "Choose another.")
    forced = force_in(subject, answer, token, more)
    fields = {name: value for name, value in traced.fields.items() if name not in ("target", *TOKEN_FIELDS)}
    if takes_beginning:
        fields["forced"] = [*(earlier.token for earlier in subject.answers[:answer]), token]
    else:
        assert forced.tokens is not None
        fields |= {"tokens": forced.tokens, "written": len(forced.tokens[0]) - answer - 2}
    return {"input": fields, "output_text": forced.output_text, "words": _words(forced), "before": _words(subject)}


def _words(subject: Subject) -> list[str]:
    return [answer.label for answer in subject.answers]


def continuation(traced: TracedInput, more: int = 24) -> dict[str, Any]:
    """The greedy continuation of the text by a language model."""
    subject = traced.trace.subject
    if subject.with_prefix is None or subject.tokens is None or len(subject.stacks) > 1:
        raise UsageError(
            "This run does not generate a continuation.", "It is not a language model.", "Choose another run."
        )
    [ids] = subject.tokens
    continued = subject.with_prefix(ids[1:], max(1, min(more, 200)))
    assert continued.tokens is not None
    written = continued.tokens[0][len(ids) :]
    return {
        "tokens": written,
        "words": continued.last.pieces[len(ids) :],
        "input": traced.fields | {"tokens": continued.tokens, "written": _count_written(subject) + len(written)},
    }


def _count_written(subject: Subject) -> int:
    """How many of its tokens the model wrote."""
    return sum(not answer.given for answer in subject.answers[:-1])


def beams(traced: TracedInput, beam: int | None = None) -> dict[str, Any]:
    """Every hypothesis of every step of the search for the output."""
    from regard.inside.beams import beam_tree

    if not hasattr(traced.task, "record_search"):
        raise UsageError("There are no beams.", "This run does not decode by beam search.", "Choose another view.")
    if "forced" in traced.fields or "target" in traced.fields or "tokens" in traced.fields:
        raise UsageError(
            "There is no beam tree of this output.", "It was given, or forced.", "Go back to the model's own output."
        )
    if beam is not None and not 1 <= beam <= 8:
        raise UsageError(f"{beam} beams cannot be shown.", "A larger tree is unreadable.", "Choose 1 to 8.")
    return beam_tree(traced.task, source(traced), beam).to_json()


def source(traced: TracedInput) -> str | Path:
    """What the output is generated from: a text, or the file of an image."""
    if "image" in traced.fields:
        return traced.session.image(traced.fields["image"])
    text: str = traced.fields["text"]
    return text
