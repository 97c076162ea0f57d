"""Whether to compile follows from the work ahead; compiled code is kept; the compiler is loaded in good time."""

import os
from pathlib import Path

import pytest

from command import regard
from regard.hardware import COMPILING, Hardware
from regard.run import read_recipe
from regard.settings import SystemSettings
from regard.training.compiling import KEPT, compiler_ahead, keep_compiled_code

# Recipe, changes, and whether compiling saves more than it takes.
GATED = "model.gated=true"  # for which no kernels are written
TRAININGS = {
    "GPT-2, gated, 200 steps of half a million tokens": ("gpt2-124m", ["training.steps=200", GATED], True),
    "kernels are there already": ("gpt2-124m", [], False),
    "but not for float32": ("gpt2-124m", ["system.precision=float32"], True),
    "GPT-2, 20 steps": ("gpt2-124m", ["training.steps=20", GATED], False),
    "the same tokens in one piece": ("gpt2-124m", ["training.steps=2000", "training.micro_batches=1", GATED], True),
    "a small model, 1,000 steps": ("shakespeare", [GATED], False),
    "a small model, 10,000 steps": ("shakespeare", ["training.steps=10000", GATED], True),
    "7,000 steps of eight blocks": ("multi30k", [GATED], True),
    "the same, not packed": ("multi30k", ["training.packing=no", GATED], False),
    "one call of a library": ("shakespeare", ["training.steps=10000", "model.mixer=gru"], False),
    "a tiny model, 1,500 steps": ("digits", [GATED], False),
    "24,000 steps of images": ("cifar10", [GATED], True),
    "no blocks": ("words", ["training.steps=1000000"], False),
}


@pytest.mark.parametrize(("recipe", "changes", "pays"), TRAININGS.values(), ids=TRAININGS)
def test_compiling_is_decided_from_the_work_ahead(recipe, changes, pays):
    assert (read_recipe(recipe, changes).saved_by_compiling > COMPILING) == pays


def test_micro_batches_and_blocks_count():
    whole, pieces, deep = (
        read_recipe("multi30k", changes).saved_by_compiling
        for changes in ([GATED], [GATED, "training.micro_batches=4"], [GATED, "model.decoder_layers=12"])
    )
    assert whole < pieces < 4 * whole  # the same numbers, in more passes
    assert deep == pytest.approx(2 * whole)  # 4 + 12 blocks instead of 4 + 4


def test_a_cpu_compiles_only_when_it_is_asked_to():
    for setting, compiled in (("auto", False), ("yes", True), ("no", False)):
        assert Hardware.choose(SystemSettings(device="cpu", compile=setting), 1e6).compile == compiled


@pytest.fixture
def no_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(KEPT, "")  # so that it is put back afterwards
    monkeypatch.delenv(KEPT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_compiled_code_is_kept_in_the_cache_of_the_user(no_folder, tmp_path):
    keep_compiled_code()
    assert os.environ[KEPT] == str(tmp_path / "cache" / "regard" / "compiled")
    assert Path(os.environ[KEPT]).is_dir()


def test_a_folder_that_is_named_to_torch_stays(no_folder, monkeypatch):
    monkeypatch.setenv(KEPT, "/elsewhere")
    keep_compiled_code()
    assert os.environ[KEPT] == "/elsewhere"


def test_without_a_cache_folder_it_is_where_torch_keeps_it(no_folder, tmp_path):
    (tmp_path / "cache").write_text("a file, where a folder is to be")
    keep_compiled_code()
    assert KEPT not in os.environ


def test_the_compiler_is_loaded_while_other_work_is_done(no_folder):
    """In another process, which has not loaded it yet; no random number is drawn."""
    program = (
        "import sys, torch\n"
        "from regard.training.compiling import compiler_ahead\n"
        "name, state = 'torch._inductor.compile_fx', torch.get_rng_state()\n"
        "with compiler_ahead(False): pass\n"
        "print(name in sys.modules)\n"
        "with compiler_ahead(True): pass\n"
        "print(name in sys.modules, torch.equal(torch.get_rng_state(), state))\n"
    )
    assert regard("--version", before=program).stdout.splitlines()[:2] == ["False", "True True"]


def test_an_error_in_the_other_work_is_not_lost(no_folder, monkeypatch):
    monkeypatch.setenv("REGARD_COMPILER_AHEAD", "0")
    with pytest.raises(ValueError, match="data"), compiler_ahead(True):
        raise ValueError("data")
