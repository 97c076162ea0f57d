"""`regard translate` as a Unix filter: a line in, a line out, in order, as soon as it can be had."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, TextIO

from regard.data.pairs import LONGEST_LINE, read_lines
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.decoding.translate import Translation

LINES_AT_ONCE = 512  # read, sorted by length and translated together


def translate_lines(
    run: Path,
    file: Path | None,
    output: Path | None,
    *,
    best: int,
    prefix: str,
    seed: int,
    device: str,
    as_json: bool,
    **decoding: Any,
) -> None:
    """Translate a file, or standard input, to a file, or standard output."""
    if best < 1:
        raise UsageError(f"--best {best} is no number of translations.", "At least one is printed.", "Use --best 1.")
    if best > 1 and decoding["temperature"] > 0:
        raise UsageError(
            f"--best {best} and --temperature do not go together.",
            "Sampling gives one translation of each sentence.",
            "Leave out one of them; another --seed gives another sample.",
        )
    if seed < 0:
        raise UsageError(f"--seed {seed} is negative.", "A seed is 0 or more.", "Use --seed 1.")
    if decoding["temperature"] <= 0 and (decoding["top_k"] or decoding["top_p"] < 1):
        raise UsageError(
            "--top-k and --top-p have no effect here.",
            "They limit sampling, and without --temperature nothing is sampled.",
            "Add --temperature 1, or leave them out.",
        )
    if file is not None and not file.is_file():
        state = "is a folder" if file.is_dir() else "is missing"
        raise RegardError(f"The file '{file}' {state}.", "It was to be translated, line by line.", "Check the path.")
    from regard.run import Run  # here: torch takes a second or two, and the mistakes above are told without it

    model = Run(run, device)
    if best > 1:
        decoding["beam"] = max(best, decoding.get("beam", model.config.decoding.beam))
    numbered = 0
    with _destination(output) as out:
        for chunk in _chunks(_input_lines(file)):
            texts = [(index, line) for index, line in enumerate(chunk) if line.strip()]
            prefixes = [prefix] * len(texts) if prefix else None
            found = model.translations(
                [line for _, line in texts], prefixes=prefixes, seed=seed, first_row=numbered, **decoding
            )
            results: list[list[Translation]] = [[] for _ in chunk]
            for (index, _), hypotheses in zip(texts, found, strict=True):
                results[index] = hypotheses
            for line, hypotheses in zip(chunk, results, strict=True):
                out.write(_shown(line, hypotheses[:best], best, as_json))
            out.flush()
            numbered += len(texts)


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """The lines that are there, up to so many; waits only when there is none.

    A file comes in large chunks, which are quick to translate; a line typed by a person, or written by a
    slow program, is answered at once.
    """
    ready: Queue[str | BaseException | None] = Queue(maxsize=4 * LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                ready.put(line)
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=read, daemon=True).start()
    ended: BaseException | None = None
    while True:
        chunk: list[str] = []
        while len(chunk) < LINES_AT_ONCE and not (chunk and ready.empty()):
            item = ready.get()
            if isinstance(item, str):
                chunk.append(item)
                continue
            ended = item or EOFError()
            break
        if chunk:
            yield chunk
        if isinstance(ended, EOFError):
            return
        if ended:
            raise ended


def _input_lines(file: Path | None) -> Iterator[str]:
    if file is not None:
        yield from (
            line for line in read_lines(file, advice="Mend the line, or convert the file to UTF-8.") if line is not None
        )
        return
    # Not sys.stdin: Python cannot end while a thread waits in it, as after an error in the middle of the input.
    for number, raw in enumerate(open(sys.stdin.fileno(), "rb", closefd=False), start=1):  # noqa: SIM115
        if len(raw) > LONGEST_LINE:
            raise RegardError(
                f"Line {number:,} of the input is longer than {LONGEST_LINE:,} bytes.",
                "It is no sentence.",
                "Break it up.",
            )
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise RegardError(
                f"Line {number:,} of the input is not valid UTF-8.", f"{error}", "Convert the input to UTF-8."
            ) from None


def _shown(source: str, hypotheses: list[Translation], best: int, as_json: bool) -> str:
    if as_json:
        listed = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in hypotheses]
        return json.dumps({"source": source, "translations": listed}, ensure_ascii=False) + "\n"
    # A translation holds no line break of its own: one line in, one line out.
    texts = [" ".join(h.text.splitlines()) for h in hypotheses]
    if best == 1:
        return (texts[0] if texts else "") + "\n"
    return "".join(f"{h.score:.4f}\t{text}\n" for h, text in zip(hypotheses, texts, strict=True)) + "\n"


def _destination(output: Path | None) -> Any:
    if output is None:
        return nullcontext(sys.stdout)
    return _WholeFile(output)


class _WholeFile:
    """A file that appears under its name only when it is finished."""

    def __init__(self, path: Path):
        self.path, self.temporary = path, path.with_name(f".{path.name}.tmp")

    def __enter__(self) -> TextIO:
        try:
            if self.path.is_dir():
                raise IsADirectoryError("it is a folder")
            self.file = self.temporary.open("w", encoding="utf-8")
        except OSError as error:
            raise RegardError(f"Cannot write '{self.path}'.", f"{error}", "Choose a writable place.") from None
        return self.file

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.file.close()
        if kind is None:
            self.temporary.replace(self.path)
        else:
            self.temporary.unlink(missing_ok=True)
