"""Made-up descriptions of made-up programs, each with a summary of one line, as many as you like.

None of these programs exists. A description begins with something beside the point, such as who wrote the program and
when. What it is, what for, where it runs and what is good about it stand in later sentences, in any order, in one of
several wordings; in between, other programs and earlier versions are named, which the summary must leave out:

    Tarulo was written by Nina Moss in 1994. It never leaves the terminal. Its early versions also knew small maps.
    What it handles are old letters. At heart it is a spell checker.
    ⟶ spell checker for old letters, in the terminal

    python -m regard.data.samples.package_descriptions --count 10
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from regard.data.samples.english_german import Corpus
from regard.data.samples.grammar import Pair


def _phrases(text: str) -> list[str]:
    return text.split("|")


KINDS = _phrases(
    "editor|viewer|player|converter|spell checker|search engine|archive|calculator|calendar|printer driver|"
    "backup tool|game|database|compiler|network monitor|drawing program|teaching aid|catalogue"
)
ADJECTIVES = _phrases("old|small|large|musical|medical|technical|handwritten|coloured|foreign|public|private|daily")
NOUNS = _phrases(
    "maps|letters|scores|photographs|recipes|timetables|invoices|poems|dictionaries|plans|drawings|reports|diaries|"
    "stamps|books|newspapers|tables|records|exercises|puzzles|films|catalogues|contracts|signs"
)
# What a summary says of a place or a merit, and the ways in which a description says it.
PLACES = {
    "in the terminal": ["It never leaves the terminal.", "All of it happens in the terminal.", "A terminal is enough."],
    "for the desktop": ["It opens a window on the desktop.", "It lives on the desktop.", "A desktop is needed."],
    "in the browser": ["It is used from a browser.", "Any browser can show it.", "A browser is all that it asks for."],
    "for servers": ["It waits on a server for work.", "It is installed on servers.", "A server runs it at night."],
    "on telephones": ["It fits on a telephone.", "It was made for telephones.", "A telephone is large enough for it."],
}
MERITS = {
    "fast": ["A thousand files take it a second.", "Nobody has to wait for it.", "It is done before you look."],
    "simple": ["A child can use it.", "It has three buttons.", "There is nothing to learn about it."],
    "light": ["It needs next to no memory.", "It runs on machines of long ago.", "It is smaller than its manual."],
    "safe": ["It has never lost a file.", "Every step can be taken back.", "What it writes is checked twice."],
    "": [""],
}
KIND_SAID = [
    "At heart it is {a}.",
    "It is best described as {a}.",
    "Most people use it as {a}.",
    "In short, it is {a}.",
]
OBJECT_SAID = ["What it handles are {o}.", "It was made for {o}.", "It deals with {o} only.", "Its subject is {o}."]
OPENINGS = [
    "{name} was written by {person} in {year}.",
    "{name} has been around since {year}.",
    "The first release of {name} is by {person}.",
    "{person} gave {name} its name in {year}.",
    "Of {name} there are {count} releases so far.",
]
BESIDE_THE_POINT = [
    "Its early versions also knew {o}.",
    "It has nothing to do with the {k} of the same name.",
    "Those who want {a} should look elsewhere.",
    "It cannot be used for {o}.",
    "The manual has {count} pages.",
    "{person} takes care of it today.",
    "Bugs are reported by mail.",
]
FIRST = _phrases("Anna|Boris|Clara|David|Elena|Frank|Greta|Hugo|Ines|Jonas|Karin|Leo|Marta|Nina|Oskar|Paula")
LAST = _phrases("Adler|Berg|Conti|Duval|Ekman|Falk|Garcia|Holm|Ito|Jensen|Keller|Lind|Moss|Novak|Olsen|Petit")
SYLLABLES = _phrases("ba|do|ka|lu|mi|no|pe|ra|si|ta|ve|zo")


def corpus(seed: int = 1, train: int = 12_000, valid: int = 500, test: int = 500) -> Corpus:
    everything = pairs(train + valid + test, seed)
    return Corpus(everything[:train], everything[train : train + valid], everything[train + valid :])


def pairs(count: int, seed: int = 1) -> list[Pair]:
    """`count` descriptions with their summaries; no summary comes twice, so none can be looked up."""
    rng = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        description, summary = describe(rng)
        found.setdefault(summary, description)
    return [(description, summary) for summary, description in found.items()]


def describe(rng: random.Random) -> Pair:
    kind, merit, place = rng.choice(KINDS), rng.choice([*MERITS]), rng.choice([*PLACES])
    thing = _thing(rng)

    def said(pattern: str, kind: str, thing: str) -> str:
        return pattern.format(
            name="".join(rng.choices(SYLLABLES, k=3)).capitalize(),
            person=f"{rng.choice(FIRST)} {rng.choice(LAST)}",
            year=rng.randrange(1985, 2025),
            count=rng.randrange(12, 99),
            k=kind,
            a=f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}",
            o=thing,
        )

    facts = [rng.choice(said) for said in (KIND_SAID, OBJECT_SAID, PLACES[place], MERITS[merit])]
    sentences = [said(pattern, kind, thing) for pattern in facts if pattern]
    for pattern in rng.sample(BESIDE_THE_POINT, rng.randrange(1, 4)):
        others = [other for other in KINDS if other != kind]
        sentences.append(said(pattern, rng.choice(others), _thing(rng)))
    rng.shuffle(sentences)
    opening = said(rng.choice(OPENINGS), kind, thing)
    return " ".join([opening, *sentences]), f"{merit} {kind} for {thing}, {place}".strip()


def _thing(rng: random.Random) -> str:
    return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print made-up descriptions of programs with their summaries.")
    parser.add_argument("--count", type=int, default=10, help="how many pairs (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other descriptions (default: 1)")
    options = parser.parse_args(arguments)
    for description, summary in pairs(options.count, options.seed):
        print(f"{description}\t{summary}")


if __name__ == "__main__":
    main()
