"""`regard detect`: what is in images, and where; as a table or JSON, and drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app
from regard.cli.images import BadImages, picture_places
from regard.cli.lines import one_field
from regard.errors import UsageError
from regard.files import write_atomically, writing

IMAGES_AT_ONCE = 64
FOUND = "found.json"


@app.command()
def detect(
    run: RunArgument,
    images: Annotated[list[Path], typer.Argument(help="Images, or folders of them.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder: a PNG of each image with its boxes, and found.json."),
    ] = None,
    threshold: Annotated[float, typer.Option(help="Show boxes of at least this score, from 0 to 1.")] = 0.3,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Find the objects in images.

    A line for each box, the surest first: file, label, score, and left, top, right and bottom in pixels of that image,
    with tabs between; a tab in a label is written \\t. With --json, one object per image and line.
    """
    if not 0 <= threshold <= 1:
        raise UsageError(f"--threshold {threshold:g} is not a score.", "Scores are from 0 to 1.", "Use 0.3 or so.")
    from regard.data.images import image_files
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "detect")
    files = image_files(images)
    drawn = iter(_pictures(files, output) if output is not None else [])
    loaded: Any = load_weights(task, device)
    results: list[dict[str, Any]] = []
    bad = BadImages(len(files))
    for start in range(0, len(files), IMAGES_AT_ONCE):
        part = files[start : start + IMAGES_AT_ONCE]
        for file, found in zip(part, loaded.detect(part, threshold), strict=True):
            readable = not isinstance(found, str)
            picture = next(drawn, None)
            if not readable:
                bad.notice(file, found)
            result: dict[str, Any] = {
                "image": str(file),
                "found": [box.to_json() for box in found] if readable else None,
            }
            if readable and picture is not None:
                with writing(picture, "Choose a writable folder with -o."):
                    loaded.draw_found(file, found, picture)
                result["picture"] = str(picture)
            results.append(result)
            typer.echo(json.dumps(result, ensure_ascii=False) if as_json else _lines(result), nl=as_json)
    if output is not None:
        with writing(output / FOUND, "Choose a writable folder with -o."):
            text = json.dumps(results, ensure_ascii=False, indent=1) + "\n"
            write_atomically(output / FOUND, text.encode())
    bad.must_be_none()


def _lines(result: dict[str, Any]) -> str:
    from regard.data.image_entries import shown

    return "".join(
        "\t".join(
            [shown(result["image"]), one_field(box["label"]), f"{box['score']:.3f}", *(f"{x:.1f}" for x in box["box"])]
        )
        + "\n"
        for box in result["found"] or []
    )


def _pictures(files: Sequence[Path], folder: Path) -> list[Path]:
    """Where each image is drawn, in a folder that can be written to."""
    with writing(folder, "Choose another folder with -o."):
        folder.mkdir(parents=True, exist_ok=True)
    return picture_places(files, folder)
