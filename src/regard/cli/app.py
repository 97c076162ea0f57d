"""The command line's frame: the app, the options that verbs share, printing and errors.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a mistake in
data, files or machine, 2 a mistake in the command or the recipe's settings, 130 stopped by Ctrl-C or
SIGTERM: a training has then saved a checkpoint, and says how to continue. Where the reader of a result goes
away early, as in `| head`, the command ends quietly with 1.
"""

from __future__ import annotations

import copy
import errno
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from regard.errors import NOTICED, Interrupted, RegardError, UsageError, did_you_mean
from regard.startup import launched, leave

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


def must_be_png(path: Path) -> Path:
    """The one check of a picture's name."""
    if path.suffix.lower() != ".png":
        raise UsageError(f"'{path}' is not a PNG file.", "Pictures are written as PNG.", "Use a name ending in .png.")
    return path


def must_be_left_out(options: dict[str, Any], why: str, remedy: str = "Leave it out.") -> None:
    """A clear error for the first of these options that was given."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} has no effect here.", why, remedy)


def number_option(
    help_text: str, *names: str, least: int = 1, most: int | None = None, default: str | None = None
) -> Any:
    """A whole number that is checked at the option: a mistake is told before anything is read."""

    def check(option: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and not least <= value <= (value if most is None else most):
            name = max(option.opts, key=len)
            allowed = f"{least} or more" if most is None else f"from {least} to {most:,}"
            nearest = least if most is None else min(max(value, least), most)
            raise UsageError(f"{name} cannot be {value}.", f"It is {allowed}.", f"Correct it: {name} {nearest}")
        return value

    return typer.Option(*names, help=help_text, show_default=default or True, callback=check)


RunArgument = Annotated[Path, typer.Argument(help="A run folder, made by `regard train`.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
BeamOption = Annotated[int | None, number_option("Hypotheses kept; 1 is greedy.", default="as trained")]
SlotsOption = Annotated[
    int | None, number_option("Texts decoded side by side, always so many.", least=0, default="what memory allows")
]
TopKOption = Annotated[int | None, number_option("Sample from the k likeliest tokens; 0: all.", least=0)]
SeedOption = Annotated[int, number_option("Another seed gives other samples.", least=0)]
MaxTokensOption = Annotated[int | None, number_option("Most tokens written.", default="as trained")]
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

    def check(path: Path | None) -> Path | None:
        return path and must_be_png(path)

    return typer.Option("--output", "-o", help=help_text, show_default=default or True, callback=check)


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


def _speaks() -> bool:
    """Of several processes, the first says what holds for all."""
    rank, count = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "1")
    return count == "1" or not rank.isdecimal() or int(rank) == 0


def _complain(error: RegardError) -> None:
    # Before the processes of a training have met, what all find is told once on every machine.
    told_here = error.same_for_all and os.environ.get("LOCAL_RANK", "0") != "0"
    if told_here or error.told_elsewhere or error.exit_code in NOTICED:  # our launcher speaks
        return
    # Colour only where a person looks.
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    # Three lines, also where a library's message has several.
    what, why, fix = (" ".join(part.split()) for part in (error.what, error.why, error.fix))
    print(f"{red}Error:{plain} {what}\n{why}\n{fix}", file=sys.stderr)


def _usage_error(error: Any) -> RegardError:
    """A mistake that typer found, in the same three lines."""
    message = error.format_message()
    verbs = [_name(verb) for verb in app.registered_commands]
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


def _app_for(arguments: list[str]) -> typer.Typer:
    """The app with the one verb that is asked for: to set up the options of all of them takes 40 ms."""
    asked = [verb for verb in app.registered_commands if _name(verb) == arguments[0]]
    if not asked:
        return app
    only = copy.copy(app)
    only.registered_commands = asked
    return only


def _name(verb: Any) -> str:
    """As typer has it."""
    return str(verb.name or verb.callback.__name__.replace("_", "-"))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C and SIGTERM: what is half-done is cleaned up.

    Not in the middle of an import: torch, numpy and others swallow what is raised there, and go on half-imported.
    """
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None:
        raise KeyboardInterrupt
    again = threading.Timer(0.05, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def main() -> None:
    """A command from its arguments to its exit code."""
    # typer keeps its exceptions private; BadParameter's parent is what all of its usage errors share.
    misused: type[Exception] = typer.BadParameter.__mro__[1]  # type: ignore[assignment]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        arguments = _with_plugins(sys.argv[1:]) or ["--help"]
        code = _app_for(arguments)(arguments, standalone_mode=False)
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
        _stopped()
    except Interrupted as error:
        _stopped(str(error))
    sys.exit(code)


def _stopped(told: str = "") -> NoReturn:
    """`told`: how to continue. Of several processes, the launcher says that they were stopped, once all of them are."""
    words = told if launched() else f"Stopped. {told}".rstrip()
    if words and _speaks():
        print(words, file=sys.stderr)
    sys.exit(STOPPED)


def script() -> None:
    """The console script: `main`, and the end of the process."""
    try:
        main()
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 0)
    except KeyboardInterrupt:  # a second signal, while the command was ending for another reason
        leave(STOPPED)
