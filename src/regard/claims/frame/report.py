"""What came of the claims: a table for a terminal, a page of Markdown, and one HTML file that opens anywhere.

The HTML file has its pictures in it as SVG and asks no network for anything.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.claims.frame.claim import DECKS, GROUPS
from regard.claims.frame.pictures import number
from regard.claims.frame.results import Result
from regard.tables import markdown_table, text_table
from regard.version import __version__

HEAD = ["claim", "in words", "decks", "measured", "figure", "verdict", "seconds"]
ALIGN = "<<<<><>"
SHADES = {"holds": "#00664a", "depends": "#8a5a00", "does not hold": "#a33c00", "not run": "#555555"}

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #8886 }
td.number, th.number { text-align: right; white-space: nowrap }
h2 { margin-top: 2.5rem } h3 { margin-top: 2.2rem; margin-bottom: .3rem }
.verdict { color: #fff; border-radius: .3rem; padding: .1rem .5rem; font-size: .9rem; display: inline-block }
figure { background: #fff; margin: .8rem 0; padding: .5rem; border-radius: .4rem }
svg { width: 100%; height: auto; display: block }
dt { font-weight: 600 } dd { margin: 0 0 .4rem 0 }
"""


def table(results: Sequence[Result]) -> str:
    """For a terminal."""
    return text_table(HEAD, [_row(result) for result in results], ALIGN)


def notes(results: Sequence[Result]) -> list[str]:
    """What stands above all figures: that they are not those to believe."""
    tiny = any(result.size == "tiny" for result in results)
    said = (
        "These are tiny versions: to see that all works, not to believe. Some measure something simpler than they say."
    )
    return [said] if tiny else []


def interval(figure: dict[str, Any]) -> str:
    """The mean, and half of its 95 % interval where there is one."""
    half = figure["half_width"]
    return number(figure["mean"]) + (f" ± {number(half)}" if half else "")


def _row(result: Result) -> list[str]:
    about, figures = result.claim.about, result.figures
    what = figures[0]["what"] if figures else about.measures
    shown = interval(figures[0]) if figures else "–"
    decks = " ".join(about.decks)
    return [result.claim.name, about.text, decks, what, shown, str(result.verdict), f"{result.seconds:.1f}"]


# ---------------------------------------------------------------- Markdown


def markdown(results: Sequence[Result]) -> str:
    """docs/claims.md: a table of all, then each with its threshold, its figures and why."""
    parts = [
        "# What the lectures claim, measured",
        "`regard reproduce` has made this page. Every claim is in our own words, with the decks that make it; each is "
        "judged by a threshold that is part of its file; where a trial has moved one, the file says so. An interval is "
        "a 95 % interval of the mean over seeds. Each claim is one file in `src/regard/claims/`, and is run alone by "
        "its name.",
        *(f"**{note}**" for note in notes(results)),
        markdown_table(HEAD, [_row(result) for result in results], ALIGN),
    ]
    for group, title in GROUPS.items():
        if own := [result for result in results if result.claim.about.group == group]:
            parts += [f"## {title}", *(_markdown_of(result) for result in own)]
    decks = "\n".join(f"- {deck}: {name}" for deck, name in DECKS.items())
    return "\n\n".join([*parts, f"## The decks\n\n{decks}"]) + "\n"


def _markdown_of(result: Result) -> str:
    about = result.claim.about
    lines = [
        f"### {result.claim.name}: {result.verdict}",
        about.text,
        f"Measured: {about.measures} Holds if: {about.threshold}",
        result.verdict.words,
        "\n".join(f"- {figure['what']}: {interval(figure)}" for figure in result.figures),
    ]
    return "\n\n".join(line for line in lines if line)


# ---------------------------------------------------------------- HTML


def page(results: Sequence[Result], folder: Path) -> str:
    """The report; pictures are read from the folder of the results."""
    title = "What the lectures claim, measured"
    head = "".join(f"<th{_side(side)}>{name}</th>" for name, side in zip(HEAD, ALIGN, strict=True))
    rows = "".join(_html_row(result) for result in results)
    noted = "".join(f"<p><strong>{html.escape(note)}</strong></p>" for note in notes(results))
    sections = "".join(
        f"<h2>{html.escape(name)}</h2>" + "".join(_section(result, folder) for result in own)
        for group, name in GROUPS.items()
        if (own := [result for result in results if result.claim.about.group == group])
    )
    decks = "".join(f"<li>{deck}: {html.escape(name)}</li>" for deck, name in DECKS.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>Made by <code>regard reproduce</code>, version {__version__}. Each claim is judged by a "
        f"threshold that is part of its file. Intervals are 95 % intervals of the mean over seeds.</p>{noted}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{sections}"
        f"<h2>The decks</h2><ul>{decks}</ul></body></html>\n"
    )


def _side(side: str) -> str:
    return ' class="number"' if side == ">" else ""


def _html_row(result: Result) -> str:
    name, *cells = _row(result)
    cells[-2] = _badge(result)
    shown = [cell if cell.startswith("<span") else html.escape(cell) for cell in cells]
    body = "".join(f"<td{_side(side)}>{cell}</td>" for cell, side in zip(shown, ALIGN[1:], strict=True))
    return f'<tr><td><a href="#{name}">{name}</a></td>{body}</tr>'


def _badge(result: Result) -> str:
    shade = SHADES[result.verdict.outcome]
    return f'<span class="verdict" style="background:{shade}">{html.escape(str(result.verdict))}</span>'


def _section(result: Result, folder: Path) -> str:
    about, name = result.claim.about, result.claim.name
    figures = "".join(
        f'<tr><td>{html.escape(figure["what"])}</td><td class="number">{interval(figure)}</td></tr>'
        for figure in result.figures
    )
    seeds = f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}"
    decks = f"Decks {', '.join(about.decks)}" if about.decks else "In no deck: from the paper that they are about"
    return (
        f'<section id="{name}"><h3>{html.escape(about.text)}</h3>'
        f"<p>{_badge(result)} {html.escape(result.verdict.words)}</p>{_picture(folder / f'{name}.svg', result)}"
        f"<dl><dt>Measured</dt><dd>{html.escape(about.measures)}</dd>"
        f"<dt>Holds if</dt><dd>{html.escape(about.threshold)}</dd></dl><table>{figures}</table>"
        f"<p>{decks} · {seeds} · {result.seconds:.1f} s · "
        f"<code>regard reproduce {name}</code></p></section>"
    )


def _picture(path: Path, result: Result) -> str:
    """The SVG itself, with names of its own: several of them stand on one page."""
    if result.measured is None or not path.is_file():
        return ""
    name = result.claim.name
    svg = path.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    label = html.escape(result.claim.about.text, quote=True)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f"<figure>{svg}</figure>"
