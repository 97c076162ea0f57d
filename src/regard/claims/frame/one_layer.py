"""The model of "Transformers as Support Vector Machines" (Tarzanagh et al., 2023): one layer, one query a sequence.

    f(X, z) = vᵀ Xᵀ softmax(X W z)         loss = log(1 + exp(−y f))         v is fixed, W is trained

Token t of a sequence is worth γ_t = y vᵀ x_t. Training is gradient descent with steps of constant length, from W = 0:

    W ← W − η ∇ / ‖∇‖         ∇ = −Σ σ(−y f) Σ_t Σ_s p_t p_s (γ_t − γ_s) x_t zᵀ          p: the weights

The double sum is written in logarithms and divided by its largest term. So the direction is exact long after p has
become 1 and 0 in any floating-point type; only the direction is used.

Shapes: S seeds · N sequences · T tokens · D width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.claims.frame.max_margin import Floats

STEP = 0.1
MARKS = (200, 500, 1000, 2000)  # steps after which W is looked at; the last is the end


@dataclass(frozen=True)
class Problems:
    """One for each seed: what is attended to, the queries, and what each token is worth."""

    x_SNTD: Tensor
    z_SND: Tensor
    gains_SNT: Tensor

    @classmethod
    def draw(cls, seeds: Sequence[int], sequences: int = 6, tokens: int = 8, width: int = 10) -> Problems:
        """Tokens, queries and v of length one in random directions, random labels; in float64."""
        parts = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            x_NTD, z_ND, v_D = (
                F.normalize(torch.randn(*shape, width, generator=generator, dtype=torch.float64), dim=-1)
                for shape in ((sequences, tokens), (sequences,), ())
            )
            y_N1 = 2.0 * torch.randint(2, (sequences, 1), generator=generator) - 1
            parts.append((x_NTD, z_ND, y_N1 * (x_NTD @ v_D)))
        return cls(*(torch.stack(part) for part in zip(*parts, strict=True)))

    @classmethod
    def draw_self_attention(cls, seeds: Sequence[int], sequences: int, tokens: int, width: int) -> Problems:
        """Sequence to sequence: every token is a query of its own sequence, with a label of its own."""
        one = cls.draw(seeds, sequences, tokens, width)
        signs = [torch.Generator().manual_seed(10_000 + seed) for seed in seeds]
        y_SNT1 = torch.stack([2.0 * torch.randint(2, (sequences, tokens, 1), generator=sign) - 1 for sign in signs])
        x_SMTD = one.x_SNTD.repeat_interleave(tokens, 1)  # M = N · T queries
        return cls(x_SMTD, one.x_SNTD.flatten(1, 2), (y_SNT1 * one.gains_SNT[:, :, None]).flatten(1, 2))

    def scores(self, w_SDD: Tensor) -> Tensor:
        """X W z: [S, N, T]."""
        return (self.x_SNTD @ (self.z_SND @ w_SDD.mT)[..., None])[..., 0]

    def gradient(self, w_SDD: Tensor) -> Tensor:
        """Of the loss by W, up to a positive factor for each seed: [S, D, D]."""
        log_p_SNT = self.scores(w_SDD).log_softmax(-1)
        pair_SNTT = log_p_SNT[..., :, None] + log_p_SNT[..., None, :]
        same = torch.eye(pair_SNTT.shape[-1], dtype=torch.bool)
        pair_SNTT = pair_SNTT.masked_fill(same, -torch.inf)
        pair_SNTT = (pair_SNTT - pair_SNTT.amax((1, 2, 3), keepdim=True)).exp()
        better_SNTT = self.gains_SNT[..., :, None] - self.gains_SNT[..., None, :]
        wrong_SN1 = torch.sigmoid(-(log_p_SNT.exp() * self.gains_SNT).sum(-1, keepdim=True))
        by_score_SNT = -wrong_SN1 * (pair_SNTT * better_SNTT).sum(-1)
        return (by_score_SNT[..., None, :] @ self.x_SNTD)[..., 0, :].mT @ self.z_SND

    def picked(self, w_SDD: Tensor) -> Tensor:
        """The token that the softmax has chosen: [S, N]."""
        return self.scores(w_SDD).argmax(-1)

    def best(self) -> Tensor:
        """The token that is worth most: [S, N]."""
        return self.gains_SNT.argmax(-1)

    def constraints(self, seed: int, picked_SN: Tensor) -> Floats:
        """(x_α − x_t) zᵀ for every other token t of every sequence, of the problem in this place: [C, D, D]."""
        x_NTD, z_ND, picked_N = self.x_SNTD[seed], self.z_SND[seed], picked_SN[seed]
        ahead_NTD = x_NTD.gather(1, picked_N[:, None, None].expand(-1, 1, x_NTD.shape[-1])) - x_NTD
        others_NT = torch.arange(x_NTD.shape[1]) != picked_N[:, None]
        a_NTDD = ahead_NTD[..., :, None] * z_ND[:, None, None, :]
        return a_NTDD[others_NT].numpy()


def train(problems: Problems, marks: Sequence[int] = MARKS) -> list[Tensor]:
    """W after so many steps: [S, D, D] each."""
    seeds, _, _, width = problems.x_SNTD.shape
    w_SDD = torch.zeros(seeds, width, width, dtype=torch.float64)
    seen = []
    for step in range(1, marks[-1] + 1):
        gradient_SDD = problems.gradient(w_SDD)
        w_SDD = w_SDD - STEP * gradient_SDD / _size(gradient_SDD)
        if step in marks:
            seen.append(w_SDD)
    return seen


def train_factors(problems: Problems, seeds: Sequence[int], start: float, marks: Sequence[int] = MARKS) -> list[Tensor]:
    """W = K Qᵀ after so many steps, of K and Q that are trained separately from random matrices of this size."""
    width = problems.x_SNTD.shape[-1]
    generators = [torch.Generator().manual_seed(20_000 + seed) for seed in seeds]
    k_SDD, q_SDD = (
        start * torch.stack([torch.randn(width, width, generator=each, dtype=torch.float64) for each in generators])
        for _ in range(2)
    )
    seen = []
    for step in range(1, marks[-1] + 1):
        gradient_SDD = problems.gradient(k_SDD @ q_SDD.mT)
        by_k_SDD, by_q_SDD = gradient_SDD @ q_SDD, gradient_SDD.mT @ k_SDD
        size = torch.hypot(_size(by_k_SDD), _size(by_q_SDD))
        k_SDD, q_SDD = k_SDD - STEP * by_k_SDD / size, q_SDD - STEP * by_q_SDD / size
        if step in marks:
            seen.append(k_SDD @ q_SDD.mT)
    return seen


def correlation(one_DD: Tensor | Floats, other_DD: Tensor | Floats) -> float:
    """⟨A, B⟩ / (‖A‖ ‖B‖): 1 where both have the same direction."""
    one, other = np.asarray(one_DD), np.asarray(other_DD)
    return float((one * other).sum() / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-300))


def _size(matrix_SDD: Tensor) -> Tensor:
    return matrix_SDD.flatten(1).norm(dim=1)[:, None, None]
