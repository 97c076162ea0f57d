"""Games to learn from: read from files, or made by their rules; each checked, and written as words.

    <result> move move … <end>          the result stands first, so that a model can be asked for it

A line of a file has a result (x, o, draw; black, white; or 1-0, 0-1, 1/2-1/2) and moves set apart by spaces, in two of
its columns. Chess is read from PGN too. A game that breaks the rules is left out and counted; the first few are named.

Games that are made are the same for every seed, as a file would be: block by block, they follow from the number of the
block. What is held out is decided by a hash of the moves: no game is in two splits.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from regard import console
from regard.data.cache import cache_folder, cached
from regard.data.fingerprints import fingerprint
from regard.data.game_making import Making, made_blocks
from regard.data.games import game_named
from regard.data.games.position import Played, Position
from regard.data.lines import numbered_lines, open_file, readable
from regard.data.ragged import Ragged
from regard.data.splits import SPLITS, Division, divided, hash_fraction, named_path
from regard.data.tokenizers import END, SPECIALS
from regard.errors import RegardError
from regard.settings import FileList, GameData

RESULTS = len(SPECIALS)  # the word of the first result
MOVES = RESULTS + 3  # and of the first move
BLOCK = 10_000  # games that are written together
NAMED = 3  # games left out that are named
FORMAT = 1  # raised when the same files or rules give other words

Paths = tuple[Path, ...]


def vocabulary_size(game: type[Position]) -> int:
    return MOVES + len(game.words)


@dataclass(frozen=True)
class Games:
    """Games as words, and what was left out: why, with file and line."""

    words: Ragged
    left_out: list[str] = field(default_factory=list)  # the first few
    bad: int = 0  # all of them

    def __len__(self) -> int:
        return len(self.words)

    def moves(self, number: int) -> list[int]:
        """Of one game."""
        row = self.words[number].astype(int)
        return [word - MOVES for word in row.tolist() if word >= MOVES]

    @property
    def results(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return self.words.ids[self.words.offsets[:-1]].astype(np.int64) - RESULTS

    def evenly(self, most: int) -> Games:
        """At most this many of the games, from the first to the last."""
        if len(self) <= most:
            return self
        return Games(self.words.take(np.linspace(0, len(self) - 1, most).astype(np.int64)))


@dataclass(frozen=True)
class GameSource:
    """Where the games of a split come from."""

    data: GameData
    split: str
    files: Paths = ()  # none: they are made
    division: Division | None = None

    @property
    def fingerprint(self) -> str:
        made = () if self.files else (self.data.games, self.data.perfect, self.data.longest)
        return fingerprint(self.files, FORMAT, self.data.game, self.data.columns, made, self.split, self.division)

    def read(self) -> Games:
        """From the cache, if the same files were read before, or the same games made."""
        made = () if self.files else (self.data.games, self.data.perfect, self.data.longest)
        pgn = [path.name.partition(".")[2].startswith("pgn") for path in self.files]
        content = fingerprint(self.files, FORMAT, self.data.game, self.data.columns, made, pgn)
        folder = cached(cache_folder(self.data.cache), ["games", content], self._write)
        fractions_N = np.load(folder / "fractions.npy")
        words = Ragged(np.load(folder / "words.npy", mmap_mode="r"), np.load(folder / "offsets.npy"))
        if self.division is not None:
            low, high = self.division.range_of(self.split)
            words = words.take(np.flatnonzero((fractions_N >= low) & (fractions_N < high)))
        told = json.loads((folder / "left_out.json").read_text(encoding="utf-8"))
        return Games(words, told["named"], told["count"])

    def _write(self, folder: Path) -> None:
        game = game_named(self.data.game)
        left_out: list[str] = []
        played = _read_files(self.files, self.data, game, left_out) if self.files else _made(self.data, game)
        words, lengths, fractions = [], [], []
        for block in _blocks(played):
            rows = [[RESULTS + each.result, *(MOVES + move for move in each.moves), END] for each in block]
            words.append(np.fromiter(itertools.chain.from_iterable(rows), np.uint16))
            lengths += [len(row) for row in rows]
            fractions += [hash_fraction(np.array(each.moves, "<u2").tobytes()) for each in block]
        np.save(folder / "words.npy", np.concatenate(words) if words else np.zeros(0, np.uint16))
        np.save(folder / "offsets.npy", np.cumsum([0, *lengths], dtype=np.int64))
        np.save(folder / "fractions.npy", np.array(fractions, np.float64))
        told = {"count": len(left_out), "named": left_out[:NAMED]}
        (folder / "left_out.json").write_text(json.dumps(told), encoding="utf-8")


def game_splits(data: GameData) -> dict[str, GameSource]:
    """What each split is read from. Quick: nothing is read."""
    if not data.train:
        files = {split: _paths(getattr(data, split), data, split) for split in ("valid", "test")}
        placeholder: Paths = (Path(),)  # stands for games that are made
        parts = divided({"train": placeholder, **files}, data.held_out)
        return {
            split: GameSource(data, split, () if paths is placeholder else paths, division)
            for split, (paths, division) in parts.items()
        }
    named = {split: _paths(getattr(data, split), data, split) for split in SPLITS}
    return {
        split: GameSource(data, split, paths, division)
        for split, (paths, division) in divided(named, data.held_out).items()
    }


def game_files(files: FileList, data: GameData) -> GameSource:
    """Other games, in the form of the run's own."""
    return GameSource(data, "test", _paths(files, data.model_copy(update={"root": "."}), "test"))


