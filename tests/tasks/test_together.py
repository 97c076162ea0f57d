"""Several processes train to the same bytes as one, whatever the task; and one may go on where several were stopped."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from command import Result, finish, forked_regard, running, tree
from command import regard as command
from kinds import KINDS
from regard import registry

# A thread each, as one process has here, too: more threads have other last bits.
PIECES = ["training.micro_batches=4", "system.threads=1"]
IN_HALVES = [*PIECES, "training.schedule=constant"]  # whose first half is the same, however long the whole is


@pytest.mark.parametrize("task", registry.names("tasks"))
def test_two_processes_give_the_bytes_of_one(task, request, tmp_path):
    kind = KINDS[task]
    data = ["--data", request.getfixturevalue(kind.data)] if kind.data else []
    words = ["train", kind.recipe, *kind.overrides, *PIECES, "training.steps=4", *data]
    command(*words, "--out", tmp_path / "alone")
    command(*words, "--out", tmp_path / "together", "--processes", "2")
    assert_same_run(tmp_path / "alone", tmp_path / "together")


def test_the_number_of_processes_may_change_on_the_way(tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *KINDS["synthetic"].overrides, *IN_HALVES, "--out"]
    command(*words, tmp_path / "alone")
    for steps, processes in ((4, "2"), (8, "4")):
        command(*words, tmp_path / "together", f"training.steps={steps}", "--resume", "--processes", processes)
    assert_same_run(tmp_path / "alone", tmp_path / "together")


def assert_same_run(alone: Path, together: Path) -> None:
    assert (alone / "model.safetensors").read_bytes() == (together / "model.safetensors").read_bytes()
    assert tree(alone) == tree(together), "a run folder never shows how many made it"


def in_rank(rank: int, program: str) -> str:
    """Python that only one of the processes runs."""
    return f"import os\nif os.environ.get('RANK') == '{rank}':\n" + "".join(
        f"    {line}\n" for line in program.splitlines()
    )


AT_STEP_FOUR = """
from regard.training.loop import Trainer
after = Trainer._after
def act(trainer, step):
    after(trainer, step)
    if step == 4: {act}
Trainer._after = act
"""
SYNTHETIC = [*KINDS["synthetic"].overrides, *PIECES]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of one process that nothing happened to."""
    out = tmp_path_factory.mktemp("alone") / "run"
    command("train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", out)
    return (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_ends_all_and_the_run_goes_on_to_the_same_bytes(rank, alone, tmp_path):
    out, act = tmp_path / "run", "import signal; os.kill(os.getpid(), signal.SIGKILL)"
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", out]
    killed = command(*words, "--processes", "2", before=in_rank(rank, AT_STEP_FOUR.format(act=act)), code=1)
    assert killed.error[-3:] == [
        f"Error: Process {rank} of 2 was ended by SIGKILL.",
        "The others cannot go on without it, and have ended, too.",
        "The same command with --resume continues from the last checkpoint.",
    ]
    command(*words, "--resume")
    assert (out / "model.safetensors").read_bytes() == alone


@pytest.mark.parametrize("rank", [0, 1])
def test_when_one_is_asked_to_stop_all_stop_after_the_same_step(rank, alone, tmp_path):
    out, act = tmp_path / "run", "import signal; os.kill(os.getpid(), signal.SIGTERM)"
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", out]
    stopped = command(*words, "--processes", "2", before=in_rank(rank, AT_STEP_FOUR.format(act=act)), code=130)
    assert stopped.stderr.count("Stopped.") == 1 and "Step 5 is saved." in stopped.stderr
    command(*words, "--resume")
    assert (out / "model.safetensors").read_bytes() == alone


def test_an_error_of_all_is_told_once(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "note").write_text("mine")
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", tmp_path / "run", "--processes", "2"]
    result = command(*words, code=1)
    assert result.stderr.count("Error:") == 1 and result.error[0].endswith("is already there.")
    few = command(*words, "training.micro_batches=1", code=2)
    assert few.stderr.count("Error:") == 1 and "cannot be dealt out to 2 processes" in few.error[0]


def started_by_hand(*words: object) -> list[Result]:
    """Two processes, without a launcher: each with its own last word."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for rank in range(2)
    ]
    *common, last = words
    with ExitStack() as stack:
        started = [
            stack.enter_context(running(*common, own, variables=variables, program=forked_regard()))
            for own, variables in zip(last, ranks, strict=True)
        ]
        return [finish(process) for process in started]


def test_processes_that_do_not_agree_are_told_on_what(tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", tmp_path / "run"]
    first, other = started_by_hand(*words, ["training.steps=8", "training.steps=12"])
    assert first.code == other.code == 2 and not other.stderr and not (tmp_path / "run").exists()
    assert first.error[0] == "Error: The processes of this training do not agree on the setting training.steps."


def test_an_environment_that_makes_no_sense_is_told(tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", tmp_path / "run"]
    variables = {"RANK": "x", "WORLD_SIZE": "2"}
    with running(*words, variables=variables, program=forked_regard()) as process:
        result = finish(process)
    assert result.code == 2 and "do not say which process this is" in result.stderr


def test_the_quicker_sum_is_nearly_the_same(alone, tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "training.reduce=fast", "--out", tmp_path / "run"]
    command(*words, "--processes", "2")
    one, other = load(alone), load((tmp_path / "run" / "model.safetensors").read_bytes())
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight, rtol=0, atol=1e-4)
