"""`regard probe`: how well a linear classifier can read the class of an image from each layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, MovedDataOption, RunArgument, app, picture_option, show
from regard.errors import UsageError
from regard.files import writing


@app.command()
def probe(
    run: RunArgument,
    train: Annotated[int, typer.Option(help="At most this many training images teach the classifiers.")] = 5000,
    test: Annotated[int, typer.Option(help="At most this many test images score them.")] = 5000,
    output: Annotated[Path | None, picture_option("The picture to write.", "RUN/plots/probe.png")] = None,
    data: MovedDataOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show how well each layer tells classes of images apart.

    A linear classifier is trained on what each layer makes of labelled images, and scored on test images. For models
    of pixels, which never saw a label, and for image classifiers.
    """
    if train < 2 or test < 1:
        raise UsageError("There are too few images.", "Classifiers need some to learn from.", "Use --train 5000.")
    from regard.run import load_weights, open_run, require

    task = open_run(run, data)
    require(task, "probe")
    picture = output or task.folder.plots / "probe.png"
    with writing(picture, "Choose a writable path with -o."):
        result = load_weights(task, device).probe(train, test, picture)  # type: ignore[attr-defined]
    show({"run": str(run)} | result | {"picture": str(picture.resolve())}, as_json, _report)


def _report(result: dict[str, Any]) -> str:
    """The same for people, one line per layer."""
    lines = [
        f"Linear classifiers on the mean of each layer's positions: {result['train_images']:,} images to learn from, "
        f"{result['test_images']:,} to score",
        "",
        f"{'layer':<16}{'accuracy, %':>12}",
    ]
    for each in result["layers"]:
        name = str(each["layer"]) if each["layer"] else "0 (embedding)"
        best = "   best" if each["layer"] == result["best_layer"] else ""
        lines.append(f"{name:<16}{each['accuracy']:>12.2f}{best}")
    lines += [f"{'commonest class':<16}{result['commonest_class']:>12.2f}", "", result["picture"]]
    return "\n".join(lines)
