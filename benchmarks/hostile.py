"""Do damaged run folders and hostile data files end in a clear error, quickly and in little memory?

    python benchmarks/hostile.py [--only TEXT] [--every N] [--list]

One tiny run of every task is trained. Then every file of every run is damaged in every way that concerns it, stray
names are put beside its checkpoints and samples, settings get absurd values, and data files of every form are made to
be cut short, mislabelled, nested, endless, or larger inside than outside. Each is given to the command that reads it,
in a process of its own, two at a time.

A case is passed if the command ends by itself within 10 s of computing and 1 GiB, without a traceback: with a result,
which for a run is that of the undamaged one, or with exit code 1 or 2 and an error of three lines. The failures are
printed, then counts, last a line of JSON. The exit code is 1 if any case failed.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import importlib
import io
import itertools
import json
import lzma
import os
import pkgutil
import random
import re
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SECONDS, MEMORY = 10.0, 2**30
PATIENCE = 60.0  # seconds on the clock, for a process that waits for something; the machine may be busy
AT_ONCE = 2
GIGABYTE = 10**9

FEW = ["training.steps=4", "training.validate_every=2", "training.save_every=2", "training.log_every=1"]
TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16"]
TEXT = ["training.tokens_per_batch=512", "training.row_length=64", "tokenizer.vocabulary=400"]
IMAGES = ["data.sample=", "data.images=images", "images.size=8", "training.images_per_batch=8"]
RUNS = {
    "translate": ["starter", *TINY, *TEXT, 'data.train=["train.en", "train.de"]', "data.max_length=64"],
    "language": ["shakespeare-cpu", *TINY, *TEXT, "data.text=text.txt"],
    "masked": ["bert-small", *TINY, *TEXT, "data.text=text.jsonl", "data.held_out=0.2"],
    "classify-text": ["starter-classify", *TINY, *TEXT, 'data.train=["labels.tsv"]', "data.max_length=64"],
    "embeddings": ["words", "data.text=text.txt", "embeddings.width=8", "embeddings.minimum_count=1"],
    "classify-image": ["digits", *TINY, *IMAGES, "model.patch=4"],
    "pixels": ["digits-pixels", *TINY, *IMAGES],
    "synthetic": ["reverse", *TINY, "synthetic.length=10", "synthetic.vocabulary=8", "synthetic.test_sequences=50"],
}
HELD_OUT = {"translate": ["data.held_out=0.1"], "classify-text": ["data.held_out=0.1"], "language": []}


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[Path], Any]  # puts what is hostile into an empty folder, in which the command is given
    command: list[str]
    expected: str | None = None  # what the command prints if it succeeds; None: anything


# ---------------------------------------------------------------- running


def run_all(cases: Iterable[Case], work: Path) -> Iterator[tuple[Case, str]]:
    """Each case with what is wrong with how it went; "" for nothing."""
    running: dict[int, tuple[Case, Path, float]] = {}
    waiting = enumerate(cases)
    while True:
        while len(running) < AT_ONCE and (following := next(waiting, None)):
            number, case = following
            folder = work / f"case-{number}"
            folder.mkdir()
            case.make(folder)
            running[start(case.command, folder)] = (case, folder, time.monotonic())
        if not running:
            return
        time.sleep(0.01)
        for pid in list(running):
            case, folder, begun = running[pid]
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            seconds = time.monotonic() - begun
            if not ended and seconds > PATIENCE:
                os.kill(pid, signal.SIGKILL)
                ended, status, usage = os.wait4(pid, 0)
            if ended:
                del running[pid]
                yield case, verdict(case, folder, status, usage, seconds > PATIENCE)
                shutil.rmtree(folder, ignore_errors=True)


def verdict(case: Case, folder: Path, status: int, usage: Any, hung: bool) -> str:
    stdout, stderr = (Path(f"{folder}.{name}").read_text(errors="replace") for name in ("out", "err"))
    for name in ("out", "err"):
        Path(f"{folder}.{name}").unlink()
    code = os.waitstatus_to_exitcode(status)
    seconds, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    if hung or seconds > SECONDS:
        return f"not done after {PATIENCE:g} s" if hung else f"{seconds:.1f} s of computing"
    if "Traceback" in stderr:
        return f"a traceback: {stderr.strip().splitlines()[-1][:160]}"
    if code not in (0, 1, 2):
        return f"exit code {code}: {stderr.strip()[-160:]}"
    if memory > MEMORY:
        return f"{memory / 2**20:,.0f} MiB of memory"
    if code:
        lines = stderr[stderr.find("Error: ") :].splitlines() if "Error: " in stderr else []
        return "" if len(lines) == 3 and all(lines) else f"not an error of three lines: {stderr[-160:]!r}"
    if case.expected is not None and stdout.replace(str(folder), "") != case.expected:
        return f"another result, unsaid: {stdout[:160]!r}"
    return ""


def start(command: list[str], folder: Path) -> int:
    """A process that runs a verb in this folder. It is a fork of this one, which has the imports done."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 70
    try:
        os.chdir(folder)
        for number, (path, flags) in enumerate(
            (
                ("/dev/null", os.O_RDONLY),
                (f"{folder}.out", os.O_CREAT | os.O_WRONLY),
                (f"{folder}.err", os.O_CREAT | os.O_WRONLY),
            )
        ):
            os.dup2(os.open(path, flags), number)
        sys.argv = ["regard", *command]
        from regard.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finished(command: list[str], folder: Path) -> str:
    """What a verb prints that has to work."""
    pid = start(command, folder)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"regard {' '.join(command)} failed:\n" + Path(f"{folder}.err").read_text())
    return Path(f"{folder}.out").read_text()


