"""`regard demo`: a translator from nothing, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard import console
from regard.data.pairs import splits
from regard.experiment import train
from regard.runs.translation import TranslationRun
from regard.verbs.explain import draw_alignment, traced_translation


def run(out: Path) -> dict[str, Any]:
    """Train the recipe `demo`, or take it as it is if it is there, and show what it can do."""
    if (out / "summary.json").is_file():
        console.say(f"'{out}' is already trained; delete it to train again.")
    else:
        train("demo", out=out, resume=True)
    model = TranslationRun(out)
    pairs = [pair for _, pair in zip(range(5), splits(model.config.data)["test"], strict=False)]
    translations = model.translate([source for source, _ in pairs])
    picture = model.folder.plots / "alignment.png"
    longest = max((source for source, _ in pairs), key=len)
    draw_alignment(traced_translation(model, longest), picture)
    return {
        "run": str(model.folder.path.resolve()),
        "summary": model.folder.read_json("summary.json"),
        "translations": [
            {"source": source, "reference": target, "translation": text}
            for (source, target), text in zip(pairs, translations, strict=True)
        ],
        "picture": str(picture.resolve()),
        "place": str(out),
    }


def report(found: dict[str, Any]) -> str:
    metrics, place = found["summary"]["metrics"], found["place"]
    shown = "\n".join(f"  {t['source']}\n  → {t['translation']}" for t in found["translations"])
    return (
        f"BLEU {metrics['bleu']:.1f} · chrF {metrics['chrf']:.1f} on sentences it has never seen, "
        f"after {found['summary']['seconds']:.0f} seconds of training.\n\n{shown}\n\n"
        f"Run: {found['run']}\nWhat it looked at: {found['picture']}\n\nNext:\n"
        f'  echo "The old farmer helps the child." | regard translate {place}\n'
        f'  regard explain {place} "The old farmer helps the child." -o attention.png'
    )
