"""A real browser, and the page of a run in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from browser import CHROMIUM, OPTIONS, PATIENCE, Opened, serving, watched
from regard.explore.recording import write_page
from regard.explore.session import Session
from tiny import TINY_IMAGES


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def visit(chromium: Any) -> Callable[..., Any]:
    """A context manager: an address in a tab shared by all tests, because starting one takes longer than most tests."""
    tabs = {
        offline: chromium.new_context(offline=offline, reduced_motion="no-preference" if offline else "reduce")
        for offline in (False, True)
    }
    pages = {offline: context.new_page() for offline, context in tabs.items()}
    for page in pages.values():
        page.set_default_timeout(PATIENCE)

    @contextmanager
    def give(address: str, fragment: str, width: int, offline: bool = False) -> Iterator[Any]:
        page = pages[offline]
        page.set_viewport_size({"width": width, "height": 900})
        try:
            with watched(page, address):
                page.goto(address + fragment)
                yield page
        finally:
            page.goto("about:blank")  # so that nothing of it goes on, and the next is not only another fragment of it

    return give


@pytest.fixture
def opened(visit: Callable[..., Any]) -> Callable[..., Any]:
    """A context manager: `with opened(run, text="A sentence.") as at:` gives an `Opened` page."""

    @contextmanager
    def give(*tasks: Any, width: int = 1400, fragment: str = "", **first: Any) -> Iterator[Opened]:
        session = Session(tasks, first)
        with serving(session) as address, visit(address, fragment, width) as page:
            at = Opened(page, session, address)
            at.ready()
            yield at
        session.close()

    return give


@pytest.fixture
def from_disk(visit: Callable[..., Any]) -> Callable[..., Any]:
    """A context manager: a page of one file, opened with the network off."""

    @contextmanager
    def give(path: Path, width: int = 1400, fragment: str = "") -> Iterator[Any]:
        with visit(path.as_uri(), fragment, width, offline=True) as page:
            at = Opened(page, None, path.as_uri())  # type: ignore[arg-type]
            at.ready()
            yield at

    return give


@pytest.fixture(scope="session")
def page_on_disk(trained: Any, made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The page of the trained translator as one file."""

    def write(folder: Path) -> None:
        folder.mkdir()
        session = Session([trained], {"text": "The old farmer helps the child."})
        write_page(session, folder / "page.html")
        session.close()

    return made_once("page", write) / "page.html"


@pytest.fixture(scope="session")
def hyena(texts: Path, train_once: Callable[..., Any]) -> Any:
    """A character model with Hyena."""
    small = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "model.mixer=hyena"]
    quick = ["training.steps=20", "training.tokens_per_batch=512", "training.row_length=32", "training.warmup=5"]
    quick += ["training.validate_every=20", "training.save_every=10", "data.text=text.txt"]
    return train_once("hyena", "shakespeare-cpu", *small, *quick, data=texts)


@pytest.fixture(scope="session")
def swin(pictures: Path, train_once: Callable[..., Any]) -> Any:
    """8 × 8 patches in shifted windows, then 4 × 4 in one window."""
    settings = ["model.stages=[2,1]", "model.window=4", "model.patch=1", "model.positions=none", "training.steps=20"]
    settings += ["training.validate_every=20"]
    return train_once("swin", "digits", *TINY_IMAGES, *settings, f"data.images={pictures}")
