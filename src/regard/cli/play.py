"""`regard play`: a game against a trained model, in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard import console
from regard.cli.app import DeviceOption, RunArgument, app, number_option
from regard.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from regard.data.games.position import Position

HELP = "Type a move, or: moves (all that are allowed), undo, quit."


@app.command()
def play(
    run: RunArgument,
    side: Annotated[
        str | None,
        typer.Option(help="Your side: x or o, black or white; none: the model plays itself.", show_default="first"),
    ] = None,
    wish: Annotated[str, typer.Option(help="What the model is asked for: win, draw or lose.")] = "win",
    top: Annotated[
        int, number_option("Show this many moves that the model considers, with probabilities.", least=0)
    ] = 0,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the game as JSON when it ends.")] = False,
) -> None:
    """Play a game against a model.

    regard play runs/tictactoe --side o

    You move first unless --side says otherwise. The model makes the likeliest move that is allowed, never another.
    Moves may also come from a pipe, one on a line; the game ends with them.
    """
    from regard.run import load_weights, open_run, require

    task: Any = open_run(run)
    require(task, "play")
    sides = (*task.game.sides, "none")
    if side is not None and side not in sides:
        raise UsageError(f"There is no side '{side}'.", "It is who you play.", did_you_mean(side, sides))
    own = 0 if side is None else sides.index(side)
    task.wished(wish, 0)
    table = _Table(load_weights(task, device), own, wish, top, quiet=as_json)
    table.play(_typed(show_prompt=not as_json))
    if as_json:
        print(json.dumps(table.to_json(), ensure_ascii=False))


def _typed(show_prompt: bool) -> Iterator[str]:
    """Lines from a person or a pipe; ends with Ctrl-D, or the pipe."""
    person = sys.stdin is not None and sys.stdin.isatty()
    while sys.stdin is not None:
        if person and show_prompt:
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            if person and show_prompt:
                print()
            return
        yield line.strip()


class _Table:
    """A game in progress: the positions so far, who plays which side, and what is said about it."""

    def __init__(self, model: Any, own: int, wish: str, top: int, quiet: bool):
        self.model, self.own, self.wish, self.top, self.quiet = model, own, wish, top, quiet
        self.game: type[Position] = model.game
        self.positions: list[Position] = [self.game.start()]
        self.moves: list[str] = []
        self.not_allowed = 0  # how often the model found a move likeliest that is not

    def play(self, lines: Iterator[str]) -> None:
        """Until the game is over, or there are no more lines."""
        if self.own < 2:
            other = self.game.sides[1 - self.own]
            self.say(f"You are {self.game.sides[self.own]}; the model, asked to {self.wish}, is {other}. {HELP}")
        self.show()
        while self.position.result is None:
            if self.position.side != self.own:
                self.answer()
            elif (line := next(lines, None)) is None or line in ("quit", "exit"):
                self.say("The game is not over. Bye.")
                return
            else:
                self.read(line)
        self.say("Draw." if self.result == "draw" else f"{self.result} wins.".capitalize())

    @property
    def position(self) -> Position:
        return self.positions[-1]

    @property
    def result(self) -> str | None:
        result = self.position.result
        return None if result is None else self.game.result_names()[result]

    def answer(self) -> None:
        """The model moves."""
        choice = self.model.play(self.moves, self.wish)
        for word, probability in choice.all[: self.top]:
            self.say(f"  {word:<6} {probability:6.1%}")
        note = "" if choice.legal else f" (it would have liked {choice.likeliest}, which is not allowed)"
        self.not_allowed += not choice.legal
        self.say(f"{self.game.sides[self.position.side]} plays {choice.move}{note}")
        self.move(choice.move)
        self.show()

    def read(self, line: str) -> None:
        """What a person has typed: a move, or a wish about the game."""
        word = line.lower()
        allowed = [self.game.words[move] for move in self.position.legal]
        if word in allowed:
            self.move(word)
            if self.result or self.position.side == self.own:  # the model does not answer
                self.show()
        elif word == "undo":
            self.undo()
        elif word in ("moves", "?", "help", ""):
            self.say(f"Allowed: {' '.join(allowed)}" if word in ("moves", "?") else HELP)
        elif word in self.game.words:
            console.say(f"{word} is not allowed here. Allowed: {' '.join(allowed[:20])}{' …' * (len(allowed) > 20)}")
        else:
            console.say(f"'{line[:40]}' is not a move. A move is written like {allowed[0]}. {HELP}")

    def move(self, word: str) -> None:
        self.positions.append(self.position.play(self.game.words.index(word)))
        self.moves.append(word)
        side = self.position.side
        if not self.result and side == self.positions[-2].side:
            self.say(f"{self.game.sides[1 - side].capitalize()} cannot move, and passes.")

    def undo(self) -> None:
        """Back to where the person moved last."""
        turns = [number for number in range(len(self.moves)) if self.positions[number].side == self.own]
        if not turns:
            self.say("There is no move of yours to take back.")
            return
        del self.positions[turns[-1] + 1 :], self.moves[turns[-1] :]
        self.show()

    def show(self) -> None:
        self.say(f"\n{self.position.show()}\n")

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, flush=True)

    def to_json(self) -> dict[str, Any]:
        return {
            "side": self.game.sides[self.own] if self.own < 2 else None,
            "wish": self.wish,
            "moves": self.moves,
            "result": self.result,
            "model_preferred_illegal": self.not_allowed,
        }
