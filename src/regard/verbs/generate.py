"""`regard generate`: texts that appear on the terminal as they are written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import console
from regard.errors import UsageError
from regard.verbs.lines import all_input

if TYPE_CHECKING:
    from regard.runs.language import Piece


def write_texts(
    run: Path,
    prompt: str | None,
    stop: list[str],
    seed: int,
    samples: int,
    top: int,
    device: str,
    as_json: bool,
    modes: int | None,
    decoding: dict[str, Any],
) -> None:
    """Continue the prompt `samples` times, and print the texts."""
    check_sampling(decoding)
    if top < 0 or (top and samples > 1):
        raise UsageError(
            f"--top {top} cannot be shown.",
            "Candidates are shown at each step of one text.",
            "Use a positive number, and --samples 1.",
        )
    prompt = prompt if prompt is not None else all_input() or ""
    from regard.runs.language import LanguageRun  # here: torch takes a second or two

    model = LanguageRun(run, device)
    if modes is not None:
        error = model.distil(modes)
        console.say(f"Exponentials for each filter: {modes}. Filters are off by {error:.2%} in the worst layer.")
    pieces = model.stream([prompt], samples=samples, stop=stop, seed=seed, top=top, **decoding)
    if as_json:
        _as_json(prompt, samples, pieces)
    elif top:
        _as_candidates(pieces)
    else:
        _as_text(prompt, samples, pieces)


def check_sampling(decoding: dict[str, Any]) -> None:
    """Options that contradict each other, told by the names that they have on the command line."""
    if decoding.get("temperature", 1) < 0:
        raise UsageError(
            f"--temperature {decoding['temperature']} is negative.",
            "Logits are divided by it; 0 stands for the likeliest token.",
            "Use 0, or a number above it: 0.8.",
        )
    cuts = [name for name in ("top_k", "top_p", "min_p") if name in decoding]
    if decoding.get("temperature") == 0 and cuts:
        raise UsageError(
            f"--{cuts[0].replace('_', '-')} has no effect at temperature 0.",
            "The likeliest token is taken each time.",
            "Leave it out, or raise --temperature.",
        )


def _as_text(prompt: str, samples: int, pieces: Any) -> None:
    """The first text appears as it is written; the others, written beside it, after it."""
    others = [""] * samples
    sys.stdout.write(prompt)
    for piece in pieces:
        if piece.sample == 0:
            sys.stdout.write(piece.text)
            sys.stdout.flush()
        else:
            others[piece.sample] += piece.text
    sys.stdout.write("\n")
    for text in others[1:]:
        sys.stdout.write(f"{'-' * 40}\n{prompt}{text}\n")


def _as_candidates(pieces: Any) -> None:
    from regard.explain.tokens import visible

    for piece in pieces:
        if piece.token:
            named = "  ".join(f"{visible(token)} {p:.3f}" for token, p in piece.candidates)
            print(f"{visible(piece.token):<14} {piece.probability:.3f}   {named}", flush=True)


def _as_json(prompt: str, samples: int, pieces: Any) -> None:
    written: list[list[Piece]] = [[] for _ in range(samples)]
    for piece in pieces:
        written[piece.sample].append(piece)
    for sample in written:
        steps = [
            {
                "token": piece.token,
                "probability": piece.probability,
                **({"candidates": [list(pair) for pair in piece.candidates]} if piece.candidates else {}),
            }
            for piece in sample
            if piece.token
        ]
        text = "".join(piece.text for piece in sample)
        print(json.dumps({"prompt": prompt, "text": text, "tokens": steps}, ensure_ascii=False))
