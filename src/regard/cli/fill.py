"""`regard fill`: what belongs at [MASK]."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app, number_option, show


@app.command()
def fill(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help='A text with a hole in it: "The [MASK] sat."', show_default=False)],
    top: Annotated[int, number_option("How many candidates to show.")] = 5,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Guess what belongs at [MASK], with probabilities."""
    from regard.explain.tokens import visible
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "fill")
    masks = [[vars(candidate) for candidate in each] for each in load_weights(task, device).fill(text, top)]  # type: ignore[attr-defined]

    def report(content: dict[str, Any]) -> str:
        blocks = [
            "\n".join(f"{c['probability']:7.2%}  {visible(c['token']):<16} {c['text']}" for c in candidates)
            for candidates in content["masks"]
        ]
        return "\n\n".join(blocks)

    show({"text": text, "masks": masks}, as_json, report)
