"""`regard compare`, through the installed command: what it trains, what it leaves, and how it goes on."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command import environment, regard, tree, when

# The loss decides nothing here; without translating, a run takes a second.
QUICK = ["training.validate_bleu=false", "decoding.beam=1", "decoding.max_ratio=0.1"]

# Validated only at the end: the loss is no number long before.
WILD = "wild: training.learning_rate=1e30 training.validate_every=6 training.save_every=0"

# A comparison tells its trainings who it is. A training, at its first checkpoint, sends it Ctrl-C and waits for the
# SIGTERM that it then gets from it.
STOP_AT_THE_FIRST_CHECKPOINT = "import os; os.environ.setdefault('COMPARISON', str(os.getpid()))\n" + when(
    "os.rename",
    "/step-",
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    "        os.kill(int(os.environ['COMPARISON']), signal.SIGINT)\n"
    "        signal.sigwait({signal.SIGTERM})\n"
    "        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})\n"
    "        os.kill(os.getpid(), signal.SIGTERM)",
)


@pytest.fixture(scope="module")
def asked(tiny_recipe: Path) -> list[str | Path]:
    return ["compare", tiny_recipe, *QUICK, "--vary", "model.width=16,32", "--seeds", "2", "--steps", "10"]


@pytest.fixture(scope="module")
def done(asked: list[str | Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variants with two seeds, compared by the command."""
    out = tmp_path_factory.mktemp("compared") / "all"
    shown = regard(*asked, "--out", out, "--parallel", "2")
    (out.parent / "stdout").write_text(shown.stdout)
    (out.parent / "stderr").write_text(shown.stderr)
    return out


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "all", symlinks=True))


def trained_again(out: Path, before: dict[Path, int]) -> set[str]:
    """The runs whose summary is not the file that it was."""
    return {str(path.parent.relative_to(out)) for path, when in summaries(out).items() if before.get(path) != when}


def summaries(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("*/seed-*/summary.json")}


def test_every_variant_is_trained_with_every_seed_and_compared(done: Path):
    found = json.loads((done / "comparison.json").read_text())
    assert {variant["name"]: variant["seeds"] for variant in found["variants"]} == {
        "width=16": [1, 2],
        "width=32": [1, 2],
    }
    for variant in found["variants"]:
        scores = []
        for seed in (1, 2):
            run = done / variant["name"] / f"seed-{seed}"
            summary = json.loads((run / "summary.json").read_text())
            scores.append(summary["metrics"]["bleu"])
            config = (run / "config.toml").read_text()
            assert f"seed = {seed} " in config and f"width = {variant['name'][-2:]} " in config
            assert "steps = 10 " in config and "validate_every = 2 " in config and "warmup = 1 " in config
            assert "step 10: validation" in (run.parent / f"seed-{seed}.log").read_text()
        assert variant["metrics"]["bleu"]["values"] == scores
        assert variant["parameters"] == summary["parameters"]
        assert variant["per_second"] > 0 and variant["peak_memory_bytes"] > 2**26 and variant["steps"] == 10
    shown = (done.parent / "stdout").read_text()
    assert "±" in shown and shown.endswith(f"{done}\n{done / 'comparison.png'}\n")
    assert "width=16 · seed 2" in (done.parent / "stderr").read_text()
    assert (done / "comparison.png").stat().st_size > 20_000
    assert "| width=16" in (done / "comparison.md").read_text()
    steps = [json.loads(line) for line in (done / "width=16/seed-1/metrics.jsonl").read_text().splitlines()]
    seconds = [record["seconds"] for record in steps]
    assert seconds == sorted(seconds) and seconds[0] > 0


def test_the_same_command_again_trains_only_what_is_missing(asked: list[str | Path], copy: Path):
    scores = json.loads((copy / "comparison.json").read_text())
    shutil.rmtree(copy / "width=16" / "seed-2")
    before = summaries(copy)
    again = json.loads(regard(*asked, "--out", copy, "--json").stdout)
    assert trained_again(copy, before) == {"width=16/seed-2"}
    for key in ("metrics", "seeds", "parameters"):
        assert [variant[key] for variant in again["variants"]] == [variant[key] for variant in scores["variants"]]


