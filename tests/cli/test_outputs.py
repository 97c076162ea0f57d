"""Where a result goes: files that appear whole, links and pipes that stay what they are, and full disks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from regard.cli.classify import _shown as class_as_line
from regard.cli.detect import _lines as boxes_as_lines
from regard.cli.lines import destination, one_field
from regard.evaluation.classification import Guess
from regard.files import write_atomically


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with destination(tmp_path / "link.txt") as file:
        file.write("new")
        assert (tmp_path / "real.txt").read_text() == "old"
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "real.txt").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("whole", [False, True])
def test_a_pipe_is_written_to_and_not_replaced(tmp_path, whole):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    if whole:
        write_atomically(pipe, b"text")
    else:
        with destination(pipe) as file:
            file.write("text")
    reader.join()
    assert read == ["text"] and pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_a_full_disk_is_told_in_three_lines():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "regard", "recipes"]
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("Error: The output cannot be written.") and "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) == 3


def test_a_label_with_tabs_and_line_breaks_is_one_field():
    label = "a\tb\nc\u2028d é"
    box = {"label": label, "score": 0.5, "box": [1.0, 2.0, 3.0, 4.0]}
    [line] = boxes_as_lines({"image": "a.png", "found": [box]}).splitlines()
    assert line.split("\t") == ["a.png", r"a\tb\nc\u2028d é", "0.500", "1.0", "2.0", "3.0", "4.0"]
    assert one_field("plain é") == "plain é"
    [line] = class_as_line("text", Guess(label, 0.5, [(label, 0.5)]), 1, False).splitlines()
    assert line.split("\t") == [r"a\tb\nc\u2028d é", "0.5000"]
