"""Every view of the page of `regard explore`, as pictures to be looked at by a person.

    python benchmarks/screenshots.py RUN… --out DIR                  # at 1400 and 400 pixels, light
    python benchmarks/screenshots.py RUN… --out DIR --dark --views Heads Output --input "A sentence."

Needs Chromium (Debian: `apt-get install chromium`), Playwright and axe-core, which the extra `dev` has. Each run is
served as the command does it; a picture is RUN-WIDTH-VIEW.png, of the whole view however long. Also tells what went
wrong: errors in the console, requests to elsewhere, problems in a view, views that are wider than the screen, and with
--axe what screen readers and keyboards cannot use. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
OPTIONS += ["--disable-component-update", "--disable-sync", "--disable-quic", "--disable-dev-shm-usage"]


@contextmanager
def served(run: Path, given: str) -> Iterator[str]:
    """The command, in a process of its own; yields the address of the page."""
    command = [sys.executable, "-m", "regard", "explore", str(run), *([given] if given else []), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def pictured(page: Any, address: str, name: str, options: argparse.Namespace) -> Iterator[str]:
    """Takes the pictures; yields what was wrong."""
    wrong: list[str] = []
    page.on("console", lambda message: wrong.extend([message.text] * (message.type in ("error", "warning"))))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda it: wrong.extend([it.url] * (not it.url.startswith((address, "data:", "blob:")))))
    page.goto(address + options.fragment)
    page.locator("body:not(.busy) #panel[data-ready]").wait_for()
    for title in page.get_by_role("tab").all_inner_texts():
        if options.views and title not in options.views:
            continue
        page.get_by_role("tab", name=title, exact=True).click()
        page.get_by_role("tab", name=title, exact=True, selected=True).wait_for()
        page.locator("body:not(.busy) #panel[data-ready]").wait_for()
        page.mouse.move(0, 0)
        page.evaluate("window.scrollTo(0, 0)")
        page.screenshot(path=options.out / f"{name}-{title.replace(' ', '_')}.png", full_page=True)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if over > 0:
            yield f"{name} {title}: {over} pixels wider than the screen"
        for problem in page.locator("#panel .problem").all_inner_texts():
            yield f"{name} {title}: {problem}"
        if options.axe:
            found = Axe().run(page)
            if found.violations_count:
                yield f"{name} {title}: {found.generate_report()}"
    yield from (f"{name}: {text}" for text in wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--input", default="", help="a text or an image; by default, what the page begins with")
    parser.add_argument("--views", nargs="+", default=[], help="titles of tabs; by default, all")
    parser.add_argument("--widths", nargs="+", type=int, default=[1400, 400])
    parser.add_argument("--fragment", default="", help="what follows the address, such as #step=scores")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--axe", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        for run in options.runs:
            with served(run, options.input) as address:
                for width in options.widths:
                    scheme: Any = "dark" if options.dark else "light"
                    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                    page.set_default_timeout(180_000)
                    name = f"{run.name}-{width}"
                    wrong += pictured(page, address, name, options)
                    page.close()
            print(run.name, flush=True)
        browser.close()
    print("\n".join(wrong))
    pictures = len(list(options.out.glob("*.png")))
    print(json.dumps({"pictures": pictures, "wrong": wrong}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
