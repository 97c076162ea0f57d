"""`regard demo`: a translator from nothing, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import JsonOption, app, show


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put the run.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """Train and show a small translator on built-in data."""
    show(_train_and_show(out), as_json, _report)


def _train_and_show(out: Path) -> dict[str, Any]:
    """Train the recipe `demo`, or take the run that is there, and show what it can do."""
    from regard import console
    from regard.data.pairs import pair_splits
    from regard.run import load, train

    if (out / "summary.json").is_file():
        console.say(f"'{out}' is already trained; delete it to train again.")
    else:
        train("demo", out=out, resume=True)
    run = load(out)
    examples = [pair for _, pair in zip(range(5), pair_splits(run.settings.data)["test"], strict=False)]
    translations = run.translate([source for source, _ in examples])
    picture = run.folder.plots / "alignment.png"
    run.explain(max((source for source, _ in examples), key=len), what="alignment").save(picture)
    return {
        "run": str(run.folder.path.resolve()),
        "summary": run.folder.read_json("summary.json"),
        "translations": [
            {"source": source, "reference": target, "translation": text}
            for (source, target), text in zip(examples, translations, strict=True)
        ],
        "picture": str(picture.resolve()),
        "out": str(out),
    }


def _report(result: dict[str, Any]) -> str:
    metrics, out = result["summary"]["metrics"], result["out"]
    shown = "\n".join(f"  {each['source']}\n  → {each['translation']}" for each in result["translations"])
    return (
        f"BLEU {metrics['bleu']:.1f} · chrF {metrics['chrf']:.1f} on sentences it has never seen, "
        f"after {result['summary']['seconds']:.0f} seconds of training.\n\n{shown}\n\n"
        f"Run: {result['run']}\nWhat it looked at: {result['picture']}\n\nNext:\n"
        f'  echo "The old farmer helps the child." | regard translate {out}\n'
        f'  regard explain {out} "The old farmer helps the child." -o attention.png'
    )
