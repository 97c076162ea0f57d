"""The command line. Thin: each verb reads its options and calls the package; nothing heavy is imported
before a verb runs, so help is quick.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a mistake in
data, files or machine, 2 a mistake in the command or the recipe's settings, 130 stopped by Ctrl-C or
SIGTERM: a training has then saved a checkpoint, and says how to go on. Where the reader of a result goes
away early, as in `| head`, the command ends quietly with 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import RegardError, UsageError, did_you_mean

app = typer.Typer(
    name="regard",
    help="Train, run and look inside Transformers on your own data.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

STOPPED = 130


def _checked(path: Path) -> Path:
    """A run folder with its settings, looked at before anything heavy is imported."""
    from regard.training.folder import RunFolder

    RunFolder.open(path).read_config()
    return path


RunArgument = Annotated[
    Path, typer.Argument(help="A run folder, made by `regard train`.", show_default=False, callback=_checked)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="Settings to change: training.steps=500 …", show_default=False)
]


def _version(asked: bool) -> None:
    if asked:
        from regard import __version__

        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Train, run and look inside Transformers on your own data."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put the run.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """Train and show a small translator on built-in data."""
    from regard import demo as demonstration

    _print(demonstration.run(out), as_json, demonstration.report)


@app.command()
def recipes(as_json: JsonOption = False) -> None:
    """List the ready-made recipes, one line each."""
    from regard.config import recipe_names, recipe_summary

    listed = {name: recipe_summary(name) for name in recipe_names()}
    _print(listed, as_json, lambda found: "\n".join(f"{name:<20} {what}" for name, what in found.items()))


@app.command()
def init(task: Annotated[str, typer.Argument(help="What to train: translate.")] = "translate") -> None:
    """Print a complete, commented recipe to edit.

    regard init translate > mine.toml
    """
    from regard.config import TASKS, starter_recipe

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
    as_json: JsonOption = False,
) -> None:
    """Train a model and leave a run folder."""
    from regard.experiment import train as run_recipe

    folder, summary = run_recipe(recipe, overrides or [], out=out, data=data, resume=resume)

    def report(found: dict[str, Any]) -> str:
        figures = " · ".join(f"{name} {value:.2f}" for name, value in found["metrics"].items())
        return (
            f"Test: {figures}\n{folder}\n\nNext:\n"
            f'  echo "A sentence." | regard translate {_short(folder)}\n'
            f'  regard explain {_short(folder)} "A sentence." -o attention.png'
        )

    _print(summary | {"run": str(folder)}, as_json, report)


@app.command()
def evaluate(
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Other test data: two aligned files, or one TSV.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="test or valid.")] = "test",
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.", show_default="as trained")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations here.")] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Score a run on held-out data.

    BLEU cased and lower-cased, and chrF, each with its 95 % interval and sacreBLEU's signature.
    """
    if split not in ("test", "valid"):
        raise UsageError(f"There is no split '{split}'.", "Held-out data is test or valid.", "Use --split test.")
    from regard.run import Run

    decoding = {} if beam is None else {"beam": beam}
    named = [str(path) for path in files or []]
    translations, scores = Run(run, device).evaluate(named, split, **decoding)
    if output:
        _write(output, "".join(text + "\n" for text in translations))

    def report(found: dict[str, Any]) -> str:
        return "\n".join(
            f"{score['name']:<15} {score['value']:6.2f} ± {score['interval'] or 0:.2f}   {score['signature']}"
            for score in found["scores"]
        )

    _print(
        {
            "run": str(run),
            "sentences": len(translations),
            "metrics": {score.name: score.value for score in scores},
            "scores": [score.to_json() for score in scores],
        },
        as_json,
        report,
    )


