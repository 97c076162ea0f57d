"""How well a translator's cross-attention aligns words, beside programs made for that.

    python benchmarks/alignment.py RUN SOURCE TARGET GOLD [--pairs 200000] [--swapped]

The run is scored by `regard evaluate --alignment`. eflomal (`pip install --target DIR eflomal`, PYTHONPATH=DIR) learns
from the run's own training pairs and the sentences with links, and is scored by the same function. Without it, its line
is left out, and the script says so. Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import tempfile
from pathlib import Path

import regard
from regard.evaluation.alignment import read_gold, score_alignment


def eflomal_links(pairs: list[tuple[str, str]], scored: int) -> list[set[tuple[int, int]]] | None:
    """Links of the last so many pairs: for each word of the target at most one of the source."""
    try:
        from eflomal import Aligner
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target, links = (Path(folder) / name for name in ("source", "target", "links"))
        source.write_text("".join(f"{a}\n" for a, _ in pairs), encoding="utf-8")
        target.write_text("".join(f"{b}\n" for _, b in pairs), encoding="utf-8")
        with source.open(encoding="utf-8") as a, target.open(encoding="utf-8") as b:
            Aligner().align(a, b, links_filename_fwd=str(links))
        lines = links.read_text().splitlines()[-scored:]
    return [{(int(i), int(j)) for i, _, j in (link.partition("-") for link in line.split())} for line in lines]


def apart(text: str) -> str:
    """Punctuation apart from words, as in texts with links."""
    return " ".join(re.findall(r"\w+(?:['’-]\w+)*|[^\w\s]", text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("run", "source", "target", "gold"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--pairs", type=int, default=200_000, help="training pairs that eflomal learns from, at most")
    parser.add_argument("--swapped", action="store_true", help="links name the target first")
    options = parser.parse_args()
    run = regard.load(options.run)
    files = [str(options.source.resolve()), str(options.target.resolve())]
    result = run.evaluate_alignment(options.gold, files, swapped=options.swapped)
    found = {"attention": result.metrics["aer"], **result.details}
    print("\n".join(result.notes))
    from regard.data.pairs import pair_splits

    texts = [path.read_text(encoding="utf-8").splitlines() for path in (options.source, options.target)]
    sentences = list(zip(*texts, strict=True))
    training = itertools.islice(iter(pair_splits(run.settings.data)["train"]), options.pairs)
    pairs = [(apart(source), apart(target)) for source, target in training] + sentences
    links = eflomal_links(pairs, len(sentences))
    if links is None:
        print("eflomal is not installed: its line is left out")
    else:
        lengths = [(len(a.split()), len(b.split())) for a, b in sentences]
        score = score_alignment(links, read_gold(options.gold, lengths, swapped=options.swapped))
        print(f"eflomal            AER {score.aer:.2f} (trained on {len(pairs):,} pairs)")
        found["eflomal"] = score.aer
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
