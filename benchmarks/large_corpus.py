"""What does it take to tokenise a corpus that is larger than memory should hold, and does the number of workers show?

    python benchmarks/large_corpus.py                     10 million sentence pairs, about 1.3 GB
    python benchmarks/large_corpus.py --lines 20000       the quick form; parts are smaller then

The pairs are 50,000 of the demo's generator, each repeated with other numbers (see memory.py). A vocabulary is learned,
and the pairs are tokenised into a fresh cache with each number of workers; with 2 of them once more, killed half-way by
SIGKILL and started again. Every row is a process of its own. Prints seconds, the peak memory of the process and of its
largest worker, how many parts were tokenised, and the sha256 of the cache; the last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measured import show
from memory import write_pairs
from regard.data import parts
from regard.data.pairs import PairSource, pair_splits
from regard.data.tokenised import tokenise_pairs
from regard.data.tokenizers import TextTokenizer
from regard.settings import PairData, PairTokenizerSettings
from regard.tasks.translate import learn_tokenizers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--no-kill", action="store_true", help="leave out what is killed and continued")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)  # of a process for one row
    options = parser.parse_args()
    parts.PART_SAMPLES = min(parts.PART_SAMPLES, max(1, options.lines // 20))
    if options.folder is None:
        compare(options.lines, options.workers, not options.no_kill)
    elif options.workers == [0]:
        print(json.dumps(learn(options.folder)))
    else:
        print(json.dumps(tokenise(options.folder, options.workers[0])))


def compare(lines: int, workers: list[int], kill: bool) -> None:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_pairs(folder, lines)
        show("workers", "seconds", "peak MiB", "largest worker", "parts made", "sha256 of the cache")

        def row(name: str, started: float, measured: dict[str, Any]) -> None:
            rows.append({"row": name, "seconds": round(time.perf_counter() - started, 1)} | measured)
            about = [measured.get(key, "") for key in ("peak_mib", "worker_mib", "parts_made", "sha256")]
            show(name, rows[-1]["seconds"], *about)

        def run(count: int) -> subprocess.Popen[str]:
            command = [sys.executable, __file__, "--in", temporary, "--lines", f"{lines}", "--workers", f"{count}"]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        started = time.perf_counter()
        row("learning the vocabulary", started, result_of(run(0)))
        for count in workers:
            started = time.perf_counter()
            row(f"{count}", started, result_of(run(count)))
        if kill:
            started, process = time.perf_counter(), run(2)
            half = lines // parts.PART_SAMPLES // 2
            while process.poll() is None and len([*folder.glob("cache-2/prepared/*.parts/part-*")]) < half:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            row("2, killed half-way", started, {})
            started = time.perf_counter()
            row("2, continued", started, result_of(run(2)))
    hashes = [row["sha256"] for row in rows if "sha256" in row]
    print(json.dumps({"lines": lines, "same_bytes": len({*hashes}) == 1 if len(hashes) > 1 else None, "rows": rows}))


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def source(folder: Path, workers: int) -> PairSource:
    data = PairData(root=str(folder), train=["train.en", "train.de"], held_out=0.0, workers=workers)
    return pair_splits(data)["train"]


def learn(folder: Path) -> dict[str, Any]:
    tokenizers = learn_tokenizers(PairTokenizerSettings(), source(folder, 1))
    (folder / "tokenizer.json").write_text(tokenizers.source.to_json())
    return {"peak_mib": peak("self")}


def tokenise(folder: Path, workers: int) -> dict[str, Any]:
    tokenizer, cache = TextTokenizer.load(folder / "tokenizer.json"), folder / f"cache-{workers}"
    of_workers, made = [0], []
    stop, write, encode = parts.Worker.stop, parts.write_part, parts.Worker.encode

    def stopped(worker: parts.Worker) -> None:
        of_workers.append(peak(f"{worker.process.pid}"))
        stop(worker)

    def encoded(worker: parts.Worker, path: Path, *rest: Any) -> None:
        encode(worker, path, *rest)
        made.append(path)

    def written(path: Path, *rest: Any) -> None:
        write(path, *rest)
        made.append(path)

    parts.Worker.stop, parts.Worker.encode, parts.write_part = stopped, encoded, written  # type: ignore[method-assign]
    pairs = tokenise_pairs(source(folder, workers), (tokenizer, tokenizer), cache)
    about = {"pairs": len(pairs), "peak_mib": peak("self"), "worker_mib": max(of_workers), "parts_made": len(made)}
    digest = hashlib.sha256()
    left = sorted(path for path in cache.rglob("*") if path.is_file())
    for path in left:
        digest.update(path.name.encode() + path.read_bytes())
        path.unlink()
    assert len(left) == 5, left  # two of each side, and the manifest
    return about | {"sha256": digest.hexdigest()[:16]}


def peak(process: str) -> int:
    """The most memory that a process has had, in MiB."""
    [kib] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(kib) // 1024


if __name__ == "__main__":
    main()
