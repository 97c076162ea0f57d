"""`regard classify` as a Unix filter: a line in, a label out, in order, as soon as it can be had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.verbs.lines import chunks, destination, input_lines, must_be_a_file

if TYPE_CHECKING:
    from regard.runs.classification import Guess


def classify_lines(
    run: Path, files: Sequence[Path], output: Path | None, *, top: int, device: str, as_json: bool
) -> None:
    """Classify every line of some files, or of standard input. An empty line stays empty."""
    for file in files:
        must_be_a_file(file)
    from regard.runs.classification import ClassificationRun

    model = ClassificationRun(run, device)
    with destination(output) as out:
        for chunk in chunks(input_lines(files)):
            guesses = iter(model.classify([line for line in chunk if line.strip()]))
            for line in chunk:
                out.write(_shown(line, next(guesses) if line.strip() else None, top, as_json))
            out.flush()


def _shown(text: str, guess: Guess | None, top: int, as_json: bool) -> str:
    if as_json:
        label = {"label": guess.label, "probability": guess.probability} if guess else {"label": None}
        classes = {"classes": dict(guess.all[: max(top, 1)])} if guess else {}
        return json.dumps({"text": text} | label | classes, ensure_ascii=False) + "\n"
    if guess is None:
        return "\n"
    return "\t".join(f"{label}\t{p:.4f}" for label, p in guess.all[:top]) + "\n"
