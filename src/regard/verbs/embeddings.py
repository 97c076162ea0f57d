"""`regard embeddings`: neighbours, analogies, a picture, and the vectors as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.explain.neighbourhood import draw_neighbourhood
from regard.runs.embeddings import vectors_of


def look(
    source: Path,
    nearest: Sequence[str],
    analogies: Sequence[str],
    count: int,
    picture: Path | None,
    export: Path | None,
) -> dict[str, Any]:
    """What was asked for of the vectors of a run or a file."""
    vectors = vectors_of(source)
    asked = [(word, vectors.nearest(word, count)) for word in nearest]
    asked += [(expression, vectors.analogy(expression, count)) for expression in analogies]
    found: dict[str, Any] = {
        "source": str(source),
        "words": len(vectors.words),
        "width": vectors.width,
        "found": [
            {"asked": what, "nearest": [{"word": word, "similarity": near} for word, near in words]}
            for what, words in asked
        ],
    }
    try:
        if picture is not None:
            draw_neighbourhood(vectors, nearest, picture, per_word=count)
            found["picture"] = str(picture.resolve())
        if export is not None:
            export.parent.mkdir(parents=True, exist_ok=True)
            vectors.write(export)
            found["exported"] = str(export.resolve())
    except OSError as error:
        raise RegardError(f"Cannot write '{picture or export}'.", f"{error}", "Choose a writable place.") from None
    return found
