"""Several processes train to the same bytes as one, whatever the task; and one may go on where several were stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load
from torch.distributed import TCPStore

from command import Result, tree
from command import regard as command
from kinds import KINDS
from regard import registry

# A thread each, as one process has here, too: more threads have other last bits.
PIECES = ["training.micro_batches=4", "system.threads=1"]


@contextmanager
def environments(count: int) -> Iterator[list[dict[str, str]]]:
    """What a launcher would tell each of so many processes; where they meet is held open here, as torchrun does it."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    yield [meet | {"RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count)]


def together(*words: object, each: Sequence[Sequence[str]], before: str = "", code: int = 0) -> list[Result]:
    """As many processes as `each` has entries, without a launcher; an entry is words for one of them."""
    with environments(len(each)) as variables, ThreadPoolExecutor(len(each)) as pool:
        started = [
            pool.submit(command, *map(str, words), *own, variables=mine, before=before, code=code)
            for own, mine in zip(each, variables, strict=True)
        ]
    return [process.result() for process in started]


# The process is asked to stop in the middle of a step; the others learn of it from the sum of that step.
STOPPED_IN_STEP = """
import os, signal
from regard.training.loop import Trainer
update = Trainer._update
def stopped(trainer, step, batch):
    if step == {step} and os.environ["RANK"] == "{rank}":
        os.kill(os.getpid(), signal.SIGTERM)
    return update(trainer, step, batch)
Trainer._update = stopped
"""


@pytest.mark.parametrize("task", registry.names("tasks"))
def test_one_two_four_and_one_process_in_turn_give_the_bytes_of_one_alone(task, request, tmp_path):
    kind = KINDS[task]
    data = ["--data", request.getfixturevalue(kind.data)] if kind.data else []
    words = ["train", kind.recipe, *kind.overrides, *PIECES, "training.steps=4", "training.save_every=1", *data]
    command(*words, "--out", tmp_path / "alone")
    for step, count in ((1, 1), (2, 2), (3, 4)):
        before = STOPPED_IN_STEP.format(step=step, rank=count - 1)
        ended = together(*words, "--out", tmp_path / "shared", "--resume", each=[[]] * count, before=before, code=130)
        assert f"Step {step} is saved." in ended[0].stderr
    command(*words, "--out", tmp_path / "shared", "--resume")
    assert_same_run(tmp_path / "alone", tmp_path / "shared")


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


def test_processes_that_do_not_agree_are_told_on_what(tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", tmp_path / "run"]
    first, other = together(*words, each=[["training.steps=8"], ["training.steps=12"]], code=2)
    assert not other.stderr and not (tmp_path / "run").exists()
    assert first.error[0] == "Error: The processes of this training do not agree on the setting training.steps."


def test_an_environment_that_makes_no_sense_is_told(tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "--out", tmp_path / "run"]
    result = command(*words, variables={"RANK": "x", "WORLD_SIZE": "2"}, code=2)
    assert "do not say which process this is" in result.stderr


def test_the_quicker_sum_is_nearly_the_same(alone, tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "training.reduce=fast", "--out", tmp_path / "run"]
    together(*words, each=[[], []])
    one, other = load(alone), load((tmp_path / "run" / "model.safetensors").read_bytes())
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight, rtol=0, atol=1e-4)
