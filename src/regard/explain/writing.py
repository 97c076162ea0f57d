"""What is shown, as a file: its ending says how.

.png .svg    the picture
.html        a page that opens without a network: the picture, and its numbers as tables
.json        all numbers, in full
.csv         the main array, and those with the same axes: a row for each number
"""

from __future__ import annotations

import json
from pathlib import Path

from regard.explain.figures import write as write_bytes
from regard.explain.kinds import must_be_known
from regard.explain.page import page
from regard.explain.shown import Shown
from regard.inside.named import csv_of


def write(shown: Shown, path: Path) -> None:
    """Whole or not at all."""
    must_be_known(path)
    write_bytes(content(shown, path.suffix.lower()), path)


def content(shown: Shown, ending: str) -> bytes:
    if ending == ".json":
        return (json.dumps(shown.to_json(), ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
    if ending == ".csv":
        return csv_of(shown.arrays).encode("utf-8", "backslashreplace")
    return page(shown).encode("utf-8", "backslashreplace") if ending == ".html" else shown.rendered(ending)
