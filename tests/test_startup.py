"""How commands start and end: no collecting while imports are made, and no work cut off at the end."""

import gc
import importlib.util
import subprocess
import sys

import pytest

from regard import registry
from regard.startup import uncollected

LEAVING = """
import sys, threading
from regard.startup import leave
print("before")
begun = threading.Event()
def work():
    begun.set()
    threading.main_thread().join()
    print("afterwards")
{thread}
leave({code})
"""


def left(thread: str, code: int) -> tuple[int, str]:
    program = LEAVING.format(thread=thread, code=code)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_what_was_written_is_not_lost_at_the_end(code):
    assert left("", code) == (code, "before\n")


def test_a_thread_with_work_to_do_is_waited_for():
    start = "threading.Thread(target=work).start(); begun.wait()"
    assert left(start, 3) == (3, "before\nafterwards\n")


def test_collecting_goes_on_after_imports_as_before():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_in_imports_is_not_swallowed():
    with pytest.raises(ImportError), uncollected():
        import regard.nothing_of_this_name  # noqa: F401
    assert gc.isenabled()


@pytest.mark.parametrize("task", registry.names("tasks"))
def test_what_is_imported_while_a_gpu_starts_is_there(task):
    for name in registry.load("tasks", task).used_on_gpu:
        assert importlib.util.find_spec(name) is not None
