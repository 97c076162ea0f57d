"""`regard reproduce`: what is finished is kept, what was stopped continues, and the report opens alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from expect import error_of
from regard import claims
from regard.claims import __main__ as worker
from regard.claims.frame import results
from regard.claims.frame.claim import About, Budget, Claim, Measured, Seeds, depends, holds
from regard.claims.frame.pictures import chart, number
from regard.claims.frame.report import markdown, page, table
from regard.cli.app import app
from regard.cli.reproduce import choose
from regard.errors import RegardError
from regard.files import locked


def made_up(file: Path, asked: list[int], fails_at: int = 0) -> Claim:
    """A claim whose experiment notes for which seeds it was asked."""

    def experiment(budget: Budget, seeds: list[int]) -> Measured:
        if fails_at in seeds:
            raise KeyboardInterrupt
        asked.extend(seeds)
        return Measured({"size": [float(seed) for seed in seeds], "curve": [[seed, np.nan] for seed in seeds]})

    about = About("A <b>.", ("003",), "blocks", "a size.", "it is large.", {"size": "its size"}, Seeds(3, 3, 3))
    judge = lambda measured: depends("seeds", f"The mean is {measured.mean('size')}.")  # noqa: E731
    return Claim("made-up", about, experiment, False, judge, lambda measured: chart("A <b>.", "x", "y")[0], file)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "made_up.py").write_text("one")
    return tmp_path / "made_up.py"


def run(claim: Claim, folder: Path, size: str = "tiny") -> results.Result:
    return results.reproduce(claim, Budget(size, folder), lambda done, text: None)


def test_what_is_finished_is_not_measured_again(tmp_path, source):
    asked: list[int] = []
    first, again = (run(made_up(source, asked), tmp_path / "out") for _ in range(2))
    assert asked == [1, 2, 3] and not first.kept and again.kept
    assert first.to_json() == again.to_json()
    assert first.figures[0]["mean"] == 2 and first.figures[0]["half_width"] == pytest.approx(2.4841, abs=1e-4)
    assert np.isnan(again.measured["curve"][0, 1])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"made-up.json", "made-up.png", "made-up.svg"}


def test_a_stopped_claim_goes_on_at_its_next_seed(tmp_path, source):
    asked: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run(made_up(source, asked, fails_at=3), tmp_path)
    assert asked == [1, 2]
    assert run(made_up(source, asked), tmp_path).seeds == asked == [1, 2, 3]


@pytest.mark.parametrize("change", ["file", "size", "damage"])
def test_another_claim_another_size_or_a_damaged_result_is_measured_again(tmp_path, source, change):
    asked: list[int] = []
    run(made_up(source, asked), tmp_path)
    if change == "file":
        source.write_text("two")
    elif change == "damage":
        (tmp_path / "made-up.json").write_text('{"claim": "made-up", "measured": 3')
    run(made_up(source, asked), tmp_path, "normal" if change == "size" else "tiny")
    assert asked == [1, 2, 3] * 2


def test_a_claim_without_its_data_is_told_and_not_kept(tmp_path, source):
    claim = made_up(source, [])

    def missing(budget: Budget, seeds: list[int]) -> Measured:
        raise RegardError("There is no data.", "It was not found.", "Get it.")

    result = run(Claim(**{**vars(claim), "experiments": missing}), tmp_path)
    assert result.verdict.outcome == "not run" and "no data" in result.verdict.words
    assert not (tmp_path / "made-up.json").exists()
    assert "not run" in table([result]) and "not run" in page([result], tmp_path)


class Names(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if values.get("id") else []
        self.outside += [value for key, value in attributes if key in ("src", "href") and not value.startswith("#")]


def test_the_report_is_one_file_that_needs_nothing_else(tmp_path, source):
    one = run(made_up(source, []), tmp_path)
    other_claim = Claim(**{**vars(made_up(source, [])), "name": "another"})
    text = page([one, run(other_claim, tmp_path)], tmp_path)
    names = Names(text)
    assert text.count("<svg") == 2 and not names.outside
    assert len(names.ids) == len(set(names.ids)) > 10
    assert "<b>" not in text and "A &lt;b&gt;." in text
    referred = re.findall(r'(?:href="|url\()#([^")]+)', text)
    assert set(referred) <= set(names.ids)


def test_the_markdown_has_threshold_and_verdict(tmp_path, source):
    text = markdown([run(made_up(source, []), tmp_path)])
    assert "### made-up: depends on seeds" in text and "Holds if: it is large." in text and "its size: 2 ± 2.48" in text


SHORT = {0: "0", 1: "1", 1.5e-7: "1.5e-7", 0.99842: "0.9984", 3187.2: "3,187", 2.5e6: "2.5e6", 12.34: "12.3"}


@pytest.mark.parametrize(("value", "shown"), SHORT.items())
def test_numbers_are_short(value, shown):
    assert number(value) == shown


def test_claims_are_chosen_by_name_group_and_deck():
    assert [claim.name for claim in choose(["svm"], "", False)] == ["svm", "svm-factors", "svm-sequence"]
    assert [claim.name for claim in choose(["patches", "scaling"], "", False)] == ["scaling", "patches"]
    assert {claim.name for claim in choose([], "003", False)} >= {"markov-tables", "permutation"}
    assert [claim.name for claim in choose(["attention"], "002", False)] == ["heads", "scaling", "soft-dictionary"]
    assert len(choose([], "", False)) == len(claims.names())


def test_what_there_is_not_is_told_with_the_nearest():
    assert error_of(choose, ["patch"], "", False).fix == "Did you mean 'patches'?"
    assert "000" in error_of(choose, [], "007", False).fix
    assert "--deck" in error_of(choose, ["patches"], "003", False).fix


def test_the_command_runs_lists_and_continues(tmp_path):
    def command(*words: str) -> str:
        result = CliRunner().invoke(app, ["reproduce", *words, "-o", str(tmp_path / "out")], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    listed = json.loads(command("markov-tables", "byte-pairs", "--list", "--json"))
    assert [each["claim"] for each in listed] == ["markov-tables", "byte-pairs"] and not (tmp_path / "out").exists()
    shown = command("markov-tables", "--tiny", "--markdown", str(tmp_path / "claims.md"))
    assert "holds" in shown and "report.html" in shown
    content = json.loads(command("markov-tables", "--tiny", "--json"))
    (claim,) = content["claims"]
    assert claim["verdict"] == "holds" and claim["figures"][0] == {
        "name": "differences",
        "what": "cells that differ from the deck's tables",
        "mean": 0.0,
        "half_width": None,
    }
    assert Path(content["report"]).is_file() and Path(claim["picture"]).is_file()
    written = (tmp_path / "claims.md").read_text()
    assert "markov-tables: holds" in written and "not to believe" in written and "not to believe" in shown
    folder = tmp_path / "out" / "tiny"
    assert Path(content["report"]).parent == folder, "what is tiny never takes the place of what is not"
    (folder / "markov-tables.svg").write_text("<svg")
    command("one-hot", "--tiny")
    both = (folder / "report.html").read_text()
    assert both.count("<section") == both.count("</svg>") == 2, "all that is finished, with whole pictures"


def test_a_device_that_is_not_there_is_an_error(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "one-hot", "--device", "cuda:7", "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, RegardError) and not (tmp_path / "out").exists()


@pytest.fixture
def as_many_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_worker_leaves_what_another_has_taken(tmp_path, as_many_threads):
    (tmp_path / "taken" / "markov-skips").mkdir(parents=True)
    with locked(tmp_path / "taken" / "markov-skips"):
        worker.main("tiny", "cpu", str(tmp_path), "markov-tables", "markov-skips")
    assert {path.name for path in tmp_path.glob("*.json")} == {"markov-tables.json"}
    worker.main("tiny", "cpu", str(tmp_path), "markov-tables", "markov-skips")
    assert {path.name for path in tmp_path.glob("*.json")} == {"markov-tables.json", "markov-skips.json"}


def test_claims_that_were_run_side_by_side_come_out_as_one_after_the_other(tmp_path):
    def command(*words: str) -> list[dict]:
        words = ("reproduce", "markov-tables", "markov-skips", "--tiny", "--json", *words)
        content = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
        return [{**claim, "seconds": 0, "picture": ""} for claim in content["claims"]]

    both, one = (command("--parallel", str(count), "-o", str(tmp_path / str(count))) for count in (2, 1))
    assert both == one
    two, alone = tmp_path / "2" / "tiny", tmp_path / "1" / "tiny"
    assert all((two / "logs" / f"{number}.log").is_file() for number in (0, 1))
    assert not (two / "taken").exists() and not (alone / "logs").exists()


def test_verdicts_name_what_they_depend_on():
    assert str(holds("It does.")) == "holds" and str(depends("the mask", "It does.")) == "depends on the mask"
