"""A Markov chain in tables: its transitions, its predictions, and the same prediction as attention.

Each function returns its result twice: as plain values for scripts, and as text for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.models.markov import Markov, VoteTable
from regard.tables import text_table

LONGEST_SAMPLE = 100  # words
FEW = 16  # words: up to this many, tables show all of them, otherwise the likeliest
LIKELIEST = 8

# Sentences and how often each occurs.
EXAMPLES: dict[int, dict[str, int]] = {
    1: {"Show me my directories please.": 2, "Show me my files please.": 3, "Show me my photos please.": 5},
    2: {"Check whether the battery ran down please.": 2, "Check whether the program ran please.": 3},
    3: {
        "Check the program log and find out whether it ran please.": 1,
        "Check the battery log and find out whether it ran down please.": 1,
    },
}
ORDER_SHOWN = {
    "1": "First order: a row for each latest word.",
    "2": "Second order: a row for the two latest words.",
    "skip": "Second order with skips: a row for an earlier word and the latest one.",
}
PRODUCT_LEGEND = """The same as a product of matrices, as in attention:

query     the latest word, '{latest}', as a one-hot vector
K         a mask for each latest word: 1 for earlier words that add information to it
mask      query · K, which is the mask of '{latest}'
present   1 for the words before '{latest}'
attended  mask ∘ present, element by element
votes     attended · transitions"""

Described = tuple[dict[str, Any], str]


def describe_text(model: Markov, mask: bool) -> Described:
    """The counts of the text, and the order of the model."""
    content = {
        "order": model.order,
        "mask": mask,
        "sentences": model.sentences,
        "words": model.word_count,
        "vocabulary": len(model.words),
    }
    counted = (
        f"Sentences: {model.sentences:,}. Words: {model.word_count:,}, of which {len(model.words):,} are different."
    )
    return content, f"{counted}\n{ORDER_SHOWN[model.order]}"


def describe_table(model: Markov, so_far: Sequence[str], most: int) -> Described:
    """At most `most` rows of the transitions; with skips, those of the last word of `so_far`, or of a good example."""
    latest = ""
    parts = []
    if model.order == "skip":
        latest = so_far[-1] if so_far else model.most_helped_word()
        parts.append(f"The latest word is '{latest}'{'' if so_far else '; choose another with --after'}.")
    contexts, total = model.contexts(latest, most)
    rows = [(context, model.row(context)) for context in contexts]
    content = {
        "latest": latest or None,
        "rows": [{"context": list(context), "next": row} for context, row in rows],
        "rows_in_all": total,
    }
    named = [((", " if model.order == "skip" else " ").join(context), row) for context, row in rows]
    if len(model.words) <= FEW:
        following = {word for _, row in named for word in row or {}}
        columns = [word for word in model.words if model.order != "skip" or word in following]
        all_others = model.order == "2" and len(contexts) == total
        named += [("-", dict.fromkeys(columns, 0.0))] if all_others else []
        parts.append(text_table(["", *columns], [[name, *_cells(row, columns)] for name, row in named]))
        parts += ["-  every other pair of words"] if all_others else []
    else:
        parts.append(_likeliest([(name, row or {}) for name, row in named]))
    if len(contexts) < total:
        parts.append(f"{total - len(contexts):,} more rows; these are the most frequent. --rows {total} shows all.")
    return content, "\n\n".join(parts)


def describe_prediction(model: Markov, so_far: list[str], mask: bool) -> Described:
    """The distribution of the next word, and the rows that it comes from."""
    prediction = model.distribution(so_far, mask)
    source = model.rests_on(so_far, mask)
    content: dict[str, Any] = {"words": so_far, "rests_on": source, "distribution": prediction}
    latest, pair = so_far[-1], " ".join(so_far[-2:])
    parts = [f'After "{" ".join(so_far)}"']
    if model.order == "skip":
        votes = model.vote_table(so_far, mask, among=None if len(model.words) <= FEW else so_far)
        content["attention"] = _vote_content(votes)
        parts += _votes(votes, latest, mask)
        if mask and len(so_far) > 1:
            parts += _product(votes, latest)
        if source == "latest":
            parts += [f"No vote is left, so only '{latest}' counts:", _likeliest([("", prediction)])]
        return content, "\n\n".join(parts)
    if source == "pair":
        parts[0] += f"\nWhat follows '{pair}'{'' if len(so_far) > 1 else ' where a sentence begins'}:"
    elif model.order == "2":
        parts[0] += f"\n'{pair}' was never seen. What follows '{latest}' alone:"
    else:
        parts[0] += f"\nWhat follows '{latest}':"
    return content, "\n\n".join([*parts, _likeliest([("", prediction)])])


def draw_samples(model: Markov, so_far: Sequence[str], mask: bool, count: int, seed: int) -> list[str]:
    """Texts that continue `so_far`; those that were cut off end with an ellipsis."""
    generator = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        words = model.sample(generator, so_far, mask, LONGEST_SAMPLE)
        texts.append(" ".join([*so_far, *words, *(["…"] if len(words) == LONGEST_SAMPLE else [])]))
    return texts


# ---------------------------------------------------------------- votes, and as matrices


def _votes(votes: VoteTable, latest: str, mask: bool) -> list[str]:
    """The row of every word before the latest one, and their sum."""
    voters = np.flatnonzero(votes.present_W)
    if not voters.size:
        return [f"There is no word before '{latest}', so there are no votes."]
    columns, hidden = _columns(votes)
    rows = []
    for voter in voters:
        seen = votes.seen_W[voter]
        masked = mask and votes.attended_W[voter] == 0
        note = "never seen together" if not seen else "crossed out" if masked else ""
        cells = [_number(value) if seen else "" for value in votes.transitions_WN[voter, columns]]
        rows.append([f"{votes.words[voter]}, {latest}", *cells, note])
    sums = votes.votes_N
    rows.append(["sum of votes", *map(_number, sums[columns]), ""])
    if sums.any():
        rows.append(["normalised", *map(_number, sums[columns] / sums.sum()), ""])
    title = f"The votes, without those that predict the same as '{latest}' alone:" if mask else "The votes:"
    head = ["", *(votes.candidates[column] for column in columns), ""]
    return [title, text_table(head, rows, "<" + ">" * len(columns) + "<"), *hidden]


def _product(votes: VoteTable, latest: str) -> list[str]:
    """query · K, the present words, and the transitions."""
    vectors = [
        ["query", *map(_number, votes.query_W)],
        *([f"K  {word}", *map(_number, row)] for word, row in zip(votes.words, votes.masks_WW, strict=True)),
        ["mask", *map(_number, votes.mask_W)],
        ["present", *map(_number, votes.present_W)],
        ["attended", *map(_number, votes.attended_W)],
    ]
    columns, hidden = _columns(votes)
    transitions = [
        [_number(weight), f"{word}, {latest}", *map(_number, row[columns])]
        for word, weight, row in zip(votes.words, votes.attended_W, votes.transitions_WN, strict=True)
    ]
    transitions.append(["", "votes", *map(_number, votes.votes_N[columns])])
    head = ["attended", "transitions", *(votes.candidates[column] for column in columns)]
    return [
        PRODUCT_LEGEND.format(latest=latest),
        text_table(["", *votes.words], vectors),
        text_table(head, transitions, "<<" + ">" * len(columns)),
        *hidden,
    ]


def _columns(votes: VoteTable) -> tuple[list[int], list[str]]:
    """The candidates with the most votes, in the order of the table; and a line on those that are not shown."""
    before_masking = votes.present_W @ votes.transitions_WN
    likeliest = np.lexsort([-before_masking, -votes.votes_N])[:LIKELIEST]
    hidden = len(votes.candidates) - len(likeliest)
    note = [f"{hidden:,} more words have votes; these have the most."] if hidden else []
    return sorted(likeliest.tolist()), note


def _vote_content(votes: VoteTable) -> dict[str, Any]:
    """All matrices as lists."""
    return {
        "words": votes.words,
        "candidates": votes.candidates,
        "query": votes.query_W.tolist(),
        "masks": votes.masks_WW.tolist(),
        "mask": votes.mask_W.tolist(),
        "present": votes.present_W.tolist(),
        "attended": votes.attended_W.tolist(),
        "transitions": votes.transitions_WN.tolist(),
        "votes": votes.votes_N.tolist(),
    }


# ---------------------------------------------------------------- numbers


def _number(value: float) -> str:
    """As short as possible: 0, .2, .33, 1, 4.5."""
    if 0 < value < 0.00005:
        return "~0"
    text = f"{value:.2f}" if value >= 0.095 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if text == "1" and value < 1:
        return "~1"
    return text.removeprefix("0") or "0"


def _cells(row: Mapping[str, float] | None, columns: Sequence[str]) -> list[str]:
    """A row of the table; empty if its words were never seen together."""
    return ["" if row is None else _number(row.get(column, 0.0)) for column in columns]


def _likeliest(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Each row with the likeliest next words."""
    table = []
    for name, row in rows:
        likeliest = sorted(row.items(), key=lambda pair: -pair[1])
        following = [f"{word} {_number(share)}" for word, share in likeliest[:LIKELIEST]]
        more = [f"… {len(row) - LIKELIEST:,} more"] if len(row) > LIKELIEST else []
        table.append([name, "   ".join(following + more)])
    return text_table([], table, "<<")
