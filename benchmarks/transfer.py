"""What a masked language model is worth: TREC and IMDB from scratch, and fine-tuned from it.

    python benchmarks/transfer.py --imdb DIR --trec DIR --steps 4500 --seeds 1,2,3

The masked model sees only unlabelled text: the IMDB reviews (train and test) and TREC's training questions.
IMDB's own fine-tuning has therefore seen the test texts, without their labels. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import regard

SAME_SHAPE = [
    "model.layers=6",
    "model.width=384",
    "model.heads=6",
    "model.feedforward=1536",
    "model.embedding_norm=true",
]
SAME_SHAPE += [
    "tokenizer.kind=bpe",
    "tokenizer.vocabulary=8000",
    "training.learning_rate=0.0003",
    "training.validate_every=400",
]
TUNED = ["training.steps=400", "training.validate_every=200", "training.warmup=40", "training.learning_rate=0.0002"]


def questions(trec: Path, place: Path) -> Path:
    """TREC's training questions without their labels, each a document."""
    path = place / "questions.jsonl"
    lines = (trec / "TREC.train").read_text(encoding="utf-8").splitlines()
    path.write_text("".join(json.dumps({"text": line.split(" ", 1)[1]}) + "\n" for line in lines))
    return path


def train(name: str, recipe: str, *overrides: str, place: Path, **options: Any) -> dict[str, Any]:
    started = time.perf_counter()
    run = regard.train(recipe, *overrides, out=place / name, **options)
    shutil.rmtree(run / "checkpoints")
    summary = json.loads((run / "summary.json").read_text())
    figures = {key: round(value, 3) for key, value in summary["metrics"].items()}
    result = {"name": name, "seconds": round(time.perf_counter() - started, 1), **figures, "run": str(run)}
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--imdb", type=Path, required=True)
    parser.add_argument("--trec", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--seeds", default="1,2,3")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    texts = [str(path.resolve()) for path in (options.imdb / "train.jsonl.gz", options.imdb / "test.jsonl.gz")]
    texts.append(str(questions(options.trec, place)))
    steps = [f"training.steps={options.steps}", f"training.validate_every={options.steps // 3}"]
    steps.append(f"training.warmup={options.steps // 10}")
    masked = train("masked", "bert-small", *steps, f"data.text={json.dumps(texts)}", place=place)
    results = [masked]
    for seed in options.seeds.split(","):
        common: dict[str, Any] = {"place": place, "data": options.trec}
        results += [
            train(f"trec-tuned-{seed}", "trec", f"seed={seed}", *TUNED, start_from=masked["run"], **common),
            train(f"trec-scratch-{seed}", "trec", f"seed={seed}", **common),
            train(f"trec-scratch-same-shape-{seed}", "trec", f"seed={seed}", *SAME_SHAPE, **common),
        ]
    common = {"place": place, "data": options.imdb}
    results.append(train("imdb-scratch", "imdb", "training.steps=1500", "training.validate_every=500", **common))
    slow = ["training.steps=800", "training.validate_every=400", "training.learning_rate=0.0001", "training.warmup=80"]
    results.append(train("imdb-tuned", "imdb", *slow, start_from=masked["run"], **common))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
