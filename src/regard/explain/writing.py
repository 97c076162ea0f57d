"""Explanations as files. The extension sets the format.

.png .svg    the picture
.html        a page that opens without a network: the picture, and its numbers as tables
.json        all numbers, in full
.csv         the main array, and those with the same axes: a row per number
"""

from __future__ import annotations

import json
from pathlib import Path

from regard.explain.explanation import Explanation
from regard.explain.figures import write as write_bytes
from regard.explain.kinds import check_extension
from regard.explain.page import page
from regard.inside.named import csv_of


def write(explanation: Explanation, path: Path) -> None:
    """Atomically."""
    check_extension(path)
    write_bytes(content(explanation, path.suffix.lower()), path)


def content(explanation: Explanation, extension: str) -> bytes:
    if extension in (".png", ".svg"):
        return explanation.rendered(extension)
    if extension == ".json":
        text = json.dumps(explanation.to_json(), ensure_ascii=False) + "\n"
    else:
        text = csv_of(explanation.arrays) if extension == ".csv" else page(explanation)
    return text.encode("utf-8", "backslashreplace")
