"""The page: plain ES modules that import each other by bare names, which one import map resolves.

On the server, the map leads to files; in a single file, to the same modules as data: addresses. So there is no build
step, and no module is rewritten.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from importlib.resources import files

ROOT = files(__name__)
PREFIX = "regard/"  # import {heatmap} from "regard/heatmap.js"


@cache
def modules() -> tuple[str, ...]:
    """Every file of the page except index.html: "app.js", "style.css", "views/heads.js" …"""
    top = [file.name for file in ROOT.iterdir() if file.name.endswith((".js", ".css"))]
    views = [f"views/{file.name}" for file in (ROOT / "views").iterdir() if file.name.endswith(".js")]
    return tuple(sorted([*top, *views]))


def index(recorded: str = "", title: str = "Regard") -> str:
    """The page as HTML. `recorded`: the recording inside it, with which it needs no server."""
    names = [name for name in modules() if name.endswith(".js")]
    if recorded:
        addresses = {PREFIX + name: _as_data(name) for name in names}
        style = f"<style>\n{text('style.css')}\n</style>"
        data = f'<script type="application/json" id="recorded">{recorded}</script>'
    else:
        addresses = {PREFIX + name: f"./page/{name}" for name in names}
        style, data = '<link rel="stylesheet" href="./page/style.css">', ""
    content = text("index.html").replace("<!-- style -->", style).replace("<!-- recorded -->", data)
    content = content.replace("<!-- title -->", title.replace("&", "&amp;").replace("<", "&lt;"))
    return content.replace("{/* imports */}", json.dumps({"imports": addresses}))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _as_data(name: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(text(name).encode()).decode()
