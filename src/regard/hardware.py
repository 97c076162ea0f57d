"""Device, precision and compilation: chosen from the machine, unless the settings say otherwise."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard import console
from regard.errors import RegardError
from regard.process_memory import give_back
from regard.settings import SystemSettings
from regard.version import __version__

COMPILING = 20.0  # seconds that it takes to compile a block for the first time
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
EIGHT_BITS_FROM = 8, 9  # compute capability: products in eight bits


@dataclass(frozen=True)
class Hardware:
    device: torch.device
    precision: torch.dtype
    compile: bool
    deterministic: bool = False  # on a GPU; a CPU with the same number of threads always is
    cuda_was_in_use: bool = False  # too early for that
    eight_bits: bool = False  # products of blocks, in training; all else is in `precision`

    @classmethod
    def choose(cls, settings: SystemSettings, saved_by_compiling: float = 0.0) -> Hardware:
        """What to run on; `saved_by_compiling`: seconds, on a GPU, to tell whether that pays."""
        # With this, the sums of cuBLAS do not depend on what else is running. It is read when CUDA is first used.
        too_late = settings.deterministic and WORKSPACE not in os.environ and torch.cuda.is_initialized()
        if settings.deterministic:
            os.environ.setdefault(WORKSPACE, ":4096:8")
        name = settings.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device(name)
        if device.type == "cuda":
            if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
                raise RegardError(
                    f"system.device = '{settings.device}' is not available.",
                    f"torch sees {torch.cuda.device_count()} CUDA device(s) on this machine.",
                    'Set system.device to "auto" or "cpu".',
                )
            torch.set_float32_matmul_precision("high")
        if settings.threads:
            torch.set_num_threads(settings.threads)
        half = settings.precision == "bfloat16" or (settings.precision != "float32" and device.type == "cuda")
        # On a CPU, compiling takes longer than it saves in a short run, and needs a C++ compiler.
        pays = device.type == "cuda" and saved_by_compiling > COMPILING
        return cls(
            device=device,
            precision=torch.bfloat16 if half else torch.float32,
            compile=settings.compile == "yes" or (settings.compile == "auto" and pays),
            deterministic=settings.deterministic and device.type == "cuda",
            cuda_was_in_use=too_late,
            eight_bits=settings.precision == "float8",
        )

    def check_training(self) -> None:
        """An error where eight bits are asked for and this device has none: to train, not to use what was trained."""
        if not self.eight_bits:
            return
        able = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) >= EIGHT_BITS_FROM
        if not able:
            raise RegardError(
                'system.precision = "float8" cannot be trained with on this device.',
                f"It needs a GPU of compute capability {'.'.join(map(str, EIGHT_BITS_FROM))} or higher, as an H100. "
                f"This is {self.name}.",
                'Set system.precision to "auto".',
            )

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.precision)

    @property
    def cudnn_attention(self) -> bool:
        """Whether cuDNN's attention is the fastest in training: only on Hopper, and never the same bytes every time."""
        hopper = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device)[0] == 9
        return hopper and not self.deterministic

    @contextlib.contextmanager
    def reproducible(self) -> Iterator[None]:
        """Where that is asked for: only kernels that add in the same order every time."""
        if not self.deterministic:
            yield
            return
        if self.cuda_was_in_use:
            console.warn(f"CUDA was used before {WORKSPACE} was set: the same bytes every time are not certain.")
        filling: Any = torch.utils.deterministic
        before = torch.are_deterministic_algorithms_enabled(), filling.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)
        filling.fill_uninitialized_memory = False  # which is for finding bugs, and takes time
        try:
            yield
        except RuntimeError as error:
            if "deterministic" not in str(error):
                raise
            raise RegardError(
                "This model cannot be trained with system.deterministic = true.",
                str(error).partition(".")[0] + ".",
                "Set system.deterministic=false.",
            ) from None
        finally:
            torch.use_deterministic_algorithms(before[0])
            filling.fill_uninitialized_memory = before[1]

    @contextlib.contextmanager
    def waking(self) -> Iterator[None]:
        """The second that a GPU and its libraries take to start, spent beside what is done within."""
        if self.device.type != "cuda":
            yield
            return
        waker = threading.Thread(target=_first_product, args=(self.device,))
        waker.start()
        try:
            yield
        finally:
            waker.join()

    @property
    def name(self) -> str:
        if self.device.type == "cuda":
            return str(torch.cuda.get_device_name(self.device))
        threads = torch.get_num_threads()
        return f"{threads} CPU thread{'s' * (threads > 1)}"

    def describe(self) -> str:
        compiled = "compiled" if self.compile else "not compiled"
        return f"{self.name}, {self._precision}, {compiled}"

    def to_json(self) -> dict[str, Any]:
        gpu = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None
        return {
            "device": self.device.type,
            "gpu": gpu,
            "precision": self._precision,
            "compiled": self.compile,
            "deterministic": self.deterministic,
        }

    @property
    def _precision(self) -> str:
        return "float8" if self.eight_bits else str(self.precision).removeprefix("torch.")