def told_of_bad_games(games: Games) -> str:
    more = " …" if games.bad > len(games.left_out) else ""
    return (
        f"{games.bad:,} game{'s are' if games.bad > 1 else ' is'} left out, being against the rules or unreadable: "
        f"{'; '.join(games.left_out)}{more}"
    )


def warn_of_bad_games(games: Games) -> None:
    if games.bad:
        console.warn(told_of_bad_games(games))


def _paths(files: FileList, data: GameData, split: str) -> Paths:
    example = '["games.tsv", "more.tsv"]'
    return tuple(named_path(file, data.root, f"data.{split}", example) for file in files)  # type: ignore[arg-type]


def _blocks(played: Iterable[Played]) -> Iterator[list[Played]]:
    """Some thousand at a time: lists of Python's numbers take much memory."""
    iterator = iter(played)
    while block := list(itertools.islice(iterator, BLOCK)):
        yield block


# ------------------------------------------------------------ made, or read


def _made(data: GameData, game: type[Position]) -> Iterator[Played]:
    console.say(f"Making {data.games:,} games of {data.game}.")
    for block in made_blocks(Making(data.game, data.games, data.perfect, data.longest, game.block)):
        yield from block


def _read_files(files: Paths, data: GameData, game: type[Position], left_out: list[str]) -> Iterator[Played]:
    """All games that can be used; `left_out` is told of the others."""
    numbers = {word: number for number, word in enumerate(game.words)}
    for path in files:
        if path.is_dir():
            raise RegardError(f"'{path}' is a folder.", "Games are in files, one on a line.", "Name the files in it.")
        with readable(path), open_file(path) as file:
            if ".pgn" in path.suffixes:
                if data.game != "chess":
                    raise RegardError(
                        f"'{path}' cannot hold games of {data.game}.",
                        "A .pgn is read as chess.",
                        'Set data.game = "chess", or name files with a game on each line.',
                    )
                unit = "game"
                source = _pgn_games(io.TextIOWrapper(file, "utf-8", errors="replace"))
            else:
                unit = "line"
                source = (
                    (line.number, line.problem, *_columns(line.text, data.columns)) for line in numbered_lines(file)
                )
            for number, problem, result, moves in source:
                try:
                    yield _checked(game, numbers, problem, result, moves)
                except ValueError as error:
                    left_out.append(f"{path.name}, {unit} {number:,}: {error}")


def _columns(line: str, columns: list[int]) -> tuple[str, list[str]]:
    parts = line.split("\t")
    result, moves = (parts[column] if column < len(parts) else "" for column in columns)
    return result.strip(), moves.split()


def _checked(game: type[Position], numbers: dict[str, int], problem: str, result: str, words: list[str]) -> Played:
    """A game by the rules; a ValueError says what it breaks."""
    if problem:
        raise ValueError(problem.rstrip("."))
    outcome = game.read_result(result)
    if outcome is None:
        raise ValueError(f"the result '{result[:20]}' is not one of {', '.join(game.result_names())}")
    if not words:
        raise ValueError("there are no moves")
    for word in words:
        if word not in numbers:
            raise ValueError(f"'{word[:20]}' is not a move")
    moves = [numbers[word] for word in words]
    end = game.replay(moves)[-1].result
    if end is not None and end != outcome:
        raise ValueError(f"the result is {game.result_names()[end]}, not {result}")
    return Played(outcome, moves)


def _pgn_games(file: io.TextIOWrapper) -> Iterator[tuple[int, str, str, list[str]]]:
    """Number, problem, result and moves of each game of a PGN. The number is that of the game."""
    import chess.pgn

    logging.getLogger("chess.pgn").setLevel(logging.CRITICAL)  # what is wrong with a game is told once, by us
    for number in itertools.count(1):
        game = chess.pgn.read_game(file)
        if game is None:
            return
        problem = str(game.errors[0]) if game.errors else ""
        if not problem and game.board().fen() != chess.STARTING_FEN:
            problem = "it does not begin with the usual position"
        yield number, problem, game.headers.get("Result", "*"), [move.uci() for move in game.mainline_moves()]
