"""Verbs that make runs: recipes, init, train."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard import registry
from regard.cli.app import DataOption, JsonOption, OverridesArgument, app, number_option, short, show
from regard.errors import UsageError, did_you_mean
from regard.startup import launched


@app.command()
def recipes(as_json: JsonOption = False) -> None:
    """List the ready-made recipes, one line each."""
    from regard.recipes import recipe_names, recipe_summary

    listed = {name: recipe_summary(name) for name in recipe_names()}
    show(listed, as_json, lambda names: "\n".join(f"{name:<20} {what}" for name, what in names.items()))


@app.command()
def init(
    task: Annotated[str, typer.Argument(help=f"What to train: {', '.join(registry.TASKS)}.")] = "translate",
) -> None:
    """Print a complete, commented recipe to edit.

    regard init translate > mine.toml
    """
    from regard.recipes import starter_recipe

    names = registry.names("tasks")
    if task not in names:
        raise UsageError(f"There is no task '{task}'.", "A recipe is for one task.", did_you_mean(task, names))
    typer.echo(starter_recipe(task), nl=False)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, a .toml file, or a run folder.", show_default=False)],
    overrides: OverridesArgument = None,
    out: Annotated[Path | None, typer.Option(help="Where to put the run.", show_default="runs/RECIPE")] = None,
    data: DataOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False,
    start_from: Annotated[
        Path | None, typer.Option("--from", help="A run to start from: its tokenizer, blocks and weights.")
    ] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Word vectors (word2vec text) to start the embedding from.")
    ] = None,
    processes: Annotated[
        int | None,
        number_option("Processes to train with on this machine: same result, see docs/scale.md.", default="1"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model and leave a run folder."""
    from regard.run import read_recipe, several
    from regard.run import train as train_recipe

    if processes and several() and not launched():
        raise UsageError(
            f"--processes {processes} cannot be had here.",
            f"WORLD_SIZE = {os.environ['WORLD_SIZE']} says that this is one of several processes already.",
            "Leave out --processes; or unset WORLD_SIZE and RANK, if nothing has started others.",
        )
    if processes and processes > 1 and not several():
        from regard.cli.launch import launch
        from regard.training.processes import check_share

        settings = read_recipe(recipe, overrides or [], data)  # a mistake is told before anything is started
        check_share(settings.training.pieces, processes, settings.training.reduce)
        sys.exit(launch(processes, sys.argv[1:], settings.system.patience))

    folder, summary = train_recipe(
        recipe, overrides or [], out=out, data=data, resume=resume, start_from=start_from, embeddings=embeddings
    )

    if not summary:  # one of several processes, and not the one that speaks
        return

    def report(summary: dict[str, Any]) -> str:
        metrics = " · ".join(f"{name} {value:.4g}" for name, value in summary["metrics"].items())
        commands = "\n".join("  " + command.replace(str(folder), short(folder)) for command in summary["next"])
        return f"Held-out data: {metrics}\n{folder}\n\nNext:\n{commands}"

    show(summary | {"run": str(folder)}, as_json, report)
