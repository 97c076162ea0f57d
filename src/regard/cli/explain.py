"""`regard explain`: pictures of what a model looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app, picture_option, show
from regard.errors import UsageError, did_you_mean
from regard.files import writing

PICTURES = ("attention", "alignment", "positions", "toeplitz")
OF_THE_MODEL = ("positions", "toeplitz")  # no sentence and no image is needed


@app.command()
def explain(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The sentence to look into, or the image file.")] = "",
    output: Annotated[Path, picture_option("The picture to write.")] = Path("explain.png"),
    what: Annotated[str, typer.Option(help="attention, alignment, positions or toeplitz.")] = "attention",
    target: Annotated[str, typer.Option(help="Look at this translation instead of the model's own.")] = "",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Draw what a model looked at.

    Of a translator: attention, every layer and head of its cross-attention; alignment, the last layer, averaged
    over heads; positions, the position encodings that it adds. Of any run with Hyena: toeplitz, its convolutions as
    matrices.

    Of an image classifier: regard explain RUN image.png -o map.png draws where it looked: attention rollout over the
    image, and every head of every layer.
    """
    if what not in PICTURES:
        raise UsageError(f"Nothing is drawn for '{what}'.", "There is no such picture.", did_you_mean(what, PICTURES))
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    if what != "toeplitz":
        require(task, "explain")
    if getattr(task, "reads", "") == "images" and (what in ("alignment", "positions") or target):
        raise UsageError(
            f"--{'target' if target else f'what {what}'} is not for images.",
            "Of an image, rollout and the attention of every head are drawn.",
            "Leave it out.",
        )
    if what not in OF_THE_MODEL and not text.strip():
        raise UsageError(
            "A sentence, or an image, is missing.", f"'{what}' is drawn for one.", 'Add it: "A dog sleeps.", or dog.png'
        )
    if what in OF_THE_MODEL and text.strip():
        raise UsageError("A sentence has no effect here.", f"'{what}' is drawn of the model alone.", "Leave it out.")
    loaded = load_weights(task, device)
    with writing(output, "Choose a writable path with -o."):
        if what == "toeplitz":
            from regard.explain.convolutions import draw_convolutions

            shown = draw_convolutions(loaded.model, task.settings.width, output)
        else:
            shown = loaded.explain(text, output, what, target)  # type: ignore[attr-defined]
    show({"picture": str(output.resolve())} | shown, as_json, lambda content: content["picture"])
