"""`regard generate`: texts that appear on the terminal as they are written, or pictures of images."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard import console
from regard.cli.app import (
    DeviceOption,
    Int8Option,
    JsonOption,
    MaxTokensOption,
    RunArgument,
    SeedOption,
    SlotsOption,
    TopKOption,
    app,
    must_be_left_out,
    must_be_png,
    number_option,
    show,
)
from regard.cli.bulk import Bulk, PartOption, ProcessesOption, own_device
from regard.cli.lines import LineWork, all_input, one_field
from regard.errors import UsageError
from regard.files import writing

if TYPE_CHECKING:
    from regard.tasks.language import Piece

SAMPLES = 25
COMPLETIONS = 5


@app.command()
def generate(
    context: typer.Context,
    run: RunArgument,
    file: Annotated[
        Path | None, typer.Argument(help="Prompts, one per line, each to be continued.", show_default=False)
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="What the text begins with; else standard input, if something comes from it.")
    ] = None,
    max_tokens: MaxTokensOption = None,
    temperature: Annotated[
        float | None, typer.Option(help="0: always the likeliest; 1: as probable.", show_default="as trained")
    ] = None,
    top_k: TopKOption = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the likeliest tokens that sum to p.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sample from tokens with this share of the likeliest's probability.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens already written become less likely.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given several times.")] = None,
    lookup: Annotated[
        int | None,
        number_option(
            "At temperature 0: guess this many tokens at once from what the text repeats; same text.", least=0
        ),
    ] = None,
    seed: SeedOption = 1,
    samples: Annotated[
        int | None,
        number_option("How many texts or images.", default="1 text, 25 images, 5 completions of each image"),
    ] = None,
    top: Annotated[int, number_option("Show this many candidates and their probabilities at each step.", least=0)] = 0,
    modes: Annotated[
        int | None,
        number_option("Hyena: write with this many exponentials per filter, and say how far off they are."),
    ] = None,
    complete: Annotated[
        list[Path] | None, typer.Option(help="Pixels: an image to continue; may be given several times.")
    ] = None,
    keep: Annotated[
        float | None, typer.Option(help="Pixels: the share of its rows that is kept.", show_default="0.5")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With FILE: write here. Pixels: the PNG to write [default: samples.png]."),
    ] = None,
    slots: SlotsOption = None,
    int8: Int8Option = False,
    processes: ProcessesOption = None,
    part: PartOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Continue a text, as it is written; or draw images, or complete them.

    regard generate runs/shakespeare --prompt "ROMEO:" --temperature 0.8

    regard generate runs/mnist-pixels --complete three.png --keep 0.5 -o completed.png

    A prompt longer than the model's context keeps its last part; it says so. With --json, one object per text.

    With FILE, one line out for one line in: the prompt and how it continues, with line breaks written as \\n. With
    --samples N, N lines and a blank line for each; with --json, one object per line. A large file can be shared among
    processes or machines, with --processes or --part: the output is the same.
    """
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "generate", "sample")
    of_lines = {"FILE": file, "--processes": processes, "--part": part}
    of_texts = {
        "--prompt": prompt,
        "--max-tokens": max_tokens,
        "--min-p": min_p,
        "--repetition-penalty": repetition_penalty,
        "--stop": stop or None,
        "--lookup": lookup,
        "--top": top or None,
        "--modes": modes,
        **of_lines,
    }
    of_images = {"--complete": complete or None, "--keep": keep}
    given = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "slots": slots,
        "int8": int8 or None,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "lookup": lookup,
    }
    decoding = {name: value for name, value in given.items() if value is not None}
    _check_sampling(decoding)
    if hasattr(task, "sample"):
        must_be_left_out(of_texts, f"It is about texts, and this is {task.about.noun}.")
        if keep is not None and not complete:
            raise UsageError(
                "--keep has no effect here.", "It is about images to complete.", "Add --complete IMAGE.png."
            )
        picture = must_be_png(output or Path("samples.png"))
        result = _draw_images(load_weights(task, device), complete or [], keep, samples, seed, picture, decoding)
        show(result, as_json, lambda content: content["picture"])
        return
    must_be_left_out(of_images, f"It is about images, and this is {task.about.noun}.")
    count = 1 if samples is None else samples
    if top and count > 1:
        raise UsageError(
            f"--top {top} cannot be shown.", "Candidates are shown at each step of one text.", "Use --samples 1."
        )
    if file is not None:
        must_be_left_out(
            {"--prompt": prompt, "--top": top or None},
            "The prompts are the lines of FILE, and texts are written whole.",
        )
        bulk = Bulk([file], output, processes, part)
        bulk.check()

        def make() -> LineWork:
            loaded = load_weights(task, own_device(device))
            return _line_work(loaded, stop or [], seed, count, as_json, modes, decoding)

        bulk.run("generate", context, run, make)
        return
    must_be_left_out(of_lines | {"-o": output}, "It is about the prompts of a file.")
    prompt = prompt if prompt is not None else all_input() or ""
    _write_texts(load_weights(task, device), prompt, stop or [], seed, count, top, as_json, modes, decoding)


