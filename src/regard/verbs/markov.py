"""`regard markov`: the tables of a Markov chain, and how it guesses the next word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.cells import cell_len

from regard.errors import RegardError, UsageError, did_you_mean
from regard.models.markov import ORDERS, Attention, Markov, words_of
from regard.verbs.lines import input_lines, must_be_a_file

STANDARD_INPUT = Path("-")
MOST_SAMPLES = 10_000
LONGEST_SAMPLE = 100  # words
MOST_AFTER = 100  # words: matrices of more cannot be read
FEW = 16  # words: with so few, tables show all of them; with more, those that matter
LIKELIEST = 8

# A sentence, and how often it is said.
EXAMPLES: dict[int, dict[str, int]] = {
    1: {"Show me my directories please.": 2, "Show me my files please.": 3, "Show me my photos please.": 5},
    2: {"Check whether the battery ran down please.": 2, "Check whether the program ran please.": 3},
    3: {
        "Check the program log and find out whether it ran please.": 1,
        "Check the battery log and find out whether it ran down please.": 1,
    },
}
KINDS = {
    "1": "First order: a row for each latest word.",
    "2": "Second order: a row for the two latest words.",
    "skip": "Second order with skips: a row for an earlier word and the latest one.",
}


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
    _check_options(order, mask, after, samples, seed, rows)
    if score is not None and score != STANDARD_INPUT:
        must_be_a_file(score)
    model = Markov.fit(_sentences(file) if file else _example(example), order)
    so_far = words_of(after or "")
    content: dict[str, Any] = {
        "order": order,
        "mask": mask,
        "sentences": model.sentences,
        "words": model.length,
        "vocabulary": len(model.words),
    }
    counted = f"Sentences: {model.sentences:,}. Words: {model.length:,}, of which {len(model.words):,} are different."
    parts = [f"{counted}\n{KINDS[order]}"]
    if rows:
        content["table"], shown = _table(model, so_far, rows)
        parts.append(shown)
    if so_far:
        content["after"], shown = _prediction(model, so_far, mask)
        parts.append(shown)
    if samples:
        content["samples"] = _samples(model, so_far, mask, samples, seed or 0)
        parts.append("\n".join(content["samples"]))
    if score:
        content["score"], shown = _score(model, score, mask)
        parts.append(shown)
    return content, "\n\n".join(parts)


# ---------------------------------------------------------------- what is asked


def _check_source(file: Path | None, example: int | None, score: Path | None) -> None:
    if file and example is not None:
        raise UsageError("There are two texts.", "FILE and --example are given.", "Leave one of them out.")
    if not file and example is None:
        raise UsageError(
            "A text is missing.", "Its words are to be counted.", "Give a file, - for standard input, or --example 1."
        )
    if example is not None and example not in EXAMPLES:
        raise UsageError(
            f"There is no example {example}.", f"There are {len(EXAMPLES)}, counted from 1.", "Use --example 1."
        )
    if file == score == STANDARD_INPUT:
        raise UsageError(
            "Standard input can be read only once.", "It is to be counted and scored.", "Give one of them as a file."
        )
    if file and file != STANDARD_INPUT:
        must_be_a_file(file)


def _check_options(order: str, mask: bool, after: str | None, samples: int | None, seed: int | None, rows: int) -> None:
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
    if after is not None and not words_of(after):
        raise UsageError("--after has no words.", "The word after the last of them is guessed.", 'Write --after "the".')
    if after is not None and len(words_of(after)) > MOST_AFTER:
        raise UsageError(
            f"--after has {len(words_of(after)):,} words.", f"At most {MOST_AFTER} can be shown.", "Give fewer words."
        )
    if samples is not None and not 1 <= samples <= MOST_SAMPLES:
        raise UsageError(
            f"{samples:,} samples cannot be drawn.", f"From 1 to {MOST_SAMPLES:,} can.", "Use --samples 5."
        )
    if seed is not None and samples is None:
        raise UsageError("--seed has no effect here.", "Nothing is drawn.", "Add --samples 5, or leave it out.")
    if seed is not None and seed < 0:
        raise UsageError(f"--seed {seed} is negative.", "Seeds count from 0.", "Use --seed 1.")
    if rows < 0:
        raise UsageError(f"{rows} rows cannot be shown.", "0 shows none.", "Use --rows 20.")


def _example(example: int | None) -> Iterator[list[str]]:
    for sentence, times in EXAMPLES[example or 1].items():
        yield from [words_of(sentence)] * times


def _sentences(file: Path) -> Iterator[list[str]]:
    """The words of each line that has some."""
    empty = True
    for line in input_lines([] if file == STANDARD_INPUT else [file]):
        if words := words_of(line):
            empty = False
            yield words
    if empty:
        name = "Standard input" if file == STANDARD_INPUT else f"'{file}'"
        raise RegardError(
            f"{name} has no words.", "It is empty, or holds punctuation only.", "Give one sentence a line."
        )


# ---------------------------------------------------------------- what is found


def _table(model: Markov, so_far: Sequence[str], most: int) -> tuple[dict[str, Any], str]:
    latest = ""
    lines = []
    if model.order == "skip":
        latest = so_far[-1] if so_far else model.most_telling()
        lines += [f"The latest word is '{latest}'{'' if so_far else '; choose another with --after'}.", ""]
    contexts, in_all = model.contexts(latest, most)
    found = [(context, model.row(context)) for context in contexts]
    content = {
        "latest": latest or None,
        "rows": [{"context": list(context), "next": row} for context, row in found],
        "rows_in_all": in_all,
    }
    named = [((", " if model.order == "skip" else " ").join(context), row) for context, row in found]
    if len(model.words) <= FEW:
        follow = {word for _, row in named for word in row or {}}
        columns = [word for word in model.words if model.order != "skip" or word in follow]
        rest = [("-", dict.fromkeys(columns, 0.0))] if model.order == "2" and len(contexts) == in_all else []
        lines.append(_grid([["", *columns], *([name, *_cells(row, columns)] for name, row in [*named, *rest])]))
        lines += ["", "-  every other pair of words"] if rest else []
    else:
        lines.append(_lists([(name, row or {}) for name, row in named]))
    if len(contexts) < in_all:
        lines += ["", f"{in_all - len(contexts):,} more rows; these are the most frequent. --rows {in_all} shows all."]
    return content, "\n".join(lines)


def _prediction(model: Markov, so_far: list[str], mask: bool) -> tuple[dict[str, Any], str]:
    guess = model.distribution(so_far, mask)
    source = model.rests_on(so_far, mask)
    content: dict[str, Any] = {"words": so_far, "rests_on": source, "distribution": guess}
    lines = [f'After "{" ".join(so_far)}"']
    latest = so_far[-1]
    if model.order == "skip":
        attention = model.attention(so_far, mask, among=None if len(model.words) <= FEW else so_far)
        content["attention"] = _attention_content(attention)
        lines += ["", *_votes(attention, latest, mask)]
        if mask and len(so_far) > 1:
            lines += ["", *_product(attention, latest)]
        if source == "latest":
            lines += ["", f"No vote is left, so '{latest}' speaks alone:", "", _lists([("", guess)])]
        return content, "\n".join(lines)
    pair = " ".join(so_far[-2:])
    if source == "pair":
        lines += [f"What follows '{pair}':" if len(so_far) > 1 else f"What follows '{pair}' where a sentence begins:"]
    elif model.order == "2":
        lines += [f"'{pair}' was never seen. What follows '{latest}' alone:"]
    else:
        lines += [f"What follows '{latest}':"]
    return content, "\n".join([*lines, "", _lists([("", guess)])])


def _samples(model: Markov, so_far: list[str], mask: bool, samples: int, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    texts = []
    for _ in range(samples):
        drawn = model.sample(generator, so_far, mask, LONGEST_SAMPLE)
        texts.append(" ".join([*so_far, *drawn, *(["…"] if len(drawn) == LONGEST_SAMPLE else [])]))
    return texts


def _score(model: Markov, file: Path, mask: bool) -> tuple[dict[str, Any], str]:
    score = model.score(_sentences(file), mask)
    name = "standard input" if file == STANDARD_INPUT else f"'{file}'"
    shown = [
        f"{score.bits_per_word:.3f} bits per word, perplexity {score.perplexity:.2f} on {name}.",
        f"It has {score.words:,} words, {score.unknown:,} of them unknown. "
        f"Its {score.sentences:,} ends of sentences are guessed too, and count as words.",
    ]
    return asdict(score), "\n".join(shown)


# ---------------------------------------------------------------- votes, and the same as matrices


def _votes(attention: Attention, latest: str, mask: bool) -> list[str]:
    """The row of every word that stands before the latest one, and their sum."""
    voters = np.flatnonzero(attention.present_W)
    if not voters.size:
        return [f"No word stands before '{latest}', so there is no vote."]
    votes = attention.votes_N
    columns, hidden = _columns(attention)
    crossed = attention.attended_W == 0
    lines = [["", *(attention.candidates[column] for column in columns), ""]]
    for voter in voters:
        seen = attention.seen_W[voter]
        note = "" if seen else "never seen together"
        if seen and mask and crossed[voter]:
            note = "crossed out"
        cells = [_number(value) if seen else "" for value in attention.transitions_WN[voter, columns]]
        lines.append([f"{attention.words[voter]}, {latest}", *cells, note])
    lines.append(["sum of votes", *map(_number, votes[columns]), ""])
    if votes.any():
        lines.append(["normalised", *map(_number, votes[columns] / votes.sum()), ""])
    title = f"The votes, without those that say the same as '{latest}' alone:" if mask else "The votes:"
    return [title, "", _grid(lines, notes=True), *hidden]


def _product(attention: Attention, latest: str) -> list[str]:
    """query · K, then the words present, then the transitions."""
    words = attention.words
    masks = [[f"K  {word}", *map(_number, row)] for word, row in zip(words, attention.masks_WW, strict=True)]
    vectors = [
        ["", *words],
        ["query", *map(_number, attention.query_W)],
        *masks,
        ["mask", *map(_number, attention.mask_W)],
        ["present", *map(_number, attention.present_W)],
        ["attended", *map(_number, attention.attended_W)],
    ]
    columns, hidden = _columns(attention)
    transitions = [["attended", "transitions", *(attention.candidates[column] for column in columns)]]
    for word, weight, row in zip(words, attention.attended_W, attention.transitions_WN, strict=True):
        transitions.append([_number(weight), f"{word}, {latest}", *map(_number, row[columns])])
    transitions.append(["", "votes", *map(_number, attention.votes_N[columns])])
    return [
        "The same as a product of matrices, which is what attention does:",
        "",
        f"query     the latest word, '{latest}', as a one-hot vector",
        "K         a mask for each latest word: 1 for the earlier words that tell more than it does alone",
        f"mask      query · K, which is the mask of '{latest}'",
        f"present   1 for the words before '{latest}'",
        "attended  mask ∘ present, number by number",
        "votes     attended · transitions",
        "",
        _grid(vectors),
        "",
        _grid(transitions, names=2),
        *hidden,
    ]


def _columns(attention: Attention) -> tuple[list[int], list[str]]:
    """The candidates with most votes, in the order of the table; and a line on those that are not shown."""
    before_masking = attention.present_W @ attention.transitions_WN
    likeliest = np.lexsort([-before_masking, -attention.votes_N])[:LIKELIEST]
    hidden = len(attention.candidates) - len(likeliest)
    note = ["", f"{hidden:,} more words get a vote; these get the most."] if hidden else []
    return sorted(likeliest.tolist()), note


def _attention_content(attention: Attention) -> dict[str, Any]:
    """All matrices as lists."""
    return {
        "words": attention.words,
        "candidates": attention.candidates,
        "query": attention.query_W.tolist(),
        "masks": attention.masks_WW.tolist(),
        "mask": attention.mask_W.tolist(),
        "present": attention.present_W.tolist(),
        "attended": attention.attended_W.tolist(),
        "transitions": attention.transitions_WN.tolist(),
        "votes": attention.votes_N.tolist(),
    }


# ---------------------------------------------------------------- printing


def _number(value: float) -> str:
    """As short as it can be read: 0, .2, .33, 1, 4.5."""
    if 0 < value < 0.00005:
        return "~0"
    shown = f"{value:.2f}" if value >= 0.095 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"
    shown = shown.rstrip("0").rstrip(".") if "." in shown else shown
    if shown == "1" and value < 1:
        return "~1"
    return shown.removeprefix("0") or "0"


def _cells(row: Mapping[str, float] | None, columns: Sequence[str]) -> list[str]:
    """A row of the table; blank if its words were never seen together."""
    return ["" if row is None else _number(row.get(column, 0.0)) for column in columns]


def _lists(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Each row with what is likeliest to follow."""
    width = max(cell_len(name) for name, _ in rows)
    lines = []
    for name, row in rows:
        likeliest = sorted(row.items(), key=lambda pair: -pair[1])
        named = [f"{word} {_number(share)}" for word, share in likeliest[:LIKELIEST]]
        more = [f"… {len(row) - LIKELIEST:,} more"] if len(row) > LIKELIEST else []
        lines.append((name + " " * (width - cell_len(name)) + "  " + "   ".join(named + more)).rstrip())
    return "\n".join(lines)


def _grid(rows: Sequence[Sequence[str]], names: int = 1, notes: bool = False) -> str:
    """Columns as wide as their widest entry; names (and notes, the last column) to the left, numbers to the right."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - cell_len(cell))
            left = place < names or (notes and place == len(row) - 1)
            cells.append(cell + gap if left else gap + cell)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
