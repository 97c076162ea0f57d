"""What the page asks about the output: candidates, a word that is forced, what would come next, and the beam tree."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.explore.session import OF_TOKENS, Looked
from regard.inside.subject import Subject

SHOWN = 20  # candidates of a place


def candidates(looked: Looked, answer: int = 0) -> dict[str, Any]:
    """The likeliest at one place: words, ids, logits and probabilities; and the ids that are never written.

    Their order is the same at every temperature.
    """
    subject = looked.trace.subject
    if not 0 <= answer < len(subject.answers):
        raise UsageError(f"There is no answer {answer}.", f"There are {len(subject.answers)}.", "Choose another.")
    found = looked.once("candidates", lambda: looked.trace.candidates(SHOWN))
    notes = found.logits.notes
    count = int(np.isfinite(found.logits.values[answer]).sum())
    return {
        "words": notes["words"][answer][:count],
        "tokens": notes["tokens"][answer][:count],
        "logits": found.logits.values[answer][:count].tolist(),
        "probabilities": found.probabilities.values[answer][:count].tolist(),
        "rank": int(found.rank.values[answer]),
        "never": sorted(subject.never_of(answer)),
    }


def force(looked: Looked, answer: int, token: int, more: int | None = None) -> dict[str, Any]:
    """Another word at one place, and the rest written anew: the input that gives this, and its words.

    `more`: how many tokens a language model writes after it.
    """
    task: Any = looked.task
    subject = looked.trace.subject
    from_the_start = "forced" in inspect.signature(task.subject).parameters
    if from_the_start and "tokens" in looked.given:
        raise UsageError(
            "No word can be forced here.", "Tokens of this input were changed.", "Go back to the text itself."
        )
    from regard.inside.forcing import force as forced

    if not 0 <= token < looked.trace.logits_AW.shape[-1]:
        raise UsageError(f"There is no token {token}.", "There is no word with this number.", "Choose a word.")
    other = forced(subject, answer, token, more)
    input_ = {name: value for name, value in looked.given.items() if name not in ("target", *OF_TOKENS)}
    if from_the_start:
        input_["forced"] = [*(each.token for each in subject.answers[:answer]), token]
    else:
        assert other.tokens is not None
        input_ |= {"tokens": other.tokens, "written": len(other.tokens[0]) - answer - 2}
    return {"input": input_, "output_text": other.output_text, "words": _words(other), "before": _words(subject)}


def _words(subject: Subject) -> list[str]:
    return [answer.label for answer in subject.answers]


def continuation(looked: Looked, more: int = 24) -> dict[str, Any]:
    """What a language model would write after this text, each time the likeliest."""
    subject = looked.trace.subject
    if subject.with_prefix is None or subject.tokens is None or len(subject.stacks) > 1:
        raise UsageError(
            "This run does not generate a continuation.", "It is not a language model.", "Choose another run."
        )
    [ids] = subject.tokens
    other = subject.with_prefix(ids[1:], max(1, min(more, 200)))
    assert other.tokens is not None
    written = other.tokens[0][len(ids) :]
    return {
        "tokens": written,
        "words": other.last.pieces[len(ids) :],
        "input": looked.given | {"tokens": other.tokens, "written": _written(subject) + len(written)},
    }


def _written(subject: Subject) -> int:
    """Of the tokens that are there, how many the model has written."""
    return sum(not answer.given for answer in subject.answers[:-1])


def beams(looked: Looked, beam: int | None = None) -> dict[str, Any]:
    """The search for what was said: every hypothesis of every step."""
    from regard.inside.beams import beam_tree

    if not hasattr(looked.task, "record_search"):
        raise UsageError("There are no beams.", "This run keeps no hypotheses.", "Choose another view.")
    if "forced" in looked.given or "target" in looked.given or "tokens" in looked.given:
        raise UsageError(
            "There is no beam tree of this output.", "It was given, or forced.", "Go back to the model's own output."
        )
    if beam is not None and not 1 <= beam <= 8:
        raise UsageError(f"{beam} beams are not shown.", "A tree of more cannot be read.", "Choose 1 to 8.")
    return beam_tree(looked.task, source(looked), beam).to_json()


def source(looked: Looked) -> str | Path:
    """What the output is about: a text, or the file of an image."""
    if "image" in looked.given:
        return looked.session.image(looked.given["image"])
    text: str = looked.given["text"]
    return text
