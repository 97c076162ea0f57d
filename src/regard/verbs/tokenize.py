"""`regard tokenize`: the tokens of a text, and how they came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError, UsageError
from regard.explain import tokens
from regard.verbs.lines import all_input

TEXT_ALONE = "-"


def describe(source: str, text: str | None, merges: bool, steps: int | None) -> tuple[dict[str, Any], str]:
    """What there is to tell, for scripts and for people."""
    text = all_input() if text is None else text
    if text is None:
        raise UsageError("A text is missing.", "Its tokens are to be shown.", 'Add one: "A sentence."')
    if source == TEXT_ALONE:
        if not merges:
            raise UsageError(
                "Without a tokenizer there are no tokens.",
                f"'{TEXT_ALONE}' looks at the text alone.",
                "Add --merges, or name a run or a tokenizer.json.",
            )
        learned = tokens.learn_steps(text, steps)
        return {"text": text, "merges": tokens.to_json(learned)}, tokens.show_learning(text, learned)
    if steps is not None:
        raise UsageError("--steps has no effect here.", "The tokenizer's merges are learned already.", "Leave it out.")
    tokenizer = TextTokenizer.load(_file(Path(source)))
    found = tokens.spans(tokenizer, text)
    content: dict[str, Any] = {"text": text, "tokens": tokens.to_json(found)}
    shown = tokens.show_tokens(found)
    if merges:
        joined = tokens.merge_steps(tokenizer, text)
        content["merges"] = tokens.to_json(joined)
        shown = tokens.show_merges(joined) + "\n\n" + shown
    return content, shown


def _file(source: Path) -> Path:
    if source.is_file() and source.suffix == ".json":
        return source
    # A translator may have one tokenizer for each language; a text is taken as its source.
    for name in ("tokenizer.json", "source_tokenizer.json"):
        if (source / name).is_file():
            return source / name
    raise RegardError(
        f"'{source}' has no tokenizer.",
        "It is neither a run folder with a tokenizer nor a tokenizer.json.",
        f"Give one of them; or {TEXT_ALONE} with --merges to look at a text alone.",
    )
