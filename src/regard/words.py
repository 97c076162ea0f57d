"""Words for messages: numbers with their nouns and verbs, and articles."""

from __future__ import annotations

PLURAL = {"is": "are", "has": "have", "was": "were"}  # other verbs lose their s


def counted(count: int, one: str, verb: str = "") -> str:
    """`1 box`, `2 boxes`; with a verb, `1 box is`, `2 boxes are`."""
    noun = one if count == 1 else plural(one)
    if verb and count != 1:
        verb = PLURAL.get(verb, verb.removesuffix("s"))
    return f"{count:,} {noun} {verb}".rstrip()


def plural(one: str) -> str:
    if one.endswith(("x", "s", "ch", "sh")):
        return one + "es"
    if one.endswith("y") and one[-2] not in "aeiou":
        return one[:-1] + "ies"
    return one + "s"


def with_article(noun: str) -> str:
    """`a model`, `an image`; going by the first letter."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"
