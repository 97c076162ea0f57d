"""Made-up conversations of two people, as many as you like, from a small grammar.

Nobody has said any of this. What is replied follows from what was said before, sometimes several turns before: who is
told a name or a wish is asked about it later.

    python -m regard.data.samples.small_talk --count 3
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass

NAMES = ["Anna", "Boris", "Clara", "David", "Elena", "Frank", "Greta", "Hugo", "Ines", "Jonas", "Karin", "Leo"]
PRICES = {"coffee": "two", "tea": "one", "soup": "four", "bread": "three", "cake": "five", "juice": "six"}
WEATHER = {"warm": "go for a swim", "cold": "light a fire", "wet": "stay inside", "windy": "fly a kite"}
PLACES = {
    "station": "left, and then straight on",
    "museum": "across the bridge",
    "library": "behind the church",
    "market": "right at the corner",
}


@dataclass(frozen=True)
class Corpus:
    """Conversations as lists of turns; no conversation is in two of the three lists."""

    train: list[list[str]]
    valid: list[list[str]]
    test: list[list[str]]


def corpus(seed: int = 1, train: int = 2_000, valid: int = 100, test: int = 100) -> Corpus:
    everything = conversations(train + valid + test, seed)
    return Corpus(everything[:train], everything[train : train + valid], everything[train + valid :])


def conversations(count: int, seed: int = 1) -> list[list[str]]:
    """So many different ones."""
    rng = random.Random(seed)
    found: dict[str, list[str]] = {}
    while len(found) < count:
        turns = converse(rng)
        found.setdefault("\n".join(turns), turns)
    return list(found.values())


def converse(rng: random.Random) -> list[str]:
    """Turns in pairs: what is said, and what is replied."""
    name, wish, wanted = rng.choice(NAMES), rng.choice([*PRICES]), rng.choice([*PLACES])
    weather = rng.choice([*WEATHER])
    hello = rng.choice(["Hello", "Good morning", "Hi"])
    topics = [
        [(f"I would like {wish}, please.", f"That is {PRICES[wish]} euros."), ("Here you are.", f"Enjoy your {wish}!")],
        [
            (f"Where is the {wanted}?", f"To the {wanted}? Go {PLACES[wanted]}."),
            ("Is it far?", "Five minutes on foot."),
        ],
        [(f"It is {weather} today.", f"Then let us {WEATHER[weather]}.")],
        [("What did I order?", f"You wanted {wish}."), ("And what does it cost?", f"It is {PRICES[wish]} euros.")],
        [("Do you know my name?", f"Of course, you are {name}.")],
    ]
    chosen = [topics[0], *rng.sample(topics[1:], rng.randrange(1, 4))]
    greeting = (f"{hello}, I am {name}.", f"{hello}, {name}. What can I do for you?")
    parting = rng.choice([("Thank you.", "You are welcome."), ("Goodbye!", f"Goodbye, {name}!")])
    return [turn for pair in (greeting, *(pair for topic in chosen for pair in topic), parting) for turn in pair]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print made-up conversations.")
    parser.add_argument("--count", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other conversations (default: 1)")
    options = parser.parse_args(arguments)
    print("\n\n".join("\n".join(turns) for turns in conversations(options.count, options.seed)))


if __name__ == "__main__":
    main()
