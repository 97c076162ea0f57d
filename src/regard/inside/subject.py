"""Subject: what is inspected. A model, one input, and its output for that input.

A task makes one (`task.subject("A sentence.")`). All else asks it, and so holds for every task: a subject knows the
stacks of blocks that its input passes, where in the last of them answers are read, and how.

Shapes: B rows · A answers · W words or classes · T positions · D model width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.errors import UsageError
from regard.inside.readout import Readout
from regard.layers.block import Block
from regard.models import stack as stack_of_blocks

if TYPE_CHECKING:
    from regard.inside.alignment import Aligner

MOST_POSITIONS = 5_000  # of a stack


@dataclass(frozen=True)
class Stack:
    """Blocks that a sequence passes one after the other."""

    name: str  # "layers", "encoder", "decoder", "stage 1" …
    embed: Any  # its output is what the first block reads
    blocks: list[Block]
    pieces: list[str]  # what stands at each position
    grid: tuple[int, int] | None = None  # of the patches or pixels of an image, in reading order
    before: int = 0  # positions before the first of them
    fixed: frozenset[int] = frozenset()  # positions that hold no input: <start>, <end>, [MASK], class token, queries
    words: Callable[[int], str] | None = None  # what an id at a position is called, where they are words


@dataclass(frozen=True)
class Answer:
    """One output of the model: a token it generated, a token of the text that it has to predict, or a class."""

    position: int | None  # of the last stack, where it is read; None: from all of it
    token: int
    label: str
    given: bool = False  # the token stands in the input text; the model did not generate it


@dataclass(frozen=True)
class Subject:
    model: nn.Module
    stacks: list[Stack]
    answers: list[Answer]
    forward: Callable[[int], Tensor]  # the logits of all answers, for so many equal rows: [B, A, W]
    readout: Readout | None  # how logits are computed from the last stack; None: not by a linear map
    name_of: Callable[[int], str]  # the name of a token or class
    input_text: str = ""  # the input in words, or the name of its file
    output_text: str = ""  # the output in words
    never: Sequence[int] = ()  # tokens that are never generated
    never_at: Sequence[Sequence[int]] = ()  # for each answer, further tokens that cannot be generated there
    all_share: bool = False  # tokens that are never generated have a share in the softmax, as in the beam search
    independent: bool = False  # each class has its own sigmoid; otherwise all share a softmax
    picture_HWC: NDArray[np.uint8] | None = None  # the input, where it is an image
    box: tuple[float, ...] | None = None  # left, top, right and bottom in it, where the answer is about a box
    tokens: list[list[int]] | None = None  # the ids at the positions of each stack, where they are words
    # The same with other tokens, of which the model has generated the last so many; none, unless it is said.
    with_tokens: Callable[..., Subject] | None = None
    # A subject whose output begins with these tokens, continued by the model; a language model adds so many tokens.
    begun: Callable[[list[int], int], Subject] | None = None
    aligner: Aligner | None = None  # what words can be aligned by

    def __post_init__(self) -> None:
        if any(not isinstance(block, Block) for stack in self.stacks for block in stack.blocks):
            raise UsageError("This model cannot be traced.", "It is not made of blocks.", "Choose another run.")

    @torch.no_grad()
    def logits(self, rows: int = 1) -> Tensor:
        """The logits of all answers, in float32: [B, A, W]."""
        with plainly(self.model):
            return self.forward(rows).float()

    def logits_with_gradient(self, rows: int = 1) -> Tensor:
        """The same with a graph for gradients with respect to whatever hooks insert: [B, A, W]."""
        # cuDNN has a gradient of recurrence in training only.
        with torch.enable_grad(), plainly(self.model), torch.backends.cudnn.flags(enabled=False):
            return self.forward(rows).float()

    def log_p(self, logits: Tensor, answer: int | None = None) -> Tensor:
        """ln p of every word or class: at all answers [..., A, W], or at one [..., W]."""
        if self.independent:
            return nn.functional.logsigmoid(logits)
        return self.sharing(logits, answer).log_softmax(-1)

    def sharing(self, logits: Tensor, answer: int | None = None) -> Tensor:
        """The logits whose softmax gives the probabilities; −∞ for words that have no share in it."""
        return logits if self.all_share else self.writable(logits, answer)

    def likeliest(self, logits: Tensor) -> Tensor:
        """The word or class that is chosen at each answer: [..., A, W] → [..., A]."""
        return self.writable(logits).argmax(-1)

    def writable(self, logits: Tensor, answer: int | None = None) -> Tensor:
        """The logits, with −∞ for words that cannot be written: at all answers [..., A, W], or at one [..., W]."""
        if not self.never and not self.never_at:
            return logits
        logits = logits.clone()
        if answer is not None:
            logits[..., self.never_of(answer)] = -torch.inf
            return logits
        own = [answer.token for answer in self.answers]
        if not self.never_at and not set(own) & set(self.never):  # the same everywhere
            logits[..., list(self.never)] = -torch.inf
            return logits
        for number in range(len(own)):
            logits[..., number, self.never_of(number)] = -torch.inf
        return logits

    def never_of(self, answer: int) -> list[int]:
        """Words that cannot be written at this answer. One that stands there nonetheless was given, and can."""
        own = self.answers[answer].token
        never = [*self.never, *(self.never_at[answer] if self.never_at else ())]
        return [token for token in never if token != own]

    @property
    def last(self) -> Stack:
        return self.stacks[-1]

    def place(self, answer: int) -> int:
        """Which answer, counted from 0; of a negative number, from the end."""
        count = len(self.answers)
        if not isinstance(answer, int | np.integer) or not -count <= answer < count:
            raise UsageError(f"There is no answer {answer}.", f"There are {count}.", f"Use one from 0 to {count - 1}.")
        return int(answer) % count

    def stack(self, name: str) -> Stack:
        return next(stack for stack in self.stacks if stack.name == name)


def must_be_short(positions: int) -> None:
    """Asked before anything is computed: much of what is looked at grows with the square of the length."""
    if positions > MOST_POSITIONS:
        raise UsageError(
            f"The input has {positions:,} positions.",
            f"At most {MOST_POSITIONS:,} can be traced.",
            "Shorten the input.",
        )


@contextmanager
def plainly(model: nn.Module) -> Iterator[None]:
    """Without dropout, and block by block, also where a GPU has kernels for all of them at once."""
    fused, stack_of_blocks.FUSED = stack_of_blocks.FUSED, False
    training = model.training
    model.eval()
    try:
        yield
    finally:
        stack_of_blocks.FUSED = fused
        model.train(training)


def blocks_of(modules: Sequence[nn.Module] | nn.ModuleList) -> list[Block]:
    return [module for module in modules if isinstance(module, Block)]


def patch_names(grid: tuple[int, int], before: Sequence[str] = ()) -> list[str]:
    """'3, 5' for the patch in row 3, column 5; before them the tokens that are no patches."""
    return [*before, *(f"{row + 1}, {column + 1}" for row in range(grid[0]) for column in range(grid[1]))]
