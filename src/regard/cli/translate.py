"""`regard translate` as a Unix filter: a line in, a line out, in order, as soon as it can be had."""

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
    TopKOption,
    app,
    number_option,
)
from regard.cli.bulk import Bulk, PartOption, ProcessesOption, own_device
from regard.cli.lines import LineWork, one_line
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.decoding.translate import Translation


@app.command()
def translate(
    context: typer.Context,
    run: RunArgument,
    file: Annotated[
        Path | None,
        typer.Argument(help="One sentence per line; standard input if left out.", show_default=False),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of printing.")] = None,
    beam: BeamOption = None,
    best: Annotated[int, number_option("Print the N best of each sentence, with scores.", "--best", "-n")] = 1,
    prefix: Annotated[str, typer.Option(help="Text that every translation must start with.")] = "",
    split_sentences: Annotated[
        bool, typer.Option("--split-sentences", help="Translate each sentence of a line by itself.")
    ] = False,
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
    """Translate a file or standard input.

    Line by line, in order: one line out for one line in. With --best N, N lines "score TAB text" and a
    blank line for each. With --json, one JSON object per line. A line is translated as one sentence; with
    --split-sentences it may hold several, whose translations are joined again to one line. A large file can be shared
    among processes or machines, with --processes or --part: the output is the same.
    """
    decoding: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = {"beam": beam, "slots": slots, "int8": int8 or None}
    decoding |= {name: value for name, value in given.items() if value is not None}
    check_options(best, decoding)
    bulk = Bulk([file] if file else [], output, processes, part)
    bulk.check()
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "translate")
    names = ("source", "translations") if as_json else None

    def make() -> LineWork:
        loaded = load_weights(task, own_device(device))
        return line_work(loaded, best, prefix, split_sentences, seed, names, decoding)

    bulk.run("translate", context, run, make)


def check_options(best: int, decoding: dict[str, Any]) -> None:
    """Options that contradict each other."""
    if best > 1 and decoding["temperature"] > 0:
        raise UsageError(
            f"--best {best} and --temperature do not go together.",
            "Sampling gives one output for each line.",
            "Leave out one of them; another --seed gives another sample.",
        )
    if decoding["temperature"] <= 0 and (decoding["top_k"] or decoding["top_p"] < 1):
        raise UsageError(
            "--top-k and --top-p have no effect here.",
            "They limit sampling, and without --temperature nothing is sampled.",
            "Add --temperature 1, or leave them out.",
        )


def line_work(
    run: Any,
    best: int,
    prefix: str,
    split: bool,
    seed: int,
    names: tuple[str, str] | None,
    decoding: dict[str, Any],
) -> LineWork:
    """The best outputs for each line. `names`: what JSON calls a line and its outputs."""
    from regard.data.lines import HALF_A_CHARACTER, encodable

    if not encodable(prefix):
        raise UsageError("The prefix is not Unicode.", HALF_A_CHARACTER, "Give it in UTF-8.")
    if best > 1:
        decoding["beam"] = max(best, decoding.get("beam", run.settings.decoding.beam))
    translator = run.translator(**decoding)
    long = run.long_sources(translator, split)

    def write(lines: list[str], first: int) -> str:
        results = translator.translate(
            lines,
            prefixes=[prefix] * len(lines) if prefix else None,
            seed=seed,
            first_row=first,
            split=split,
            best=best,
            noticed=lambda line, tokens: long.notice(first + line + 1, tokens),
        )
        shown = (_shown(line, found[:best], best, names) for line, found in zip(lines, results, strict=True))
        return "".join(shown)

    return LineWork(write, long)


def _shown(source: str, hypotheses: list[Translation], best: int, names: tuple[str, str] | None) -> str:
    if names:
        listed = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in hypotheses]
        return json.dumps(dict(zip(names, (source, listed), strict=True)), ensure_ascii=False) + "\n"
    texts = [one_line(h.text) for h in hypotheses]
    if best == 1:
        return (texts[0] if texts else "") + "\n"
    return "".join(f"{h.score:.4f}\t{text}\n" for h, text in zip(hypotheses, texts, strict=True)) + "\n"
