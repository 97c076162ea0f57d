from __future__ import annotations

from broken.ways import put
from regard.claims.order_awareness import NETWORKS
from regard.models.markov import Markov

NO_POSITIONS = ('model.positions="none"',)

OUTCOMES = {"bag-of-words": "depends"}
BROKEN = {
    "markov-tables": lambda patch, module: patch.setattr(
        module, "chain", lambda example, order: Markov.fit(module.sentences(example), "1")
    ),
    "markov-skips": lambda patch, module: patch.setattr(Markov, "_may_vote", lambda chain, rows, mask: rows >= 0),
    "bag-of-words": put("SEQUENCE_MODEL", NO_POSITIONS),
    "order-awareness": put("NETWORKS", NETWORKS | {"Transformer": NO_POSITIONS}),
}
