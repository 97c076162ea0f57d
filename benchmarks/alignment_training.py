"""How well do translators align words, each trained to its end, and which layer and reading does it?

    python benchmarks/alignment_training.py DATA --out DIR                       # minutes each on a GPU
    python benchmarks/alignment_training.py DATA --out DIR --only small --quick  # a minute: nothing is learned

DATA has tatoeba-deu-eng, libreoffice-help, multi30k and rwth-de-en. German is translated to English by models that are
trained on the first three together, punctuation apart as in the fourth, on whose links drawn by people they are scored.
`multi30k` is the recipe of that name; for its pairs there are no links, and IBM Model 2 stands in for them. Every
translator is a run below --out, for `benchmarks/alignment.py` to compare with eflomal. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import regard
from alignment import apart
from regard.inside.alignment_choice import choose

SHARED = ["tokenizer.vocabulary=10000", "training.tokens_per_batch=16384", "training.validate_every=1000"]
SHARED += ["training.patience=0", "training.steps=8000", "data.held_out=0.005"]
PAPER = ["model.width=512", "model.heads=8", "model.feedforward=2048", "model.dropout=0.3"]
ADAM = ["training.optimizer=adam", "training.schedule=paper", "training.learning_rate=1.0", "training.warmup=4000"]
VARIANTS = {
    "small": ["model.layers=3", "model.width=256", "model.feedforward=1024"],
    "base-pre": ["model.layers=6", *PAPER, "training.learning_rate=0.001", "training.muon.learning_rate=0.01"],
    "base-post": ["model.layers=6", *PAPER, "model.norm=post", *ADAM],
}
QUICK = ["model.layers=2", "model.width=32", "model.heads=2", "model.feedforward=64", "training.steps=10"]
QUICK += [
    "training.validate_every=10",
    "training.save_every=10",
    "training.tokens_per_batch=512",
    "training.validate_bleu=false",
]


def pairs(data: Path) -> Iterator[tuple[str, str]]:
    """German, English."""
    with gzip.open(data / "tatoeba-deu-eng" / "deu.txt.gz", "rt", encoding="utf-8") as file:
        for line in file:
            english, german = line.rstrip("\n").split("\t")[:2]
            yield german, english
    with gzip.open(data / "libreoffice-help" / "en-de.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            _, english, german = line.rstrip("\n").split("\t")
            yield german, english
    captions = [
        gzip.decompress((data / "multi30k" / f"train.{side}.gz").read_bytes()).decode().splitlines()
        for side in ("de", "en")
    ]
    yield from zip(*captions, strict=True)


def corpus(data: Path, out: Path) -> Path:
    path = out / "pairs.tsv"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        lines = (f"{apart(german)}\t{apart(english)}\n" for german, english in pairs(data))
        path.write_text("".join(lines), encoding="utf-8")
    return path


def trained(name: str, data: Path, out: Path, quick: bool, more: list[str]) -> Path:
    settings = [*SHARED, *VARIANTS[name]] if name in VARIANTS else []
    settings += [*(QUICK if quick else []), *more]
    if name in VARIANTS:
        return regard.train(
            "starter", f"data.train={json.dumps([str(corpus(data, out).resolve())])}", *settings, out=out / name
        )
    return regard.train(name, *settings, out=out / name, data=data / "multi30k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", nargs="+", choices=[*VARIANTS, "multi30k", "multi30k-de-en"], default=[*VARIANTS, "multi30k"]
    )
    parser.add_argument("--quick", action="store_true", help="tiny models, ten updates")
    parser.add_argument("--set", nargs="+", default=[], help="settings of all trainings, such as training.steps=4000")
    options = parser.parse_args()
    gold = options.data / "rwth-de-en"
    rows: list[dict[str, Any]] = []
    for name in options.only:
        began = time.perf_counter()
        run = trained(name, options.data, options.out, options.quick, options.set)
        seconds = time.perf_counter() - began
        model = regard.load(run)
        row: dict[str, Any] = {"name": name, "seconds": round(seconds)}
        row["metrics"] = json.loads((run / "summary.json").read_text())["metrics"]
        print(f"\n{name}: {seconds:.0f} s, {row['metrics']}")
        if name in VARIANTS:
            files = [str(gold / f"test.uc.{side}") for side in ("de", "en")]
            result = model.evaluate_alignment(gold / "alignment.talp", files)
            print("\n".join(result.notes), flush=True)
            row |= {"aer": result.metrics} | result.details
        else:
            choice = choose(model)
            for way, score in choice.scores.items():
                print(f"    {way}: {score:.1f} % of its links differ")
            print(f"    chosen: {choice.way}, {choice.criterion}", flush=True)
            row |= {"chosen": str(choice.way), "criterion": choice.criterion, "scores": choice.scores}
        rows.append(row)
    print(json.dumps(rows, default=str))


if __name__ == "__main__":
    main()
