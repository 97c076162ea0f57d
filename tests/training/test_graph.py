"""The captured CUDA graph computes what the plain code computes."""

import pytest
import torch

from regard.data.batch import DataState
from regard.experiment import read_recipe
from regard.hardware import Hardware, seed_everything
from regard.tasks.translate import TranslationTask
from regard.training.folder import RunFolder
from regard.training.graph import Backward


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_replaying_a_graph_adds_the_same_gradient_as_plain_code(tiny_recipe, tmp_path):
    overrides = ["model.dropout=0.0", "system.device=cuda", "system.precision=float32", "system.compile=no"]
    config = read_recipe(str(tiny_recipe), overrides)
    folder = RunFolder.create(tmp_path / "run", config)
    hardware = Hardware.choose(config.system)
    task = TranslationTask(config, folder, hardware)
    seed_everything(1)
    model = task.build().to(hardware.device)
    backward = Backward(model, lambda batch: task.loss(model, batch), hardware)
    batches = task.batches(DataState())
    backward(next(batches)[0], 100)  # captured on this batch, replayed on the next
    model.zero_grad(set_to_none=False)
    batch, _ = next(batches)
    loss = backward(batch, batch.targets)
    replayed = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    plain = backward.compute(batch.to(hardware.device), torch.tensor(1 / batch.targets, device=hardware.device))
    torch.testing.assert_close(loss, plain, atol=1e-5, rtol=0)
    for mine, parameter in zip(replayed, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, atol=1e-5, rtol=0)
