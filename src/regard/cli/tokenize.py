"""`regard tokenize`: the tokens of a text, and how they came about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import JsonOption, app, number_option, show
from regard.cli.lines import all_input
from regard.errors import RegardError, UsageError

TEXT_ALONE = "-"


@app.command()
def tokenize(
    source: Annotated[
        str, typer.Argument(help="A run, a tokenizer.json, or - to look at the text alone.", show_default=False)
    ],
    text: Annotated[
        str | None, typer.Argument(help="The text; standard input if left out.", show_default=False)
    ] = None,
    merges: Annotated[bool, typer.Option("--merges", help="Show how pairs are joined, step by step.")] = False,
    steps: Annotated[int | None, number_option("With -: at most this many merges.", least=0)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens of a text, with ids and byte positions.

    With --merges, how byte-pair encoding gets there. `regard tokenize - aaabdaaabac --merges` learns merges
    from the text itself.
    """
    content, shown = _describe(source, text, merges, steps)
    show(content, as_json, lambda _: shown)


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
