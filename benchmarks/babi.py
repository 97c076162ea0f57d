"""How many of bAbI's tasks can be learned? Each is written as .tsv, trained with the recipe `babi`, and scored.

    python benchmarks/babi.py en-10k.tar.xz --out runs/babi [--tasks 1,2,6] [training.steps=4000 …]

An answer is to stand in its context, and many of bAbI's do not: yes, no, numbers, lists. So every context begins with
all answers that the training questions of its task have. Prints a table, and as the last line JSON. A task counts as
solved below 5 % error.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import regard

SOLVED = 95.0


def questions(text: str) -> Iterator[tuple[str, str, str]]:
    """Question, story so far and answer. A line numbered 1 begins a story."""
    story: list[str] = []
    for line in text.splitlines():
        number, _, rest = line.partition(" ")
        if number == "1":
            story = []
        if "\t" in rest:
            question, answer, *_ = rest.split("\t")
            yield question.strip(), " ".join(story), answer.strip()
        else:
            story.append(rest.strip())


def write(text: str, answers: list[str], path: Path) -> None:
    lines = [f"{asked}\t{' , '.join(answers)} . {story}\t{answer}\n" for asked, story, answer in questions(text)]
    path.write_text("".join(lines), encoding="utf-8")


def read(archive: Path) -> dict[int, dict[str, str]]:
    """The texts of each task: train and test."""
    tasks: dict[int, dict[str, str]] = {}
    with tarfile.open(archive) as files:
        for member in files:
            named = re.search(r"qa(\d+)_.*_(train|test)\.txt$", member.name)
            file = files.extractfile(member) if named and member.isfile() else None
            if named and file:
                tasks.setdefault(int(named[1]), {})[named[2]] = file.read().decode()
    return {number: tasks[number] for number in sorted(tasks) if len(tasks[number]) == 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/babi"))
    parser.add_argument("--tasks", default="", help="numbers, with commas between them; all if none is given")
    options, settings = parser.parse_known_args()
    wanted = {int(number) for number in options.tasks.split(",") if number}
    results = {}
    for number, texts in read(options.archive).items():
        if wanted and number not in wanted:
            continue
        folder = options.out / f"qa{number}-data"
        folder.mkdir(parents=True, exist_ok=True)
        answers = sorted({answer for _, _, answer in questions(texts["train"])})
        for split, text in texts.items():
            write(text, answers, folder / f"{split}.tsv")
        run = regard.train("babi", *settings, out=options.out / f"qa{number}", data=folder)
        summary = json.loads((run / "summary.json").read_text())
        results[number] = summary["metrics"]["exact_match"]
        print(f"qa{number:<3} exact match {results[number]:6.2f}   {summary['seconds']:7.1f} s", flush=True)
    solved = sum(right > SOLVED for right in results.values())
    print(f"{solved} of {len(results)} tasks below 5 % error")
    print(json.dumps({"exact_match": results, "solved": solved, "tasks": len(results)}))


if __name__ == "__main__":
    main()
