"""`regard segment`: a mask for each image, and the image with its mask over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app
from regard.cli.images import BadImages, picture_places
from regard.cli.lines import one_field
from regard.errors import UsageError
from regard.files import writing

OVERLAY = "-overlay"
LARGEST_OVERLAY = 4096  # pixels to a side


@app.command()
def segment(
    run: RunArgument,
    images: Annotated[list[Path] | None, typer.Argument(help="Images, or folders of them.", show_default=False)] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for masks and overlays.")] = Path("masks"),
    overlay: Annotated[bool, typer.Option(help="Also write each image with its mask over it.")] = True,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Write a mask for each image: the class of every pixel, as a PNG with a palette, in the size of the image.

    Of a.jpg, a.png is the mask and a-overlay.png shows it, at most 4,096 pixels wide and high. What is printed is the
    share of each class in each image.
    """
    if not images:
        raise UsageError("No image is named.", "A segmenter reads files.", "Name some: regard segment RUN a.jpg -o DIR")
    from regard.data.image_entries import shown
    from regard.data.images import image_files
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "segment")
    with writing(output):
        if output.exists() and not output.is_dir():
            raise NotADirectoryError("it is not a folder")
        output.mkdir(parents=True, exist_ok=True)
    names = image_files(images)
    loaded: Any = load_weights(task, device)
    bad = BadImages(len(names))
    for name, mask in zip(names, picture_places(names, output, ("", OVERLAY) if overlay else ("",)), strict=True):
        [found] = loaded.segment([name])
        if isinstance(found, str):
            bad.notice(name, found)
            continue
        with writing(mask):
            _write(mask, name, found.mask_hw, overlay)
        seen = {label: share for label, share in found.shares.items() if share > 0}
        if as_json:
            print(json.dumps({"image": str(name), "mask": str(mask), "shares": seen}, ensure_ascii=False), flush=True)
        else:
            ordered = sorted(seen.items(), key=lambda each: -each[1])
            print(
                shown(str(name)),
                *(f"{one_field(label)}\t{share:.4f}" for label, share in ordered),
                sep="\t",
                flush=True,
            )
    bad.must_be_none()


def _write(path: Path, name: Path, mask_hw: Any, overlay: bool) -> None:
    from regard.data.images import read_image
    from regard.explain.image_grid import save_image
    from regard.explain.mask_drawing import overlaid, save_mask, shrunk
    from regard.settings import ImageSettings

    save_mask(mask_hw, path)
    if overlay:
        seen_hw = shrunk(mask_hw, LARGEST_OVERLAY)
        whole = ImageSettings(size=list(seen_hw.shape), fit="stretch")  # as it is, upright
        save_image(overlaid(read_image(name, whole), seen_hw), path.with_name(f"{path.stem}{OVERLAY}.png"))
