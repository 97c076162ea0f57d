"""What the page asks about words: their vectors in the model, how a text is cut into tokens, and rotations.

Shapes: W words · D width · N words that are drawn · T positions · K width of a head
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from regard.data.tokenizers import BYTES, SPECIALS
from regard.data.word_vectors import WordVectors, project
from regard.errors import RegardError, UsageError
from regard.explore.session import Looked
from regard.inside.named import named
from regard.inside.subject import Stack
from regard.layers.positions import Positions
from regard.models.masked import Masked
from regard.tasks.masked import BESIDE, parts_read

NEIGHBOURS = 12
NEIGHBOURS_DRAWN = 3  # of each word of the input
VOCABULARY_DRAWN = 300  # its first words, which are the most frequent ones or the shortest
MOST_INPUT = 200  # different words of the input that are drawn
BARE = frozenset([*SPECIALS, *BYTES])
_vectors: WeakKeyDictionary[nn.Module, WordVectors] = WeakKeyDictionary()  # of each table, as it was first asked for


def neighbours(looked: Looked, stack: str, token: int, count: int = NEIGHBOURS) -> dict[str, Any]:
    """The tokens whose vectors have the largest cosine with that of a token; single bytes are left out."""
    vectors = _vectors_of(looked, stack)
    if not 0 <= token < len(vectors.words):
        raise UsageError(f"There is no token {token}.", f"There are {len(vectors.words):,}.", "Choose another.")
    nearest = _nearest_words(vectors, token, count)
    labels = [vectors.words[row] for row, _ in nearest]
    cosines = named("cosine", np.array([cosine for _, cosine in nearest]), [("token", labels)])
    return cosines.to_json() | {"of": vectors.words[token], "tokens": [row for row, _ in nearest]}


def projection(looked: Looked, stack: str) -> dict[str, Any]:
    """The words of the input, their neighbours and the first of the vocabulary, in the plane."""
    vectors, ids = _vectors_of(looked, stack), _ids(looked, stack)
    groups = dict.fromkeys(list(dict.fromkeys(ids))[:MOST_INPUT], "input")
    for token in list(groups):
        for row, _ in _nearest_words(vectors, token, NEIGHBOURS_DRAWN):
            groups.setdefault(row, "neighbour")
    for row in _whole_words(vectors)[:VOCABULARY_DRAWN]:
        groups.setdefault(row, "vocabulary")
    rows = list(groups)
    points_N2, shares_2 = project(vectors.unit[rows])
    axes = [("token", [vectors.words[row] for row in rows]), ("component", ["first", "second"])]
    points = named("principal component", points_N2.astype(np.float32), axes)
    return points.to_json() | {"tokens": rows, "groups": list(groups.values()), "shares": shares_2.tolist()}


def _nearest_words(vectors: WordVectors, token: int, count: int) -> list[tuple[int, float]]:
    """Those that are not single bytes: of most, a text never has one, so their vectors are still at random."""
    words = set(_whole_words(vectors))
    nearest = vectors.nearest_to(token, count + len(vectors.words) - len(words))
    return [(row, cosine) for row, cosine in nearest if row in words][:count]


def _whole_words(vectors: WordVectors) -> list[int]:
    """Tokens that are neither special nor single bytes; all, where there are no others."""
    rows = range(len(vectors.words))
    return [row for row in rows if vectors.words[row] not in BARE] or list(rows)


def words_like(looked: Looked, text: str, stack: str = "", count: int = 12) -> dict[str, Any]:
    """Tokens with these letters, of the answers or of a stack: the same first, then what begins so, then the rest."""
    if stack:
        words = _vectors_of(looked, stack).words
    else:
        subject = looked.trace.subject
        words = [subject.name_of(token) for token in range(looked.trace.logits_AW.shape[-1])]
    wanted = text.strip().lower()

    def rank(token: int) -> tuple[int, int, int]:
        word = words[token].strip().lower()
        exact = 0 if words[token].strip() == text.strip() else 1
        return (exact if word == wanted else 2 if word.startswith(wanted) else 3), len(word), token

    found = sorted((token for token in range(len(words)) if wanted in words[token].lower()), key=rank)[:count]
    return {"tokens": found, "words": [words[token] for token in found]}


def merges(looked: Looked) -> dict[str, Any]:
    """How the texts of an input, if it has any, are cut: by stack its tokens with their bytes, and the merges."""
    from regard.explain.tokens import Step, Token, merge_steps, spans, to_json

    cut = {}
    for name, (tokenizer, text) in _texts(looked).items():
        # Where something is hidden, as the parts around it are read.
        parts = parts_read(text) if isinstance(looked.trace.subject.model, Masked) else [(text, False)]
        tokens: list[Token] = []
        steps: list[Step] = []
        why = ""
        for part, beside in parts:
            found = spans(tokenizer, part) if part else []
            tokens += found[len(tokenizer.encode([BESIDE])[0]) if beside else 0 :]
            try:
                steps += [step for step in merge_steps(tokenizer, part) if not beside or step.number > 1]
            except RegardError as error:
                why = error.why
        cut[name] = {"text": text, "tokens": to_json(tokens), "steps": to_json(steps), "why": why}
    return cut


def rotations(looked: Looked, stack: str) -> dict[str, Any] | None:
    """The cosine of the angle by which queries and keys at each position are turned, pair by pair, if they are."""
    chosen = _stack(looked, stack)
    attention: Any = chosen.blocks[0].mixer
    if getattr(attention, "rotate", Positions.rotate) is Positions.rotate:
        return None
    half = attention.key_width // 2
    along_K = torch.cat([torch.ones(half), torch.zeros(half)])  # each pair (1, 0), which becomes (cos, sin)
    positions_1T = torch.arange(len(chosen.pieces))[None]
    turned_TK = attention.rotate(along_K.expand(1, 1, len(chosen.pieces), -1), positions_1T)[0, 0]
    axes = [("position", chosen.pieces), ("pair", [str(pair + 1) for pair in range(half)])]
    return named("cosine of the angle", turned_TK[:, :half], axes).to_json()


def _stack(looked: Looked, name: str) -> Stack:
    stack = next((each for each in looked.trace.subject.stacks if each.name == name), None)
    if stack is None:
        raise UsageError(f"There is no stack '{name}'.", "There is no such stack.", "Choose another.")
    return stack


def _vectors_of(looked: Looked, name: str) -> WordVectors:
    """The table of vectors of a stack, with the names of its rows."""
    stack = _stack(looked, name)
    table = getattr(stack.embed, "table", None)
    if table is None or stack.words is None:
        raise UsageError(f"'{name}' reads no words.", "It has no table of their vectors.", "Choose another run.")
    if table not in _vectors:
        words = [stack.words(token) for token in range(table.num_embeddings)]
        _vectors[table] = WordVectors(words, table.weight.detach().float().cpu().numpy())
    return _vectors[table]


def _ids(looked: Looked, name: str) -> list[int]:
    subject = looked.trace.subject
    if subject.tokens is None:
        raise UsageError(
            "The tokens of this input are not known.", "Part of this input is not text.", "Choose another run."
        )
    return subject.tokens[[stack.name for stack in subject.stacks].index(name)]


def _texts(looked: Looked) -> dict[str, tuple[Any, str]]:
    """By stack, the tokenizer and the text that it cut."""
    task: Any = looked.task
    subject = looked.trace.subject
    if hasattr(task, "tokenizers"):
        source, written = task.tokenizers.both
        return {"encoder": (source, subject.input_text), "decoder": (written, subject.output_text)}
    if not hasattr(task, "tokenizer"):  # of pixels, moves or symbols
        return {}
    if "image" in looked.given:
        return {"decoder": (task.tokenizer, subject.output_text)}
    texts = [looked.given[name] for name in ("text", "question", "context") if looked.given.get(name)]
    return {subject.stacks[0].name: (task.tokenizer, "\n".join(texts))}
