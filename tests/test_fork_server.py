"""The forks that stand in for commands: what they are given, how they end, and that none is left."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from command import PATIENCE, forked_regard, regard, running


def test_a_fork_has_the_folder_the_environment_and_the_arguments_of_its_client(tmp_path: Path):
    tell = "import os, sys; print(os.getcwd(), os.environ['OMP_NUM_THREADS'], *sys.argv[1:], sep='|')"
    assert regard("markov", "--help", cwd=tmp_path, before=tell).stdout.startswith(f"{tmp_path}|1|markov|--help\n")


@pytest.mark.parametrize("end", ["sys.exit(7)", "os._exit(7)"])
def test_an_exit_code_is_passed_on(end: str):
    regard("--help", before=f"import os, sys; {end}", code=7)


def test_a_client_that_is_killed_takes_its_fork_along():
    tell = {"BEFORE_REGARD": "import os; print(os.getpid(), flush=True)"}
    with running("markov", "-", stdin=subprocess.PIPE, variables=tell, program=forked_regard()) as process:
        assert process.stdout
        fork = int(process.stdout.readline())
        assert is_there(fork)
    deadline = time.monotonic() + PATIENCE
    while is_there(fork):
        assert time.monotonic() < deadline, "the fork outlives its client"
        time.sleep(0.001)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
