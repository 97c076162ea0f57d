"""Verbs that use runs: evaluate, translate, generate, fill, classify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app, show, write
from regard.errors import RegardError, UsageError

FINE = ("loss", "bits_per_byte", "bits_per_pixel")  # figures whose fourth digit counts


@app.command()
def evaluate(
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Other test data, in the form that the run was trained on.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="test or valid.")] = "test",
    beam: Annotated[
        int | None, typer.Option(help="Translating: hypotheses kept; 1 is greedy.", show_default="as trained")
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="Classifying: train something simpler on the same data, for comparison.")
    ] = True,
    data: Annotated[
        Path | None, typer.Option(help="Where the run's own data is now, if it has moved.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the translations, or the labels, here.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Score a run on held-out data.

    A translator: BLEU cased and lower-cased, and chrF, each with its 95 % interval and sacreBLEU's signature.
    A language model: loss, perplexity, bits per byte. A classifier: accuracy, macro-F1, a confusion picture,
    and what something simpler reaches on the same data: bags of words on texts, support vectors on images. An
    image classifier: also its worst mistakes as a picture. Pixels: bits per pixel. Made-up sequences: accuracy.
    """
    if split not in ("test", "valid"):
        raise UsageError(f"There is no split '{split}'.", "Held-out data is test or valid.", "Use --split test.")
    from regard.kinds import must_be
    from regard.runs import open_run
    from regard.training.folder import RunFolder

    options: dict[str, Any] = {}
    if beam is not None:
        must_be(run, "translate")
        options["beam"] = beam
    if output is not None and RunFolder.open(run).read_config().task not in (
        "translate",
        "classify-text",
        "classify-image",
    ):
        raise UsageError("There is nothing to write.", "Only translations and labels can be written.", "Leave out -o.")
    for path in files or []:
        if not path.exists():
            raise RegardError(f"The file '{path}' is missing.", "It was named as test data.", "Check the path.")
    if not baselines:
        must_be(run, "classify-text", "classify-image")
        options["baselines"] = False
    model = open_run(run, device)
    if data is not None:
        model.moved(data)
    found = model.evaluate([str(path) for path in files or []], split, **options)
    if output:
        write(output, "".join(text + "\n" for text in found.outputs))

    def report(content: dict[str, Any]) -> str:
        lines = []
        for score in found.scores:
            spread = " ({:.2f} to {:.2f})".format(*score.interval) if score.interval is not None else ""
            lines.append(
                f"{score.name:<15} {score.value:8.{4 if score.name in FINE else 2}f}{spread}   {score.signature}"
            )
        return "\n".join([*lines, *found.notes])

    content = {
        "run": str(run),
        found.counted: found.count,
        "metrics": found.metrics,
        "scores": [score.to_json() for score in found.scores],
    }
    show(content | found.details, as_json, report)