@app.command()
def translate(
    run: RunArgument,
    file: Annotated[
        Path | None,
        typer.Argument(help="One sentence a line; standard input if left out.", show_default=False),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of printing.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.", show_default="as trained")] = None,
    best: Annotated[int, typer.Option("--best", "-n", help="Print the N best of each sentence, with scores.")] = 1,
    prefix: Annotated[str, typer.Option(help="Text that every translation must start with.")] = "",
    temperature: Annotated[float, typer.Option(help="Above 0: sample instead of searching.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Sample from the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest tokens that sum to p.")] = 1.0,
    seed: Annotated[int, typer.Option(help="For sampling.")] = 1,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Translate a file or standard input.

    Line by line, in order: one line out for one line in. With --best N, N lines "score TAB text" and a
    blank line for each. With --json, one JSON object a line.
    """
    from regard.filter import translate_lines

    decoding: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if beam is not None:
        decoding["beam"] = beam
    translate_lines(run, file, output, best=best, prefix=prefix, seed=seed, device=device, as_json=as_json, **decoding)


@app.command()
def explain(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The sentence to look into.")] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write.")] = Path("explain.png"),
    what: Annotated[str, typer.Option(help="attention, alignment or positions.")] = "attention",
    target: Annotated[str, typer.Option(help="Look at this translation instead of the model's own.")] = "",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Draw what a model looked at.

    attention: every layer and head of its cross-attention. alignment: the last layer, averaged over heads.
    positions: the position encodings that it adds.
    """
    if what != "positions" and not text.strip():
        raise UsageError("A sentence is missing.", f"'{what}' is drawn for a sentence.", 'Add one: "A dog sleeps."')
    if output.suffix.lower() != ".png":
        raise UsageError(f"'{output}' is not a PNG file.", "Pictures are written as PNG.", "Use a name ending in .png.")
    from regard.explain import pictures

    if what not in pictures.KINDS:
        raise UsageError(f"Nothing is drawn for '{what}'.", "It is no picture.", did_you_mean(what, pictures.KINDS))
    found = pictures.draw(run, text, output, what, target, device)
    _print(found, as_json, lambda content: content["picture"])


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
    from regard import diagnosis

    _print(diagnosis.examine(recipe, overrides or [], data), as_json, diagnosis.report)


# ---------------------------------------------------------------- printing and errors


def _print(content: Any, as_json: bool, report: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False) if as_json else report(content))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RegardError(f"Cannot write '{path}'.", f"{error}", "Choose a writable place.") from None


def _short(path: Path) -> str:
    """A path as one would type it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _complain(error: RegardError) -> None:
    # Colour only where a person looks.
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    # Three lines, also where a library's message has several.
    what, why, fix = (" ".join(part.split()) for part in (error.what, error.why, error.fix))
    print(f"{red}Error:{plain} {what}\n{why}\n{fix}", file=sys.stderr)


def _usage_error(error: Any) -> RegardError:
    """A mistake that typer found, in the same three lines."""
    message = error.format_message()
    verbs = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    unknown = message.startswith("No such command")
    name = message.split("'")[1] if unknown else ""
    where = error.ctx.command_path if getattr(error, "ctx", None) else "regard"
    return UsageError(
        message.splitlines()[0] if not unknown else f"There is no verb '{name}'.",
        "The command could not be understood.",
        did_you_mean(name, verbs) if unknown else f"Run `{where} --help` for what it takes.",
    )


def main() -> None:
    """The console script."""
    # typer keeps its exceptions private; BadParameter's parent is what all of its usage errors share.
    misused: type[Exception] = typer.BadParameter.__mro__[1]  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is half-done is cleared away
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        if code == STOPPED:  # typer turns Ctrl-C into a code
            raise KeyboardInterrupt
    except misused as error:
        _complain(_usage_error(error))
        sys.exit(2)
    except RegardError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        print("Stopped.", file=sys.stderr)
        sys.exit(STOPPED)
    except Exception as error:
        from regard.training.loop import Interrupted

        if not isinstance(error, Interrupted):
            raise
        print(f"Stopped. {error}", file=sys.stderr)
        sys.exit(STOPPED)
    sys.exit(code)


if __name__ == "__main__":
    main()
