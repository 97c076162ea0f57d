"""A worker of `regard reproduce`: it measures those of these claims that no other worker has taken.

    python -m regard.claims SIZE DEVICE DIR NAME…

Whoever holds the lock of `DIR/taken/NAME` measures the claim. What it measured is kept in DIR, as ever; nothing is
returned. Claims are small: one thread does as much as two, so that two workers do twice as much.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import torch

from regard import claims, console
from regard.claims.frame.claim import Budget, Size
from regard.claims.frame.results import reproduce
from regard.errors import Interrupted, RegardError
from regard.files import locked
from regard.startup import end_with_parent


def main(size: str, device: str, out: str, *names: str) -> None:
    end_with_parent()
    torch.set_num_threads(1)
    budget = Budget(cast(Size, size), Path(out), device)
    for number, name in enumerate(names, start=1):
        own = budget.folder / "taken" / name
        own.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(own))
            except RegardError:  # another worker has it
                continue
            result = reproduce(claims.load(name), budget, lambda done, text: None)
            if not result.kept:
                console.say(f"[{number}/{len(names)}] {result.told}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (Interrupted, KeyboardInterrupt):  # what is finished is kept
        sys.exit(130)
