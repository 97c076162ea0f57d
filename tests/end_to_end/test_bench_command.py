"""`regard bench mixers`: every mixer has a figure at every length."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from command import finish, forked_regard, regard, running, tree

MIXERS = ["attention", "unfused", "local", "hyena", "rnn", "lstm", "gru"]
LENGTHS = [32, 64, 128]
TINY = ["--lengths", "32,64,128", "--width", "16", "--rounds", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "mixers"


@pytest.fixture(scope="module")
def found(folder: Path) -> dict:
    return json.loads(regard("bench", "mixers", *TINY, "--seconds", "60", "--out", folder, "--json").stdout)


def test_every_mixer_has_a_figure_at_every_length(found):
    assert list(found["forward_backward"]) == MIXERS
    for points in found["forward_backward"].values():
        assert [point["length"] for point in points] == LENGTHS
        for point in points:
            time = point["milliseconds"]
            assert 0 < time["least"] <= time["median"] <= time["most"]
            assert point["megabytes"] >= 0 and point["rounds"] == 1
            assert not point["compiled"] and not point["captured"]
    assert found["complete"] and found["stopped"] == {}


def test_every_mixer_is_decoded_but_unfused_attention_which_is_attention_then(found):
    ways = {"hyena-all", "hyena-naive", "hyena-distilled"}
    assert set(found["decoding"]) == set(MIXERS) - {"unfused"} | ways
    for name, points in found["decoding"].items():
        assert [point["length"] for point in points] == LENGTHS
        assert all(point["microseconds"]["median"] > 0 and point["state_megabytes"] > 0 for point in points)
        last_tokens = 128 if name in ("hyena", "hyena-all") else 64
        assert points[-1]["from"] == 128 - last_tokens


def test_exponents_and_ratios_are_those_of_the_figures(found):
    assert set(found["exponents"]["time"]) == set(MIXERS)
    state = found["exponents"]["state"]["attention"]
    assert state == {"exponent": pytest.approx(1.0), "first": 32, "last": 128}, "twice the keys at twice the length"
    for row, attention, hyena in zip(
        found["attention_over_hyena"],
        found["forward_backward"]["attention"],
        found["forward_backward"]["hyena"],
        strict=True,
    ):
        assert row["length"] == attention["length"]
        assert row["time"] == pytest.approx(attention["milliseconds"]["median"] / hyena["milliseconds"]["median"])


def test_what_was_found_is_written(found, folder):
    assert {str(path) for path in tree(folder)} == {"bench.json", "bench.md", "mixers.png"}
    assert json.loads((folder / "bench.json").read_text()) == found
    assert (folder / "mixers.png").read_bytes().startswith(b"\x89PNG")
    page = " ".join((folder / "bench.md").read_text().split())
    assert "| length | attention | unfused | local | hyena | rnn | lstm | gru |" in page
    assert found["settings"]["lengths"] == LENGTHS and found["settings"]["heads"] == 1


def test_the_tables_have_lengths_down_and_mixers_across(tmp_path):
    asked = ["--mixers", "hyena,attention", "--no-decode", "--heads", "4", "--seconds", "60", "--out", tmp_path]
    first, table, *rest = regard("bench", "mixers", *TINY, *asked).stdout.split("\n\n")
    assert first.startswith("One mixer layer, causal, width 16")
    title, *rows = [line.split() for line in table.splitlines()]
    assert title == ["Forward", "+", "backward,", "milliseconds"]
    assert [row[0] for row in rows] == ["length", "32", "64", "128", "grows"]
    assert rows[0][1:] == ["hyena", "attention"]
    assert all(float(cell) > 0 for row in rows[1:4] for cell in row[1:])
    assert all(cell.startswith("T^") for cell in rows[4][2:])
    assert not any("token" in part for part in rest)


def test_a_mixer_stops_where_it_would_take_too_long(tmp_path):
    asked = ["--lengths", "64,65536", "--width", "16", "--mixers", "gru,lstm", "--no-decode", "--device", "cpu"]
    result = regard("bench", "mixers", *asked, "--seconds", "0.05", "--out", tmp_path, "--json")
    found = json.loads(result.stdout)
    assert found["complete"]
    assert 65536 not in [point["length"] for point in found["forward_backward"]["gru"]]
    assert "it would take some" in found["stopped"]["gru"]
    assert "gru stops: at " in result.stderr


def test_stopped_by_hand_it_keeps_what_was_measured(tmp_path):
    asked = ["--mixers", "attention,hyena", "--width", "64", "--rounds", "5", "--device", "cpu", "--out", tmp_path]
    with running("bench", "mixers", *asked, "--seconds", "30", program=forked_regard()) as process:
        assert process.stderr is not None
        while b"MB" not in (line := process.stderr.readline()):
            assert line, "it ended before the first figure"
        process.send_signal(signal.SIGINT)
        result = finish(process)
    assert result.code == 130
    assert "What was measured so far is in " in result.stderr
    found = json.loads((tmp_path / "bench.json").read_text())
    assert not found["complete"]
    assert found["forward_backward"]["attention"][0]["milliseconds"]["median"] > 0


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        (["mixer"], "'mixer' cannot be measured.", "Did you mean 'mixers'?"),
        (["mixers", "--lengths", "32,many"], "'many' is not the length", "Use --lengths 256"),
        (["mixers", "--lengths", "0,32"], "'0' is not the length", "Use --lengths 256"),
        (["mixers", "--lengths", ""], "'' is not the length", "Use --lengths 256"),
        (["mixers", "--mixers", "hyaena"], "There is no mixer 'hyaena'.", "Did you mean 'hyena'?"),
        (["mixers", "--width", "16", "--heads", "3", "--device", "cpu"], "3 heads do not divide", "Use --heads"),
        (["mixers", "--width", "15", "--device", "cpu"], "A width of 15 is odd.", "Use an even one."),
        (["mixers", "--device", "gpu"], "There is no device 'gpu'.", "Use auto, cpu"),
        (["mixers", "--rounds", "0"], "--rounds cannot be 0.", "--rounds 1"),
        (["mixers", "--seconds", "0"], "Invalid value for '--seconds'", "--help"),
    ],
)
def test_wrong_values_are_told_before_anything_is_measured(arguments, what, fix, tmp_path):
    result = regard("bench", *arguments, "--out", tmp_path / "out", code=2)
    assert result.stdout == "" and len(result.error) == 3
    assert what in result.error[0] and fix in result.error[2]
    assert not (tmp_path / "out").exists()
