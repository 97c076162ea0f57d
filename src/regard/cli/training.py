"""Verbs that make runs: demo, recipes, init, train, compare, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import JsonOption, OverridesArgument, app, short, show
from regard.errors import UsageError, did_you_mean


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put the run.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """Train and show a small translator on built-in data."""
    from regard.verbs import demo as demonstration

    show(demonstration.run(out), as_json, demonstration.report)


@app.command()
def recipes(as_json: JsonOption = False) -> None:
    """List the ready-made recipes, one line each."""
    from regard.recipes import recipe_names, recipe_summary

    listed = {name: recipe_summary(name) for name in recipe_names()}
    show(listed, as_json, lambda found: "\n".join(f"{name:<20} {what}" for name, what in found.items()))


@app.command()
def init(
    task: Annotated[
        str,
        typer.Argument(
            help="What to train: translate, language, masked, classify-text, embeddings, classify-image, pixels or "
            "synthetic."
        ),
    ] = "translate",
) -> None:
    """Print a complete, commented recipe to edit.

    regard init translate > mine.toml
    """
    from regard.settings import TASKS
    from regard.recipes import starter_recipe

    if task not in TASKS:
        raise UsageError(f"There is no task '{task}'.", "A recipe is for one task.", did_you_mean(task, TASKS))
    typer.echo(starter_recipe(task), nl=False)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, a .toml file, or a run folder.", show_default=False)],
    overrides: OverridesArgument = None,
    out: Annotated[Path | None, typer.Option(help="Where to put the run.", show_default="runs/RECIPE")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder that data paths start from.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    start_from: Annotated[
        Path | None, typer.Option("--from", help="A run to start from: its tokenizer, blocks and weights.")
    ] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Word vectors (word2vec text) to start the embedding from.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model and leave a run folder."""
    from regard.experiment import train as run_recipe

    folder, summary = run_recipe(
        recipe, overrides or [], out=out, data=data, resume=resume, start_from=start_from, embeddings=embeddings
    )

    def report(found: dict[str, Any]) -> str:
        figures = " · ".join(f"{name} {value:.4g}" for name, value in found["metrics"].items())
        commands = "\n".join("  " + command.replace(str(folder), short(folder)) for command in found["next"])
        return f"Held-out data: {figures}\n{folder}\n\nNext:\n{commands}"

    show(summary | {"run": str(folder)}, as_json, report)


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
    steps: Annotated[int | None, typer.Option(min=1, help="Updates for each.", show_default="the recipe's")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens for each, instead of steps.")] = None,
    seconds: Annotated[
        int | None, typer.Option(min=1, help="Seconds of updates for each; the speed of each is measured first.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to put it all.", show_default="runs/compare-RECIPE")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder that data paths start from.")] = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time; above 1 the speeds mean little.", show_default="1")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe in several variants and seeds, and compare.

    regard compare RECIPE --vary model.positions=rotary,learned --seeds 3 --steps 500

    Means over the seeds with 95 % intervals, speed, memory, and which differences are more than noise. Where the
    steps are not the recipe's, each training is validated eight times and warms up for at most a tenth of them. The
    same command again goes on. With run folders only, those are compared as they are.
    """
    from regard.verbs import compare as comparison
    from regard.verbs.variants import Request

    budgets = {"steps": steps, "tokens": tokens, "seconds": seconds}
    given = [(name, amount) for name, amount in budgets.items() if amount is not None]
    if len(given) > 1:
        raise UsageError(
            f"--{given[0][0]} and --{given[1][0]} both say how long to train.", "Only one can hold.", "Leave one out."
        )
    if (Path(what[0]) / "plan.json").is_file() and not (Path(what[0]) / "config.toml").is_file():
        raise UsageError(
            f"'{what[0]}' is a comparison.",
            "What is compared is a recipe in variants, or runs.",
            f"Give the command that made it to go on with it; its result is in '{what[0]}/comparison.md'.",
        )
    others_are_runs = len(what) > 1 and not any("=" in each for each in what[1:])
    if not vary and not variant and ((Path(what[0]) / "config.toml").is_file() or others_are_runs):
        if given or seeds or data or parallel or any("=" in each and not Path(each).exists() for each in what[1:]):
            raise UsageError(
                "Runs that are trained already take no further settings.",
                "Their seeds and steps are what they are.",
                "Leave the options out, or say with --vary what to train.",
            )
        found = comparison.compare_runs(what, out)
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
        found = comparison.train_and_compare(request)
    show(found, as_json, comparison.report)
    if any(each["failed"] for each in found["variants"]):
        raise typer.Exit(1)


@app.command()
def doctor(
    recipe: Annotated[str, typer.Argument(help="A recipe whose data to check.", show_default=False)] = "",
    overrides: OverridesArgument = None,
    data: Annotated[Path | None, typer.Option(help="The folder that data paths start from.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, and the data of a recipe.

    Counts, lengths, repeated pairs, test sentences that also stand in train, pairs of very unequal length.
    With --data alone, files named train.*, val* or dev*, and test* are looked for.
    """
    from regard.verbs import doctor as diagnosis

    show(diagnosis.examine(recipe, overrides or [], data), as_json, diagnosis.report)
