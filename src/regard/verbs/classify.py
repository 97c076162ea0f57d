"""`regard classify` as a Unix filter: a line or an image in, a label out, in order, as soon as it can be had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard import console
from regard.data.image_entries import shown
from regard.errors import RegardError, UsageError
from regard.verbs.lines import chunks, destination, input_lines, must_be_a_file

if TYPE_CHECKING:
    from regard.evaluation.classification import Guess


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


def classify_images(
    run: Path, files: Sequence[Path], output: Path | None, *, top: int, device: str, as_json: bool
) -> None:
    """Classify images. One that cannot be read is said so, and is an error at the end, when all others are done."""
    if not files:
        raise UsageError(
            "No image is named.", "An image classifier reads files.", "Name some: regard classify RUN a.png"
        )
    from regard.data.images import image_files
    from regard.runs.images import IMAGES_AT_ONCE, ImageClassificationRun

    names = image_files(files)
    model = ImageClassificationRun(run, device)
    bad = 0
    with destination(output) as out:
        for start in range(0, len(names), IMAGES_AT_ONCE):
            part = names[start : start + IMAGES_AT_ONCE]
            for name, guess in zip(part, model.classify(part), strict=True):
                if isinstance(guess, str):
                    bad += 1
                    console.warn(f"'{name}' cannot be read: {guess}")
                out.write(_shown_image(str(name), None if isinstance(guess, str) else guess, top, as_json))
            out.flush()
    if bad:
        raise RegardError(
            f"{bad:,} of {len(names):,} images could not be read.",
            "They are named above.",
            "Mend them, or leave them out.",
        )


def _shown_image(name: str, guess: Guess | None, top: int, as_json: bool) -> str:
    if as_json:
        return _json("image", name, guess, top)
    return shown(name) + "".join(f"\t{label}\t{p:.4f}" for label, p in (guess.all[:top] if guess else [])) + "\n"


def _shown(text: str, guess: Guess | None, top: int, as_json: bool) -> str:
    if as_json:
        return _json("text", text, guess, top)
    if guess is None:
        return "\n"
    return "\t".join(f"{label}\t{p:.4f}" for label, p in guess.all[:top]) + "\n"


def _json(kind: str, example: str, guess: Guess | None, top: int) -> str:
    label = {"label": guess.label, "probability": guess.probability} if guess else {"label": None}
    classes = {"classes": dict(guess.all[:top])} if guess else {}
    return json.dumps({kind: example} | label | classes, ensure_ascii=False) + "\n"
