"""A disk that fails, a kill inside a save, a second training: a few cases of the audits in benchmarks/."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from faults import calls_of, disturb
from injection import Fault, why_not
from kills import inside_a_save, kill
from small_trainings import Workshop
from two_at_once import together

injected = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.environ["XDG_CACHE_HOME"])  # what a workshop sets is taken back
        yield Workshop(tmp_path_factory.mktemp("workshop"))


@injected
def test_every_kind_of_call_is_seen(workshop: Workshop):
    calls = calls_of(workshop, workshop.trainings["synthetic"])
    assert {call.kind for call in calls} == {"write", "flush", "rename", "mkdir", "open", "remove", "symlink"}
    assert [call for call in calls if call.kind == "rename" and call.path.endswith("/checkpoints/step-2")]
    assert [call for call in calls if call.kind == "write" and call.path.endswith("/.step-2.tmp/model.safetensors")]


FAULTS = {
    "a full disk in a checkpoint": Fault("full", 40, ("write",)),
    "an error of the disk when older checkpoints are removed": Fault("fail", 2, ("remove",), part="step-2"),
    "a kill when older checkpoints are removed": Fault("kill", 3, ("remove",), part="step-2"),
    "a kill when `best` is to be moved": Fault("kill", 2, ("rename",), part="/checkpoints/best"),
    "a checkpoint that cannot get its name": Fault("fail", 1, ("rename",), "EACCES", part="/checkpoints/step-4"),
    "a write that is cut short": Fault("short", 1, ("write",), part="/.step-6.tmp/"),
    "a kill in the middle of the final model": Fault("kill half-way", 1, ("write",), part="/.model.safetensors.tmp"),
    "a final model that cannot be flushed": Fault("fail", 1, ("flush",), part="/.model.safetensors.tmp"),
}


@injected
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_nothing_is_lost_and_resuming_gives_the_same_bytes(fault: Fault, workshop: Workshop):
    outcome = disturb(workshop, workshop.trainings["synthetic"], fault)
    assert outcome.problems == []
    assert outcome.after == {"kill": "killed", "kill half-way": "killed"}.get(fault.action, outcome.after)


@injected
def test_a_fine_tuning_killed_as_it_begins_still_has_the_tokenizer_of_the_run_it_starts_from(workshop: Workshop):
    fault = Fault("kill", 1, part=" 1/run/")  # the first call in its folder, which has just appeared
    assert disturb(workshop, workshop.trainings["classify-text from masked"], fault).problems == []


@injected
def test_a_training_killed_twice_inside_saves_ends_as_if_left_alone(workshop: Workshop):
    killed = kill(workshop, workshop.trainings["synthetic"], [inside_a_save, inside_a_save], seed=1)
    assert (len(killed.at), killed.inside_saves, killed.problems) == (2, 2, [])


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
def test_of_two_trainings_in_one_folder_one_is_refused(resumed: bool, workshop: Workshop):
    told, problems = together(workshop, workshop.trainings["synthetic"], resumed)
    assert problems == []
    assert told in ("Error: '/run' is in use.", "Error: '/run' is already there.")
