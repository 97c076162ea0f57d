"""How well a model of games knows the rules: on games of others, at every position where a move follows.

    legal       share of positions where the likeliest of all moves is allowed
    legal_mass  Σ p(allowed moves) / Σ p(all moves), the mean over positions

Shapes: B games · T positions · W words of the vocabulary · V moves that there can be · N games · R results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.game_batches import GameBatch, game_batch
from regard.data.game_corpus import MOVES, RESULTS, Games
from regard.data.games.position import Position
from regard.hardware import Hardware
from regard.training.loss import cross_entropy
from regard.training.measure import Room, outputs, sums
from regard.training.processes import ALONE, Processes


@dataclass(frozen=True)
class JudgedBatch(GameBatch):
    """Games, and which moves are allowed at each position: [B, T, V]; none where no move follows."""

    legal_BTV: Tensor


@dataclass(frozen=True)
class JudgedGames:
    """Games with the moves that were allowed in them, worked out once."""

    games: Games
    legal: list[list[list[int]]]  # of each game, of each position where a move follows

    @classmethod
    def of(cls, games: Games, game: type[Position], length: int) -> JudgedGames:
        """`length`: how many positions of a game are read."""
        legal = []
        for number in range(len(games)):
            moves = games.moves(number)[:length]
            legal.append([position.legal for position in game.replay(moves)[: len(moves)]])
        return cls(games, legal)

    def batches(self, rows: int, length: int, game: type[Position]) -> Iterator[JudgedBatch]:
        for start in range(0, len(self.games), rows):
            numbers = np.arange(start, min(start + rows, len(self.games)))
            batch = game_batch(self.games.words.take(numbers), length)
            legal_BTV = torch.zeros(len(numbers), length, len(game.words), dtype=torch.bool)
            for row, number in enumerate(numbers):
                for at, moves in enumerate(self.legal[number]):
                    legal_BTV[row, at, moves] = True
            yield JudgedBatch(batch.labels, batch.tokens_BT, legal_BTV)


@torch.inference_mode()
def judge(
    model: nn.Module,
    batches: Iterator[JudgedBatch],
    logits_of: Callable[[GameBatch], Tensor],
    hardware: Hardware,
    processes: Processes = ALONE,
) -> dict[str, float]:
    """Loss, accuracy, and how much of what the model expects is allowed; all but the loss in percent."""

    def compute(batch: JudgedBatch) -> Tensor:
        logits_BTW = logits_of(batch).float()
        real_BT = batch.labels != batch.nothing
        right_BT = (logits_BTW.argmax(-1) == batch.labels) & real_BT
        moves_BTV, asked_BT = logits_BTW[..., MOVES:], batch.legal_BTV.any(-1)
        likeliest_BT = batch.legal_BTV.gather(-1, moves_BTV.argmax(-1, keepdim=True))[..., 0]
        mass_BT = (moves_BTV.softmax(-1) * batch.legal_BTV).sum(-1)
        loss = cross_entropy(logits_BTW, batch.labels, ignore=batch.nothing)
        counts = (real_BT.sum(), right_BT.sum(), asked_BT.sum(), likeliest_BT.sum(), mass_BT.sum())
        return torch.stack([loss.double(), *(count.double() for count in counts)])

    found = sums(model, batches, compute, hardware, processes).tolist() or [0.0] * 6
    loss, targets, right, moves, legal, mass = found
    return {
        "loss": loss / max(targets, 1),
        "accuracy": 100 * right / max(targets, 1),
        "legal": 100 * legal / max(moves, 1),
        "legal_mass": 100 * mass / max(moves, 1),
    }


@torch.inference_mode()
def likeliest_results(
    model: nn.Module,
    batches: Iterator[GameBatch],
    logits_of: Callable[[GameBatch], Tensor],
    hardware: Hardware,
    processes: Processes = ALONE,
) -> NDArray[np.int64]:
    """For each game, the result that makes its moves likeliest: argmax_r p(moves | r), [N]."""

    def compute(batch: GameBatch) -> Tensor:
        log_p_RB = []
        for result in range(3):
            tokens_BT = batch.tokens_BT.clone()
            tokens_BT[:, 0] = RESULTS + result
            log_p_BTW = logits_of(GameBatch(batch.labels, tokens_BT)).float().log_softmax(-1)
            log_p_BT = log_p_BTW.gather(-1, batch.labels[..., None])[..., 0]
            log_p_RB.append((log_p_BT * (batch.labels != batch.nothing)).sum(-1))
        return torch.stack(log_p_RB).argmax(0).cpu()

    room = Room()

    def of_batch(batch: GameBatch) -> NDArray[np.int64]:
        return np.concatenate([each.numpy() for _, each in outputs(model, [batch], compute, hardware, room)])

    return np.concatenate(processes.each(batches, of_batch))
