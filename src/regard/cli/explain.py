"""`regard explain`: what is inside a model, as a picture, a page or numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app, number_option, show
from regard.cli.lines import must_not_replace, read_text
from regard.explain.kinds import KINDS, check_extension, find, input_of
from regard.files import writing

HELP = "Show what is inside a model, and what it computed for one input.\n\n\b\nKinds:\n" + "\n".join(
    f"  {name}: {kind.about}{' (no input)' if kind.input == 'none' else ''}" for name, kind in KINDS.items()
)


def _checked(path: Path | None) -> Path | None:
    if path is not None:
        check_extension(path)
    return path


@app.command(help=HELP)
def explain(
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="INPUT", help="The text, or the image file.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="FILE.png, .svg, .html, .json or .csv.",
            callback=_checked,
            show_default="explain.png, or with --json none",
        ),
    ] = None,
    what: Annotated[str, typer.Option(help="What to show; see Kinds.", show_default="the kind that fits the run")] = "",
    target: Annotated[str, typer.Option(help="Explain this output instead of the model's own.")] = "",
    context: Annotated[
        Path | None, typer.Option(help="The text that contains the answer to a question.", show_default=False)
    ] = None,
    box: Annotated[
        int | None, number_option("Which box of a detector, counted from 1, the surest first.", default="1")
    ] = None,
    stack: Annotated[str, typer.Option(help="encoder, decoder or cross.", show_default="the one that fits")] = "",
    layer: Annotated[int | None, number_option("Only this layer, counted from 1.", default="all")] = None,
    head: Annotated[int | None, number_option("Only this head, counted from 1.", default="all")] = None,
    answer: Annotated[
        int | None,
        number_option(
            "Which output position, counted from 1.", default="all, or the least certain token, or the next token"
        ),
    ] = None,
    token: Annotated[str, typer.Option(help="A token or class other than the output.", show_default=False)] = "",
    method: Annotated[
        str,
        typer.Option(
            help="Attribution method: integrated-gradients, gradient-input, occlusion or rollout.", show_default=False
        ),
    ] = "",
    reading: Annotated[
        str,
        typer.Option(
            help="For an alignment, the decoder step that 'writes' or 'reads' a word.",
            show_default="chosen on validation text",
        ),
    ] = "",
    count: Annotated[int, number_option("Number of candidates at each position.", most=50)] = 10,
    temperature: Annotated[float, typer.Option(help="Temperature for candidates.")] = 1.0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    if what:
        find(what)
    from regard.run import load_weights, open_run

    if output is None and not as_json:
        output = Path("explain.png")
    task = open_run(run)
    given = input_of(task, what, text, target, None if context is None else read_text(context), box)
    must_not_replace(output, [Path(text) if text and getattr(task, "reads", "") == "images" else None, context])
    loaded = load_weights(task, device)
    choice: dict[str, Any] = {
        "stack": stack,
        "layer": layer,
        "head": head,
        "answer": answer,
        "token": token,
        "method": method,
    }
    choice |= {"reading": reading, "count": count, "temperature": temperature}
    shown = loaded.explain(*given, what=what, **choice)
    _say_what_is_shown(what, shown, output)
    content: dict[str, Any] = shown.to_json() if as_json else {}
    if output is not None:
        with writing(output, "Choose a writable path with -o."):
            shown.save(output)
        content = {"file": str(output.resolve())} | content
    show(content, as_json, lambda content: content["file"])


def _say_what_is_shown(what: str, shown: Any, output: Path | None) -> None:
    """What a user did not ask for, and may not expect."""
    from regard import console

    if not what and shown.what == "influence":
        console.say("This model has no attention; the influence between positions is shown instead.")
    if output is not None and output.suffix.lower() == ".csv":
        from regard.inside.named import with_axes_of_first

        written = with_axes_of_first(shown.arrays)
        others = ", ".join(f"'{array.name}'" for array in shown.arrays if array.axes != written[0].axes)
        if others:
            names = ", ".join(f"'{array.name}'" for array in written)
            console.say(f"The .csv has {names}; a .json also has {others}.")
