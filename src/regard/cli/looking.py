"""Verbs that look inside: explain, probe, embeddings, tokenize, markov."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, RunArgument, app, show
from regard.errors import UsageError, did_you_mean


@app.command()
def explain(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The sentence to look into, or the image file.")] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write.")] = Path("explain.png"),
    what: Annotated[str, typer.Option(help="attention, alignment, positions or toeplitz.")] = "attention",
    target: Annotated[str, typer.Option(help="Look at this translation instead of the model's own.")] = "",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Draw what a model looked at.

    Of a translator: attention, every layer and head of its cross-attention; alignment, the last layer, averaged
    over heads; positions, the position encodings that it adds. Of any run with Hyena: toeplitz, its convolutions as
    matrices.

    Of an image classifier: regard explain RUN image.png -o map.png draws where it looked: attention rollout over the
    image, and every head of every layer.
    """
    from regard.training.folder import RunFolder

    of_an_image = RunFolder.open(run).read_config().task == "classify-image"
    if of_an_image and (what not in ("attention", "toeplitz") or target):
        raise UsageError(
            f"--{'target' if target else f'what {what}'} is not for images.",
            "Of an image, rollout and the attention of every head are drawn.",
            "Leave it out.",
        )
    if what not in ("positions", "toeplitz") and not text.strip():
        raise UsageError(
            "A sentence, or an image, is missing.", f"'{what}' is drawn for one.", 'Add it: "A dog sleeps.", or dog.png'
        )
    if what in ("positions", "toeplitz") and text.strip():
        raise UsageError("A sentence has no effect here.", f"'{what}' is drawn of the model alone.", "Leave it out.")
    if output.suffix.lower() != ".png":
        raise UsageError(f"'{output}' is not a PNG file.", "Pictures are written as PNG.", "Use a name ending in .png.")
    from regard.kinds import must_be

    if what != "toeplitz":
        must_be(run, "translate", "classify-image")
    from regard.verbs import explain as pictures

    if what not in pictures.KINDS:
        raise UsageError(f"Nothing is drawn for '{what}'.", "It is no picture.", did_you_mean(what, pictures.KINDS))
    found = pictures.draw(run, text, output, what, target, device)
    show(found, as_json, lambda content: content["picture"])


@app.command()
def probe(
    run: RunArgument,
    train: Annotated[int, typer.Option(help="At most so many training images teach the classifiers.")] = 5000,
    test: Annotated[int, typer.Option(help="At most so many test images score them.")] = 5000,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The picture to write.", show_default="RUN/plots/probe.png")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the run's own images are now, if they have moved.", show_default=False)
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show how well each layer tells classes of images apart.

    A linear classifier is trained on what each layer makes of labelled images, and scored on test images. For models
    of pixels, which never saw a label, and for image classifiers.
    """
    if train < 2 or test < 1:
        raise UsageError("There are too few images.", "Classifiers need some to learn from.", "Use --train 5000.")
    if output is not None and output.suffix.lower() != ".png":
        raise UsageError(f"'{output}' is not a PNG file.", "Pictures are written as PNG.", "Use a name ending in .png.")
    from regard.kinds import must_be

    must_be(run, "pixels", "classify-image")
    from regard.verbs.probe import probe_layers, table

    show(probe_layers(run, train, test, output, data, device), as_json, table)


@app.command()
def embeddings(
    source: Annotated[
        Path, typer.Argument(help="A run of any kind, or a file of word vectors (word2vec text).", show_default=False)
    ],
    nearest: Annotated[list[str] | None, typer.Option(help="A word whose nearest neighbours to show.")] = None,
    analogy: Annotated[list[str] | None, typer.Option(help='A sum of words: "king-man+woman".')] = None,
    count: Annotated[int, typer.Option(help="How many neighbours to show.")] = 10,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A PNG of the words and their neighbours in two dimensions.")
    ] = None,
    export: Annotated[Path | None, typer.Option(help="Write all vectors here, as word2vec text.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at word vectors, or export them.

    Nearest words, analogies, and a picture of the neighbourhood in two dimensions.

    regard embeddings runs/words --nearest king --analogy king-man+woman
    """
    if output is not None and not nearest:
        raise UsageError("There is nothing to draw.", "A picture shows words and their neighbours.", "Add --nearest.")
    if not (nearest or analogy or export):
        raise UsageError(
            "There is nothing to do.", "No word is named.", "Add --nearest WORD, --analogy A-B+C or --export FILE."
        )
    if count < 1:
        raise UsageError(f"{count} neighbours cannot be shown.", "At least one is.", "Use --count 10.")
    if output is not None and output.suffix.lower() != ".png":
        raise UsageError(f"'{output}' is not a PNG file.", "Pictures are written as PNG.", "Use a name ending in .png.")
    from regard.verbs.embeddings import look

    def report(found: dict[str, Any]) -> str:
        lines: list[str] = []
        for block in found["found"]:
            lines += [block["asked"], *(f"  {near['similarity']:.3f}  {near['word']}" for near in block["nearest"]), ""]
        return "\n".join(lines + [found[key] for key in ("picture", "exported") if key in found]).strip()

    show(look(source, nearest or [], analogy or [], count, output, export), as_json, report)


@app.command()
def tokenize(
    source: Annotated[
        str, typer.Argument(help="A run, a tokenizer.json, or - to look at the text alone.", show_default=False)
    ],
    text: Annotated[
        str | None, typer.Argument(help="The text; standard input if left out.", show_default=False)
    ] = None,
    merges: Annotated[bool, typer.Option("--merges", help="Show how pairs are joined, step by step.")] = False,
    steps: Annotated[int | None, typer.Option(min=0, help="With -: at most so many merges.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens of a text, with ids and byte positions.

    With --merges, how byte-pair encoding gets there. `regard tokenize - aaabdaaabac --merges` learns merges
    from the text itself.
    """
    from regard.verbs.tokenize import describe

    content, shown = describe(source, text, merges, steps)
    show(content, as_json, lambda _: shown)


@app.command()
def markov(
    file: Annotated[
        Path | None, typer.Argument(help="A text, one sentence a line; - for standard input.", show_default=False)
    ] = None,
    order: Annotated[str, typer.Option(help="1, 2 or skip.")] = "1",
    mask: Annotated[bool, typer.Option("--mask", help="With skips: cross out the votes that tell nothing.")] = False,
    after: Annotated[str | None, typer.Option(help="Guess the word after these.")] = None,
    samples: Annotated[int | None, typer.Option(help="Draw so many sentences.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws others; 0 if left out.")] = None,
    score: Annotated[Path | None, typer.Option(help="A text to score: bits per word and perplexity.")] = None,
    rows: Annotated[int, typer.Option(help="At most so many rows of the table; 0 for none.")] = 20,
    example: Annotated[int | None, typer.Option(help="Built-in sentences instead of a file: 1, 2 or 3.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what came before attention: Markov chains.

    Counts what follows a word (order 1), two words (2), or any earlier word and the latest one (skip). With
    skips and --mask, the guess is attention, and is shown as its product of matrices.

    regard markov --example 3 --order skip --mask --after "check the program log and find out whether it ran"
    """
    from regard.verbs.markov import describe

    content, shown = describe(file, example, order, mask, after, samples, seed, score, rows)
    show(content, as_json, lambda _: shown)
