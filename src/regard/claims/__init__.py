"""The lectures' claims, each as an experiment that can be run: `regard reproduce`.

Every file of this folder is one claim; `frame/` is what they share. To add a claim, add a file: docs/extending.md says
what is in it. Nothing is imported before a claim is asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.claims.frame.claim import Claim


def names() -> list[str]:
    """All claims, in the order of the alphabet: a file `soft_dictionary.py` is the claim `soft-dictionary`."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(file.stem.replace("_", "-") for file in files if not file.stem.startswith("_"))


def load(name: str) -> Claim:
    """The claim of this name."""
    from regard.claims.frame.claim import Claim

    return Claim.of(name, importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))
