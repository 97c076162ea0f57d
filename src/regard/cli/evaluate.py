"""`regard evaluate`: the scores of a run on held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import DeviceOption, JsonOption, MovedDataOption, RunArgument, app, number_option, show
from regard.errors import RegardError, UsageError

FINE = ("loss", "bits_per_byte", "bits_per_pixel")  # metrics whose fourth digit counts


@app.command()
def evaluate(
    run: RunArgument,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Other test data, in the form that the run was trained on.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="test or valid.")] = "test",
    beam: Annotated[
        int | None,
        number_option("Translating, summarising, captioning: hypotheses kept; 1 is greedy.", default="as trained"),
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="Also something simpler on the same data, for comparison, where the task has it.")
    ] = True,
    alignment: Annotated[
        Path | None,
        typer.Option(
            help="A translator: score its word alignment instead, by the links in this file: 3-4 sure, 3p4 possible.",
            show_default=False,
        ),
    ] = None,
    links_start: Annotated[int, number_option("With --alignment: the number of a sentence's first word.", least=0)] = 1,
    links_swapped: Annotated[
        bool, typer.Option("--links-swapped", help="With --alignment: links name the target's word first.")
    ] = False,
    data: MovedDataOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the translations, summaries, captions or labels here.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Score a run on held-out data.

    A translator: BLEU cased and lower-cased, and chrF, each with its 95 % interval and sacreBLEU's signature.
    A summariser: ROUGE-1, -2 and -L, and what the first words, the first sentence and the nearest training text reach.
    A language model: loss, perplexity, bits per byte; a chat model: of its replies, beside a 5-gram model.
    A classifier: accuracy, macro-F1, a confusion picture,
    and what something simpler reaches on the same data: bags of words on texts, support vectors on images. An
    image classifier: also its worst mistakes as a picture. Answers: exact match and F1, and what counting words
    finds. A captioner: BLEU-4, BLEU-1, chrF and exact matches; beside them the same captions with the wrong images, and
    one caption for all images. Pixels: bits per pixel. Made-up sequences: accuracy. A player of games: how often it
    knows the rules, and matches against random and perfect players.

    With --alignment, a translator: the alignment error rate of its cross-attention, for every layer, reading and head.
    """
    if split not in ("test", "valid"):
        raise UsageError(f"There is no split '{split}'.", "Held-out data is test or valid.", "Use --split test.")
    from regard.run import load_weights, open_run, require

    task = open_run(run, data)
    options: dict[str, Any] = {}
    if beam is not None:
        require(task, "translate", "summarize", "caption")
        options["beam"] = beam
    if not baselines:
        require(task, "classify", "summarize", "caption", "answer", "reply")
        options["baselines"] = False
    written = ("translate", "summarize", "caption", "classify", "answer")
    if output is not None and not any(hasattr(task, verb) for verb in written):
        raise UsageError(
            "There is nothing to write.",
            "Only translations, summaries, captions, labels and answers can be written.",
            "Leave out -o.",
        )
    for path in files or []:
        if not path.exists():
            raise RegardError(f"The file '{path}' is missing.", "It was named as test data.", "Check the path.")
    if alignment is not None:
        require(task, "translate")
        if beam is not None or output is not None:
            raise UsageError(
                "--alignment goes without --beam and --output.",
                "Nothing is translated: the given translations are aligned.",
                "Leave them out.",
            )
        if not alignment.exists():
            raise RegardError(f"The file '{alignment}' is missing.", "It was named as links.", "Check the path.")
    elif links_swapped or links_start != 1:
        raise UsageError(
            "--links-start and --links-swapped have no effect here.",
            "They say how the links of --alignment are written.",
            "Leave them out, or add --alignment FILE.",
        )
    from regard.cli.lines import destination, must_not_replace, one_line

    must_not_replace(output, files or [])
    loaded: Any = load_weights(task, device)
    named = [str(path) for path in files or []]
    if alignment is not None:
        result = loaded.evaluate_alignment(alignment, named, split, first=links_start, swapped=links_swapped)
    else:
        result = loaded.evaluate(named, split, **options)

    def report(content: dict[str, Any]) -> str:
        lines = []
        for score in result.scores:
            spread = " ({:.2f} to {:.2f})".format(*score.interval) if score.interval is not None else ""
            digits = 4 if score.name in FINE else 2
            lines.append(f"{score.name:<15} {score.value:8.{digits}f}{spread}   {score.signature}")
        return "\n".join([*lines, *result.notes])

    content = {
        "run": str(run),
        result.unit: result.count,
        "metrics": result.metrics,
        "scores": [score.to_json() for score in result.scores],
    }
    show(content | result.details, as_json, report)
    if output is not None:  # last: where it cannot be written, the scores are not lost
        with destination(output) as file:
            file.writelines(one_line(text) + "\n" for text in result.outputs)
