"""Several processes train to the same bytes as one, whatever the task; and one may go on where several were stopped."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load
from torch.distributed import TCPStore

from command import Result, forked_regard, running, tree
from command import regard as command
from kinds import KINDS
from regard import registry
from regard.cli.launch import why
from regard.errors import LOST, UNANSWERED, RegardError

# A thread each, as one process has here, too: more threads have other last bits.
PIECES = ["training.micro_batches=4", "system.threads=1"]


@contextmanager
def environments(count: int) -> Iterator[list[dict[str, str]]]:
    """What a launcher would tell each of so many processes; where they meet is held open here, as torchrun does it."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    yield [meet | {"RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count)]


def together(
    *words: object,
    each: Sequence[Sequence[str]],
    before: str = "",
    code: int = 0,
    limits: Sequence[dict[int, int]] = ({},) * 4,
) -> list[Result]:
    """As many processes as `each` has entries, without a launcher; an entry is words for one of them."""
    with environments(len(each)) as variables, ThreadPoolExecutor(len(each)) as pool:
        started = [
            pool.submit(command, *map(str, words), *own, variables=mine, before=before, code=code, limits=least)
            for own, mine, least in zip(each, variables, limits, strict=False)
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


# How many processes train, one after the other: of every task, and of two with four of them. `benchmarks/together.py`
# has four for all.
IN_TURN = [(task, (1, 2)) for task in registry.names("tasks")] + [("translate", (2, 4)), ("synthetic", (4,))]


@pytest.mark.parametrize(("task", "in_turn"), IN_TURN)
def test_several_numbers_of_processes_in_turn_give_the_bytes_of_one_alone(task, in_turn, request, tmp_path):
    kind = KINDS[task]
    data = ["--data", request.getfixturevalue(kind.data)] if kind.data else []
    words = ["train", kind.recipe, *kind.overrides, *PIECES, "training.steps=4", "training.save_every=1", *data]
    command(*words, "--out", tmp_path / "alone")
    for step, count in enumerate(in_turn, start=1):
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


def words_for(out: Path, *changes: str) -> list[str]:
    return ["train", KINDS["synthetic"].recipe, *SYNTHETIC, *changes, "--out", str(out)]


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"RANK": "x"}, "which process this is"),
        ({"RANK": "2"}, "which process this is"),
        ({}, "which process this is"),
        ({"RANK": "1"}, "where the processes meet"),
        ({"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "99999"}, "where the processes meet"),
    ],
)
def test_an_environment_that_makes_no_sense_is_told_by_the_process_that_has_it(variables, what, tmp_path):
    result = command(*words_for(tmp_path / "run"), variables={"WORLD_SIZE": "2"} | variables, code=2)
    assert result.error[0].endswith(f"do not say {what}.") and len(result.error) == 3


