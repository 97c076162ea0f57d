"""Labelled texts for claims about classification: what a sentence of the built-in English speaks of.

    The aunt bought the eggs.                       food
    We see a black horse.                           animal
    He drove into the city. This is cold milk.      two sentences: place, then food

A sentence has a topic if it names things of one kind only; people are of none. `texts` joins sentences, so that a label
can be a matter of the words (all sentences have the same topic: which?) or of their order alone (two topics: which
comes first?). Training and test texts share no sentence.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache

from regard.claims.frame.claim import Budget
from regard.claims.frame.trainings import made_once
from regard.data.labelled import Example
from regard.data.samples import english_german
from regard.data.samples.lexicon import NOUNS

# Topics by the kinds that the lexicon gives its nouns.
TOPICS = {
    "animal": "animal",
    "food": "food drink",
    "place": "enterable landmark destination town",
    "thing": "readable gift furniture vehicle openable",
}
NAMES = sorted(TOPICS)


@cache
def topics_of_words() -> dict[str, str]:
    """The topic of every noun that has one."""
    forms = ((form, noun) for noun in NOUNS for form in (noun.english, noun.english_plural) if form)
    fitting = ((form, name) for form, noun in forms for name in NAMES if _shares(TOPICS[name], noun.kinds))
    return dict(fitting)


def _shares(one: str, other: str) -> bool:
    return not set(one.split()).isdisjoint(other.split())


def topic(sentence: str) -> str:
    """What a sentence speaks of; nothing if that is several things, or none."""
    found = {topics_of_words().get(word, "") for word in re.findall(r"\w+", sentence.lower())} - {""}
    return found.pop() if len(found) == 1 else ""


def sentences(seed: int, longest: int = 15) -> Iterator[Example]:
    """Endless sentences of up to so many words, each with its topic; topics take turns, and no sentence comes twice."""
    waiting: dict[str, list[str]] = {name: [] for name in NAMES}
    turn, seen = itertools.cycle(NAMES), set()
    wanted = next(turn)
    for english, _ in english_german.sentences(seed):
        if english not in seen and len(english.split()) <= longest and (found := topic(english)):
            seen.add(english)
            waiting[found].append(english)
        while waiting[wanted]:
            yield Example(wanted, waiting[wanted].pop())
            wanted = next(turn)


@cache
def some_sentences(count: int, seed: int, longest: int = 15) -> tuple[Example, ...]:
    """The first ones, made once for all claims."""
    return tuple(itertools.islice(sentences(seed, longest), count))


def texts(examples: Sequence[Example], count: int, seed: int, same: bool) -> list[Example]:
    """Texts of two sentences each, of the same topic or of two, labelled with the topic of the first."""
    draw = random.Random(seed)
    made: list[Example] = []
    while len(made) < count:
        one, other = draw.choice(examples), draw.choice(examples)
        if (one.label == other.label) == same:
            made.append(Example(one.label, f"{one.text} {other.text}"))
    return made


def classifier(budget: Budget, name: str, train: Sequence[Example], test: Sequence[Example], steps: int) -> list[str]:
    """The settings of a small classifier of these texts, for the recipe `trec`."""
    layers, dropout, rate = budget.choose(tiny=(1, 0.0, 0.01), normal=(2, 0.1, 0.005))
    splits = {
        "train": train,
        "valid": test[:20],
        "test": test,
    }  # the last checkpoint is the model, whatever `valid` says
    folder = made_once(budget, name, lambda: {f"{split}.tsv": _tsv(examples) for split, examples in splits.items()})
    return [
        *(f'data.{split}=["{folder.resolve() / split}.tsv"]' for split in splits),
        'data.form="tsv"',
        'data.label_until=""',
        "data.max_length=32",
        f"model.layers={layers}",
        "model.width=32",
        "model.feedforward=64",
        f"model.dropout={dropout}",
        f"training.steps={steps}",
        f"training.warmup={steps // 10}",
        f"training.validate_every={steps}",
        "training.tokens_per_batch=512",
        "training.row_length=32",
        f"training.learning_rate={rate}",
    ]


def _tsv(examples: Sequence[Example]) -> str:
    return "".join(f"{example.label}\t{example.text}\n" for example in examples)
