"""The command line's frame: the app, the options that verbs share, printing and errors.

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


# ---------------------------------------------------------------- printing and errors


def show(content: Any, as_json: bool, report: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False) if as_json else report(content))


def write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RegardError(f"Cannot write '{path}'.", f"{error}", "Choose a writable place.") from None


def short(path: Path) -> str:
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