def test_seeds_may_be_added_and_settings_may_not_change(asked: list[str | Path], copy: Path):
    before = summaries(copy)
    instead = {"2": "1,2,4", "model.width=16,32": "model.width=16"}
    more = [instead.get(str(part), part) for part in asked]
    found = json.loads(regard(*more, "--out", copy, "--json").stdout)
    assert trained_again(copy, before) == {"width=16/seed-4"}
    assert found["variants"][0]["seeds"] == [1, 2, 4]
    held = tree(copy)
    budget = [*asked, "--out", copy]
    budget[budget.index("10")] = "12"
    assert "was made with other settings" in regard(*budget, code=2).error[0]
    other = regard(*asked, "--out", copy, "model.layers=2", code=2).error
    assert "model.layers=2" in other[1] and "--out DIR" in other[2]
    (copy / "plan.json").write_text((copy / "plan.json").read_text().replace("decoding.beam=1", "decoding.beam=2"))
    asked_now = [part if part != "decoding.beam=1" else "decoding.beam=2" for part in asked]
    changed = regard(*asked_now, "--out", copy, code=2).error
    assert "was trained with other settings" in changed[0] and "decoding.beam = 1" in changed[1]
    assert tree(copy) == held


def test_stopping_saves_and_the_same_command_goes_on(asked: list[str | Path], done: Path, tmp_path: Path):
    out = tmp_path / "stopped"
    command = [part if part != "model.width=16,32" else "model.width=16" for part in asked] + ["--out", out]
    result = regard(*command, before=STOP_AT_THE_FIRST_CHECKPOINT, code=130)
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("Stopped. ")
    assert "Give the same command again" in result.stderr
    assert not (out / "comparison.json").exists() and not (out / "width=16" / "seed-2").exists()
    regard(*command)
    assert "Continuing from step" in (out / "width=16" / "seed-1.log").read_text()
    for name in ("width=16/seed-1", "width=16/seed-2"):
        weights = [(folder / name / "model.safetensors").read_bytes() for folder in (out, done)]
        assert weights[0] == weights[1]


def test_a_failing_variant_does_not_stop_the_others(tiny_recipe: Path, tmp_path: Path):
    result = regard(
        "compare", tiny_recipe, *QUICK, "--variant", WILD, "--variant", "as it is:",
        "--seeds", "5,", "--steps", "6", "--out", "out", cwd=tmp_path, code=1,
    )  # fmt: skip
    lines = result.stdout.splitlines()
    assert lines[1].startswith("as it is") and lines[2].startswith("wild")
    assert "seed 5: Training stopped at step" in lines[2]
    found = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [list(variant["failed"]) for variant in found["variants"]] == [[], ["5"]]
    assert (tmp_path / "out" / "as_it_is" / "seed-5" / "summary.json").is_file()


def test_seconds_become_steps_by_a_probe_that_leaves_nothing(tiny_recipe: Path, tmp_path: Path):
    command = ["compare", tiny_recipe, *QUICK, "training.validate_every=1000000", "--vary", "model.layers=1,2"]
    command += ["--seeds", "1", "--seconds", "1"]
    first = regard(*command, "--out", tmp_path / "out", "--json")
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())["variants"]
    own = "training.steps=20"  # the recipe's; where so many fit into a second, nothing is to be set
    told = {name: [*planned["settings"], own][0] for name, planned in plan.items()}
    steps = {name: int(setting.removeprefix("training.steps=")) for name, setting in told.items()}
    # A figure was measured for each, whatever it was on a machine that may be busy, and the steps follow from it.
    measured = re.findall(r"([\d.,]+) ms \w+ step: ([\d,]+) steps in ", first.stderr)
    assert [int(count.replace(",", "")) for _, count in measured] == list(steps.values())
    for shown, count in measured:
        pace = float(shown.replace(",", ""))
        assert int(count.replace(",", "")) == pytest.approx(max(1, 1000 / pace), abs=1, rel=0.1 / pace)
    assert {variant["name"]: variant["steps"] for variant in json.loads(first.stdout)["variants"]} == steps
    assert not list((tmp_path / "out").glob(".probe*"))
    before = summaries(tmp_path / "out")
    again = regard(*command, "--out", tmp_path / "out", "--json")
    assert "Measuring the speed" in first.stderr and "Measuring the speed" not in again.stderr
    assert trained_again(tmp_path / "out", before) == set()


