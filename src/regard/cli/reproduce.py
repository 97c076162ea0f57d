"""`regard reproduce`: the lectures' claims, run on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, app, number_option, show
from regard.errors import Interrupted, UsageError, did_you_mean

if TYPE_CHECKING:
    from regard.claims.frame.claim import Budget, Claim, Size
    from regard.claims.frame.results import Result


@app.command()
def reproduce(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CLAIM…]", help="Claims, or groups of them such as attention.", show_default=False),
    ] = None,
    deck: Annotated[str, typer.Option(help="Only what this deck claims: 003.", show_default="all")] = "",
    full: Annotated[bool, typer.Option("--full", help="The larger experiments too; a GPU helps.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="A second each: to try, not to believe.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the claims, and run none.")] = False,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to put it all.")] = Path("runs/claims"),
    markdown: Annotated[Path | None, typer.Option(help="Write a page of Markdown, too.", show_default=False)] = None,
    parallel: Annotated[int | None, number_option("Claims at a time.", default="one for each core; 1 on a GPU")] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Run what lectures claim about Transformers, and judge it.

    Each claim is a small experiment: a figure with its interval over seeds, a picture, and a verdict by a threshold
    that is part of its file. What is finished is kept: the same command continues. Tiny and full versions are kept
    in folders of their own.

    regard reproduce svm
    """
    if full and tiny:
        raise UsageError("There are two sizes.", "--full and --tiny are given.", "Leave one of them out.")
    chosen = choose(wanted or [], deck, full)
    if listed:
        show([_described(claim) for claim in chosen], as_json, lambda _: _list(chosen))
        return
    from regard.claims.frame.claim import Budget
    from regard.hardware import Hardware
    from regard.recipes import changed
    from regard.settings import SystemSettings

    Hardware.choose(changed(SystemSettings(), device=device))  # an error if there is no such device
    size: Size = "full" if full else "tiny" if tiny else "normal"
    budget = Budget(size, out if size == "normal" else out / size, device)  # the sizes do not overwrite each other
    results = _run(chosen, budget, parallel or _at_once(device))
    content = _write(results, budget, markdown)
    show(content, as_json, lambda _: _report(results, content))


def choose(wanted: Sequence[str], deck: str, full: bool) -> list[Claim]:
    """The claims that are asked for, in the order of their groups; unless they are named, not those that take long."""
    from regard import claims

    known = {name: claims.load(name) for name in claims.names()}
    groups = {claim.about.group for claim in known.values()}
    for name in wanted:
        if name not in known and name not in groups:
            raise UsageError(f"There is no claim '{name}'.", "It cannot be run.", did_you_mean(name, {*known, *groups}))
    decks = sorted({each for claim in known.values() for each in claim.about.decks})
    if deck and deck not in decks:
        raise UsageError(f"There is no deck '{deck}'.", "Nothing is claimed in it.", f"Use one of {', '.join(decks)}.")
    chosen = [
        claim
        for name, claim in known.items()
        if (name in wanted or claim.about.group in wanted if wanted else full or not claim.about.full_only)
        and (not deck or deck in claim.about.decks)
    ]
    if not chosen:
        raise UsageError("There is nothing to run.", f"Deck {deck} claims none of these.", "Leave out --deck.")
    from regard.claims.frame.claim import GROUPS

    return sorted(chosen, key=lambda claim: list(GROUPS).index(claim.about.group))


def _run(chosen: list[Claim], budget: Budget, parallel: int) -> list[Result]:
    """Claims side by side, as far as that is asked for; then those whose seconds count, alone."""
    from regard import console
    from regard.claims.frame.results import finished, reproduce
    from regard.files import locked, writing

    with writing(budget.folder, "Choose another folder with -o DIR."):
        budget.folder.mkdir(parents=True, exist_ok=True)
    results = []
    with locked(budget.folder, "Another `regard reproduce`") as lock:
        shared = [claim.name for claim in chosen if not claim.about.timed and not finished(claim, budget)]
        if parallel > 1 and len(shared) > 1:
            _side_by_side(shared, budget, parallel, lock)
        for number, claim in enumerate(chosen, start=1):
            place = f"[{number}/{len(chosen)}] "
            try:
                with console.progress(len(claim.seeds(budget.size)), place + claim.name) as progress:
                    result = reproduce(claim, budget, progress)
            except (KeyboardInterrupt, Interrupted):
                raise _stopped() from None
            if not result.kept or claim.name not in shared:
                console.say(place + result.told)
            results.append(result)
    return results


def _at_once(device: str) -> int:
    """A claim's models are small: on a CPU each is left one core; a GPU is not shared."""
    import torch

    from regard.data.processes import cores

    return 1 if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()) else cores()


def _side_by_side(names: list[str], budget: Budget, parallel: int, lock: int) -> None:
    """Workers that each take the next claim which no other has taken. What they measured is kept in the folder."""
    import shutil

    from regard.cli.trainings import Signals, Training, run_all

    command = [sys.executable, "-m", "regard.claims", budget.size, budget.device, str(budget.folder), *names]
    signals = Signals("Stopping …")
    with signals.caught():
        logs = budget.folder / "logs"
        run_all([Training("", command, logs / f"{number}.log") for number in range(parallel)], parallel, signals, lock)
    shutil.rmtree(budget.folder / "taken", ignore_errors=True)
    if signals.asked:
        raise _stopped()


def _stopped() -> Interrupted:
    return Interrupted("What is finished is kept; the same command continues.")


def _write(results: list[Result], budget: Budget, markdown: Path | None) -> dict[str, Any]:
    """The report of all that the folder has, the page where one is asked for; and what there is to tell scripts."""
    from regard.claims.frame import report
    from regard.files import write_atomically, writing

    out = budget.folder
    pages = {out / "report.html": report.page(_with_earlier(results, budget), out)}
    if markdown:
        pages[markdown] = report.markdown(results)
    for path, text in pages.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
    claims = [result.to_json() | {"picture": str((out / f"{result.claim.name}.svg").resolve())} for result in results]
    return {"claims": claims, "report": str((out / "report.html").resolve())}


def _with_earlier(results: list[Result], budget: Budget) -> list[Result]:
    """These, and what earlier commands have finished in the same folder; in the order of their groups."""
    from regard.claims.frame.results import finished, reproduce

    of_name = {result.claim.name: result for result in results}
    for claim in choose([], "", full=True):
        if claim.name not in of_name and finished(claim, budget):
            of_name[claim.name] = reproduce(claim, budget, lambda done, text: None)
    return [of_name[claim.name] for claim in choose([], "", full=True) if claim.name in of_name]


def _report(results: list[Result], content: dict[str, Any]) -> str:
    from regard.claims.frame.report import notes, table

    words = [f"{result.claim.name}: {result.verdict.words}" for result in results if result.verdict.outcome != "holds"]
    return "\n\n".join([*notes(results), table(results), *words, f"Report: {content['report']}"])


def _described(claim: Claim) -> dict[str, Any]:
    about = claim.about
    return {"claim": claim.name, "text": about.text, "decks": list(about.decks), "group": about.group} | {
        "measures": about.measures,
        "threshold": about.threshold,
        "full_only": about.full_only,
    }


def _list(chosen: list[Claim]) -> str:
    from regard.tables import text_table

    rows = [[claim.name, claim.about.group, " ".join(claim.about.decks), claim.about.text] for claim in chosen]
    return text_table(["claim", "group", "decks", "in words"], rows, "<<<<")