@app.command()
def translate(
    run: RunArgument,
    file: Annotated[
        Path | None,
        typer.Argument(help="One sentence a line; standard input if left out.", show_default=False),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of printing.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.", show_default="as trained")] = None,
    best: Annotated[int, typer.Option("--best", "-n", help="Print the N best of each sentence, with scores.")] = 1,
    prefix: Annotated[str, typer.Option(help="Text that every translation must start with.")] = "",
    temperature: Annotated[float, typer.Option(help="Above 0: sample instead of searching.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Sample from the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest tokens that sum to p.")] = 1.0,
    seed: Annotated[int, typer.Option(help="For sampling.")] = 1,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Translate a file or standard input.

    Line by line, in order: one line out for one line in. With --best N, N lines "score TAB text" and a
    blank line for each. With --json, one JSON object a line.
    """
    from regard.kinds import must_be
    from regard.verbs.translate import translate_lines

    must_be(run, "translate")
    decoding: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if beam is not None:
        decoding["beam"] = beam
    translate_lines(run, file, output, best=best, prefix=prefix, seed=seed, device=device, as_json=as_json, **decoding)


@app.command()
def generate(
    run: RunArgument,
    prompt: Annotated[
        str | None, typer.Option(help="What the text begins with; else standard input, if something comes from it.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens written.", show_default="as trained")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0: always the likeliest; 1: as probable.", show_default="as trained")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens; 0: all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the likeliest tokens that sum to p.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sample from tokens with this share of the likeliest's probability.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens already written become less likely.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given several times.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed gives another text, or other images.")] = 1,
    samples: Annotated[
        int | None,
        typer.Option(help="How many texts or images.", show_default="1 text, 25 images, 5 completions of each image"),
    ] = None,
    top: Annotated[int, typer.Option(help="Show this many candidates and their probabilities at each step.")] = 0,
    modes: Annotated[
        int | None,
        typer.Option(help="Hyena: write with this many exponentials a filter, and say how far off they are."),
    ] = None,
    complete: Annotated[
        list[Path] | None, typer.Option(help="Pixels: an image to go on with; may be given several times.")
    ] = None,
    keep: Annotated[
        float | None, typer.Option(help="Pixels: the share of its rows that is kept.", show_default="0.5")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Pixels: the picture to write.", show_default="samples.png"),
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Continue a text, as it is written; or draw images, or complete them.

    regard generate runs/shakespeare --prompt "ROMEO:" --temperature 0.8

    regard generate runs/mnist-pixels --complete three.png --keep 0.5 -o completed.png

    A prompt longer than the model's context keeps its last part; it says so. With --json, one object a text.
    """
    from regard.kinds import must_be
    from regard.training.folder import RunFolder

    must_be(run, "language", "pixels")
    for_texts = {
        "--prompt": prompt,
        "--max-tokens": max_tokens,
        "--min-p": min_p,
        "--repetition-penalty": repetition_penalty,
        "--stop": stop or None,
        "--top": top or None,
        "--modes": modes,
    }
    for_images = {"--complete": complete or None, "--keep": keep, "-o": output}
    given = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
    }
    decoding = {name: value for name, value in given.items() if value is not None}
    if RunFolder.open(run).read_config().task == "pixels":
        _must_be_left_out(for_texts, "It is about texts, and this is a model of pixels.")
        from regard.verbs.pixels import draw_images

        found = draw_images(run, complete or [], keep, samples, seed, output, device, decoding)
        show(found, as_json, lambda content: content["picture"])
        return
    _must_be_left_out(for_images, "It is about images, and this is a language model.")
    from regard.verbs.generate import write_texts

    count = 1 if samples is None else samples
    write_texts(run, prompt, stop or [], seed, count, top, device, as_json, modes, decoding)


def _must_be_left_out(options: dict[str, Any], why: str) -> None:
    """A clear error for the first option that was given."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} has no effect here.", why, "Leave it out.")


@app.command()
def fill(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help='A text with a hole in it: "The [MASK] sat."', show_default=False)],
    top: Annotated[int, typer.Option(help="How many candidates to show.")] = 5,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Guess what stands at [MASK], with probabilities."""
    from regard.kinds import must_be

    must_be(run, "masked")
    from regard.explain.tokens import visible
    from regard.runs.masked import MaskedRun

    found = [[vars(candidate) for candidate in each] for each in MaskedRun(run, device).fill(text, top)]

    def report(content: dict[str, Any]) -> str:
        blocks = []
        for candidates in content["masks"]:
            blocks.append(
                "\n".join(f"{c['probability']:7.2%}  {visible(c['token']):<16} {c['text']}" for c in candidates)
            )
        return "\n\n".join(blocks)

    show({"text": text, "masks": found}, as_json, report)


@app.command()
def classify(
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Texts, one a line, or standard input; or images, or folders of them.", show_default=False),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of printing.")] = None,
    top: Annotated[int | None, typer.Option(help="Show this many classes; 1 of a text, 5 of an image.")] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Name the class of each line of files or standard input, or of each image.

    Texts: one line out for one line in, empty for an empty one: label, TAB, probability (and so on with --top).
    Images: the same, after the name of the file. With --json, one object a line.
    """
    from regard.kinds import must_be
    from regard.training.folder import RunFolder

    must_be(run, "classify-text", "classify-image")
    if top is not None and top < 1:
        raise UsageError(f"{top} classes cannot be shown.", "At least one is.", "Use --top 1.")
    from regard.verbs.classify import classify_images, classify_lines

    if RunFolder.open(run).read_config().task == "classify-image":
        classify_images(run, files or [], output, top=top or 5, device=device, as_json=as_json)
    else:
        classify_lines(run, files or [], output, top=top or 1, device=device, as_json=as_json)
