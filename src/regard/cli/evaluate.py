"""`regard evaluate`: the scores of a run on held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, MovedDataOption, RunArgument, app, show
from regard.errors import RegardError, UsageError

FINE = ("loss", "bits_per_byte", "bits_per_pixel")  # metrics whose fourth digit counts


@app.command()
def evaluate(
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Other test data, in the form that the run was trained on.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="test or valid.")] = "test",
    beam: Annotated[
        int | None, typer.Option(help="Translating: hypotheses kept; 1 is greedy.", show_default="as trained")
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="Classifying: train something simpler on the same data, for comparison.")
    ] = True,
    data: MovedDataOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the translations, or the labels, here.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Score a run on held-out data.

    A translator: BLEU cased and lower-cased, and chrF, each with its 95 % interval and sacreBLEU's signature.
    A language model: loss, perplexity, bits per byte. A classifier: accuracy, macro-F1, a confusion picture,
    and what something simpler reaches on the same data: bags of words on texts, support vectors on images. An
    image classifier: also its worst mistakes as a picture. Pixels: bits per pixel. Made-up sequences: accuracy.
    """
    if split not in ("test", "valid"):
        raise UsageError(f"There is no split '{split}'.", "Held-out data is test or valid.", "Use --split test.")
    from regard.run import load_weights, open_run, require

    task = open_run(run, data)
    options: dict[str, Any] = {}
    if beam is not None:
        require(task, "translate")
        options["beam"] = beam
    if not baselines:
        require(task, "classify")
        options["baselines"] = False
    if output is not None and not (hasattr(task, "translate") or hasattr(task, "classify")):
        raise UsageError("There is nothing to write.", "Only translations and labels can be written.", "Leave out -o.")
    for path in files or []:
        if not path.exists():
            raise RegardError(f"The file '{path}' is missing.", "It was named as test data.", "Check the path.")
    from regard.cli.lines import destination, must_not_replace, one_line

    must_not_replace(output, files or [])
    result = load_weights(task, device).evaluate([str(path) for path in files or []], split, **options)

    def report(content: dict[str, Any]) -> str:
        lines = []
        for score in result.scores:
            spread = " ({:.2f} to {:.2f})".format(*score.interval) if score.interval is not None else ""
            digits = 4 if score.name in FINE else 2
            lines.append(f"{score.name:<15} {score.value:8.{digits}f}{spread}   {score.signature}")
        return "\n".join([*lines, *result.notes])

    content = {
        "run": str(run),
        result.unit: result.count,
        "metrics": result.metrics,
        "scores": [score.to_json() for score in result.scores],
    }
    show(content | result.details, as_json, report)
    if output is not None:  # last: where it cannot be written, the scores are not lost
        with destination(output) as file:
            file.writelines(one_line(text) + "\n" for text in result.outputs)