def test_processes_that_do_not_all_come_end_when_patience_does(tmp_path):
    with environments(2) as (first, second):
        gone = {"MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "False"}  # where nobody listens
        nameless = gone | {"MASTER_ADDR": "x" * 64}
        with ThreadPoolExecutor(3) as pool:
            told = [
                pool.submit(command, *words_for(tmp_path / "run", "system.patience=1"), variables=variables, code=1)
                for variables in (first, second | gone, second | nameless)
            ]
    meeting = f"127.0.0.1:{first['MASTER_PORT']}"
    assert [each.result().error[:2] for each in told] == [
        ["Error: The processes of this training did not come together.", why]
        for why in (
            f"Not all others came to {meeting} within system.patience = 1 seconds.",
            "The first was not at 127.0.0.1:1 within system.patience = 1 seconds.",
            f"The name '{'x' * 64}' of MASTER_ADDR cannot be resolved.",
        )
    ]
    assert not (tmp_path / "run").exists()


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, environments(2) as (first, _):
        own = {"MASTER_PORT": str(taken.getsockname()[1]), "TORCHELASTIC_USE_AGENT_STORE": "False"}
        result = command(*words_for(tmp_path / "run"), variables=first | own, code=1)
    assert result.error[1] == f"Port {own['MASTER_PORT']} of this machine is taken by another program."


def test_a_process_without_a_gpu_among_others_is_named(tmp_path):
    # No process has one here. One of them knows, as it asks for one.
    first, other = together(*words_for(tmp_path / "run"), each=[[], ["system.device=cuda"]], code=2)
    assert first.error[0] == "Error: The processes of this training do not have the same kind of device."
    assert first.error[1].startswith("Process 0 has cpu, gloo; process 1 has none: system.device = 'cuda' is not")
    assert not other.stderr


OTHERS = {
    "the version of Regard": "import regard.run; regard.run.__version__ = '0'",
    "the run folder": "from pathlib import Path; resolve = Path.resolve; Path.resolve = lambda p: resolve(p) / 'other'",
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_version_or_folder_on_one_machine_is_named(what, tmp_path):
    first, other = together(*words_for(tmp_path / "run"), each=[[], []], before=in_rank(1, OTHERS[what]), code=2)
    assert first.error[0] == f"Error: The processes of this training do not agree on {what}." and not other.stderr


def test_a_run_folder_that_is_not_shared_is_told_by_the_machine_that_has_none(tmp_path):
    elsewhere = f"""
from pathlib import Path
is_dir = Path.is_dir
Path.is_dir = lambda path: {str(tmp_path)!r} not in str(path) and is_dir(path)
"""
    first, other = together(*words_for(tmp_path / "run"), each=[[], []], before=in_rank(1, elsewhere), code=1)
    assert other.error[0] == f"Error: There is no '{tmp_path / 'run'}' here."
    assert first.error[0] == "Error: Another process has ended." and not (tmp_path / "run").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_disk_of_one_process_that_is_full_ends_all(rank, tmp_path):
    limits = [{}, {}]
    limits[rank] = {resource.RLIMIT_FSIZE: 100}
    told = together(*words_for(tmp_path / "run"), each=[[], []], limits=limits, code=1)
    assert "File too large" in told[rank].error[1]
    assert told[1 - rank].error[0] == "Error: Another process has ended."


# Set when all have met: how long that takes depends on what else the machine does.
IMPATIENT = """
from datetime import timedelta
from torch.distributed.distributed_c10d import _set_pg_timeout
_set_pg_timeout(timedelta(seconds=1))
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_others_of_a_process_that_hangs_wait_as_long_as_patience_says(rank, tmp_path):
    hang = in_rank(rank, AT_STEP_FOUR.format(act="import signal; os.kill(os.getpid(), signal.SIGSTOP)"))
    wait = in_rank(1 - rank, AT_STEP_FOUR.format(act=f"exec({IMPATIENT!r})"))
    with environments(2) as variables:
        hung = variables[rank] | {"BEFORE_REGARD": hang}
        with running(*words_for(tmp_path / "run"), variables=hung, program=forked_regard()):
            told = command(*words_for(tmp_path / "run"), variables=variables[1 - rank], before=wait, code=1)
    assert told.error[0] == "Error: Another process of this training does not answer."


FAILURES = {
    "one is killed, the other notices": ({0: (LOST, 0), 1: (-9, 0)}, "Process 1 of 2 was ended by SIGKILL."),
    "one is killed, the other is ended": ({0: (-9, 0), 1: (-15, 1)}, "Process 0 of 2 was ended by SIGKILL."),
    "one hangs": ({0: (UNANSWERED, 0), 1: (-9, 31)}, "Process 1 of 2 did not answer."),
    "the first hangs": ({0: (-9, 31), 1: (UNANSWERED, 0)}, "Process 0 of 2 did not answer."),
    "one is slow": ({0: (130, 1), 1: (UNANSWERED, 0)}, "Process 0 of 2 did not answer."),
    "one alone is stopped": ({0: (130, 0), 1: (LOST, 0)}, 130),
    "one fails": ({0: (LOST, 1), 1: (2, 0)}, 2),
    "one fails while another is slow": ({0: (-15, 1), 1: (1, 0)}, 1),
    "all are stopped": ({0: (130, 0), 1: (130, 0)}, 130),
}


@pytest.mark.parametrize("case", FAILURES)
def test_the_launcher_says_what_its_processes_cannot(case):
    codes, expected = FAILURES[case]
    failures = {rank: SimpleNamespace(exitcode=code, timestamp=time) for rank, (code, time) in codes.items()}
    if isinstance(expected, int):
        assert why(failures, 2, patience=5) == expected
    else:
        with pytest.raises(RegardError) as error:
            why(failures, 2, patience=5)
        assert error.value.what == expected


def test_processes_of_processes_are_refused(tmp_path):
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}
    told = command(*words_for(tmp_path / "run"), "--processes", "2", variables=variables, code=2)
    assert told.error[0] == "Error: --processes 2 cannot be had here." and not (tmp_path / "run").exists()


def test_the_quicker_sum_is_nearly_the_same(alone, tmp_path):
    words = ["train", KINDS["synthetic"].recipe, *SYNTHETIC, "training.reduce=fast", "--out", tmp_path / "run"]
    together(*words, each=[[], []])
    one, other = load(alone), load((tmp_path / "run" / "model.safetensors").read_bytes())
    for name, weight in one.items():
        if name.endswith("to_qkv.bias"):
            # That of keys adds the same to all scores of a query: its gradient is rounding, of which Adam makes steps.
            keys = slice(len(weight) // 3, 2 * len(weight) // 3)
            weight[keys] = other[name][keys] = 0
        torch.testing.assert_close(other[name], weight, rtol=0, atol=1e-4)
