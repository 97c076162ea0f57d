"""`regard compare`: a recipe in several variants and seeds, or runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.app import DataOption, JsonOption, app, number_option, show
from regard.errors import UsageError


@app.command()
def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE [a.b=c …] | RUN…",
            help="A recipe, and settings for all variants; or runs that are trained already.",
            show_default=False,
        ),
    ],
    vary: Annotated[
        list[str] | None, typer.Option(help="Values to compare: model.width=64,128. Again: every combination.")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="One variant: 'small: model.width=64 model.layers=2'. Again for more.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="How many seeds, or which: 4,5,6.", show_default="3")] = None,
    steps: Annotated[int | None, number_option("Updates for each.", default="the recipe's")] = None,
    tokens: Annotated[int | None, number_option("Tokens for each, instead of steps.")] = None,
    seconds: Annotated[
        int | None, number_option("Seconds of updates for each; the speed of each is measured first.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to put it all.", show_default="runs/compare-RECIPE")] = None,
    data: DataOption = None,
    parallel: Annotated[
        int | None, number_option("Trainings at a time; above 1 the speeds mean little.", default="1")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe in several variants and seeds, and compare.

    regard compare RECIPE --vary model.positions=rotary,learned --seeds 3 --steps 500

    Means over the seeds with 95 % intervals, speed, memory, and which differences are more than noise. Where the
    steps are not the recipe's, each training is validated eight times and warms up for at most a tenth of them. The
    same command again continues. With run folders only, those are compared as they are.
    """
    from regard.cli import comparison
    from regard.cli.variants import Request
    from regard.training.folder import is_run

    budgets = {"steps": steps, "tokens": tokens, "seconds": seconds}
    given = [(name, amount) for name, amount in budgets.items() if amount is not None]
    if len(given) > 1:
        raise UsageError(
            f"--{given[0][0]} and --{given[1][0]} both say how long to train.", "Only one can hold.", "Leave one out."
        )
    if (Path(what[0]) / "plan.json").is_file() and not is_run(what[0]):
        raise UsageError(
            f"'{what[0]}' is a comparison.",
            "What is compared is a recipe in variants, or runs.",
            f"Give the command that made it to continue it; its result is in '{what[0]}/comparison.md'.",
        )
    others_are_runs = len(what) > 1 and not any("=" in each for each in what[1:])
    if not vary and not variant and (is_run(what[0]) or others_are_runs):
        if given or seeds or data or parallel or any("=" in each and not Path(each).exists() for each in what[1:]):
            raise UsageError(
                "Runs that are trained already take no further settings.",
                "Their seeds and steps are what they are.",
                "Leave the options out, or say with --vary what to train.",
            )
        result = comparison.compare_runs(what, out)
    else:
        request = Request(
            recipe=what[0],
            overrides=what[1:],
            vary=vary or [],
            variants=variant or [],
            seeds=seeds or "3",
            budget=given[0] if given else None,
            out=out,
            data=data,
            parallel=parallel or 1,
        )
        result = comparison.train_and_compare(request)
    show(result, as_json, comparison.report)
    if any(each["failed"] for each in result["variants"]):
        raise typer.Exit(1)
