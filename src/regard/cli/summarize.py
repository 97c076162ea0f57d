"""`regard summarize` as a Unix filter: a text in, its summary out, in order, as soon as it can be had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import (
    BeamOption,
    DeviceOption,
    Int8Option,
    JsonOption,
    RunArgument,
    SeedOption,
    SlotsOption,
    TopKOption,
    app,
    number_option,
)
from regard.cli.bulk import Bulk, PartOption, ProcessesOption, own_device
from regard.cli.lines import LineWork
from regard.cli.translate import check_options, line_work
from regard.errors import RegardError


@app.command()
def summarize(
    context: typer.Context,
    run: RunArgument,
    file: Annotated[
        Path | None,
        typer.Argument(help="One text per line, or .jsonl; standard input if left out.", show_default=False),
    ] = None,
    field: Annotated[
        str, typer.Option(help="Lines are JSON, and the text is in this field.", show_default="as trained, for .jsonl")
    ] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of printing.")] = None,
    beam: BeamOption = None,
    best: Annotated[int, number_option("Print the N best of each text, with scores.", "--best", "-n")] = 1,
    no_repeat: Annotated[
        int | None,
        number_option("So many tokens never come twice in the same order; 0: they may.", default="as trained", least=0),
    ] = None,
    prefix: Annotated[str, typer.Option(help="What every summary must start with.")] = "",
    temperature: Annotated[float, typer.Option(help="Above 0: sample instead of searching.")] = 0.0,
    top_k: TopKOption = 0,
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest tokens that sum to p.")] = 1.0,
    seed: SeedOption = 1,
    slots: SlotsOption = None,
    int8: Int8Option = False,
    processes: ProcessesOption = None,
    part: PartOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Summarise a file or standard input; also spelled `regard summarise`.

    One line out for one text in, in order. A text is a line, or a field of a line of JSON, which may have line breaks.
    Of a text that is longer than those the run was trained on (data.max_length), the beginning is read; how many
    are cut is told at the end. With --best N, N lines "score TAB summary" and a blank line for each. With --json, one
    JSON object per text.
    """
    decoding: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = {"beam": beam, "no_repeat": no_repeat, "slots": slots, "int8": int8 or None}
    decoding |= {name: value for name, value in given.items() if value is not None}
    check_options(best, decoding)
    bulk = Bulk([file] if file else [], output, processes, part)
    bulk.check()
    from regard.data.pairs import is_jsonl
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "summarize")
    if file is not None and is_jsonl(file):
        field = field or task.settings.data.text_field
    names = ("source", "summaries") if as_json else None

    def make() -> LineWork:
        work = line_work(load_weights(task, own_device(device)), best, prefix, False, seed, names, decoding)
        return replace(work, read=partial(_in_field, field=field)) if field else work

    bulk.run("summarize", context, run, make)


app.command("summarise", hidden=True)(summarize)


def _in_field(lines: Iterator[str], first: int, field: str) -> Iterator[str]:
    """The texts of lines of JSON; a blank line stays one."""
    from regard.data.lines import HALF_A_CHARACTER, encodable

    for number, line in enumerate(lines, start=first + 1):
        try:
            record = json.loads(line) if line.strip() else {field: ""}
            text = record.get(field) if isinstance(record, dict) else None
            why = "" if isinstance(text, str) else f"It has no text in the field '{field}'."
            why = why or ("" if encodable(str(text)) else HALF_A_CHARACTER)
        except (ValueError, RecursionError) as error:
            text, why = None, f"It is not valid JSON: {error}."
        if why or not isinstance(text, str):
            raise RegardError(f"Line {number:,} of the input cannot be used.", why, "Correct it, or set --field.")
        yield text
