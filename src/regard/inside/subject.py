"""Subject: a model, one input, and its output for that input.

Built by a task (`task.subject("A sentence.")`), and all that the methods of this package know of a task: the stacks of
blocks that the input passes through, at which positions of the last stack answers are read, and how.

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
    """Blocks applied one after the other to one sequence."""

    name: str  # "layers", "encoder", "decoder", "stage 1" …
    embed: Any  # its output is what the first block reads
    blocks: list[Block]
    pieces: list[str]  # the token or patch at each position
    grid: tuple[int, int] | None = None  # of the patches or pixels of an image, in reading order
    before: int = 0  # positions before the first patch
    fixed: frozenset[int] = frozenset()  # positions that hold no input: <start>, <end>, [MASK], class token, queries
    words: Callable[[int], str] | None = None  # the token of an id, where positions hold tokens


@dataclass(frozen=True)
class Answer:
    """One output of the model: a token it generated, a token of the text that it has to predict, or a class."""

    position: int | None  # in the last stack, where it is read; None: from all positions
    token: int
    label: str
    given: bool = False  # the token stands in the input text; the model did not generate it


@dataclass(frozen=True)
class Subject:
    model: nn.Module
    stacks: list[Stack]
    answers: list[Answer]
    forward: Callable[[int], Tensor]  # the logits of all answers, for this many identical rows: [B, A, W]
    readout: Readout | None  # how logits are computed from the last stack; None: not by a linear map
    name_of: Callable[[int], str]  # the name of a token or class
    first: int | None = None  # the answer that is explained first; None: see Trace.first_answer
    input_text: str = ""  # the input as text, or the name of its file
    output_text: str = ""
    never: Sequence[int] = ()  # tokens that are never generated
    never_at: Sequence[Sequence[int]] = ()  # for each answer, further tokens that cannot be generated there
    softmax_over_all: bool = False  # the softmax includes tokens that are never generated, as in beam search
    independent: bool = False  # each class has its own sigmoid; otherwise all share a softmax
    picture_HWC: NDArray[np.uint8] | None = None  # the input, if it is an image
    cells: bool = False  # there is one answer for each patch or pixel of the image, in reading order
    boxes: Sequence[tuple[float, ...]] = ()  # left, top, right, bottom in the image: all boxes, the surest first
    box: int = 0  # which of them the answer is about
    tokens: list[list[int]] | None = None  # the ids of each stack, if its positions hold tokens
    # (ids of each stack, number of generated tokens at the end = 0): the same subject with other tokens.
    with_tokens: Callable[..., Subject] | None = None
    # (prefix, count): the subject whose output starts with `prefix`, continued by the model; a language model adds
    # at most `count` tokens.
    with_prefix: Callable[[list[int], int], Subject] | None = None
    aligner: Aligner | None = None

    def __post_init__(self) -> None:
        if any(not isinstance(block, Block) for stack in self.stacks for block in stack.blocks):
            raise UsageError("This model cannot be traced.", "It is not made of blocks.", "Choose another run.")

    @torch.no_grad()
    def logits(self, rows: int = 1) -> Tensor:
        """The logits of all answers, in float32: [B, A, W]."""
        with unfused_eval(self.model):
            return self.forward(rows).float()

    def logits_with_gradient(self, rows: int = 1) -> Tensor:
        """The same with an autograd graph, for gradients with respect to tensors that hooks insert: [B, A, W]."""
        # cuDNN computes gradients of RNNs in training mode only.
        with torch.enable_grad(), unfused_eval(self.model), torch.backends.cudnn.flags(enabled=False):
            return self.forward(rows).float()

    def log_p(self, logits: Tensor, answer: int | None = None) -> Tensor:
        """ln p of every word or class: at all answers [..., A, W], or at one [..., W]."""
        if self.independent:
            return nn.functional.logsigmoid(logits)
        return self.softmax_logits(logits, answer).log_softmax(-1)

    def softmax_logits(self, logits: Tensor, answer: int | None = None) -> Tensor:
        """The logits whose softmax gives the probabilities: −∞ for excluded tokens."""
        return logits if self.softmax_over_all else self.allowed_logits(logits, answer)

    def likeliest(self, logits: Tensor) -> Tensor:
        """The allowed word or class with the highest logit, for each answer: [..., A, W] → [..., A]."""
        return self.allowed_logits(logits).argmax(-1)

    def allowed_logits(self, logits: Tensor, answer: int | None = None) -> Tensor:
        """The logits, with −∞ for tokens that cannot be generated: at all answers [..., A, W], or at one [..., W]."""
        if not self.never and not self.never_at:
            return logits
        logits = logits.clone()
        if answer is not None:
            logits[..., self.never_of(answer)] = -torch.inf
            return logits
        answer_tokens = {answer.token for answer in self.answers}
        if not self.never_at and not answer_tokens & set(self.never):  # the same for every answer
            logits[..., list(self.never)] = -torch.inf
            return logits
        for number in range(len(self.answers)):
            logits[..., number, self.never_of(number)] = -torch.inf
        return logits

    def never_of(self, answer: int) -> list[int]:
        """Tokens that cannot be generated at this answer. The answer's own token, which may be given, is allowed."""
        own_token = self.answers[answer].token
        never = [*self.never, *(self.never_at[answer] if self.never_at else ())]
        return [token for token in never if token != own_token]

    @property
    def of_patches(self) -> bool:
        """Whether every patch of an image has an answer of its own."""
        return self.cells and self.tokens is None

    @property
    def last(self) -> Stack:
        return self.stacks[-1]

    def answer_index(self, answer: int) -> int:
        """The index of an answer, from 0; negative numbers count from the end, as in a list."""
        count = len(self.answers)
        if not isinstance(answer, int | np.integer) or not -count <= answer < count:
            raise UsageError(f"There is no answer {answer}.", f"There are {count}, counted from 0.", "Choose another.")
        return int(answer) % count

    def stack(self, name: str) -> Stack:
        return next(stack for stack in self.stacks if stack.name == name)


def check_length(positions: int) -> None:
    """Refuse long inputs before anything is computed: memory grows with the square of the length."""
    if positions > MOST_POSITIONS:
        raise UsageError(
            f"The input has {positions:,} positions.",
            f"At most {MOST_POSITIONS:,} can be traced.",
            "Shorten the input.",
        )


@contextmanager
def unfused_eval(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, block by block: a kernel that fuses all blocks would call no hooks."""
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
    """'3, 5' for the patch in row 3, column 5, after the names of class token and registers."""
    return [*before, *(f"{row + 1}, {column + 1}" for row in range(grid[0]) for column in range(grid[1]))]
