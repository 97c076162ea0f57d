"""The beam tree: every hypothesis that a search considered, which were kept, and which of the finished ones won.

    score(y) = log p(y) / ((5 + |y|) / 6)^α         |y| counts <end>

It is built from the record of an ordinary search (`decoding/beam.py`), so the winner is what the run writes.

Shapes: L steps · K beams · C candidates of a beam · E hypotheses that ended
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from regard.data.tokenizers import END, START
from regard.decoding.beam import penalty
from regard.decoding.hypothesis import SearchRecord
from regard.errors import UsageError

Fate = Literal["kept", "pruned", "ended", "winner"]


@dataclass
class Node:
    """A hypothesis: its last token, and its parent for the tokens before."""

    id: int
    parent: int | None
    step: int  # number of tokens; 0 for the root
    token: int
    word: str
    log_p: float  # of the token, given those before it
    total: float  # log p of all tokens
    fate: Fate
    score: float | None = None  # of finished hypotheses, with the length penalty
    on_path: bool = False  # whether it leads to the winner


@dataclass(frozen=True)
class BeamTree:
    nodes: list[Node]  # parents before children; the first is the root
    beams: int
    length_penalty: float
    winner: int  # its id
    text: str  # of the winner

    def path(self, node: int | None) -> list[Node]:
        """From the first token to this node."""
        path = []
        while node is not None:
            path.append(self.nodes[node])
            node = self.nodes[node].parent
        return path[:-1][::-1]

    @property
    def ended(self) -> list[Node]:
        """The finished hypotheses, best first."""
        return sorted((node for node in self.nodes if node.score is not None), key=lambda node: -(node.score or 0.0))

    def to_json(self) -> dict[str, Any]:
        return {
            "beams": self.beams,
            "length_penalty": self.length_penalty,
            "winner": self.winner,
            "text": self.text,
            "nodes": [asdict(node) for node in self.nodes],
        }


def beam_tree(task: Any, given: Any, beam: int | None = None, **decoding: Any) -> BeamTree:
    """The search for the output for a text or an image. Keywords override [decoding]."""
    if not hasattr(task, "record_search"):
        raise UsageError(
            f"'{task.folder.path}' has no beam search.",
            f"It is {task.about.noun}, which does not use beam search.",
            "Choose a translator, a summariser or a captioner.",
        )
    if decoding.get("temperature", task.settings.decoding.temperature) > 0:
        raise UsageError("Sampling keeps no beams.", "The temperature is above 0.", "Set temperature = 0.")
    return tree_of(task.record_search(given, **decoding, **({} if beam is None else {"beam": beam})))


def tree_of(record: SearchRecord) -> BeamTree:
    beams = record.written_LK.shape[1]
    root = Node(0, None, 0, START, record.tokenizer.piece(START), 0.0, 0.0, "kept", on_path=True)
    nodes, kept_at = [root], [{0: root}]  # kept_at[t]: the node of every beam after t steps
    considered_at: list[dict[tuple[int, int], Node]] = []  # by the beam that it extends, and its token
    for step, (considered_KC2, written_K) in enumerate(zip(record.considered_LKC2, record.written_LK, strict=True)):
        considered: dict[tuple[int, int], Node] = {}
        for beam, parent in kept_at[step].items():
            for word, total in considered_KC2[beam].tolist():
                if np.isfinite(total):
                    token = int(word)
                    piece = record.tokenizer.piece(token)
                    node = Node(len(nodes), parent.id, step + 1, token, piece, total - parent.total, total, "pruned")
                    considered[beam, token] = node
                    nodes.append(node)
        kept = {}
        for beam, written in enumerate(written_K.tolist()):
            if (chosen := (written % beams, written // beams)) in considered:
                kept[beam] = considered[chosen]
                kept[beam].fate = "kept"
        considered_at.append(considered)
        kept_at.append(kept)
    _mark_endings(record, kept_at, considered_at)
    tokens = record.hypotheses[0].tokens
    tree = BeamTree(nodes, beams, record.alpha, 0, record.tokenizer.decode([tokens])[0])
    winner = next(
        node for node in tree.ended if [each.token for each in tree.path(node.id)] in (tokens, [*tokens, END])
    )
    winner.fate = "winner"
    for node in tree.path(winner.id):
        node.on_path = True
    return BeamTree(nodes, beams, record.alpha, winner.id, tree.text)


def _mark_endings(
    record: SearchRecord, kept_at: list[dict[int, Node]], considered_at: list[dict[tuple[int, int], Node]]
) -> None:
    for log_p, last, beam, length in record.ended_E4.tolist():
        at_the_limit = last == length - 1  # cut off, without <end>
        step, beam = int(length), int(beam)
        node = kept_at[step][beam] if at_the_limit else considered_at[step - 1][beam, END]
        node.fate = "ended"
        node.score = float(log_p / penalty(length, record.alpha))