def _first_product(device: torch.device) -> None:
    with contextlib.suppress(RuntimeError):  # what does not work will be told by what needs it
        numbers = torch.ones(64, 64, device=device)
        (numbers @ numbers).sum().item()


def environment() -> dict[str, Any]:
    """Versions and machine."""
    import safetensors
    import tokenizers

    return {
        "regard": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
        "safetensors": safetensors.__version__,
        "system": platform.platform(),
        "processor": _processor(),
        "cpu_cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "cuda_devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def other_bits(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs, of what the last bits of a training depend on. What is not known of both is not judged."""
    names = ["regard", "torch", "numpy", "device", "gpu", "precision", "compiled", "deterministic"]
    if now["device"] == "cpu":
        names += ["processor", "torch_threads"]
    known = [name for name in names if name in before and name in now]
    return {name: (before[name], now[name]) for name in known if before[name] != now[name]}


def _processor() -> str:
    """The kind of CPU, and the instructions that torch uses of it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {torch.backends.cpu.get_cpu_capability()}"
    return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"


def mix_seeds(*numbers: int) -> int:
    """One seed from several integers, the same on every machine; near numbers give unrelated seeds."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_everything(*numbers: int) -> None:
    """Reseed torch, on all devices, from several integers.

    The same as `torch.manual_seed`, which takes ten times as long: it also prepares devices that are not in use.
    """
    seed = mix_seeds(*numbers)
    if _cuda_may_be_used() and not torch.cuda.is_initialized():
        torch.manual_seed(seed)  # remembered until then
        return
    for generator in (torch.default_generator, *torch.cuda.default_generators):
        generator.manual_seed(seed)


@cache
def _cuda_may_be_used() -> bool:
    return torch.cuda.is_available()


def keep_freed_memory() -> None:
    """On a CPU: let this process keep the memory of freed tensors for the next ones, instead of giving it back.

    A training frees and makes the same tensors at every step. Memory that is given back to the kernel comes again page
    by page, each filled with zeros first: a fifth of the time of a step of a small model.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, 2**31 - 1)  # bytes free at the end of the heap that are given back
        # Tensors from this size on have memory of their own, which is always given back. Older versions take no more
        # than 32 MiB.
        any(mallopt(MMAP_THRESHOLD, size) for size in (1 << 30, 1 << 25))


def peak_memory(device: torch.device) -> int:
    """Most bytes held so far: on the GPU, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextlib.contextmanager
def memory_errors(what: str, remedy: str) -> Iterator[None]:
    """Running out of memory becomes an error that says with what, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        why = str(error).partition("\n")[0][:200] or "The machine has no more to give."
        raise RegardError(f"Out of memory {what}.", why, remedy) from None


def out_of_memory(error: BaseException | None) -> bool:
    """Whether torch failed for want of memory, on a GPU or a CPU; or failed at something else because of that."""
    if error is None:
        return False
    text = str(error)
    wants_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)
    )
    return wants_memory or out_of_memory(error.__context__)  # the capture of a graph ends with an error of its own


@contextlib.contextmanager
def only_new_garbage() -> Iterator[None]:
    """Within, to free memory takes milliseconds: of objects, only those made within are looked at.

    To go over all that torch and its compiler consist of takes a quarter of a second each time.
    """
    gc.collect()
    if gc.get_freeze_count():  # somebody else has decided what is to be looked at
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def free_memory(device: torch.device) -> None:
    """Give back what nobody uses any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        give_back()
