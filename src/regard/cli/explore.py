"""`regard explore`: the page that looks inside a run."""

from __future__ import annotations

import inspect
import shlex
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, RunArgument, app, number_option
from regard.cli.lines import read_text
from regard.errors import RegardError, UsageError
from regard.explain.kinds import parameters


@app.command()
def explore(
    run: RunArgument,
    given: Annotated[
        str | None, typer.Argument(metavar="[INPUT]", help="The text or image file to start with.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the page to one .html file that works offline."),
    ] = None,
    beside: Annotated[
        Path | None, typer.Option(help="A second run to compare with on the same input.", show_default=False)
    ] = None,
    target: Annotated[str, typer.Option(help="Use this translation instead of the model's own.")] = "",
    context: Annotated[
        Path | None, typer.Option(help="The text that contains the answer to a question.", show_default=False)
    ] = None,
    box: Annotated[
        int | None, number_option("Which box of a detector, counted from 1, the surest first.", default="1")
    ] = None,
    port: Annotated[int, number_option("The port; 0: a free one.", least=0, most=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    device: DeviceOption = "auto",
) -> None:
    """Look inside a run on a page in the browser.

    The page is served to this machine only, until Ctrl-C. Everything on it is computed by the model: attention of every
    head, queries, keys and values, the prediction after each layer, the contribution of each part, the effect of
    switching a part off. With -o, the page is written to one file that holds the numbers of one input.
    """
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"'{output}' is not a page.", "Pages are written as HTML.", "Use a name ending in .html.")
    from regard.training.folder import is_run

    if given and is_run(given):
        raise UsageError(
            f"'{given}' is a run, not an input.",
            "A second run is given as an option.",
            f"Use --beside {shlex.quote(given)}.",
        )
    from regard.explore import listen

    listener = listen(port) if output is None else None
    from regard.run import load_weights, open_run

    tasks = [open_run(path) for path in (run, beside) if path is not None]
    if given == "":
        _must_read_nothing(tasks[0])
    for task in tasks:
        load_weights(task, device)
    from regard.explore.session import Session

    first: dict[str, Any] = {"target": target, "context": "" if context is None else read_text(context), "box": box}
    session = Session(tasks)
    try:
        if given or any(first.values()):
            session = Session(tasks, {session.field_names(0)[0]: given, **first})
        _look(session)
        if output is not None:
            from regard.explore.recording import write_page

            left_out = write_page(session, output)
            for line in left_out:
                print(line, file=sys.stderr)
            typer.echo(str(output.resolve()))
        else:
            assert listener is not None
            _serve(session, listener, browser)
    finally:
        session.close()


def _must_read_nothing(task: Any) -> None:
    """An empty input is refused, unless a model needs none."""
    first = next(iter(parameters(task).values()), None)
    if first is not None and first.default is inspect.Parameter.empty:
        what = "An image" if first.name == "image" else "A text"
        raise UsageError(
            f"{what} is missing.",
            "The input is empty.",
            "Give one, or leave it out: the page then begins with an example.",
        )


def _look(session: Any) -> None:
    """A mistake in the input is told before the page opens."""
    for run, task in enumerate(session.tasks):
        try:
            session.traced(run, session.input_for(run, session.first))
        except RegardError as error:
            whose = f"'{task.folder.path.name}': " if run else ""
            raise UsageError(whose + error.what, error.why, error.fix) from None


def _serve(session: Any, listener: socket.socket, browser: bool) -> None:
    import logging
    import os
    import threading
    import webbrowser

    import uvicorn

    from regard.explore.server import make_app

    address = "http://{}:{}/".format(*listener.getsockname()[:2])

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            typer.echo(address)
            print("Press Ctrl-C to stop.", file=sys.stderr)
            if browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what is cut off need not be told
            await super().shutdown(sockets)
            if session.busy:  # a thread that computes cannot be stopped, and nothing here is left half-written
                session.close()
                os._exit(0)

    config = uvicorn.Config(make_app(session), log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    try:
        Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
