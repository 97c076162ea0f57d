"""Questions about words: their vectors, how a text becomes tokens, and the rotations of rotary positions.

Shapes: W words · D width · N words in the projection · T positions · K width of a head
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
from regard.explore.session import TracedInput
from regard.explore.stages import stack_of
from regard.inside.named import named
from regard.layers.positions import Positions
from regard.models.masked import Masked
from regard.tasks.masked import BESIDE, parts_read

NEIGHBOURS = 12
# In the projection:
NEIGHBOURS_DRAWN = 3  # of each word of the input
VOCABULARY_DRAWN = 300  # the first words, which are the most frequent or the shortest
MOST_INPUT = 200  # different words of the input
BARE = frozenset([*SPECIALS, *BYTES])
_vectors: WeakKeyDictionary[nn.Module, WordVectors] = WeakKeyDictionary()  # a cache, by embedding table


def neighbours(traced: TracedInput, stack: str, token: int, count: int = NEIGHBOURS) -> dict[str, Any]:
    """The tokens whose vectors have the largest cosine with a token's; single bytes are left out."""
    vectors = _vectors_of(traced, stack)
    if not 0 <= token < len(vectors.words):
        raise UsageError(f"There is no token {token}.", f"There are {len(vectors.words):,}.", "Choose another.")
    nearest = _nearest_words(vectors, token, count)
    labels = [vectors.words[row] for row, _ in nearest]
    cosines = named("cosine", np.array([cosine for _, cosine in nearest]), [("token", labels)])
    return cosines.to_json() | {"of": vectors.words[token], "tokens": [row for row, _ in nearest]}


def projection(traced: TracedInput, stack: str) -> dict[str, Any]:
    """The words of the input, their neighbours and the first of the vocabulary, on two principal components."""
    vectors, ids = _vectors_of(traced, stack), _ids(traced, stack)
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
    """Single bytes are left out: most never occur in a text, so their vectors are still random."""
    words = set(_whole_words(vectors))
    nearest = vectors.nearest_to(token, count + len(vectors.words) - len(words))
    return [(row, cosine) for row, cosine in nearest if row in words][:count]


def _whole_words(vectors: WordVectors) -> list[int]:
    """Tokens that are neither special nor single bytes, or all tokens if there are no others."""
    rows = range(len(vectors.words))
    return [row for row in rows if vectors.words[row] not in BARE] or list(rows)


def words_like(traced: TracedInput, text: str, stack: str = "", count: int = 12) -> dict[str, Any]:
    """Tokens that contain these letters, of the answers or of a stack: exact matches first, then prefixes."""
    if stack:
        words = _vectors_of(traced, stack).words
    else:
        subject = traced.trace.subject
        words = [subject.name_of(token) for token in range(traced.trace.logits_AW.shape[-1])]
    query = text.strip().lower()

    def rank(token: int) -> tuple[int, int, int]:
        word = words[token].strip().lower()
        exact = 0 if words[token].strip() == text.strip() else 1
        return (exact if word == query else 2 if word.startswith(query) else 3), len(word), token

    matches = sorted((token for token in range(len(words)) if query in words[token].lower()), key=rank)[:count]
    return {"tokens": matches, "words": [words[token] for token in matches]}


def merges(traced: TracedInput) -> dict[str, Any]:
    """How the texts of an input become tokens: by stack, the tokens with their bytes, and the merges."""
    from regard.explain.tokens import Step, Token, merge_steps, spans, to_json

    by_stack = {}
    for name, (tokenizer, text) in _texts(traced).items():
        # A masked model tokenises the parts around each mask one by one.
        parts = parts_read(text) if isinstance(traced.trace.subject.model, Masked) else [(text, False)]
        tokens: list[Token] = []
        steps: list[Step] = []
        why = ""
        for part, beside in parts:
            part_tokens = spans(tokenizer, part) if part else []
            tokens += part_tokens[len(tokenizer.encode([BESIDE])[0]) if beside else 0 :]
            try:
                steps += [step for step in merge_steps(tokenizer, part) if not beside or step.number > 1]
            except RegardError as error:
                why = error.why
        by_stack[name] = {"text": text, "tokens": to_json(tokens), "steps": to_json(steps), "why": why}
    return by_stack


def rotations(traced: TracedInput, stack: str) -> dict[str, Any] | None:
    """The cosine of the angle by which queries and keys are rotated at each position, pair by pair; None if not."""
    pieces = stack_of(traced, stack).stack.pieces
    attention: Any = stack_of(traced, stack).stack.blocks[0].mixer
    if getattr(attention, "rotate", Positions.rotate) is Positions.rotate:
        return None
    half = attention.key_width // 2
    unit_K = torch.cat([torch.ones(half), torch.zeros(half)])  # each pair is (1, 0) and becomes (cos, sin)
    positions_1T = torch.arange(len(pieces))[None]
    rotated_TK = attention.rotate(unit_K.expand(1, 1, len(pieces), -1), positions_1T)[0, 0]
    axes = [("position", pieces), ("pair", [str(pair + 1) for pair in range(half)])]
    return named("cosine of the angle", rotated_TK[:, :half], axes).to_json()


def _vectors_of(traced: TracedInput, name: str) -> WordVectors:
    """The embedding table of a stack, with the names of its rows."""
    stack = stack_of(traced, name).stack
    table = getattr(stack.embed, "table", None)
    if table is None or stack.words is None:
        raise UsageError(f"'{name}' reads no words.", "It has no embedding table.", "Choose another run.")
    if table not in _vectors:
        words = [stack.words(token) for token in range(table.num_embeddings)]
        _vectors[table] = WordVectors(words, table.weight.detach().float().cpu().numpy())
    return _vectors[table]


def _ids(traced: TracedInput, name: str) -> list[int]:
    subject = traced.trace.subject
    if subject.tokens is None:
        raise UsageError("This input has no tokens.", "It is not all text.", "Choose another run.")
    return subject.tokens[[stack.name for stack in subject.stacks].index(name)]


def _texts(traced: TracedInput) -> dict[str, tuple[Any, str]]:
    """By stack, the tokenizer and the text it was given."""
    task: Any = traced.task
    subject = traced.trace.subject
    if hasattr(task, "tokenizers"):
        source, written = task.tokenizers.both
        return {"encoder": (source, subject.input_text), "decoder": (written, subject.output_text)}
    if not hasattr(task, "tokenizer"):  # of pixels, moves or symbols
        return {}
    if "image" in traced.fields:
        return {"decoder": (task.tokenizer, subject.output_text)}
    texts = [traced.fields[name] for name in ("text", "question", "context") if traced.fields.get(name)]
    return {subject.stacks[0].name: (task.tokenizer, "\n".join(texts))}
