"""`regard probe`: how well linear classifiers read the class of an image, or a board, from each layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from regard.cli.app import (
    DeviceOption,
    JsonOption,
    MovedDataOption,
    RunArgument,
    app,
    number_option,
    picture_option,
    show,
)
from regard.errors import RegardError


@app.command()
def probe(
    run: RunArgument,
    train: Annotated[
        int,
        number_option("At most this many training images, or positions of games, teach the classifiers.", least=2),
    ] = 5000,
    test: Annotated[int, number_option("At most this many test images, or positions, score them.")] = 5000,
    output: Annotated[Path | None, picture_option("The picture to write.", "RUN/plots/probe.png")] = None,
    data: MovedDataOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show how well each layer tells classes of images apart, or knows the board of a game.

    A linear classifier is trained on what each layer makes of labelled images, and scored on test images. For models
    of pixels, which never saw a label, and for image classifiers. Of a player of games, which saw moves but never a
    board, one for every square: is it empty, of the side to move, or of the other?
    """
    from regard.run import load_weights, open_run, require

    task = open_run(run, data)
    require(task, "probe")
    result = load_weights(task, device).probe(train, test, output)  # type: ignore[attr-defined]
    from regard.evaluation.probe import probe_table

    show(
        {"run": str(run)} | result, as_json, lambda shown: f"{probe_table(shown)}\n\n{shown['picture'] or ''}".rstrip()
    )
    if output is not None and result["picture"] is None:  # it was asked for
        raise RegardError(f"Cannot write '{output}'.", "The reason is given above.", "Choose a writable path with -o.")
