"""`regard markov`: what came before attention."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.app import JsonOption, app, number_option, show

MOST_SAMPLES = 10_000


@app.command()
def markov(
    file: Annotated[
        Path | None, typer.Argument(help="A text, one sentence per line; - for standard input.", show_default=False)
    ] = None,
    order: Annotated[str, typer.Option(help="1, 2 or skip.")] = "1",
    mask: Annotated[bool, typer.Option("--mask", help="With skips: cross out the votes that tell nothing.")] = False,
    after: Annotated[str | None, typer.Option(help="Predict the word after these.")] = None,
    samples: Annotated[int | None, number_option("Draw this many sentences.", most=MOST_SAMPLES)] = None,
    seed: Annotated[int | None, number_option("Another seed draws others; 0 if left out.", least=0)] = None,
    score: Annotated[Path | None, typer.Option(help="A text to score: bits per word and perplexity.")] = None,
    rows: Annotated[int, number_option("At most this many rows of the table; 0 for none.", least=0)] = 20,
    example: Annotated[int | None, number_option("Built-in sentences instead of a file: 1, 2 or 3.", most=3)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what came before attention: Markov chains.

    Counts what follows a word (order 1), two words (2), or any earlier word and the latest one (skip). With
    skips and --mask, the prediction is attention, and is shown as its product of matrices.

    regard markov --example 3 --order skip --mask --after "check the program log and find out whether it ran"
    """
    from regard.cli.chains import describe

    content, shown = describe(file, example, order, mask, after, samples, seed, score, rows)
    show(content, as_json, lambda _: shown)
