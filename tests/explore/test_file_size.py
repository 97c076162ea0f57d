"""How large the file of a page may become, and that it has every map of attention however large its input is.

What benchmarks/explore_size.py measures of a model as wide as GPT-2, with one that is narrow: heads and tokens are what
maps grow with.
"""

import json
import re
import sys
from base64 import b64decode
from pathlib import Path
from struct import pack

import numpy as np
import pytest
import torch

from regard.explore import recording
from regard.explore.arrays import unpack
from regard.explore.matrices import matrix
from regard.explore.page import index
from regard.explore.recording import write_page
from regard.explore.session import Session, TracedInput

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from explore_size import LIMITS, sharpen, text

ONCE = ["training.steps=1", "training.validate_every=1", "tokenizer.kind=character", "model.positions=rotary"]
SMALL = ["model.feedforward=8", "model.query_key_norm=false", "data.text=text.txt"]


def trained_on(characters, train_once, folder, name, *settings):
    """A run after one step: all that counts is its shape, so its text is as short as its context allows."""
    (folder / "text.txt").write_text(text(characters, 1))
    return train_once(name, "shakespeare-cpu", *settings, *SMALL, *ONCE, data=folder)


@pytest.fixture(scope="module")
def many_heads(train_once, tmp_path_factory):
    """12 layers of 12 heads, whose weights differ from place to place so little can be packed."""
    shape = ["model.layers=12", "model.heads=12", "model.width=24"]
    shape += ["training.row_length=257", "training.tokens_per_batch=257"]
    task = trained_on(3_000, train_once, tmp_path_factory.mktemp("letters"), "many-heads", *shape)
    sharpen(task.model, 30)
    return task


@pytest.fixture(autouse=True)
def matrices_fill_the_file(monkeypatch):
    """Without ablations, which would take minutes and leave less room for matrices."""
    monkeypatch.setattr(recording, "WORK", 1)


def recorded_in(page: Path) -> dict:
    return json.loads(re.search(r'id="recorded">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)[1])


def maps_in(content: dict) -> dict:
    """Every attention map as the page decodes it: its head and its values."""
    entries = {json.loads(key)["name"]: entry for key, entry in content["matrices"].items()}
    return {name: numbers(entry) for name, entry in entries.items() if name.endswith(".weights")}


def numbers(entry: dict) -> tuple[dict, np.ndarray]:
    head = json.dumps(entry["head"]).encode()
    return unpack(pack("<I", len(head)) + head + b64decode(entry["data"]))


def largest_of(weights_HTS: torch.Tensor, step: tuple[int, int]) -> np.ndarray:
    """The maximum of every block."""
    return torch.nn.functional.max_pool2d(weights_HTS[None], tuple(step), ceil_mode=True)[0].numpy()


@pytest.mark.parametrize("tokens", [256])  # of 512, benchmarks/explore_size.py takes five seconds more
def test_a_file_of_144_heads_has_every_map_in_full_and_is_small(many_heads, tokens, tmp_path):
    page = tmp_path / "page.html"
    session = Session([many_heads], {"text": text(tokens, 2)})
    omissions = write_page(session, page)
    session.close()
    assert 0.9 * LIMITS[tokens] < page.stat().st_size < LIMITS[tokens]
    [left_out] = [line for line in omissions if "did not fit" in line]  # so the limit is what keeps it small
    assert re.search(r"matrices did not fit the size limit \((\S+, ){3}…\); the page marks the gaps\.$", left_out)
    maps = maps_in(recorded_in(page))
    assert set(maps) == {f"layers.{layer}.mixer.weights" for layer in range(12)}
    assert all(head["step"] == [1, 1] and values.shape == (12, tokens, tokens) for head, values in maps.values())


def test_where_maps_do_not_fit_they_are_reduced_and_none_is_left_out(many_heads, tmp_path, monkeypatch):
    limit = len(index("0").encode()) + 1_200_000
    monkeypatch.setattr(recording, "SIZES", {256: limit})
    page = tmp_path / "page.html"
    session = Session([many_heads], {"text": text(256, 2)})
    omissions = write_page(session, page)
    assert page.stat().st_size < limit + 10_000  # what is around the answers
    maps = maps_in(recorded_in(page))
    reduced = [head for head, _ in maps.values() if head["step"] != [1, 1]]
    assert len(maps) == 12 and any(f"{len(reduced)} of 12" in line for line in omissions)
    trace = session.traced(0, session.first).trace
    for part in (part for part in trace.parts() if part.attends):
        head, values = maps[f"{part.name}.weights"]
        expected = largest_of(part.attention().weights_BHTS[0], head["step"])
        np.testing.assert_allclose(values, expected, atol=5e-4)
    session.close()


@pytest.fixture(scope="module")
def very_long(train_once, tmp_path_factory):
    """A context of 4,096 tokens, over which attention is spread evenly."""
    shape = ["model.layers=1", "model.heads=2", "model.width=16"]
    shape += ["training.row_length=4097", "training.tokens_per_batch=4097"]
    task = trained_on(46_000, train_once, tmp_path_factory.mktemp("letters"), "very-long", *shape)
    sharpen(task.model, 0.1)
    return task


def test_the_file_of_4096_tokens_has_every_map_and_none_is_blank(very_long, tmp_path):
    page = tmp_path / "page.html"
    session = Session([very_long], {"text": text(4096, 2)})
    write_page(session, page)
    assert page.stat().st_size < LIMITS[512]
    content = recorded_in(page)
    traced: TracedInput = session.traced(0, session.first)
    weights_HTS = traced.attention("layers.0.mixer").weights_BHTS[0]
    assert weights_HTS[:, -1].max() < 5e-4  # which ten bits would make 0
    [(head, values)] = maps_in(content).values()
    np.testing.assert_allclose(values, largest_of(weights_HTS, head["step"]), rtol=1e-3, atol=1e-7)
    assert (values.max(-1) > 0).all()

    name = "layers.0.mixer.weights"
    whole, part = matrix(traced, name), matrix(traced, name, head=1, rows=(3968, 4096), columns=(64, 192))
    assert whole.head["step"] == [8, 8] and whole.values.shape == (2, 512, 512)
    np.testing.assert_array_equal(whole.values, largest_of(weights_HTS, (8, 8)))
    assert part.head["step"] == [1, 1] and part.head["from"] == [3968, 64]
    np.testing.assert_allclose(unpack(part.message())[1], weights_HTS[1, 3968:, 64:192], rtol=1e-3)
    session.close()
