"""`regard tokenize`: the tokens of a text, and how they came about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import JsonOption, app, must_be_left_out, number_option, show
from regard.cli.bulk import Bulk, PartOption, ProcessesOption
from regard.cli.lines import LineWork, all_input
from regard.errors import RegardError, UsageError

TEXT_ALONE = "-"


@app.command()
def tokenize(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="A run, a tokenizer.json, or - to look at the text alone.", show_default=False)
    ],
    text: Annotated[
        str | None, typer.Argument(help="The text; standard input if left out.", show_default=False)
    ] = None,
    merges: Annotated[bool, typer.Option("--merges", help="Show how pairs are joined, step by step.")] = False,
    steps: Annotated[int | None, number_option("With -: at most this many merges.", least=0)] = None,
    file: Annotated[
        Path | None, typer.Option(help="Write the ids of each line of this file instead.", show_default=False)
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="With --file: write here.")] = None,
    processes: ProcessesOption = None,
    part: PartOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens of a text, with ids and byte positions.

    With --file, the ids of the tokens of each line, separated by spaces: one line out for one line in; with --json, an
    object with text, ids and tokens. A large file can be shared among processes or machines, with --processes or
    --part: the output is the same.

    With --merges, how byte-pair encoding gets there. `regard tokenize - aaabdaaabac --merges` learns merges
    from the text itself.
    """
    if file is not None:
        must_be_left_out(
            {"TEXT": text, "--merges": merges or None, "--steps": steps}, "The lines of FILE are the texts."
        )
        bulk = Bulk([file], output, processes, part)
        bulk.check()
        tokenizer = _file(Path(source))
        bulk.run("tokenize", context, tokenizer, lambda: _line_work(tokenizer, as_json))
        return
    of_file = {"-o": output, "--processes": processes, "--part": part}
    must_be_left_out(of_file, "It is about the lines of a file.", "Add --file FILE, or leave it out.")
    content, shown = _describe(source, text, merges, steps)
    show(content, as_json, lambda _: shown)


def _line_work(path: Path, as_json: bool) -> LineWork:
    from regard.data.tokenizers import TextTokenizer

    tokenizer = TextTokenizer.load(path)

    def write(lines: list[str], first: int) -> str:
        return "".join(map(shown, lines, tokenizer.encode(lines)))

    def shown(line: str, ids: list[int]) -> str:
        if as_json:
            tokens = [tokenizer.piece(token) for token in ids]
            return json.dumps({"text": line, "ids": ids, "tokens": tokens}, ensure_ascii=False) + "\n"
        return " ".join(map(str, ids)) + "\n"

    return LineWork(write)


def _describe(source: str, text: str | None, merges: bool, steps: int | None) -> tuple[dict[str, Any], str]:
    """What there is to tell, for scripts and for people."""
    from regard.data.tokenizers import TextTokenizer
    from regard.explain import tokens

    text = all_input() if text is None else text
    if text is None:
        raise UsageError("A text is missing.", "Its tokens are to be shown.", 'Add one: "A sentence."')
    if source == TEXT_ALONE:
        if not merges:
            raise UsageError(
                "Without a tokenizer there are no tokens.",
                f"'{TEXT_ALONE}' looks at the text alone.",
                "Add --merges, or name a run or a tokenizer.json.",
            )
        learned = tokens.learn_steps(text, steps)
        return {"text": text, "merges": tokens.to_json(learned)}, tokens.show_learning(text, learned)
    if steps is not None:
        raise UsageError("--steps has no effect here.", "The tokenizer's merges are learned already.", "Leave it out.")
    tokenizer = TextTokenizer.load(_file(Path(source)))
    spans = tokens.spans(tokenizer, text)
    content: dict[str, Any] = {"text": text, "tokens": tokens.to_json(spans)}
    shown = tokens.show_tokens(spans)
    if merges:
        joined = tokens.merge_steps(tokenizer, text)
        content["merges"] = tokens.to_json(joined)
        shown = tokens.show_merges(joined) + "\n\n" + shown
    return content, shown


def _file(source: Path) -> Path:
    from regard.training.folder import RunFolder

    if source.is_file() and source.suffix == ".json":
        return source
    # A translator may have one tokenizer for each language; a text is taken as its source.
    for name in ("tokenizer.json", "source_tokenizer.json"):
        if (source / name).is_file():
            return RunFolder(source).checked(name)
    raise RegardError(
        f"'{source}' has no tokenizer.",
        "It is neither a run folder with a tokenizer nor a tokenizer.json.",
        f"Give one of them; or {TEXT_ALONE} with --merges to look at a text alone.",
    )
