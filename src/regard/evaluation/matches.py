"""Matches: a model plays whole games against a player who chooses at random, or one who plays perfectly.

The model is told the result it is to reach, as the first word of the game, and makes the likeliest of the moves that
are allowed: it never makes another. How often it would have is counted: at its turns, whether the likeliest of all
moves is allowed.

All games of a match are played side by side, each one move further at a time.

Shapes: N games · W words · V moves that there can be
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.game_corpus import MOVES, RESULTS
from regard.data.games.position import DRAW, Position, best_moves
from regard.data.tokenizers import END
from regard.evaluation.classification import share_score
from regard.evaluation.metrics import Score
from regard.models.causal import Causal

OPPONENTS: dict[str, Callable[[Position], list[int]]] = {
    "random": lambda position: position.legal,
    "perfect": best_moves,
}


@dataclass(frozen=True)
class Pairing:
    """Who plays whom, and for what."""

    opponent: str  # random · perfect
    side: int  # of the model
    wish: int  # the result that the model is asked for

    @property
    def aim(self) -> str:
        return "draws" if self.wish == DRAW else "wins"

    def name(self, game: type[Position]) -> str:
        return f"{self.aim}_{game.sides[self.side]}_{self.opponent}"


@dataclass(frozen=True)
class Match:
    """How the games ended for the model."""

    won: int
    drawn: int
    lost: int
    unfinished: int  # longer than the games that the model has learned from
    turns: int  # of the model
    illegal: int  # at how many of them the likeliest of all moves was not allowed

    @property
    def games(self) -> int:
        return self.won + self.drawn + self.lost + self.unfinished

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def pairings(game: type[Position]) -> list[Pairing]:
    """To win against chance, as both sides; and where somebody can play perfectly, to draw against that."""
    pairs = [Pairing("random", side, side) for side in (0, 1)]
    return [*pairs, *(Pairing("perfect", side, DRAW) for side in (0, 1))] if game.solved else pairs


def match_score(pairing: Pairing, match: Match, game: type[Position]) -> Score:
    """The share of games in which the model reached what it was asked for, with Wilson's interval."""
    reached = match.drawn if pairing.wish == DRAW else match.won
    score = share_score(pairing.name(game), reached, match.games)
    open_games = f", {match.unfinished:,} not ended" if match.unfinished else ""
    what = (
        f"asked to {'draw' if pairing.wish == DRAW else 'win'} as {game.sides[pairing.side]} against "
        f"{'a perfect player' if pairing.opponent == 'perfect' else 'random moves'}: {match.won:,} won, "
        f"{match.drawn:,} drawn, {match.lost:,} lost{open_games}"
    )
    return Score(score.name, score.value, score.interval, f"{what} · {score.signature}")


@torch.inference_mode()
def play_match(model: Causal, game: type[Position], pairing: Pairing, games: int, longest: int, seed: int = 1) -> Match:
    """`longest`: moves after which a game is given up. The opponent's choices follow from the seed."""
    model.eval()
    device = next(model.parameters()).device
    generator = np.random.default_rng([seed, pairing.side, pairing.wish, list(OPPONENTS).index(pairing.opponent)])
    opponent = OPPONENTS[pairing.opponent]
    positions: list[Position] = [game.start() for _ in range(games)]
    state = model.start(games, longest + 1)
    words_N = np.full(games, RESULTS + pairing.wish)
    turns = illegal = 0
    for _ in range(longest):
        moves_NV = model.step(torch.from_numpy(words_N).to(device), state)[:, MOVES:].float().cpu().numpy()
        words_N = np.full(games, END)
        for number, position in enumerate(positions):
            if position.result is not None:
                continue
            legal = position.legal
            if position.side == pairing.side:
                move = likeliest_allowed(moves_NV[number], legal)
                turns, illegal = turns + 1, illegal + (int(moves_NV[number].argmax()) not in legal)
            else:
                choice = opponent(position)
                move = choice[int(generator.integers(len(choice)))]
            words_N[number] = MOVES + move
            positions[number] = position.play(move)
        if (words_N == END).all():
            break
    results = [position.result for position in positions]
    won, drawn = results.count(pairing.side), results.count(DRAW)
    return Match(won, drawn, results.count(1 - pairing.side), results.count(None), turns, illegal)


def likeliest_allowed(moves_V: NDArray[np.float32], legal: list[int]) -> int:
    """The move that the model finds likeliest, of those that are allowed."""
    return legal[int(moves_V[legal].argmax())]
