"""Seeds: the same numbers as torch draws, without what torch does for devices that are not there."""

import pytest
import torch

from regard.hardware import mix_seeds, seed_everything

every_device = pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"))],
)


@every_device
def test_a_seed_gives_the_numbers_that_torch_draws_from_it(device):
    torch.zeros(1, device=device)
    torch.manual_seed(mix_seeds(3, 14, 1))
    expected = torch.rand(5, device=device)
    seed_everything(3, 14, 2)
    other = torch.rand(5, device=device)
    seed_everything(3, 14, 1)
    assert torch.equal(torch.rand(5, device=device), expected)
    assert not torch.equal(other, expected)


def test_seeding_prepares_no_kind_of_device_that_is_not_in_use(monkeypatch):
    asked = []
    for module in (torch.mps, torch.xpu):
        monkeypatch.setattr(module, "_is_in_bad_fork", lambda: asked.append(1) or True)
    seed_everything(1, 2)
    # Before CUDA is used, torch itself remembers the seed for it.
    assert bool(asked) == (torch.cuda.is_available() and not torch.cuda.is_initialized())
