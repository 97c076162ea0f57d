"""Decoding in processes: the same bytes as in threads, clear errors, and nothing left running."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from expect import error_of
from image_sources import idx, mnist, png, tar, write
from photos import Photos, spoil
from regard.data import image_workers
from regard.data.image_cache import image_splits
from regard.data.image_decoding import OneOfAll, Read
from regard.data.image_entries import Entry, NoLabel
from regard.data.image_workers import Worker, decoded_in_order
from regard.data.images import BadImage, Form
from regard.settings import ImageData, ImageSettings

FORM = Form(4, 4, True, "crop")


@pytest.fixture
def started(monkeypatch) -> list[Worker]:
    """All processes that are started; two are, for however few images."""
    workers: list[Worker] = []

    class Recorded(Worker):
        def __init__(self, form: Form, target: Path):
            super().__init__(form, target)
            workers.append(self)

    monkeypatch.setattr(image_workers, "Worker", Recorded)
    monkeypatch.setattr(image_workers, "WORTH", 1e-9)
    monkeypatch.setattr(image_workers, "TIMED", 5)
    monkeypatch.setattr(image_workers, "cores", lambda: 2)
    return workers


@pytest.fixture
def worker(tmp_path):
    target = tmp_path / "pixels"
    target.write_bytes(bytes(9 * FORM.bytes))
    worker = Worker(FORM, target)
    yield worker
    worker.stop()


def files_of(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", ["folder", "archive", "idx"])
def test_processes_write_the_same_bytes_as_threads(tmp_path, started, monkeypatch, form):
    if form == "idx":
        path = write(tmp_path / "idx", mnist(70, 9) | {"train-labels-idx1-ubyte": idx(70)})
    else:
        photos = Photos(tmp_path).add("train/dog", range(40)).add("train/cat", range(40, 80))
        photos.add("test/cat", range(80, 90)).add("elsewhere/cat", range(90, 95))
        spoil(photos.folder / "train" / "dog")
        (photos.folder / "train" / "empty.png").write_bytes(b"")
        path = photos.folder
        if form == "archive":
            files = sorted(path.rglob("*.*"))
            path = tar(tmp_path / "a.tar", {str(file.relative_to(path)): file.read_bytes() for file in files})
    settings = ImageSettings(size=4, fit="pad", colour=form != "idx")
    in_processes = image_splits(ImageData(images=str(path), cache=str(tmp_path / "processes")), settings)
    assert len(started) == 2
    assert all(worker.process.poll() is not None for worker in started), "none is left running"
    monkeypatch.setattr(image_workers, "WORTH", 1e9)
    in_threads = image_splits(ImageData(images=str(path), cache=str(tmp_path / "threads")), settings)
    assert len(started) == 2
    assert files_of(tmp_path / "processes") == files_of(tmp_path / "threads")
    assert in_processes.skipped == in_threads.skipped
    assert len(in_processes.skipped) == (0 if form == "idx" else 8)


def test_few_images_are_decoded_without_processes(photos, started, monkeypatch):
    monkeypatch.setattr(image_workers, "WORTH", 0.5)
    photos.add("dog", range(50)).add("cat", range(50, 99))
    assert len(photos.splits(held_out=0.0).train) == 99
    assert not started


def test_a_process_that_was_killed_is_an_error_that_says_so(worker):
    assert worker.ready
    worker.process.kill()
    error = error_of(worker.decode, [png()] * 3, 0)
    assert "process that decodes images has ended" in error.what and "SIGKILL" in error.why


def test_an_error_in_a_process_ends_all_of_them(tmp_path, started):
    def images():
        for number in range(400):
            if number == 300:
                started[0].process.kill()
                started[1].process.kill()
            yield Entry(f"{number}", "", ""), png(number % 256)

    error = error_of(lambda: list(decoded_in_order(images(), 400, FORM, tmp_path / "pixels")))
    assert "has ended" in error.what
    assert len(started) == 2 and all(worker.process.poll() is not None for worker in started)


def test_whoever_stops_early_leaves_nothing_running(tmp_path, started):
    images = ((Entry(f"{number}", "", ""), png(number % 256)) for number in range(4000))
    decoding = decoded_in_order(images, 4000, FORM, tmp_path / "pixels")
    for _ in range(20):
        next(decoding)
    assert len(started) == 2 and all(worker.process.poll() is None for worker in started)
    decoding.close()
    assert all(worker.process.poll() is not None for worker in started)


def test_a_process_ends_when_nobody_asks_any_longer(worker):
    assert worker.ready
    worker.asks.close()
    assert worker.process.wait(60) == 0


def test_ctrl_c_is_left_to_the_process_that_started_it(worker):
    assert worker.ready
    worker.process.send_signal(signal.SIGINT)
    [outcome] = worker.decode([png(7)], 0)
    assert isinstance(outcome, Read)


def test_a_full_disk_is_the_same_error_as_without_processes():
    worker = Worker(FORM, Path("/dev/full"))
    try:
        with pytest.raises(OSError) as error:
            worker.decode([png()], 0) if worker.ready else None
    finally:
        worker.stop()
    assert error.value.errno == errno.ENOSPC


def test_every_kind_of_content_goes_to_a_process_and_back(worker, tmp_path):
    (tmp_path / "a.png").write_bytes(png(9))
    bad = NoLabel("It has no label.")
    pixels = np.full((4, 4), 3, np.uint8)
    assert worker.ready
    path, content, given, missing, same = worker.decode(
        [tmp_path / "a.png", png(9), pixels, tmp_path / "b\udcff.png", bad], 2
    )
    assert path == content != given and isinstance(given, Read)
    assert isinstance(missing, BadImage) and missing.reason == "It is missing."
    assert same is bad, "it is still known that it lacks only a label"
    rows = np.fromfile(tmp_path / "pixels", np.uint8).reshape(9, -1)
    assert rows[:, 0].tolist() == [0, 0, 9, 9, 3, 0, 0, 0, 0]


def test_where_no_process_can_start_threads_do_it(tmp_path, started, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    images = [(Entry(f"{number}", "", ""), png(number)) for number in range(99)]
    outcomes = list(decoded_in_order(images, 99, FORM, tmp_path / "pixels"))
    assert len(outcomes) == 99 and all(isinstance(outcome, Read) for _, outcome in outcomes)
    assert np.fromfile(tmp_path / "pixels", np.uint8).reshape(99, -1)[:, 0].tolist() == list(range(99))


def test_a_large_image_is_decoded_by_one_process_at_a_time(tmp_path):
    (tmp_path / "pixels").touch()
    one, other = (os.open(tmp_path / "pixels", os.O_RDWR) for _ in range(2))
    with OneOfAll(one), pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(one)
    os.close(other)


def test_a_process_that_decodes_loads_neither_torch_nor_the_settings():
    code = (
        "import sys, regard.data.image_decoding; print([m for m in ('torch', 'pydantic', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
