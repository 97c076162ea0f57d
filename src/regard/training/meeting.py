"""How the processes of a training find each other, before they tell each other anything.

torchrun, or whatever else starts them, says by the environment who each one is and where they meet: RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT. Each waits `system.patience` seconds for the others. What may differ between
machines and would make them wait for each other for ever, their devices, is compared where they meet.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from regard import console
from regard.errors import RegardError, UsageError
from regard.training.processes import ALONE, CPU, Processes

TOLD_AFTER = 10  # seconds
ANSWER_WITHIN = 3  # seconds after the time limit, in which torch itself says that it is over


class WronglyStarted(UsageError):
    """What is wrong with how this process was started; the others may be right."""

    same_for_all = False


@dataclass(frozen=True)
class Place:
    """Who this process is, and where it meets the others."""

    rank: int
    count: int
    host: str = ""
    port: int = 0

    @property
    def meeting(self) -> str:
        return f"{self.host}:{self.port}"


def place() -> Place:
    """As whoever started this process says."""
    told = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    if told["WORLD_SIZE"] in ("", "1"):
        return Place(0, 1)
    numbers = {
        name: int(told[name]) if told[name].isdecimal() else -1 for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")
    }
    shown = ", ".join(f"{name}={value}" for name, value in told.items())
    if not 0 <= numbers["RANK"] < numbers["WORLD_SIZE"]:
        raise WronglyStarted(
            "RANK and WORLD_SIZE do not say which process this is.",
            f"It was started with {shown}. The first of two has RANK=0, the second RANK=1, both WORLD_SIZE=2.",
            "Start the processes with torchrun, or unset both.",
        )
    if not told["MASTER_ADDR"] or not 0 < numbers["MASTER_PORT"] < 2**16:
        raise WronglyStarted(
            "MASTER_ADDR and MASTER_PORT do not say where the processes meet.",
            f"This one was started with {shown}.",
            "Start the processes with torchrun, or name the machine of the first and a free port there.",
        )
    return Place(numbers["RANK"], numbers["WORLD_SIZE"], told["MASTER_ADDR"], numbers["MASTER_PORT"])


@contextmanager
def joined(choose: Callable[[], torch.device], patience: int) -> Iterator[Processes]:
    """This process among those of the training; alone, where the environment names no others.

    `choose`: the device of this one. `patience`: seconds to wait for another process, before it counts as hung.
    """
    here = place()
    if here.count == 1:
        yield ALONE
        return
    problem, device, kind = None, CPU, ""
    try:
        device = choose()
        kind = f"{device.type}, {_backend(device)}"
    except RegardError as error:  # told when it is known whether the others have it, too
        problem, kind = error, f"none: {error.what}"
    try:
        _meet(here, kind, patience)
        if problem:
            raise problem
        yield Processes(here.rank, here.count, device if kind.endswith("nccl") else CPU)
    except RegardError as error:
        error.told_elsewhere = error.same_for_all and here.rank > 0
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _backend(device: torch.device) -> str:
    """NCCL between GPUs. It refuses two processes on one GPU; gloo lets them talk by way of the CPU."""
    if device.type != "cuda" or device.index is not None:
        return "gloo"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    crowded = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count()
    return "gloo" if crowded else "nccl"


def _meet(here: Place, kind: str, patience: int) -> None:
    """Wait for all others, with the same kind of device. Then there is a process group."""
    failed: list[Exception] = []

    def meet() -> None:
        try:
            limit = timedelta(seconds=patience)
            store, rank, count = next(rendezvous("env://", timeout=limit))
            _must_be_of_one_kind(here, store, kind)
            backend, groups = "nccl" if kind.endswith("nccl") else "gloo", PrefixStore("groups", store)
            dist.init_process_group(backend, store=groups, rank=rank, world_size=count, timeout=limit)
        except Exception as error:  # raised in the thread that waits
            failed.append(error)

    # In a thread of its own: torch waits in C++, where neither Ctrl-C nor SIGTERM would be heard.
    meeting = Thread(target=meet, daemon=True)
    meeting.start()
    meeting.join(TOLD_AFTER)
    if meeting.is_alive():
        console.say(f"Waiting for {here.count - 1} more at {here.meeting}, for {patience} seconds at most …")
        meeting.join(patience + ANSWER_WITHIN)
    if failed and isinstance(failed[0], RegardError):
        raise failed[0]
    if failed or meeting.is_alive():
        raise RegardError(
            "The processes of this training did not come together.",
            _why_not(here, patience, str(failed[0]).partition("\n")[0] if failed else ""),
            "Check MASTER_ADDR, MASTER_PORT and what the other processes say, or start them with torchrun.",
        )


def _must_be_of_one_kind(here: Place, store: Store, kind: str) -> None:
    """An error on all if the devices are of several kinds: processes would wait for each other in different ways."""
    store.set(f"device of {here.rank}", json.dumps(kind))
    kinds = [json.loads(store.get(f"device of {rank}")) for rank in range(here.count)]
    if other := next((rank for rank in range(here.count) if kinds[rank] != kinds[0]), 0):
        raise UsageError(
            "The processes of this training do not have the same kind of device.",
            f"Process 0 has {kinds[0]}; process {other} has {kinds[other]}",
            "Choose machines that are alike, with a GPU for each process, or add system.device=cpu.",
        )


def _why_not(here: Place, patience: int, told: str) -> str:
    """Why the processes did not meet, as far as this one can know; `told`: what torch says, "" if nothing."""
    if "EADDRINUSE" in told:
        return f"Port {here.port} of this machine is taken by another program."
    if told and "timed out" not in told and "timeout" not in told:
        return told
    try:
        socket.getaddrinfo(here.host, here.port)
    except (OSError, UnicodeError):
        return f"The name '{here.host}' of MASTER_ADDR cannot be resolved."
    missed = "Not all others came to" if here.rank == 0 else "The first was not at"
    return f"{missed} {here.meeting} within system.patience = {patience} seconds."
