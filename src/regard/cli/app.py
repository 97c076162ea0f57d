"""The command line's frame: the app, the options that verbs share, printing and errors.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a mistake in
data, files or machine, 2 a mistake in the command or the recipe's settings, 130 stopped by Ctrl-C or
SIGTERM: a training has then saved a checkpoint, and says how to continue. Where the reader of a result goes
away early, as in `| head`, the command ends quietly with 1.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import Interrupted, RegardError, UsageError, did_you_mean

app = typer.Typer(
    name="regard",
    help="Train, run and look inside Transformers on your own data.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

STOPPED = 130
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _png(path: Path | None) -> Path | None:
    """The one check of a picture's name."""
    if path is not None and path.suffix.lower() != ".png":
        raise UsageError(f"'{path}' is not a PNG file.", "Pictures are written as PNG.", "Use a name ending in .png.")
    return path


RunArgument = Annotated[Path, typer.Argument(help="A run folder, made by `regard train`.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SlotsOption = Annotated[
    int | None,
    typer.Option(help="Texts decoded side by side, always so many.", show_default="what memory allows"),
]
Int8Option = Annotated[bool, typer.Option("--int8", help="On a CPU: in eight bits, faster and nearly the same.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
DataOption = Annotated[Path | None, typer.Option(help="The folder that data paths start from.", show_default=False)]
MovedDataOption = Annotated[
    Path | None, typer.Option("--data", help="Where the run's own data is now, if it has moved.", show_default=False)
]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="Settings to change: training.steps=500 …", show_default=False)
]


def picture_option(help_text: str, default: str | None = None) -> Any:
    """`-o PNG`: the name of a picture to write."""
    return typer.Option("--output", "-o", help=help_text, show_default=default or True, callback=_png)


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
    plugin: Annotated[
        list[Path] | None,
        typer.Option(help="A Python file with your own mixers, positions, optimizers or tasks; with any verb."),
    ] = None,
) -> None:
    """Train, run and look inside Transformers on your own data."""


# ---------------------------------------------------------------- printing and errors


def show(content: Any, as_json: bool, report: Any) -> None:
    """Print a result: for scripts, or as `report` words it for people."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False) if as_json else report(content))


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


def _with_plugins(arguments: list[str]) -> list[str]:
    """Load what --plugin names, wherever it stands, and take it out of the arguments."""
    rest: list[str] = []
    paths: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
        elif argument == "--plugin":
            paths += [next(waiting, "")]
        elif argument.startswith("--plugin="):
            paths += [argument.partition("=")[2]]
        else:
            rest.append(argument)
    if "" in paths:
        raise UsageError("--plugin names no file.", "It takes the path of a Python file.", "Add it: --plugin mine.py")
    if paths:
        from regard import registry

        registry.load_plugins(paths)
    return rest


def _interrupt(number: int, frame: Any) -> None:
    """Ctrl-C and SIGTERM: what is half-done is cleaned up.

    Not in the middle of importing torch or numpy: they swallow what is raised there, and go on half-imported.
    """
    specs = [getattr(sys.modules.get(name), "__spec__", None) for name in ("torch", "numpy")]
    if any(getattr(spec, "_initializing", False) for spec in specs):
        again = threading.Timer(0.05, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    else:
        raise KeyboardInterrupt


def main() -> None:
    """The console script."""
    # typer keeps its exceptions private; BadParameter's parent is what all of its usage errors share.
    misused: type[Exception] = typer.BadParameter.__mro__[1]  # type: ignore[assignment]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        code = app(_with_plugins(sys.argv[1:]) or ["--help"], standalone_mode=False)
        if code == STOPPED:  # typer turns Ctrl-C into a code
            raise KeyboardInterrupt
        sys.stdout.flush()
    except misused as error:
        _complain(_usage_error(error))
        sys.exit(2)
    except RegardError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left there is not tried again
        _complain(RegardError("The output cannot be written.", f"{error}", "Free some space, or write elsewhere."))
        sys.exit(1)
    except (typer.Abort, KeyboardInterrupt):
        print("Stopped.", file=sys.stderr)
        sys.exit(STOPPED)
    except Interrupted as error:
        print(f"Stopped. {error}", file=sys.stderr)
        sys.exit(STOPPED)
    sys.exit(code)
