"""`regard caption`: an image in, words out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.app import (
    BeamOption,
    DeviceOption,
    Int8Option,
    JsonOption,
    RunArgument,
    SeedOption,
    SlotsOption,
    app,
    number_option,
)
from regard.cli.images import BadImages
from regard.cli.lines import destination, one_field, one_line
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.decoding.text_search import Written

IMAGES_AT_ONCE = 256


@app.command()
def caption(
    run: RunArgument,
    files: Annotated[list[Path] | None, typer.Argument(help="Images, or folders of them.", show_default=False)] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of printing.")] = None,
    beam: BeamOption = None,
    best: Annotated[int, number_option("Print the N best of each image, with scores.", "--best", "-n")] = 1,
    temperature: Annotated[float, typer.Option(help="Above 0: sample instead of searching.")] = 0.0,
    seed: SeedOption = 1,
    slots: SlotsOption = None,
    int8: Int8Option = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Write about images.

    A line for each: file, TAB, caption. With --best N, N lines "file TAB score TAB caption". With --json, one object
    per line.
    """
    if best > 1 and temperature > 0:
        raise UsageError(
            f"--best {best} and --temperature do not go together.",
            "Sampling gives one caption of each image.",
            "Leave out one of them; another --seed gives another sample.",
        )
    if not files:
        raise UsageError("No image is named.", "A captioner reads files.", "Name some: regard caption RUN a.png")
    from regard.data.images import image_files
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "caption")
    names = image_files(files)
    given = {"beam": beam, "slots": slots, "int8": int8 or None}
    decoding = {"temperature": temperature} | {name: value for name, value in given.items() if value is not None}
    _caption_images(load_weights(task, device), names, output, best, seed, as_json, decoding)


def _caption_images(
    run: Any, names: list[Path], output: Path | None, best: int, seed: int, as_json: bool, decoding: dict[str, Any]
) -> None:
    import numpy as np

    from regard.data.images import BadImage

    if best > 1:
        decoding["beam"] = max(best, decoding.get("beam", run.settings.decoding.beam))
    writer = run.writer(**decoding)
    bad = BadImages(len(names))
    with destination(output) as out:
        for start in range(0, len(names), IMAGES_AT_ONCE):
            pixels = {}
            part = names[start : start + IMAGES_AT_ONCE]
            for number, name in enumerate(part):
                try:
                    pixels[number] = run.read(name)
                except BadImage as error:
                    bad.notice(name, error.reason)
            found = writer.write(np.stack(list(pixels.values())), seed=seed, best=best) if pixels else []
            written = dict(zip(pixels, found, strict=True))
            for number, name in enumerate(part):
                out.write(_shown(str(name), written.get(number, [])[:best], best, as_json))
            out.flush()
    bad.must_be_none()


def _shown(name: str, hypotheses: list[Written], best: int, as_json: bool) -> str:
    from regard.data.image_entries import shown

    if as_json:
        listed = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in hypotheses]
        return json.dumps({"image": name, "captions": listed}, ensure_ascii=False) + "\n"
    if best == 1:
        return f"{shown(name)}\t{one_field(one_line(hypotheses[0].text)) if hypotheses else ''}\n"
    return "".join(f"{shown(name)}\t{h.score:.4f}\t{one_field(one_line(h.text))}\n" for h in hypotheses)
