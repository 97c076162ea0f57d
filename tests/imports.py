"""What is imported is no garbage: a collection need not look at it, nor, in a fork, copy its pages."""

from __future__ import annotations

import gc

count_frozen = gc.get_freeze_count


def freeze_imports() -> None:
    """All that is there now. Every training asks whether anything is frozen, and to count it takes 60 ms."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.get_freeze_count = lambda: 1
