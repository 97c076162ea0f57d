"""Tables as text: columns stand below each other, nothing is cut, and Markdown stays Markdown."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from regard.tables import markdown_table, text_table

HEAD = ["name", "loss", "remark"]
ROWS = [["a", "1.25", "fine"], ["long name", "10.00", "[bold]not markup[/bold]"], ["狐", "–", ""]]


def test_numbers_stand_to_the_right_and_text_to_the_left():
    assert text_table(HEAD, ROWS, "<><").splitlines() == [
        "name        loss  remark",
        "a           1.25  fine",
        "long name  10.00  [bold]not markup[/bold]",
        "狐             –",
    ]
    assert text_table(HEAD[:2], [["a", "1"]]).splitlines() == ["name  loss", "a        1"]


def test_what_is_not_a_terminal_has_no_width(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    rows = [["word " * 100_000, "1"] for _ in range(2)]
    lines = text_table(["name", "count"], rows).splitlines()
    assert len(lines) == 3 and len(lines[1]) > 500_000 and "\x1b" not in lines[0]


def test_on_a_terminal_text_is_wrapped_and_numbers_are_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    shown = text_table(["name", *["number"] * 3], [["many words in one cell of it", *["123,456,789"] * 3]])
    assert shown.count("123,456,789") == 3 and len(shown.splitlines()) > 2


def test_markdown_is_aligned_and_a_bar_does_not_end_a_cell():
    lines = markdown_table(HEAD, [*ROWS, ["a|b", "2.00", ""]], "<><").splitlines()
    assert len({cell_len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[1].split("|")[1:-1]] == ["---------", "----:", "-" * 23]
    assert lines[-1].startswith("| a\\|b ")
