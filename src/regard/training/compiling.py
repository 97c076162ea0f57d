"""The compiler of torch: where its code is kept, and starting it before it is needed.

Of the seconds that it takes to compile a block for the first time, most are spent on loading the compiler and on
starting the processes that compile kernels. Both can happen while data is being read. And what is compiled is kept in
the user's cache, so that the next training with the same blocks and shapes has it at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread

from regard.data.cache import cache_folder

KEPT = "TORCHINDUCTOR_CACHE_DIR"  # torch keeps Triton's kernels below it, unless TRITON_CACHE_DIR is set
AHEAD = "REGARD_COMPILER_AHEAD"  # "0": the compiler is loaded when it is needed, for measuring what this saves


def keep_compiled_code() -> None:
    """In the user's cache, unless a variable of torch names another folder. Torch's own is lost with /tmp."""
    folder = cache_folder("") / "compiled"
    with suppress(OSError):  # then it is torch's own
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            os.environ.setdefault(KEPT, str(folder))


@contextmanager
def compiler_ahead(needed: bool) -> Iterator[None]:
    """Where it will be `needed`: load the compiler in a second thread, while other work is done."""
    if needed:
        keep_compiled_code()
    if not needed or os.environ.get(AHEAD) == "0":
        yield
        return
    thread = Thread(target=_load, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _load() -> None:
    with suppress(Exception):  # whatever is wrong is told when it is used
        import_module("torch._inductor.compile_fx")
        from torch._inductor.async_compile import AsyncCompile
        from torch._inductor.codecache import torch_key
        from torch.utils._triton import has_triton

        if has_triton():
            # Kernels are compiled side by side only if these processes are there when the first is asked for.
            AsyncCompile.warm_pool()
            AsyncCompile.use_process_pool()
        torch_key()  # which version of torch code was compiled by: a digest of all its files, computed once
