"""What is read and what is written, side by side: sentences in rows, with <start> before them and <end> after them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.data.packed import Placement, flat
from regard.data.ragged import Ragged, spread
from regard.data.tokenizers import END, START


class Side:
    """Arrays [rows, length]."""

    def __init__(self, rows: int, length: int):
        self.with_start, self.with_end, self.segments, self.positions = np.zeros((4, rows, length), np.int64)

    def write(self, sentences: Ragged, where: Placement) -> None:
        """Each sentence with <start> before it, and with <end> after it unless it was cut off."""
        lengths = places(sentences)
        starts = where.mark(lengths, self.segments, self.positions)
        flat(self.with_end)[spread(starts, sentences.lengths)] = sentences.ids
        flat(self.with_end)[(starts + lengths - 1)[sentences.whole]] = END
        # The last token of a sentence that was cut off is only predicted.
        flat(self.with_start)[spread(starts + 1, lengths - 1)] = sentences.ids[
            spread(sentences.offsets[:-1], lengths - 1)
        ]
        flat(self.with_start)[starts] = START


def places(sentences: Ragged) -> NDArray[np.int64]:
    """How many positions each sentence takes: one more than its tokens, unless it was cut off."""
    return sentences.lengths + sentences.whole
