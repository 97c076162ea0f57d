"""`regard translate` as a Unix filter: a line in, a line out, in order, as soon as it can be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UsageError
from regard.verbs.lines import chunks, destination, input_lines, must_be_a_file

if TYPE_CHECKING:
    from regard.decoding.translate import Translation


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
    if file is not None:
        must_be_a_file(file)
    # Here: torch takes a second or two, and the mistakes above are told without it.
    from regard.runs.translation import TranslationRun

    model = TranslationRun(run, device)
    if best > 1:
        decoding["beam"] = max(best, decoding.get("beam", model.config.decoding.beam))
    numbered = 0
    with destination(output) as out:
        for chunk in chunks(input_lines([file] if file else [])):
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


def _shown(source: str, hypotheses: list[Translation], best: int, as_json: bool) -> str:
    if as_json:
        listed = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in hypotheses]
        return json.dumps({"source": source, "translations": listed}, ensure_ascii=False) + "\n"
    # A translation holds no line break of its own: one line in, one line out.
    texts = [" ".join(h.text.splitlines()) for h in hypotheses]
    if best == 1:
        return (texts[0] if texts else "") + "\n"
    return "".join(f"{h.score:.4f}\t{text}\n" for h, text in zip(hypotheses, texts, strict=True)) + "\n"