def test_trained_runs_are_compared_as_they_are(done: Path, tmp_path: Path):
    runs = sorted(done.glob("*/seed-?"))
    shown = regard("compare", *runs)
    assert {line.split()[0] for line in shown.stdout.splitlines()[1:3]} == {"width=16", "width=32"}
    found = json.loads(regard("compare", *runs, "--out", tmp_path / "new", "--json").stdout)
    before = json.loads((done / "comparison.json").read_text())
    assert [variant["metrics"] for variant in found["variants"]] == [
        variant["metrics"] for variant in before["variants"]
    ]
    assert (tmp_path / "new" / "comparison.png").is_file()


MISTAKES = {
    "unknown setting": ("{recipe} --vary model.widht=16,32", "model.widht", 2),
    "one wrong value of several": ("{recipe} --vary model.width=16,wide", "'wide'", 2),
    "values that do not fit": ("{recipe} --vary model.heads=2,3", "heads = 3 does not divide", 2),
    "nothing to vary": ("{recipe} --seeds 3", "nothing to compare", 2),
    "vary without values": ("{recipe} --vary model.width", "'model.width' says nothing", 2),
    "the same twice": ("{recipe} --vary model.width=16,16", "a name of its own", 2),
    "a variant without a colon": ("{recipe} --variant model.width=16", "is not a variant", 2),
    "both ways": ("{recipe} --vary model.width=16,32 --variant a:", "cannot be given together", 2),
    "no seeds": ("{recipe} --vary model.width=16,32 --seeds 0", "--seeds 0", 2),
    "a seed twice": ("{recipe} --vary model.width=16,32 --seeds 4,4", "--seeds 4,4", 2),
    "a seed as a setting": ("{recipe} seed=4 --vary model.width=16,32", "--seeds", 2),
    "two budgets": ("{recipe} --vary model.width=16,32 --steps 5 --seconds 5", "--steps and --seconds", 2),
    "steps said twice": ("{recipe} training.steps=9 --vary model.width=16,32 --steps 5", "training.steps and", 2),
    "missing data": ("{recipe} --vary model.width=16,32 --data .", "missing", 1),
    "no recipe": ("nothing-like-it --vary model.width=16,32", "no recipe 'nothing-like-it'", 2),
    "a folder that is something else": ("{recipe} --vary model.width=16,32 --out {corpus}", "not a comparison", 1),
    "runs of two tasks": ("{run} {words}", "different tasks", 2),
    "a run that is none": ("{run} {corpus}", "is not a run folder", 1),
    "settings for runs": ("{run} {run} --seeds 3", "take no further settings", 2),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_before_anything_is_trained(
    name: str, tiny_recipe: Path, corpus: Path, run: Path, request: pytest.FixtureRequest, tmp_path: Path
):
    command, says, code = MISTAKES[name]
    places = {"recipe": tiny_recipe, "corpus": corpus, "run": run}
    if "{words}" in command:
        places["words"] = request.getfixturevalue("words").folder.path
    result = regard("compare", *command.format(**places).split(" "), cwd=tmp_path, code=code)
    assert result.stdout == "" and len(result.error) == 3, result.stderr
    assert says in " ".join(result.error)
    assert tree(tmp_path) == set()


def test_a_mistake_is_told_without_loading_torch(tiny_recipe: Path):
    code = (
        "import sys; from regard.cli.app import app; import regard.cli\n"
        f"try: app(['compare', {str(tiny_recipe)!r}, '--vary', 'model.widht=1,2'], standalone_mode=False)\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print([name for name in ('torch', 'matplotlib', 'sklearn') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert shown.stdout.split("\n")[:2] == ["UsageError", "[]"]


def test_a_comparison_of_made_up_sequences_goes_on_too(tmp_path: Path):
    asked = ["compare", "reverse", "training.steps=4", "training.validate_every=4", "model.width=16", "model.heads=1"]
    asked += ["model.layers=1", "--vary", "synthetic.kind=copy,sort", "--out", str(tmp_path / "out")]
    regard(*asked, "--seeds", "1,", "--json")
    again = regard(*asked, "--seeds", "1,2", "--json")
    assert "2 of 4 trainings are finished already" in again.stderr
    assert [variant["seeds"] for variant in json.loads(again.stdout)["variants"]] == [[1, 2], [1, 2]]
