"""Short made-up stories with questions: people move, take things and put them down.

    Mary went to the kitchen. John took the ball. John left the ball in the garden. Mary ran to the attic.
    Where is Mary?   attic

The world is kept beside the text: who is where, who holds what, what lies where, and which sentence says so. So the
answer to a question and its place in the story are known. Where the story does not say, there is no answer. What holds
at the end is asked for, and what came before leads astray.

    python -m regard.data.samples.stories --count 3
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.data.samples.english_german import Corpus

PEOPLE = ("Anna", "Ben", "Clara", "Felix", "John", "Mary")
PLACES = ("kitchen", "garden", "office", "cellar", "attic", "garage")
THINGS = ("ball", "book", "lamp", "letter", "hat", "key")
MOVES = ("went to", "walked to", "ran to")
TAKES = ("took", "found", "grabbed")
DROPS = ("dropped", "put", "left")
MOST = 4  # sentences of a story after everybody is there
QUESTIONS = 3  # of a story, at most, that it answers
UNTOLD = "nobody knows"  # the answer in words where a story does not say
WITHOUT = 0.3  # the share of stories that are asked for what they do not tell


class StoryQuestion(NamedTuple):
    """`start` is where in the story the answer stands; an empty answer: the story does not say."""

    question: str
    story: str
    answer: str
    start: int


class Mention(NamedTuple):
    """A word of the story, and the character that it starts at."""

    word: str
    start: int


@dataclass(frozen=True)
class Stories:
    """No story is in two of the three lists."""

    train: list[StoryQuestion]
    valid: list[StoryQuestion]
    test: list[StoryQuestion]


def stories(seed: int = 1, train: int = 12_000, valid: int = 200, test: int = 400) -> Stories:
    """The questions about so many different stories."""
    rng = random.Random(seed)
    told: dict[str, World] = {}
    while len(told) < train + valid + test:
        world = World(rng)
        told.setdefault(world.text, world)
    every = [world.questions() for world in told.values()]
    parts = every[:train], every[train : train + valid], every[train + valid :]
    return Stories(*([question for asked in part for question in asked] for part in parts))


def corpus() -> Corpus:
    """The same to be answered in words: a question with its story, and the answer."""
    every = stories()
    return Corpus(
        *(
            [(f"{asked.question} {asked.story}", asked.answer or UNTOLD) for asked in part]
            for part in (every.train, every.valid, every.test)
        )
    )


@dataclass
class World:
    """A story while it is told, and what is true at its end."""

    rng: random.Random
    text: str = ""
    place_of: dict[str, Mention] = field(default_factory=dict)  # where each person is
    holder_of: dict[str, Mention] = field(default_factory=dict)  # who holds each thing
    left_in: dict[str, Mention] = field(default_factory=dict)  # where each thing was put down

    def __post_init__(self) -> None:
        choose, chance = self.rng.choice, self.rng.random
        people = self.rng.sample(PEOPLE, self.rng.randint(2, 3))
        things = self.rng.sample(THINGS, 2)
        # Everybody is somewhere at first: in a story of one person alone, nobody need read who is asked for.
        for person in people:
            self._move(person)
        # Most stories are short: who does what is learned from them, and what holds at the end from the others.
        for _ in range(self.rng.randint(0, self.rng.randint(1, MOST))):
            person = choose(people)
            held = [thing for thing, holder in self.holder_of.items() if holder.word == person]
            free = [thing for thing in things if thing not in self.holder_of]
            if held and chance() < 0.6:
                self._drop(person, choose(held))
            elif free and chance() < 0.4:
                self._take(person, choose(free))
            else:
                self._move(person)

    def _move(self, person: str) -> None:
        here = self.place_of.get(person)
        place = self.rng.choice([place for place in PLACES if here is None or place != here.word])
        _, self.place_of[person] = self._say(person, f"{self.rng.choice(MOVES)} the", place)

    def _take(self, person: str, thing: str) -> None:
        self.holder_of[thing], _ = self._say(person, f"{self.rng.choice(TAKES)} the", thing)
        self.left_in.pop(thing, None)

    def _drop(self, person: str, thing: str) -> None:
        place = self.rng.choice(PLACES)
        _, self.left_in[thing] = self._say(person, f"{self.rng.choice(DROPS)} the {thing} in the", place)
        del self.holder_of[thing]

    def _say(self, person: str, does: str, what: str) -> tuple[Mention, Mention]:
        """Add a sentence; where its first and its last word stand."""
        first = len(self.text) + bool(self.text)
        self.text += f"{' ' if self.text else ''}{person} {does} {what}."
        return Mention(person, first), Mention(what, len(self.text) - 1 - len(what))

    def questions(self) -> list[StoryQuestion]:
        """Some of what can be asked about the story, answers that it does not have among them."""
        where_is = {f"Where is {person}?": self.place_of.get(person) for person in PEOPLE}
        has = {f"Who has the {thing}?": self.holder_of.get(thing) for thing in THINGS}
        where_lies = {f"Where is the {thing}?": self.left_in.get(thing) for thing in THINGS}
        every: dict[str, Mention | None] = where_is | has | where_lies
        known = [question for question, answer in every.items() if answer]
        unknown = [question for question, answer in every.items() if not answer]
        chosen = {question: every[question] for question in self.rng.sample(known, min(QUESTIONS, len(known)))}
        if self.rng.random() < WITHOUT:
            chosen[self.rng.choice(unknown)] = None
        return [
            StoryQuestion(question, self.text, answer.word if answer else "", answer.start if answer else -1)
            for question, answer in chosen.items()
        ]


def some(count: int, seed: int = 1) -> Iterator[StoryQuestion]:
    """The questions about this many stories."""
    yield from stories(seed, train=count, valid=0, test=0).train


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print stories with questions: question, story and answer.")
    parser.add_argument("--count", type=int, default=3, help="how many stories (default: 3)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other stories (default: 1)")
    options = parser.parse_args(arguments)
    for asked in some(options.count, options.seed):
        print(f"{asked.question}\t{asked.story}\t{asked.answer}")


if __name__ == "__main__":
    main()
