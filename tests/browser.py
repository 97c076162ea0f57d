"""A page of a run in a real browser, and the server behind it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from regard.explore import HOST, listen
from regard.explore.server import make_app
from regard.explore.session import Session

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
# As root there is no sandbox; the rest keeps it from asking for things outside.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
OPTIONS += ["--disable-component-update", "--disable-sync", "--disable-quic", "--disable-dev-shm-usage"]
PATIENCE = 120_000  # milliseconds; reached only when something hangs


@dataclass
class Opened:
    """A page that is open, and what it asked for. At the end there must be no error in its console."""

    page: Any
    session: Session
    address: str

    def view(self, name: str) -> Any:
        """Another view, ready."""
        self.page.get_by_role("tab", name=name, exact=True).click()
        return self.ready(name)

    def ready(self, view: str = "") -> Any:
        """Wait until the view of this title is drawn, and nothing is under way."""
        if view:
            self.page.get_by_role("tab", name=view, exact=True, selected=True).wait_for()
        self.page.locator("body:not(.busy) #panel[data-ready]").wait_for()
        return self.page.locator("#panel")


@contextmanager
def watched(page: Any, address: str) -> Iterator[None]:
    """Meanwhile the console of the page stays silent, and it asks nobody but this address."""
    wrong: list[str] = []
    listeners: dict[str, Callable[[Any], None]] = {
        "console": lambda message: wrong.extend([message.text] * (message.type in ("error", "warning"))),
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda asked: wrong.extend([asked.url] * (not asked.url.startswith((address, "data:", "blob:")))),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    try:
        yield
    finally:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
    assert wrong == []


@contextmanager
def serving(session: Session) -> Iterator[str]:
    """The server in a thread; yields its address."""
    listener = listen()
    listener.listen()  # from now on nobody is turned away, though the server may not have begun
    server = uvicorn.Server(uvicorn.Config(make_app(session), log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
