"""Games made by their rules: block by block, in processes of their own where there are many.

A block follows from its number alone, so it does not matter who makes it. A process hands it over as a file of numbers:
for each game its result, how many moves it has, and the moves.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from regard.data.games import game_named
from regard.data.games.position import Played
from regard.data.processes import cores, start_module

FORMAT = 1  # raised when the same numbers give other games
LOOKED_FOR_EVERY = 0.02  # seconds


@dataclass(frozen=True)
class Making:
    """What is to be made. `longest`: moves of a game, which counts as drawn if it is not over then."""

    game: str
    games: int
    perfect: float  # the share of players who play perfectly
    longest: int
    block: int  # games that are made together

    @property
    def blocks(self) -> int:
        return -(-self.games // self.block)

    def make(self, number: int) -> list[Played]:
        generator = np.random.default_rng([FORMAT, number])
        count = min(self.block, self.games - number * self.block)
        return game_named(self.game).random_games(count, generator, self.perfect, self.longest)


def made_blocks(making: Making, processes: int | None = None) -> Iterator[list[Played]]:
    """All games, in the order of the blocks; in this many processes, or as many as there are cores."""
    many = min(cores() if processes is None else processes, making.blocks // 2)
    with tempfile.TemporaryDirectory() as folder:
        workers: list[subprocess.Popen[bytes]] = []
        try:
            with suppress(OSError):  # too many processes: those that there are will do
                for first in range(many if many > 1 and sys.executable else 0):
                    arguments = [folder, str(first), str(many), *map(str, astuple(making))]
                    workers.append(start_module("regard.data.game_making", arguments))
            for number in range(making.blocks):
                worker = workers[number % many] if workers and number % many < len(workers) else None
                handed_over = _handed_over(Path(folder), number, worker) if worker is not None else None
                yield making.make(number) if handed_over is None else handed_over
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def _handed_over(folder: Path, number: int, worker: subprocess.Popen[bytes]) -> list[Played] | None:
    """A block that a process has made; None if it has ended without."""
    path = folder / f"{number}.npy"
    while not path.exists():
        if worker.poll() is not None and not path.exists():
            return None
        time.sleep(LOOKED_FOR_EVERY)
    numbers = np.load(path, allow_pickle=False).tolist()
    path.unlink()
    games, at = [], 0
    while at < len(numbers):
        result, length = numbers[at : at + 2]
        games.append(Played(result, numbers[at + 2 : at + 2 + length]))
        at += 2 + length
    return games


def main(arguments: Sequence[str]) -> None:
    """A process: makes every so many-th block, from the first given, and writes it to the folder."""
    folder, first, step, game, games, perfect, longest, block = arguments
    making = Making(game, int(games), float(perfect), int(longest), int(block))
    for number in range(int(first), making.blocks, int(step)):
        rows = ((played.result, len(played.moves), *played.moves) for played in making.make(number))
        whole = Path(folder) / f"{number}.npy"
        written = whole.with_suffix(".part.npy")
        np.save(written, np.fromiter((each for row in rows for each in row), np.int16), allow_pickle=False)
        written.rename(whole)


if __name__ == "__main__":
    main(sys.argv[1:])
