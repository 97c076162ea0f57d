"""`regard translate` as a Unix filter: a line in, a line out, in order, as soon as it can be had."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
from regard.cli.lines import chunks, destination, input_lines, must_be_a_file, must_not_replace, one_line
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.decoding.translate import Translation


@app.command()
def translate(
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
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Translate a file or standard input.

    Line by line, in order: one line out for one line in. With --best N, N lines "score TAB text" and a
    blank line for each. With --json, one JSON object per line. A line is translated as one sentence; with
    --split-sentences it may hold several, whose translations are joined again to one line.
    """
    decoding: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = {"beam": beam, "slots": slots, "int8": int8 or None}
    decoding |= {name: value for name, value in given.items() if value is not None}
    check_options(best, decoding)
    if file is not None:
        must_be_a_file(file)
    must_not_replace(output, [file])
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "translate")
    loaded = load_weights(task, device)
    lines = input_lines([file] if file else [])
    names = ("source", "translations") if as_json else None
    write_lines(loaded, lines, output, best, prefix, split_sentences, seed, names, decoding)


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


def write_lines(
    run: Any,
    inputs: Iterator[str],
    output: Path | None,
    best: int,
    prefix: str,
    split: bool,
    seed: int,
    names: tuple[str, str] | None,
    decoding: dict[str, Any],
) -> None:
    """The best outputs for each line, to a file or standard output. `names`: what JSON calls a line and its outputs."""
    from regard.data.lines import HALF_A_CHARACTER, encodable

    if not encodable(prefix):
        raise UsageError("The prefix is not Unicode.", HALF_A_CHARACTER, "Give it in UTF-8.")
    if best > 1:
        decoding["beam"] = max(best, decoding.get("beam", run.settings.decoding.beam))
    translator = run.translator(**decoding)
    long = run.long_sources(translator, split)
    lines = with_text = 0
    try:
        with destination(output) as out:
            for chunk in chunks(inputs):
                results = translator.translate(
                    chunk,
                    prefixes=[prefix] * len(chunk) if prefix else None,
                    seed=seed,
                    first_row=with_text,
                    split=split,
                    best=best,
                    noticed=lambda line, tokens, before=lines: long.notice(before + line + 1, tokens),
                )
                for line, hypotheses in zip(chunk, results, strict=True):
                    out.write(_shown(line, hypotheses[:best], best, names))
                out.flush()
                lines += len(chunk)
                with_text += sum(bool(line.strip()) for line in chunk)
    finally:
        long.warn()


def _shown(source: str, hypotheses: list[Translation], best: int, names: tuple[str, str] | None) -> str:
    if names:
        listed = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in hypotheses]
        return json.dumps(dict(zip(names, (source, listed), strict=True)), ensure_ascii=False) + "\n"
    texts = [one_line(h.text) for h in hypotheses]
    if best == 1:
        return (texts[0] if texts else "") + "\n"
    return "".join(f"{h.score:.4f}\t{text}\n" for h, text in zip(hypotheses, texts, strict=True)) + "\n"
