"""`regard translate` as a Unix filter: a line in, a line out, in order, as soon as it can be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.app import DeviceOption, Int8Option, JsonOption, RunArgument, SlotsOption, app
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
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.", show_default="as trained")] = None,
    best: Annotated[int, typer.Option("--best", "-n", help="Print the N best of each sentence, with scores.")] = 1,
    prefix: Annotated[str, typer.Option(help="Text that every translation must start with.")] = "",
    split_sentences: Annotated[
        bool, typer.Option("--split-sentences", help="Translate each sentence of a line by itself.")
    ] = False,
    temperature: Annotated[float, typer.Option(help="Above 0: sample instead of searching.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Sample from the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest tokens that sum to p.")] = 1.0,
    seed: Annotated[int, typer.Option(help="For sampling.")] = 1,
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
    _check(best, seed, decoding)
    if file is not None:
        must_be_a_file(file)
    must_not_replace(output, [file])
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "translate")
    loaded = load_weights(task, device)
    _translate_lines(loaded, file, output, best, prefix, split_sentences, seed, as_json, decoding)


def _check(best: int, seed: int, decoding: dict[str, Any]) -> None:
    """Options that contradict each other."""
    if best < 1:
        raise UsageError(f"--best {best} is not a number of translations.", "At least one is printed.", "Use --best 1.")
    if best > 1 and decoding["temperature"] > 0:
        raise UsageError(
            f"--best {best} and --temperature do not go together.",
            "Sampling gives one translation of each sentence.",
            "Leave out one of them; another --seed gives another sample.",
        )
    if seed < 0:
        raise UsageError(f"--seed {seed} is negative.", "A seed is 0 or more.", "Use --seed 1.")
    if decoding["temperature"] <= 0 and (decoding["top_k"] or decoding["top_p"] < 1):
        raise UsageError(
            "--top-k and --top-p have no effect here.",
            "They limit sampling, and without --temperature nothing is sampled.",
            "Add --temperature 1, or leave them out.",
        )


def _translate_lines(
    run: Any,
    file: Path | None,
    output: Path | None,
    best: int,
    prefix: str,
    split: bool,
    seed: int,
    as_json: bool,
    decoding: dict[str, Any],
) -> None:
    """Translate a file, or standard input, to a file, or standard output."""
    if best > 1:
        decoding["beam"] = max(best, decoding.get("beam", run.settings.decoding.beam))
    translator = run.translator(**decoding)
    long = run.long_sources(translator, split)
    lines = with_text = 0
    try:
        with destination(output) as out:
            for chunk in chunks(input_lines([file] if file else [])):
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
                    out.write(_shown(line, hypotheses[:best], best, as_json))
                out.flush()
                lines += len(chunk)
                with_text += sum(bool(line.strip()) for line in chunk)
    finally:
        long.warn()


def _shown(source: str, hypotheses: list[Translation], best: int, as_json: bool) -> str:
    if as_json:
        listed = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in hypotheses]
        return json.dumps({"source": source, "translations": listed}, ensure_ascii=False) + "\n"
    texts = [one_line(h.text) for h in hypotheses]
    if best == 1:
        return (texts[0] if texts else "") + "\n"
    return "".join(f"{h.score:.4f}\t{text}\n" for h, text in zip(hypotheses, texts, strict=True)) + "\n"
