"""How well does a model that has read no other text answer SQuAD 1.1? Masked pre-training, then questions.

    python benchmarks/squad.py DIR --out runs/squad --seeds 1,2 [--pretrain training.steps=4000] [training.steps=3000 …]

DIR has train.jsonl.xz and dev.jsonl.xz, one paragraph a line: {"title", "context", "qas": [[question, answer, …], …]}.
They are written in SQuAD's own fields, without where an answer stands: all its places count. The masked model is
trained once, and every seed starts from it. Prints exact match, F1 and the seconds of both; JSON as the last line.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

import regard


def write(packed: Path, path: Path) -> None:
    with lzma.open(packed, "rt", encoding="utf-8") as lines, path.open("w", encoding="utf-8") as out:
        for line in lines:
            record = json.loads(line)
            record["qas"] = [
                {"question": question, "answers": [{"text": text} for text in dict.fromkeys(answers)]}
                for question, *answers in record["qas"]
            ]
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/squad"))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--pretrain", action="append", default=[], help="a setting of the masked model; several times")
    options, settings = parser.parse_known_args()
    folder = options.out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        write(options.data / f"{split}.jsonl.xz", folder / f"{split}.jsonl")
    masked = regard.train("squad-pretrain", *options.pretrain, out=options.out / "masked", data=folder)
    before = json.loads((masked / "summary.json").read_text())["seconds"]
    print(f"the masked model took {before:.0f} s", flush=True)
    results = []
    for seed in options.seeds.split(","):
        out = options.out / f"answer-{seed}"
        run = regard.train("squad", *settings, f"seed={seed}", out=out, data=folder, start_from=masked)
        summary = json.loads((run / "summary.json").read_text())
        figures = {name: summary["metrics"][name] for name in ("exact_match", "f1")}
        results.append({"seed": int(seed), **figures, "seconds": summary["seconds"]})
        print(results[-1], flush=True)
    print(json.dumps({"pretraining_seconds": before, "answers": results}))


if __name__ == "__main__":
    main()