def preload() -> None:
    """All that verbs import, so that a fork does not have to."""
    import regard

    libraries = ["torch", "torch._dynamo", "scipy.stats", "sacrebleu", "sklearn.svm", "sklearn.cluster"]
    ours = [module.name for module in pkgutil.walk_packages(regard.__path__, "regard.")]
    for name in [*libraries, *ours]:
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # triton is not everywhere
                importlib.import_module(name)


# ---------------------------------------------------------------- damage to any file


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def binary(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(1000))


def zeros(path: Path) -> None:
    path.write_bytes(bytes(1000))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def endless(path: Path) -> None:
    """Eight gigabytes of nothing, which take no room on the disk."""
    with path.open("wb") as file:
        file.truncate(8 * GIGABYTE)


def missing(path: Path) -> None:
    path.unlink()


ANY = [empty, truncated, binary, zeros, folder, dangling, loop, pipe, device, endless, missing]


def whole(content: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(content)


def leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A JSON tree with every value changed."""
    if isinstance(tree, dict):
        return {key: leaves(value, change) for key, value in tree.items()}
    return [leaves(value, change) for value in tree] if isinstance(tree, list) else change(tree)


def changed(change: Callable[[Any], Any], keys: bool = False) -> Callable[[Path], Any]:
    """Every value of a JSON file, or of each line of one; or every key."""

    def each(text: str) -> str:
        tree = json.loads(text)
        if keys:
            return json.dumps({f"x{key}": value for key, value in tree.items()} if isinstance(tree, dict) else [tree])
        return json.dumps(leaves(tree, change))

    def apply(path: Path) -> None:
        text = path.read_text()
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        path.write_text("\n".join(map(each, lines)) + "\n")

    return apply


JSON = {
    "a list": whole("[]"),
    "an object": whole("{}"),
    "null": whole("null"),
    "a number": whole("7"),
    "a text": whole('"seven"'),
    "nested 20,000 deep": whole("[" * 20_000 + "]" * 20_000),
    "objects 20,000 deep": whole('{"a":' * 20_000 + "1" + "}" * 20_000),
    "a number of 10,000 digits": whole('{"step": ' + "9" * 10_000 + "}"),
    "numbers as texts": changed(str),
    "texts as numbers": changed(lambda value: 5 if isinstance(value, str) else value),
    "huge numbers": changed(lambda value: 10**30 if isinstance(value, int | float) else value),
    "infinite numbers": changed(lambda value: float("inf") if isinstance(value, int | float) else value),
    "not numbers": changed(lambda value: float("nan") if isinstance(value, int | float) else value),
    "negative numbers": changed(lambda value: -3 if isinstance(value, int | float) else value),
    "lists for values": changed(lambda value: [value]),
    "nothing for values": changed(lambda value: None),
    "other keys": changed(str, keys=True),
}


def tensors(header: Any, body: bytes = b"", size: int | None = None) -> Callable[[Path], Any]:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return lambda path: path.write_bytes(struct.pack("<Q", len(raw) if size is None else size) + raw + body)


def one(shape: list[int], dtype: str = "F32", end: int = 4) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}


TENSORS = {
    "a header of 2^63 bytes": tensors({}, size=2**63),
    "a header past the end": tensors({}, size=10**6),
    "no tensors": tensors({}),
    "a list for a header": tensors([]),
    "a nested header": tensors(b"[" * 20_000 + b"]" * 20_000),
    "a huge shape": tensors(one([2**40, 2**40]), bytes(4)),
    "a negative shape": tensors(one([-1]), bytes(4)),
    "an unknown type": tensors(one([1], "X9"), bytes(4)),
    "another tensor": tensors(one([1]), bytes(4)),
    "offsets past the end": tensors(one([10**9], end=4 * 10**9), bytes(4)),
}


# ---------------------------------------------------------------- the cases of runs


def damaged(run: Path, file: str, damage: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def make(folder: Path) -> None:
        shutil.copytree(run, folder / "run", symlinks=True)
        damage(folder / "run" / file)

    return make


def reader(file: str, task: str) -> list[str]:
    """The command that reads a file of a run."""
    if file.startswith(("checkpoints/", "samples/")) or file in ("metrics.jsonl", "data.json", "environment.json"):
        return ["train", "run", "--resume", "training.steps=6"]
    if file == "summary.json":
        return ["compare", "run", "../run-of-" + task]
    if file == "vectors.txt":
        return ["embeddings", "run", "--nearest", "the"]
    return evaluation(task)


def evaluation(task: str) -> list[str]:
    return ["evaluate", "run", *(["--no-baselines"] if task.startswith("classify") else [])]


def run_cases(runs: dict[str, Path], expected: dict[str, str]) -> Iterator[Case]:
    for task, run in runs.items():
        for path in sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink()):
            file = path.relative_to(run).as_posix()
            if file.startswith("plots/") or (file.startswith("checkpoints/") and "step-4" not in file):
                continue
            damages: dict[str, Callable[[Path], Any]] = {damage.__name__: damage for damage in ANY}
            if path.suffix in (".json", ".jsonl"):
                damages |= JSON
            if path.suffix == ".safetensors":
                damages |= TENSORS
            command = reader(file, task)
            for name, damage in damages.items():
                result = expected[task] if command[0] == "evaluate" else None
                yield Case(f"{task}: {file}: {name}", damaged(run, file, damage), command, result)
    yield from stray_cases(runs["language"])
    yield from setting_cases(runs)


def written(name: str, content: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(content)


STRAYS = ["step-", "step-abc", "step--1", "step-1.5", "step-٣", "step-99999", "step-" + "9" * 40, ".step-9.tmp", "x\ny"]


def stray_cases(run: Path) -> Iterator[Case]:
    """Names beside checkpoints and samples that Regard did not write."""
    for place, ending, kind in itertools.product(("checkpoints", "samples"), ("", ".txt"), ("file", "folder", "loop")):
        for name in STRAYS:

            def make(folder: Path, stray: str = f"{place}/{name}{ending}", kind: str = kind) -> None:
                shutil.copytree(run, folder / "run", symlinks=True)
                path = folder / "run" / stray
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(b"")
                {"file": empty, "folder": globals()["folder"], "loop": loop}[kind](path)

            yield Case(f"stray {kind}: {place}/{name}{ending}", make, ["train", "run", "--resume", "training.steps=6"])


DEEP = "[" * 20_000 + "]" * 20_000
ABSURD = ["0", "-1", "1000000000", str(10**18), "9" * 5000, "1e400", "nan", "true", '"x"', "[]", DEEP]


def setting_cases(runs: dict[str, Path]) -> Iterator[Case]:
    """A setting of a run's config.toml, changed; and the same on the command line, for a new training."""
    for task, run in runs.items():
        lines = (run / "config.toml").read_text().splitlines()
        keys = [
            line.partition(" =")[0]
            for line in lines
            if re.match(r"(layers|width|heads|feedforward|max_positions|seed|row_length|size|patch|colours) = ", line)
        ]
        for key, value in itertools.product(keys, ABSURD):

            def change(path: Path, key: str = key, value: str = value) -> None:
                path.write_text(re.sub(rf"(?m)^{key} = .*$", lambda _: f"{key} = {value}", path.read_text(), count=1))

            name = f"{task}: config.toml: {key} = {value[:20]}"
            yield Case(name, damaged(run, "config.toml", change), evaluation(task))
    dots = ".".join("a" * 20_000)
    nested = {
        "a table 20,000 deep": f"[{dots}]",
        "a key 20,000 deep": f"{dots} = 1",
        "a list 20,000 deep": f"a = {DEEP}",
        "two megabytes": "# x\n" * 500_000,
        "a number of 5,000 digits": "seed = " + "9" * 5000,
        "bytes": "\0\1\2",
        "a list of tables": "[[model]]",
    }
    for name, text in nested.items():
        yield Case(f"recipe: {name}", written("r.toml", text.encode()), ["train", "r.toml"])
    for damage in ANY:

        def make(folder: Path, damage: Callable[[Path], Any] = damage) -> None:
            (folder / "r.toml").write_text("task = 'synthetic'\n")
            damage(folder / "r.toml")

        yield Case(f"recipe: {damage.__name__}", make, ["train", "r.toml", *FEW, *TINY])
    for text in ("1/0", "import sys; sys.exit(3)", "MIXERS = []", "MIXERS = {'x': 5}", "(" * 20_000, "x = 'a", ""):
        command = ["train", "reverse", "--plugin", "p.py", *FEW, *TINY]
        yield Case(f"plug-in: {text[:20]}", written("p.py", text.encode()), command)
    for setting in (
        "model.width=1000000000", "model.width=100000", "model.layers=100000000", "model.layers=500 model.width=8192",
        "model.heads=1000000000", "model.feedforward=1000000000000", "training.tokens_per_batch=4000000000",
        "synthetic.length=16777216", "seed=99999999999999999999999", "training.steps=1000000000000 training.patience=1",
        "training.tokens_per_batch=999999999999999", "system.threads=1000000000", "system.device=cuda:99999999999",
        "a." * 20_000 + "a=1", f"model.width={DEEP}",
    ):  # fmt: skip
        command = ["train", "reverse", *FEW, *TINY, *setting.split()]
        if "patience" in setting:
            command = ["doctor", "reverse", *setting.split()]
        yield Case(f"setting: {setting[:60]}", lambda folder: None, command)


# ---------------------------------------------------------------- the cases of data


def repeated(piece: bytes, size: int, pack: Callable[[bytes], bytes]) -> bytes:
    """So many bytes, packed in parts one after the other, without ever being in memory."""
    block = piece * (10**7 // len(piece))
    return pack(block) * (size // len(block))


def gz(piece: bytes, size: int, before: bytes = b"") -> bytes:
    return (gzip.compress(before) if before else b"") + repeated(piece, size, gzip.compress)


def xz(piece: bytes, size: int, before: bytes = b"") -> bytes:
    return (lzma.compress(before) if before else b"") + repeated(piece, size, lzma.compress)


def bz(piece: bytes, size: int, before: bytes = b"") -> bytes:
    return (bz2.compress(before) if before else b"") + repeated(piece, size, bz2.compress)


def deflated(size: int) -> bytes:
    """So many zeros in one stream, as in a PNG."""
    packer = zlib.compressobj(9)
    return b"".join([packer.compress(bytes(10**6)) for _ in range(size // 10**6)]) + packer.flush()


def idx(*shape: int, body: bytes = b"") -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


def tar_header(kind: bytes, size: int, name: str = "cat/1.png") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def png_claim(width: int, height: int, body: bytes = b"") -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
    return start + chunk(b"IDAT", body or zlib.compress(b"")) + chunk(b"IEND", b"")


def picture(form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, form, **options)
    return file.getvalue()


def json_line(content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


def texts() -> dict[str, bytes]:
    """Data files of text, by name; the ending tells the form."""
    good = b"".join(json_line({"text": f"the cat number {n} sat here", "label": "ab"[n % 2]}) for n in range(300))
    nested = b'{"text": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n"
    return {
        "one line of 1.2 GB.jsonl.gz": gz(b"x" * 100, 1_200_000_000, b'{"text": "'),
        "300 MB of a line.jsonl.gz": gz(b"x" * 100, 300_000_000, b'{"text": "'),
        "lines of zeros.jsonl.gz": gz(bytes(99) + b"\n", GIGABYTE),
        "nested.jsonl": good + nested,
        "nested objects.jsonl": good + b'{"text":' * 20_000 + b"1" + b"}" * 20_000 + b"\n",
        "objects in 15 MB.jsonl": good + b'{"text": "", "x": [' + b"{}," * 5_000_000 + b"{}]}\n",
        "pairs in 15 MB.jsonl": good + b'{"text": "", "x": [' + b'{"":0},' * 2_100_000 + b"{}]}\n",
        "no text.jsonl": good + json_line({"x": 1}),
        "list.jsonl": good + b"[]\n",
        "long number.jsonl": good + b'{"text": ' + b"9" * 10_000 + b"}\n",
        "half a character.jsonl": good + b'{"text": "\\ud800", "label": "a"}\n',
        "bytes.jsonl": good + b"\xff\xfe\n",
        "cut.jsonl.gz": gzip.compress(good)[:-20],
        "not packed.jsonl.gz": good,
        "empty.jsonl": b"",
        "a bomb.txt.gz": gz(b"x" * 100, GIGABYTE),
        "lines of a bomb.txt.gz": gz(b"the cat sat on the mat\n", GIGABYTE),
        "zeros.txt": bytes(10**6),
        "empty.txt": b"",
        "bytes.txt": random.Random(2).randbytes(10**5),
    }


def labelled() -> dict[str, bytes]:
    good = b"".join(b"%c\tthe cat number %d\n" % (97 + n % 2, n) for n in range(300))
    rows = b"label,text\n" + b"".join(b"%c,the cat number %d\n" % (97 + n % 2, n) for n in range(300))
    return {
        "one line of 1.2 GB.tsv.gz": gz(b"x" * 100, 1_200_000_000, b"a\t"),
        "one line of 1.2 GB.csv.gz": gz(b"x" * 100, 1_200_000_000, rows),
        "a quote never closed.csv.gz": gz(b"x,y\n", GIGABYTE, rows + b'a,"'),
        "fields without end.csv.gz": gz(b'"x\n",', 600_000_000, rows),
        "a header without end.csv.gz": gz(b"label,", GIGABYTE),
        "60 million rows.csv.gz": gz(b"a,b\n", 240_000_000, rows),
        "labels all different.tsv": b"".join(b"%d\tx\n" % n for n in range(200_000)),
        "a label of a megabyte.tsv": good + b"x" * 900_000 + b"\ttext\n",
        "one column.tsv": b"x\n" * 300,
        "bytes.csv": rows + b"\xff\xfe,\xff\n",
        "nul.csv": rows + b"a,\0\n",
        "no header.csv": b"\n" * 10,
        "nested.jsonl": b'{"label": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n",
        "binary.tsv": random.Random(3).randbytes(10**5),
        "empty.csv": b"",
        "empty.tsv": b"",
    }


def images() -> dict[str, bytes]:
    """Sources of images: idx files, archives, tables. A name with a slash is a file in a folder."""
    pixels = bytes(range(100)) * 64
    many = {f"{'cat' if n % 2 else 'dog'}/{n}.png": picture("PNG") for n in range(60)}

    def tar(members: dict[str, bytes]) -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return file.getvalue()

    good, end = tar(many), bytes(10_240)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cat/1.png", bytes(10**8))
    pax = tar_header(tarfile.XHDTYPE, 2 * GIGABYTE, "pax")
    zero_image = tar_header(tarfile.REGTYPE, GIGABYTE)
    sparse = tar_header(tarfile.GNUTYPE_SPARSE, 512)
    sparse = sparse[:482] + b"\1" + sparse[483:]
    deep = "/".join(["d"] * 2000) + "/1.png"
    return {
        "labels/t-images-idx3-ubyte": idx(60, 8, 8, body=pixels[: 60 * 64]),
        "labels/t-labels-idx1-ubyte.gz": gz(b"\0", 300_000_000, idx(300_000_000)),
        "count/t-images-idx3-ubyte.gz": gz(b"\0", 300_000_000, idx(300_000_000, 1, 1)),
        "ratio/t-images-idx3-ubyte.gz": gz(b"\0", 400_000_000, idx(400_000, 32, 32)),
        "large/t-images-idx3-ubyte.gz": gz(b"\0", GIGABYTE, idx(1, 31_000, 31_000)),
        "wide/t-images-idx4-ubyte": idx(1, 2**16, 2**16, 3),
        "claim/t-images-idx3-ubyte": idx(2**32 - 1, 28, 28),
        "nothing/t-images-idx3-ubyte": idx(0, 0, 0),
        "beyond/t-images-idx3-ubyte": idx(2**32 - 1, 2**32 - 1, 2**32 - 1),
        "cut/t-images-idx3-ubyte.gz": gzip.compress(idx(60, 8, 8, body=pixels[: 60 * 64]))[:-9],
        "dims/t-images-idx3-ubyte": b"\0\0\x08\xff" + bytes(1024),
        "pax.tar.xz": xz(b"x", 2 * GIGABYTE, pax),
        "pax.tar.gz": gz(b"x", 2 * GIGABYTE, pax),
        "pax.tar.bz2": bz(b"x", 2 * GIGABYTE, pax),
        "long name.tar.xz": xz(b"x", GIGABYTE, tar_header(tarfile.GNUTYPE_LONGNAME, GIGABYTE, "long")),
        "an image of zeros.tar.gz": gz(b"\0", GIGABYTE, zero_image),
        "an image of zeros.tar.xz": xz(b"\0", GIGABYTE, zero_image),
        "zeros.tar.bz2": bz(b"\0", GIGABYTE, good[:-10_240]),
        "members without end.tar.xz": xz(tar_header(tarfile.REGTYPE, 0), 2 * GIGABYTE, good[:-10_240]),
        "sparse without end.tar.xz": xz(b"\1" * 512, GIGABYTE, sparse),
        "a negative size.tar": tar_header(tarfile.REGTYPE, 0)[:124] + b"\xff" * 12 + bytes(376) + end,
        "cut.tar": good[: len(good) // 2 + 100],
        "cut.tar.gz": gzip.compress(good)[:-30],
        "damaged.tar": good[:5120] + b"\xff" * 512 + good[5632:],
        "deep names.tar": tar({**many, deep: picture("PNG")}),
        "links.tar": tar_header(tarfile.SYMTYPE, 0) + tar_header(tarfile.FIFOTYPE, 0, "dog/2.png") + end,
        "an idx bomb.tar": tar({"t-images-idx3-ubyte.gz": gz(b"\0", 300_000_000, idx(300_000_000, 1, 1))}),
        "a dictionary of 4 GiB.tar.xz": xz_dictionary(),
        "bomb.zip": zipped.getvalue(),
        "one line.csv": b"path,label\n" + b"x" * 10**7,
        "a quote.csv": b'path,label\n"' + b"x,y\n" * 10**5,
        "paths.csv": b"path,label\n/dev/zero,a\n/dev/null,b\n\0,a\n" + b"x" * 5000 + b",a\n../,b\n",
        "no path.csv": b"file,label\na,b\n",
        "bytes.csv": b"path,label\n\xff\xfe,a\n",
    }


def xz_dictionary() -> bytes:
    """An .xz that asks for a dictionary of 4 GiB."""
    whole = lzma.compress(bytes(10**6), lzma.FORMAT_XZ, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    # The size of the dictionary is a byte of the block's header, which has its own checksum.
    header = bytearray(whole[12 : 12 + 4 * (whole[12] + 1)])
    at = header.index(bytes([0x21, 0x01])) + 2
    header[at] = 40  # 4 GiB
    header[-4:] = struct.pack("<I", zlib.crc32(bytes(header[:-4])))
    return whole[:12] + bytes(header) + whole[12 + len(header) :]


def single_images() -> dict[str, bytes]:
    zeros = deflated(350_000_000)
    text = picture("PNG")
    note = b"zTXt" + b"x\0\0" + deflated(400_000_000)
    note = struct.pack(">I", len(note) - 4) + note + struct.pack(">I", zlib.crc32(note))
    jpeg = picture("JPEG")
    at = jpeg.index(b"\xff\xc0") + 5
    tiff = picture("TIFF")
    grey = io.BytesIO()
    Image.fromarray(np.zeros((9000, 9000), np.uint16)).save(grey, "PNG")
    return {
        "a bomb.png": png_claim(9300, 9300, zeros),
        "claims.png": png_claim(9400, 9400),
        "claims more.png": png_claim(2**31 - 1, 2**31 - 1),
        "padded bomb.png": png_claim(9300, 9300, zeros) + bytes(4 * 10**6),
        "a note.png": text[:33] + note + text[33:],
        "16 bits.png": grey.getvalue(),
        "claims.jpg": jpeg[:at] + struct.pack(">HH", 65_000, 65_000) + jpeg[at + 4 :],
        "claims less.jpg": jpeg[:at] + struct.pack(">HH", 9000, 9000) + jpeg[at + 4 :],
        "cut.jpg": jpeg[: len(jpeg) // 2],
        "cut.tiff": tiff[:100],
        "binary.png": random.Random(4).randbytes(1000),
        "empty.png": b"",
        "claims.gif": picture("GIF")[:6] + struct.pack("<HH", 65_535, 65_535) + picture("GIF")[10:],
        "claims.bmp": picture("BMP")[:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + picture("BMP")[26:],
        "claims.ppm": b"P6 1000000000 1000000000 255\n" + bytes(100),
        "claims.webp": picture("WEBP", lossless=True)[:24] + b"\xff\xff\xff" + picture("WEBP", lossless=True)[27:],
    }


def vectors() -> dict[str, bytes]:
    good = b"3 2\nthe 0.1 0.2\ncat 1 2\nsat 3 4\n"
    return {
        "huge counts.txt": b"9" * 19 + b" " + b"9" * 19 + b"\nthe 1\n",
        "counts of 10,000 digits.txt": b"9" * 10_000 + b" 2\nthe 1 2\n",
        "superscripts.txt": "²³ ²\nthe 1 2\n".encode(),
        "not numbers.txt": good + b"x nan inf\n",
        "one line of a bomb.txt.gz": gz(b"x ", GIGABYTE, good),
        "words without end.txt.gz": gz(b"ab 0\n", 300_000_000),
        "other widths.txt": b"the 1 2\ncat 1\n",
        "empty.txt": b"",
        "binary.txt": random.Random(5).randbytes(10**4),
    }


def data_cases(data: Path, runs: dict[str, Path]) -> Iterator[Case]:
    classifier = str(runs["classify-image"])
    kinds: list[tuple[str, dict[str, bytes], list[list[str]]]] = [
        ("text", texts(), [trained("language", "data.text=FILE"), ["doctor", "shakespeare-cpu", "data.text=FILE"]]),
        ("labelled", labelled(), [trained("classify-text", 'data.train=["FILE"]')]),
        ("pairs", labelled_as_pairs(), [trained("translate", 'data.train=["FILE"]')]),
        ("images", images(), [trained("classify-image", "data.images=FILE"), [*DOCTOR, "data.images=FILE"]]),
        ("image", single_images(), [["classify", classifier, "FILE"]]),
        ("vectors", vectors(), [["embeddings", "FILE", "--nearest", "the"], started(data)]),
    ]
    for kind, contents, commands in kinds:
        for name, content in contents.items():
            named = name.split("/")[0]
            if kind == "images" and name == "labels/t-images-idx3-ubyte":
                continue

            def make(folder: Path, name: str = name, content: bytes = content, contents: dict = contents) -> None:
                if name.startswith("labels/"):
                    name_of_images = "labels/t-images-idx3-ubyte"
                    (folder / "labels").mkdir()
                    (folder / name_of_images).write_bytes(contents[name_of_images])
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)

            for command in commands:
                given = [word.replace("FILE", named) for word in command]
                yield Case(f"{kind}: {name}: {command[0]}", make, given)
    yield from places(runs)


def labelled_as_pairs() -> dict[str, bytes]:
    return {name: content for name, content in labelled().items() if ".tsv" in name and "different" not in name}


DOCTOR = ["doctor", "digits", "data.sample="]


def started(data: Path) -> list[str]:
    """A training that starts from word vectors in the folder of the case, with the data of all others."""
    recipe, *settings = RUNS["language"]
    settings = [word.replace("text.txt", str(data / "text.txt")) for word in settings]
    return ["train", recipe, *settings, *FEW, "training.embeddings=FILE", "--data", ".", "--out", "new"]


def trained(task: str, *changes: str) -> list[str]:
    recipe, *settings = RUNS[task]
    return ["train", recipe, *settings, *FEW, *changes, "--out", "new"]


def places(runs: dict[str, Path]) -> Iterator[Case]:
    """Data that is no file: pipes, devices, loops, folders that hold themselves."""
    commands = {
        "a.txt": trained("language", "data.text=a.txt"),
        "a.jsonl": trained("language", "data.text=a.jsonl"),
        "a.tsv": trained("classify-text", 'data.train=["a.tsv"]'),
        "a.tsv of pairs": trained("translate", 'data.train=["a.tsv"]'),
        "a.tar": trained("classify-image", "data.images=a.tar"),
        "a-images-idx3-ubyte": trained("classify-image", "data.images=a-images-idx3-ubyte"),
        "a.csv": trained("classify-image", "data.images=a.csv"),
        "a.png": ["classify", str(runs["classify-image"]), "a.png"],
        "a.txt of vectors": ["embeddings", "a.txt", "--nearest", "the"],
    }
    for (name, command), damage in itertools.product(commands.items(), (folder, dangling, loop, pipe, device)):

        def make(place: Path, name: str = name.partition(" of ")[0], damage: Callable[[Path], Any] = damage) -> None:
            (place / name).write_bytes(b"")
            damage(place / name)

        yield Case(f"{name}: {damage.__name__}: {command[0]}", make, command)

    def itself(place: Path) -> None:
        (place / "images" / "cat").mkdir(parents=True)
        (place / "images" / "cat" / "again").symlink_to("..")
        (place / "images" / "cat" / "1.png").write_bytes(picture("PNG"))
        os.mkfifo(place / "images" / "cat" / "2.png")

    yield Case("a folder in itself, with a pipe", itself, trained("classify-image", "data.images=images"))
    yield Case("a folder of text in itself", itself, trained("language", "data.text=images"))


# ---------------------------------------------------------------- whole


def write_data(data: Path) -> None:
    """Small data of every form, the same every time."""
    words = ["the", "a", "cat", "dog", "house", "sat", "ran", "sees", "old", "new", "red", "small", "on", "in", "under"]
    chance = random.Random(7)
    lines = [" ".join(chance.choices(words, k=8)) for _ in range(400)]
    for name in ("text.txt", "train.en", "train.de"):
        (data / name).write_text("\n".join(lines) + "\n")
    (data / "text.jsonl").write_bytes(b"".join(json_line({"text": line}) for line in lines))
    (data / "labels.tsv").write_text("".join(f"{'ab'[n % 2]}\t{line}\n" for n, line in enumerate(lines)))
    for n in range(60):
        file = data / "images" / ("cat" if n % 2 else "dog") / f"{n}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(n).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name this regular expression is found in")
    parser.add_argument("--every", type=int, default=1, help="only every n-th case")
    parser.add_argument("--list", action="store_true", help="name the cases, and run none")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    preload()
    begun = time.monotonic()
    failed: list[tuple[str, str]] = []
    passed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        work = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(work / "cache")
        data = work / "data"
        data.mkdir()
        write_data(data)
        runs, expected = {}, {}
        for task, (recipe, *settings) in RUNS.items():
            runs[task] = work / f"run-of-{task}"
            more = HELD_OUT.get(task, [])
            finished(["train", recipe, *settings, *FEW, *more, "--data", str(data), "--out", str(runs[task])], data)
            again = work / f"again-{task}"
            again.mkdir()
            shutil.copytree(runs[task], again / "run", symlinks=True)
            expected[task] = finished(evaluation(task), again).replace(str(again), "")
        cases = itertools.chain(run_cases(runs, expected), data_cases(data, runs))
        if options.list:
            print(*(case.name for case in cases if re.search(options.only, case.name)), sep="\n")
            return
        chosen = itertools.islice(
            (case for case in cases if re.search(options.only, case.name)), 0, None, options.every
        )
        for case, problem in run_all(chosen, work):
            if problem:
                failed.append((case.name, problem))
                print(f"FAILED  {case.name}\n        {problem}", flush=True)
            else:
                passed[case.name.partition(":")[0]] += 1
    for kind, count in sorted(passed.items()):
        print(f"{kind:<40}{count:>6} passed")
    result = {"cases": len(failed) + passed.total(), "failed": len(failed), "seconds": round(time.monotonic() - begun)}
    print(json.dumps(result))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
