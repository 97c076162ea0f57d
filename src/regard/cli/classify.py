"""`regard classify` as a Unix filter: a line or an image in, a label out, in order, as soon as it can be had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app, number_option
from regard.cli.bulk import Bulk, PartOption, ProcessesOption, own_device
from regard.cli.images import BadImages
from regard.cli.lines import LineWork, destination, one_field
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.evaluation.classification import Guess

IMAGES_AT_ONCE = 512


@app.command()
def classify(
    context: typer.Context,
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Texts, one per line, or standard input; or images, or folders of them.", show_default=False
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of printing.")] = None,
    top: Annotated[int | None, number_option("Show this many classes; 1 of a text, 5 of an image.")] = None,
    processes: ProcessesOption = None,
    part: PartOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Name the class of each line of files or standard input, or of each image.

    Texts: one line out for one line in, empty for an empty one: label, TAB, probability (and so on with --top).
    Images: the same, after the name of the file. With --json, one object per line. A large file of texts can be shared
    among processes or machines, with --processes or --part: the output is the same.
    """
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "classify")
    bulk = Bulk(files or [], output, processes, part)
    if task.reads == "images":  # type: ignore[attr-defined]
        if bulk.in_parts:
            raise UsageError("Images are not shared.", "--processes and --part are about lines.", "Leave them out.")
        _classify_images(task, files or [], output, top or 5, device, as_json)
        return
    bulk.check()
    bulk.run("classify", context, run, lambda: _line_work(load_weights(task, own_device(device)), top or 1, as_json))


def _line_work(run: Any, top: int, as_json: bool) -> LineWork:
    """The class of every line. An empty line stays empty."""

    def write(lines: list[str], first: int) -> str:
        guesses = iter(run.classify([line for line in lines if line.strip()]))
        return "".join(_shown(line, next(guesses) if line.strip() else None, top, as_json) for line in lines)

    return LineWork(write)


def _classify_images(
    task: Any, files: Sequence[Path], output: Path | None, top: int, device: str, as_json: bool
) -> None:
    """Classify images. One that cannot be read is reported, and is an error at the end, when all others are done."""
    if not files:
        raise UsageError(
            "No image is named.", "An image classifier reads files.", "Name some: regard classify RUN a.png"
        )
    from regard.data.images import image_files
    from regard.run import load_weights

    names = image_files(files)
    run: Any = load_weights(task, device)
    bad = BadImages(len(names))
    with destination(output) as out:
        for start in range(0, len(names), IMAGES_AT_ONCE):
            part = names[start : start + IMAGES_AT_ONCE]
            for name, guess in zip(part, run.classify(part), strict=True):
                if isinstance(guess, str):
                    bad.notice(name, guess)
                out.write(_shown_image(str(name), None if isinstance(guess, str) else guess, top, as_json))
            out.flush()
    bad.must_be_none()


def _shown_image(name: str, guess: Guess | None, top: int, as_json: bool) -> str:
    from regard.data.image_entries import shown

    if as_json:
        return _json("image", name, guess, top)
    return (
        shown(name)
        + "".join(f"\t{one_field(label)}\t{p:.4f}" for label, p in (guess.all[:top] if guess else []))
        + "\n"
    )


def _shown(text: str, guess: Guess | None, top: int, as_json: bool) -> str:
    if as_json:
        return _json("text", text, guess, top)
    if guess is None:
        return "\n"
    return "\t".join(f"{one_field(label)}\t{p:.4f}" for label, p in guess.all[:top]) + "\n"


def _json(kind: str, example: str, guess: Guess | None, top: int) -> str:
    label = {"label": guess.label, "probability": guess.probability} if guess else {"label": None}
    classes = {"classes": dict(guess.all[:top])} if guess else {}
    return json.dumps({kind: example} | label | classes, ensure_ascii=False) + "\n"
