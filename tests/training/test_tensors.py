"""Files of tensors: read by safetensors itself, the same bytes every time, and mapped where torch would put them."""

from __future__ import annotations

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from regard.training.tensors import ALIGNMENT, map_tensors, save_tensors

TENSORS = {
    "a table": torch.randn(5, 32),
    "an odd one": torch.randn(3, 3),
    "no dimension": torch.tensor(0.5),
    "half": torch.randn(64).bfloat16(),
    "steps": torch.arange(7),
    "empty": torch.zeros(0, 4),
    "transposed": torch.randn(16, 4).T,
    "which": torch.tensor([True, False]),
}


def test_safetensors_reads_what_is_saved(tmp_path):
    save_tensors(tmp_path / "t", TENSORS)
    found = load_file(tmp_path / "t")
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
    with safe_open(tmp_path / "t", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_equal_tensors_give_equal_bytes_in_any_order(tmp_path):
    save_tensors(tmp_path / "one", TENSORS)
    save_tensors(tmp_path / "other", dict(reversed(TENSORS.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_tensors_are_used_where_they_lie_in_the_file(tmp_path):
    save_tensors(tmp_path / "t", TENSORS)
    in_place, mapped = load_file(tmp_path / "t"), map_tensors(tmp_path / "t")
    whole = {name for name, tensor in TENSORS.items() if tensor.nbytes % ALIGNMENT == 0 and tensor.numel()}
    assert whole == {"a table", "half", "transposed"}
    assert all(in_place[name].data_ptr() % ALIGNMENT == 0 for name in whole)
    assert all(torch.equal(mapped[name], tensor) for name, tensor in TENSORS.items())


def test_tensors_of_other_programs_are_brought_where_torch_would_put_them(tmp_path):
    """The last bits of a product depend on it."""
    for letters in range(1, 9):  # some of these put the numbers elsewhere
        save_file({"w" * 8 * letters: TENSORS["a table"]}, tmp_path / f"{letters}")
    found = [next(iter(map_tensors(tmp_path / f"{letters}").values())) for letters in range(1, 9)]
    assert all(tensor.data_ptr() % ALIGNMENT == 0 and torch.equal(tensor, TENSORS["a table"]) for tensor in found)
    assert any(next(iter(load_file(tmp_path / f"{n}").values())).data_ptr() % ALIGNMENT for n in range(1, 9))
