"""Verbs that make runs: demo, recipes, init, train, doctor."""

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
        str, typer.Argument(help="What to train: translate, language, masked, classify-text or embeddings.")
    ] = "translate",
) -> None:
    """Print a complete, commented recipe to edit.

    regard init translate > mine.toml
    """
    from regard.config import TASKS
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
