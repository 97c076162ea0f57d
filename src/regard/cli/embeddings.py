"""`regard embeddings`: neighbours, analogies, a picture, and the vectors as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.app import JsonOption, app, number_option, picture_option, show
from regard.errors import UsageError
from regard.files import writing


@app.command()
def embeddings(
    source: Annotated[
        Path, typer.Argument(help="A run of any kind, or a file of word vectors (word2vec text).", show_default=False)
    ],
    nearest: Annotated[list[str] | None, typer.Option(help="A word whose nearest neighbours to show.")] = None,
    analogy: Annotated[list[str] | None, typer.Option(help='A sum of words: "king-man+woman".')] = None,
    count: Annotated[int, number_option("How many neighbours to show.")] = 10,
    output: Annotated[Path | None, picture_option("A PNG of the words and their neighbours in two dimensions.")] = None,
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
    from regard.tasks.embeddings import word_vectors

    vectors = word_vectors(source)
    nearest = nearest or []
    asked = [(word, vectors.nearest(word, count)) for word in nearest]
    asked += [(expression, vectors.analogy(expression, count)) for expression in analogy or []]
    result: dict[str, Any] = {
        "source": str(source),
        "words": len(vectors.words),
        "width": vectors.width,
        "answers": [
            {"asked": what, "nearest": [{"word": word, "similarity": near} for word, near in words]}
            for what, words in asked
        ],
    }
    if output is not None:
        from regard.explain.neighbourhood import draw_neighbourhood

        with writing(output, "Choose a writable path with -o."):
            draw_neighbourhood(vectors, nearest, output, per_word=count)
        result["picture"] = str(output.resolve())
    if export is not None:
        with writing(export):
            export.parent.mkdir(parents=True, exist_ok=True)
            vectors.write(export)
        result["exported"] = str(export.resolve())
    show(result, as_json, _report)


def _report(result: dict[str, Any]) -> str:
    lines: list[str] = []
    for answer in result["answers"]:
        lines += [answer["asked"], *(f"  {near['similarity']:.3f}  {near['word']}" for near in answer["nearest"]), ""]
    return "\n".join(lines + [result[key] for key in ("picture", "exported") if key in result]).strip()
