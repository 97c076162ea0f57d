"""The work of `regard markov`: what is asked is checked, the text is read, and each part described."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.cli.lines import input_lines, must_be_a_file
from regard.errors import RegardError, UsageError, did_you_mean
from regard.explain.markov import EXAMPLES, describe_prediction, describe_table, describe_text, draw_samples
from regard.models.markov import ORDERS, Markov, split_words

STANDARD_INPUT = Path("-")
MOST_AFTER = 100  # words: matrices of more cannot be read


def describe(
    file: Path | None,
    example: int | None,
    order: str,
    mask: bool,
    after: str | None,
    samples: int | None,
    seed: int | None,
    score: Path | None,
    rows: int,
) -> tuple[dict[str, Any], str]:
    """What there is to tell, for scripts and for people."""
    _check_source(file, example, score)
    _check_options(order, mask, after, samples, seed)
    model = Markov.fit(_sentences(file) if file else _example(example or 1), order)
    so_far = split_words(after or "")
    content, shown = describe_text(model, mask)
    parts = [shown]
    if rows:
        content["table"], shown = describe_table(model, so_far, rows)
        parts.append(shown)
    if so_far:
        content["after"], shown = describe_prediction(model, so_far, mask)
        parts.append(shown)
    if samples:
        content["samples"] = draw_samples(model, so_far, mask, samples, seed or 0)
        parts.append("\n".join(content["samples"]))
    if score:
        content["score"], shown = _score(model, score, mask)
        parts.append(shown)
    return content, "\n\n".join(parts)


def _score(model: Markov, file: Path, mask: bool) -> tuple[dict[str, Any], str]:
    score = model.score(_sentences(file), mask)
    name = "standard input" if file == STANDARD_INPUT else f"'{file}'"
    return asdict(score), (
        f"{score.bits_per_word:.3f} bits per word, perplexity {score.perplexity:.2f} on {name}.\n"
        f"It has {score.words:,} words, {score.unknown:,} of them unknown. "
        f"Its {score.sentences:,} ends of sentences are predicted too, and count as words."
    )


def _example(number: int) -> Iterator[list[str]]:
    for sentence, times in EXAMPLES[number].items():
        yield from [split_words(sentence)] * times


def _sentences(file: Path) -> Iterator[list[str]]:
    """The words of each line that has some."""
    empty = True
    for line in input_lines([] if file == STANDARD_INPUT else [file]):
        if words := split_words(line):
            empty = False
            yield words
    if empty:
        name = "Standard input" if file == STANDARD_INPUT else f"'{file}'"
        raise RegardError(
            f"{name} has no words.", "It is empty, or holds punctuation only.", "Give one sentence per line."
        )


# ---------------------------------------------------------------- checks


def _check_source(file: Path | None, example: int | None, score: Path | None) -> None:
    if file and example is not None:
        raise UsageError("There are two texts.", "FILE and --example are given.", "Leave one of them out.")
    if not file and example is None:
        raise UsageError(
            "A text is missing.", "Its words are to be counted.", "Give a file, - for standard input, or --example 1."
        )
    if file == score == STANDARD_INPUT:
        raise UsageError(
            "Standard input can be read only once.", "It is to be counted and scored.", "Give one of them as a file."
        )
    for path in (file, score):
        if path and path != STANDARD_INPUT:
            must_be_a_file(path)


def _check_options(order: str, mask: bool, after: str | None, samples: int | None, seed: int | None) -> None:
    if order not in ORDERS:
        raise UsageError(
            f"There is no order '{order}'.", "Words are counted in three ways.", did_you_mean(order, ORDERS)
        )
    if mask and order != "skip":
        raise UsageError(
            "--mask has no effect here.",
            f"Order {order} has one vote only, and none to cross out.",
            "Use --order skip.",
        )
    words = split_words(after or "")
    if after is not None and not words:
        raise UsageError(
            "--after has no words.", "The word after the last of them is predicted.", 'Write --after "the".'
        )
    if after is not None and len(split_words(after)) > MOST_AFTER:
        raise UsageError(
            f"--after has {len(split_words(after)):,} words.",
            f"At most {MOST_AFTER} can be shown.",
            "Give fewer words.",
        )
    if seed is not None and samples is None:
        raise UsageError("--seed has no effect here.", "Nothing is drawn.", "Add --samples 5, or leave it out.")
