"""Several processes, one training: who this one is among them, and what they tell each other.

Every process runs the same program on the same batches, and takes its share of each batch's micro-batches. What they
exchange is numbers, never objects: gradients, a few values as JSON. How they find each other is in `meeting`.

The first process is the one that speaks and writes; the others look at a copy of the run folder that nobody sees.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import LOST, UNANSWERED, RegardError, UsageError
from regard.startup import launched
from regard.training.tree import is_power_of_two, tree_sum

Reduce = Literal["exact", "fast"]
Item = TypeVar("Item")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    count: int = 1
    device: torch.device = CPU  # where what they tell each other lies

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, pieces: int, in_turn: bool = False) -> range:
        """Which micro-batches of an update are this process's: successive ones, or one of each turn."""
        if in_turn:
            return range(self.rank, pieces, self.count)
        each = pieces // self.count
        return range(self.rank * each, (self.rank + 1) * each)

    # ------------------------------------------------------------ sums

    def add(self, tensors: list[Tensor], reduce: Reduce) -> list[Tensor]:
        """The sum over all processes of each tensor, the same on all of them."""
        if self.count == 1:
            return tensors
        home = tensors[0].device
        flat_X = torch.cat([tensor.reshape(-1) for tensor in tensors]).to(self.device)
        with self.noticing_loss():
            if reduce == "fast":
                dist.all_reduce(flat_X)
            else:
                flat_X = self._tree(flat_X)
        parts = flat_X.to(home).split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def _tree(self, flat_X: Tensor) -> Tensor:
        """Each process adds its part of the numbers, in the order of the tree, and all get the parts of all.

        So the order of the additions is ours, not that of the library's algorithm.
        """
        size = flat_X.numel()
        mine_PX = torch.nn.functional.pad(flat_X, (0, -size % self.count)).view(self.count, -1)
        theirs_PX = torch.empty_like(mine_PX)
        dist.all_to_all_single(theirs_PX, mine_PX)
        dist.all_gather(list(mine_PX.unbind()), tree_sum(theirs_PX))
        return mine_PX.view(-1)[:size]

    # ------------------------------------------------------------ work

    def each(self, items: Iterable[Item], work: Callable[[Item], NDArray[Any]]) -> list[NDArray[Any]]:
        """`work(item)` for every item, in their order, on all processes; each item is worked on by one of them.

        All must be here, with the same items. What is worked out of an item depends on it alone, so the result does
        not depend on how many processes there are.
        """
        if self.count == 1:
            return [work(item) for item in items]
        mine = {str(number): work(item) for number, item in enumerate(items) if number % self.count == self.rank}
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **mine)  # type: ignore[arg-type]
        found: dict[int, NDArray[Any]] = {}
        for raw in self.gather(file.getvalue()):
            with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
                found |= {int(number): arrays[number] for number in arrays.files}
        return [found[number] for number in sorted(found)]

    # ------------------------------------------------------------ words

    def gather(self, raw: bytes) -> list[bytes]:
        """What every process says, on all of them, in the order of their ranks."""
        if self.count == 1:
            return [raw]
        sizes_P = torch.empty(self.count, dtype=torch.long, device=self.device)
        with self.noticing_loss():
            dist.all_gather(list(sizes_P.unbind()), torch.tensor(len(raw), device=self.device))
            sizes = sizes_P.tolist()
            own_X = torch.zeros(max(1, *sizes), dtype=torch.uint8)
            own_X[: len(raw)] = torch.frombuffer(bytearray(raw or b" "), dtype=torch.uint8)[: len(raw)]
            all_PX = torch.empty(self.count, len(own_X), dtype=torch.uint8, device=self.device)
            dist.all_gather(list(all_PX.unbind()), own_X.to(self.device))
        return [row_X[:size].numpy(force=True).tobytes() for row_X, size in zip(all_PX, sizes, strict=True)]

    def tell(self, content: Any = None) -> Any:
        """What the first process says, as JSON, on all of them."""
        if self.count == 1:
            return content
        raw = json.dumps(content).encode()
        length = torch.tensor([len(raw)], device=self.device)
        with self.noticing_loss():
            dist.broadcast(length, 0)
            text = torch.empty(int(length), dtype=torch.uint8, device=self.device)
            if self.first:
                text.copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
            dist.broadcast(text, 0)
        return json.loads(bytes(text.tolist()))

    def wait(self) -> None:
        """Until all are here. The first would not wait for those that only listen to it."""
        self.gather(b"")

    def must_agree(self, what: dict[str, Any]) -> None:
        """An error on all if a value of one process is not that of the first."""
        if self.count == 1:
            return
        digests = [list(hashlib.sha256(json.dumps(value, default=str).encode()).digest()) for value in what.values()]
        own_KB = torch.tensor(digests, dtype=torch.uint8, device=self.device)
        all_PKB = own_KB.new_empty(self.count, *own_KB.shape)
        with self.noticing_loss():
            dist.all_gather(list(all_PKB.unbind()), own_KB)
        for key, same in zip(what, (all_PKB == all_PKB[0]).all(2).all(0).tolist(), strict=True):
            if not same:
                raise UsageError(
                    f"The processes of this training do not agree on {key}.",
                    f"The first has {str(what[key])[:200]}; another has something else.",
                    "Start all of them with the same version, recipe, settings and run folder.",
                )

    @contextmanager
    def noticing_loss(self) -> Iterator[None]:
        """What a library says when another process is gone or hangs, as an error of ours."""
        try:
            yield
        except RuntimeError as error:  # torch's own are among them
            if not isinstance(error, dist.DistError) and "gloo" not in str(error).lower():
                raise
            hung = "time" in str(error).lower() and "out" in str(error).lower()
            raise ProcessLost(
                "Another process of this training does not answer." if hung else "Another process has ended.",
                "It was waited for as long as system.patience says." if hung else "This one cannot go on without it.",
                "That one says why, or its machine does. The same command with --resume continues.",
                UNANSWERED if hung else LOST,
            ) from None


class ProcessLost(RegardError):
    """Another process is gone: the one that failed says why, or whoever started both.

    All that are left say so, since the first may be the one that is gone; our own launcher speaks for them.
    """

    def __init__(self, what: str, why: str, fix: str, code: int):
        """`code`: for our own launcher."""
        super().__init__(what, why, fix)
        self.exit_code = code if launched() else 1


ALONE = Processes()


def check_share(pieces: int, count: int, reduce: Reduce) -> None:
    """Micro-batches that can be dealt out to so many processes; with exact sums, along a tree."""
    if count == 1:
        return
    if reduce == "exact" and not is_power_of_two(count):
        raise UsageError(
            f"The sums of {count} processes cannot be exact.",
            "They are the same for any number of processes only if that is a power of two.",
            'Use 2, 4 or 8 of them, or add training.reduce="fast".',
        )
    if pieces % count:
        raise UsageError(
            f"training.micro_batches = {pieces} cannot be dealt out to {count} processes.",
            "Each takes the same number of them.",
            f"Add training.micro_batches={count * max(1, pieces // count)}, or another multiple of {count}.",
        )
    if reduce == "exact" and not is_power_of_two(pieces):
        raise UsageError(
            f"training.micro_batches = {pieces} cannot be added exactly by {count} processes.",
            "The sum is the same for any number of processes only if it is a power of two.",
            'Set it to 2, 4, 8 …, or add training.reduce="fast".',
        )
