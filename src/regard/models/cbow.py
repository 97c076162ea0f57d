"""CBOW: a word is guessed from the mean of the words around it (word2vec).

    h = mean of v_c over the context c        loss = −log σ(u_w · h) − Σ_n log σ(−u_n · h)

v are rows of the table `input`, the word vectors; u are rows of `output`, used for guessing only; w is the
right word, n are wrong ones drawn at random. The words of a row share one set of K wrong words, and each of
those counts `negatives` / K: the same loss in expectation, with far fewer rows of the table to read.

The context of a word is the `left` words before and the `right` words after it. A row is running text, so
the sums of all its contexts are one product with a matrix of zeros and ones.

One thing is not a gradient. As in word2vec's C code and in gensim, every word of the context receives the whole
error of the mean, not its share of it, so that words in wide windows learn as much as in narrow ones. On
IMDB reviews 51 % of gensim's neighbours are found with the true gradient, 71 % with this rule; two
runs of gensim share 75 %.

Shapes: B rows · T words to guess · S = T + 2 · window words, with those before and after · K wrong words
        D width · W words, of which 0 stands for none
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Cbow(nn.Module):
    def __init__(self, words: int, width: int, window: int):
        super().__init__()
        self.window = window
        self.input = nn.Parameter(torch.empty(words, width).uniform_(-0.5 / width, 0.5 / width))
        self.output = nn.Parameter(torch.zeros(words, width))
        self.patterns: Tensor
        self.register_buffer("patterns", _patterns(window), persistent=False)

    def forward(
        self, words_BS: Tensor, left_BT: Tensor, right_BT: Tensor, labels_BT: Tensor, wrong_BK: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits of the right word [B, T] and of the wrong ones [B, T, K]."""
        sum_BTD = self.contexts(left_BT, right_BT) @ _rows(self.input, words_BS)
        h_BTD = _Mean.apply(sum_BTD, (left_BT + right_BT).clamp(min=1)[..., None])
        u_BTD, u_BKD = _rows(self.output, labels_BT), _rows(self.output, wrong_BK)
        return (h_BTD * u_BTD).sum(-1), h_BTD @ u_BKD.transpose(1, 2)

    def contexts(self, left_BT: Tensor, right_BT: Tensor) -> Tensor:
        """1 for each word of a row that is in the context of word t, else 0: [B, T, S]."""
        (rows, length), side = left_BT.shape, self.window
        whole = length + 2 * side
        contexts_BTS = self.patterns.new_zeros(rows, length, whole)
        # Word t stands at t + window, so what is around it begins at t: a band along the diagonal.
        band = contexts_BTS.as_strided((rows, length, 2 * side + 1), (length * whole, whole + 1, 1))
        band.copy_(self.patterns[left_BT * (side + 1) + right_BT])
        return contexts_BTS


def negative_sampling_loss(
    logits: tuple[Tensor, Tensor], labels_BT: Tensor, wrong_BK: Tensor, negatives: int
) -> Tensor:
    """−log σ(right) − Σ log σ(−wrong), summed over the guessed words. A right word is never a wrong one."""
    right_BT, wrong_BTK = logits
    guessed_BT = labels_BT != 0
    counts_BTK = (wrong_BK[:, None] != labels_BT[..., None]) & guessed_BT[..., None]
    of_right = (functional.softplus(-right_BT) * guessed_BT).sum()
    of_wrong = (functional.softplus(wrong_BTK) * counts_BTK).sum()
    return of_right + of_wrong * (negatives / wrong_BK.shape[1])


class _Mean(torch.autograd.Function):
    """A sum divided by the number of its parts; what comes back goes to the sum undivided."""

    @staticmethod
    def forward(context: Any, total: Tensor, count: Tensor) -> Tensor:
        return total / count

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return gradient, None


def _rows(table: Tensor, words: Tensor) -> Tensor:
    """These rows of a table, which on a CPU receive their gradient in place."""
    if table.device.type == "cpu" and not torch.compiler.is_compiling():
        return _Rows.apply(table, words)  # type: ignore[no-any-return]
    return functional.embedding(words, table)


class _Rows(torch.autograd.Function):
    """A step touches few rows; to make a table of zeros for their gradient, and to add it, would take the longest."""

    @staticmethod
    def forward(context: Any, table: Tensor, words: Tensor) -> Tensor:
        context.table = table
        context.save_for_backward(words)
        return functional.embedding(words, table)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[None, None]:  # type: ignore[override]
        table, (words,) = context.table, context.saved_tensors
        if table.grad is None:
            table.grad = torch.zeros_like(table)
        table.grad.index_add_(0, words.flatten(), gradient.flatten(0, -2))
        return None, None


def _patterns(window: int) -> Tensor:
    """The words around one, for each pair of numbers to its left and right: [(window + 1)², 2 · window + 1]."""
    number, offset = torch.arange(window + 1), torch.arange(-window, window + 1)
    left, right = number[:, None, None], number[None, :, None]
    near = (offset >= -left) & (offset <= right) & (offset != 0)
    return near.float().flatten(0, 1)
