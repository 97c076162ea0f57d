"""How commands start and end sooner. Nothing in here needs torch.

Importing torch makes half a million objects, and taking them apart at the end takes time as well; and a GPU that is not
in use needs some tenths of a second for its driver and its context, which need nothing from Python.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PR_SET_PDEATHSIG = 1
LAUNCHER = "REGARD_LAUNCHER"  # the variable with the process id of our own launcher


@contextmanager
def uncollected() -> Iterator[None]:
    """For imports: nothing that they make is garbage, and looking for it all the time takes a fifth of theirs."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def end_with_parent() -> None:
    """Ask the system to end this process with the one that started it, which cannot do it itself if it is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def launched() -> bool:
    """Whether this is one of several processes that our own launcher has started, and watches."""
    return os.environ.get(LAUNCHER, str(os.getpid())) != str(os.getpid())


def one_of_several() -> None:
    """For a process of several that train together: to be called before torch is imported."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of a network that fails, torch prints stacks of C++
    if launched() or "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent()
        if launched() and not _runs(os.environ[LAUNCHER]):  # it was killed before this one could ask for that
            raise KeyboardInterrupt


def _runs(pid: str) -> bool:
    if sys.platform != "linux":
        return True
    with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0] not in "ZX"  # dead, but not yet waited for
    return False


def wake_gpu(device: str) -> None:
    """Begin to start the first GPU, if it may be used, in a second thread: to be called before torch is imported."""
    if device in ("auto", "cuda", "cuda:0") and "torch" not in sys.modules:
        threading.Thread(target=_make_context, daemon=True).start()


def _make_context() -> None:
    """The context of the driver that all libraries of this process share. Whatever fails here, torch will tell."""
    with suppress(OSError, AttributeError):  # no driver, or an old one
        driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        if driver.cuInit(0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)


def leave(code: int) -> None:
    """End the process without taking it apart, where nobody is left to be waited for."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # what ends already can be ended at once, without a word
    sys.stdout.flush()
    sys.stderr.flush()
    # Another thread may have something to finish; a profiler, something to say.
    alone = all(thread.daemon or thread is threading.current_thread() for thread in threading.enumerate())
    if alone and sys.getprofile() is None and sys.gettrace() is None:
        os._exit(code)
    sys.exit(code)
