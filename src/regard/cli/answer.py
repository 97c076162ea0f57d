"""`regard answer`: the answer to a question, inside the sentence that it stands in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app, number_option, show
from regard.cli.lines import all_input, read_text
from regard.errors import UsageError


@app.command()
def answer(
    run: RunArgument,
    questions: Annotated[list[str], typer.Argument(help='One or more: "Where is Mary?"', show_default=False)],
    context: Annotated[
        Path | None, typer.Option(help="The text that has the answer; or standard input.", show_default=False)
    ] = None,
    top: Annotated[int, number_option("How many answers to show.")] = 1,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Find the answer to a question in a text.

    Shows the probability of the answer, and the sentence that it stands in, with the answer in [brackets].
    """
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "answer")
    text = read_text(context) if context is not None else all_input()
    if text is None or not text.strip():
        raise UsageError(
            "There is no text to find the answer in.",
            "None is named, and nothing comes from standard input." if text is None else "It is empty.",
            "Name a file: --context FILE",
        )
    loaded: Any = load_weights(task, device)
    found = [
        {
            "question": question,
            "answers": [asdict(each) | {"shown": in_its_sentence(text, each)} for each in answers],
        }
        for question, answers in ((each, loaded.answers(each, text, top)) for each in questions)
    ]
    show(found, as_json, _report)


def in_its_sentence(context: str, found: Any) -> str:
    """The sentence with the answer in brackets."""
    if not found.text:
        return "(no answer in this text)"
    from regard.data.sentences import sentence_around

    start, end = sentence_around(context, found.start, found.end)
    marked = f"{context[start : found.start]}[{found.text}]{context[found.end : end]}"
    return " ".join(marked.split())


def _report(content: list[dict[str, Any]]) -> str:
    blocks = []
    for asked in content:
        lines = [f"{each['probability']:7.2%}  {each['shown']}" for each in asked["answers"]]
        blocks.append("\n".join([asked["question"], *lines] if len(content) > 1 else lines))
    return "\n\n".join(blocks)