def _check_sampling(decoding: dict[str, Any]) -> None:
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


# ---------------------------------------------------------------- texts


def _write_texts(
    run: Any,
    prompt: str,
    stop: list[str],
    seed: int,
    samples: int,
    top: int,
    as_json: bool,
    modes: int | None,
    decoding: dict[str, Any],
) -> None:
    """Continue the prompt `samples` times, and print the texts."""
    _distil(run, modes)
    pieces = run.generate_pieces([prompt], samples=samples, stop=stop, seed=seed, top=top, **decoding)
    passes = _Passes(pieces)
    if as_json:
        _as_json(prompt, samples, passes)
    elif top:
        _as_candidates(passes)
    else:
        _as_text(prompt, samples, passes)
    if decoding.get("lookup", run.settings.decoding.lookup) and passes.count:
        console.say(f"Tokens written in a pass, on average: {passes.tokens / passes.count:.2f}.")


def _distil(run: Any, modes: int | None) -> None:
    if modes is not None:
        error = run.distil(modes)
        console.say(f"Exponentials for each filter: {modes}. Filters are off by {error:.2%} in the worst layer.")


def _line_work(
    run: Any, stop: list[str], seed: int, samples: int, as_json: bool, modes: int | None, decoding: dict[str, Any]
) -> LineWork:
    """Every line continued `samples` times. An empty line stays empty."""
    _distil(run, modes)
    long = run.long_prompts()

    def write(lines: list[str], first: int) -> str:
        numbers = [first + place for place, line in enumerate(lines) if line.strip()]
        texts = run.generate(
            [lines[number - first] for number in numbers],
            samples=samples,
            stop=stop,
            seed=seed,
            numbers=numbers,
            noticed=lambda place, tokens: long.notice(numbers[place] + 1, tokens),
            **decoding,
        )
        of_line = {number: texts[row * samples : (row + 1) * samples] for row, number in enumerate(numbers)}
        return "".join(shown(line, of_line.get(number, [])) for number, line in enumerate(lines, start=first))

    def shown(prompt: str, texts: list[str]) -> str:
        if as_json:
            return json.dumps({"prompt": prompt, "texts": texts}, ensure_ascii=False) + "\n"
        whole = [one_field(prompt + text) + "\n" for text in texts]
        return "".join(whole) + "\n" * (samples > 1 or not texts)

    return LineWork(write, long)


class _Passes:
    """The same pieces; counts their tokens, and how often the model was asked for them."""

    def __init__(self, pieces: Iterable[Piece]):
        self.pieces, self.tokens, self.count = pieces, 0, 0

    def __iter__(self) -> Iterator[Piece]:
        for piece in self.pieces:
            if piece.token:
                self.tokens += 1
                self.count += not piece.same_pass
            yield piece


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


# ---------------------------------------------------------------- images


def _draw_images(
    run: Any,
    complete: list[Path],
    keep: float | None,
    samples: int | None,
    seed: int,
    output: Path,
    decoding: dict[str, Any],
) -> dict[str, Any]:
    """Draw images, or continue those given, and write them as one picture."""
    from regard.explain.completions import save_completions
    from regard.explain.image_grid import save_grid

    result: dict[str, Any] = {"picture": str(output.resolve()), "seed": seed}
    count = samples if samples is not None else COMPLETIONS if complete else SAMPLES
    if count > 1 and decoding.get("temperature", run.settings.decoding.temperature) == 0:
        console.warn("All samples are the same at temperature 0: the likeliest pixel is taken each time.")
    if complete:
        images = [run.read_file(path) for path in complete]
        share = 0.5 if keep is None else keep
        rows = run.kept_rows(share)
        completed = run.complete(images, share, count, seed, **decoding)
        with writing(output, "Choose a writable path with -o."):
            save_completions(images, completed, rows, output)
        result |= {"completed": [str(path) for path in complete], "kept_rows": rows}
    else:
        drawn = run.sample(count, seed, **decoding)
        with writing(output, "Choose a writable path with -o."):
            save_grid(drawn, output)
    return result | {"samples": count}
