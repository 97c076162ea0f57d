"""Games for two: each one file with its rules, behind the interface in `position`."""

from __future__ import annotations

import importlib

from regard.data.games.position import Position
from regard.errors import RegardError

GAMES = {
    "tic-tac-toe": "regard.data.games.tictactoe:TicTacToe",
    "othello": "regard.data.games.othello:Othello",
    "chess": "regard.data.games.chess:Chess",
}


def game_named(name: str) -> type[Position]:
    """The rules of this game, imported when they are first asked for."""
    module, _, attribute = GAMES[name].partition(":")
    try:
        game: type[Position] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != "chess":
            raise
        raise RegardError(
            "The rules of chess are not installed.",
            "They come from python-chess, which Regard does not need otherwise.",
            "Install them: pip install 'regard[chess]'",
        ) from None
    return game
