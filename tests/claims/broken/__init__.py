"""What breaks each claim, and how its tiny version comes out: a file for each group, with

BROKEN      an ingredient to break, by claim: the verdict must turn
OUTCOMES    how the tiny version comes out, where that is not "holds"
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from broken.ways import Break

BROKEN: dict[str, Break] = {}
OUTCOMES: dict[str, str] = {}
for file in sorted(Path(__file__).parent.glob("*.py")):
    if file.stem not in ("__init__", "ways"):
        group = import_module(f"broken.{file.stem}")
        BROKEN |= group.BROKEN
        OUTCOMES |= getattr(group, "OUTCOMES", {})
