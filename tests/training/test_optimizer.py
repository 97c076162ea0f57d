"""The optimizers: who moves which weights, at which rate, and that nothing is forgotten."""

import pytest
import torch

from regard import registry
from regard.models.causal import Causal
from regard.models.seq2seq import Seq2Seq
from regard.models.vision import VisionTransformer
from regard.settings import CausalModel, ImageModel, PartSettings, TrainingSettings, TranslationModel
from regard.training.muon import Muon, all_orthogonal, orthogonalise
from regard.training.optimizer import Method, Optimizer, Weights

SMALL = {"layers": 2, "width": 16, "heads": 2, "feedforward": 32, "dropout": 0.0, "norm": "pre"}


def model_with_gradients(seed: int = 1) -> Causal:
    torch.manual_seed(seed)
    model = Causal(CausalModel(**SMALL), 20)
    model(torch.randint(0, 20, (4, 10))).square().sum().backward()
    return model


def settings(**changes: object) -> TrainingSettings:
    return TrainingSettings(optimizer="muon", weight_decay=0.1, learning_rate=0.001, **changes)


def maps(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return Weights.from_model(model).maps


def test_muon_moves_the_matrices_of_the_blocks_as_torch_does_alone():
    model, other = model_with_gradients(), model_with_gradients()
    Optimizer(model, settings()).step(0.0005)  # half of the schedule's highest rate
    torch.optim.Muon(maps(other), lr=0.01, momentum=0.95, weight_decay=0.1).step()
    for mine, theirs in zip(maps(model), maps(other), strict=True):
        # torch's own rounds to bfloat16 on its way, here only on a GPU.
        torch.testing.assert_close(mine, theirs, atol=0.01 * 0.05, rtol=0)


def test_muon_leaves_embeddings_norms_and_biases_to_adamw():
    model, other = model_with_gradients(), model_with_gradients()
    Optimizer(model, settings()).step(0.001)
    inside = {id(weight) for weight in maps(other)}
    rest = [weight for weight in other.parameters() if id(weight) not in inside]
    assert len(rest) + len(inside) == len(list(other.parameters()))
    groups = [
        {"params": [weight for weight in rest if weight.dim() >= 2], "weight_decay": 0.1},
        {"params": [weight for weight in rest if weight.dim() < 2], "weight_decay": 0.0},
    ]
    torch.optim.AdamW(groups, lr=0.001, betas=(0.9, 0.98), eps=1e-9).step()
    named = dict(other.named_parameters())
    for name, weight in model.named_parameters():
        if id(named[name]) not in inside:
            torch.testing.assert_close(weight, named[name])


def test_an_update_of_muon_is_nearly_orthogonal():
    model = model_with_gradients()
    before = model.trunk.blocks[0].mixer.to_out.weight.detach().clone()
    Optimizer(model, TrainingSettings(optimizer="muon", learning_rate=1.0, muon={"learning_rate": 1.0})).step(1.0)
    stretched = torch.linalg.svdvals(before - model.trunk.blocks[0].mixer.to_out.weight.detach())
    # But for the one direction in which the norm after it leaves no gradient.
    assert stretched[-2] > 0.5 and stretched[0] < 1.5


class Sgd(Method):
    """As a plug-in may bring it."""

    class Settings(PartSettings):
        momentum: float = 0.5

    @staticmethod
    def make(weights, settings):
        own = settings.own("optimizer", Sgd.Settings)
        return [(torch.optim.SGD(weights.groups(settings.weight_decay), lr=0.0, momentum=own.momentum), 1.0)]


@pytest.fixture(autouse=True)
def a_new_optimizer(monkeypatch):
    monkeypatch.setitem(registry.OPTIMIZERS, "sgd", Sgd)


every_optimizer = pytest.mark.parametrize("kind", [*registry.names("optimizers"), "sgd"])


@every_optimizer
def test_every_optimizer_lowers_a_loss_and_moves_every_weight(kind: str):
    torch.manual_seed(4)
    model = Causal(CausalModel(**SMALL), 20)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = Optimizer(model, TrainingSettings(optimizer=kind, learning_rate=0.01))
    tokens, losses = torch.arange(20).view(2, 10), []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step(0.01)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert [name for name, weight in model.named_parameters() if torch.equal(weight, before[name])] == []


@every_optimizer
def test_only_matrices_that_are_linear_maps_or_tables_are_decayed(kind: str):
    """Without gradients, decoupled decay alone moves a weight; Adam's and SGD's is a gradient."""
    torch.manual_seed(3)
    model = VisionTransformer(ImageModel(**SMALL, pooling="both", registers=1, positions="learned"), 8, 8, 1, 3)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    Optimizer(model, TrainingSettings(optimizer=kind, weight_decay=0.1)).step(0.01)
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    free = {"positions_RSD", "class_token_1D", "registers_ED"}
    assert moved == {
        name
        for name, weight in before.items()
        if weight.dim() >= 2 and weight.any() and name.split(".")[-1] not in free
    }


@every_optimizer
def test_a_restored_optimizer_continues_as_if_it_had_not_stopped(kind: str):
    model, other = model_with_gradients(), model_with_gradients()
    chosen = TrainingSettings(optimizer=kind, learning_rate=0.001)
    first = Optimizer(model, chosen)
    first.step(0.001)
    Optimizer(other, chosen).step(0.001)
    second = Optimizer(other, chosen)
    second.load({name: tensor.clone() for name, tensor in first.tensors().items()})
    for each, optimizer in ((model, first), (other, second)):
        each(torch.arange(20).view(2, 10)).square().sum().backward()
        optimizer.step(0.001)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("mixer", ["hyena", "gru"])
def test_what_is_not_a_linear_map_is_left_to_adamw(mixer):
    model = Seq2Seq(TranslationModel(**SMALL, mixer=mixer, cross="additive").for_length(8), 20, 20)
    inside = {id(weight) for weight in maps(model)}
    names = {name for name, weight in model.named_parameters() if id(weight) in inside}
    assert {"decoder.0.cross.to_key.weight", "encoder.1.feedforward.expand.weight"} <= names
    assert ("decoder.0.mixer.forwards.weight_hh_l0" in names) == (mixer == "gru")
    assert not [name for name in names if "filter" in name or "skips" in name or "energy" in name or "short" in name]
    groups = Optimizer(model, settings()).optimizers[0][0].param_groups
    decayed = {id(weight) for weight in groups[0]["params"]}
    free = [name for name, weight in model.named_parameters() if "filter" in name or "skips" in name]
    assert bool(free) == (mixer == "hyena")
    assert not [name for name, weight in model.named_parameters() if name in free and id(weight) in decayed]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_a_captured_update_moves_the_weights_as_an_ordinary_one(clip_norm):
    """Six steps, of which the last three are replayed, with another rate and other gradients each time."""
    captured, ordinary = model_with_gradients().cuda(), model_with_gradients().cuda()
    optimizers = [Optimizer(model, settings(clip_norm=clip_norm)) for model in (captured, ordinary)]
    optimizers[1].gradient_norm, optimizers[1].update = optimizers[1].norm, optimizers[1]._update
    for step in range(1, 7):
        norms = []
        for model, optimizer in zip((captured, ordinary), optimizers, strict=True):
            generator = torch.Generator("cuda").manual_seed(step)
            for weight in model.parameters():
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                weight.grad.copy_(torch.randn(weight.shape, generator=generator, device="cuda"))
            norms.append(optimizer.gradient_norm().item())
            optimizer.step(0.001 * step)
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert optimizers[0].update.graph is not None
    for mine, theirs in zip(captured.parameters(), ordinary.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (9, 2), (5, 5)])
@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_is_its_formula_over_several_steps(shape, nesterov):
    """Momentum, Nesterov's look ahead, decay and the factor for tall matrices, in double precision, one at a time."""
    torch.manual_seed(5)
    weights = [torch.randn(shape, dtype=torch.double, requires_grad=True) for _ in range(2)]
    optimizer = Muon(weights, lr=0.03, momentum=0.8, weight_decay=0.2, nesterov=nesterov)
    expected, momenta = [weight.detach().clone() for weight in weights], [torch.zeros(shape)] * 2
    for _ in range(4):
        for n, weight in enumerate(weights):
            weight.grad = torch.randn(shape, dtype=torch.double)
            momenta[n] = 0.8 * momenta[n] + 0.2 * weight.grad
            x = 0.2 * weight.grad + 0.8 * momenta[n] if nesterov else momenta[n]
            x = x / x.square().sum().sqrt()
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x - 4.775 * gram @ x + 2.0315 * gram @ gram @ x
            tall = max(1.0, shape[0] / shape[1]) ** 0.5
            expected[n] = expected[n] * (1 - 0.03 * 0.2) - 0.03 * tall * x
        optimizer.step()
        for mine, theirs in zip(weights, expected, strict=True):
            torch.testing.assert_close(mine.detach(), theirs, atol=1e-10, rtol=0)


def test_a_gradient_of_zero_moves_nothing_in_muon():
    weight = torch.ones(3, 4, requires_grad=True)
    weight.grad = torch.zeros(3, 4)
    Muon([weight], lr=0.1, weight_decay=0.0).step()
    assert torch.equal(weight.detach(), torch.ones(3, 4))


@pytest.mark.parametrize(("clip_norm", "factor"), [(0.0, 1.0), (0.5, 0.5 / 5), (7.0, 1.0)])
def test_gradients_are_scaled_down_to_the_norm_and_never_up(clip_norm, factor):
    model = torch.nn.Linear(2, 1)
    model.weight.grad, model.bias.grad = torch.tensor([[3.0, 0.0]]), torch.tensor([4.0])
    optimizer = Optimizer(model, TrainingSettings(optimizer="adam", clip_norm=clip_norm))
    assert optimizer.gradient_norm().item() == pytest.approx(5.0)
    found = [*model.weight.grad.flatten().tolist(), *model.bias.grad.tolist()]
    assert found == pytest.approx([3 * factor, 0.0, 4 * factor], rel=1e-4)


def test_matrices_of_several_shapes_are_made_orthogonal_as_one():
    torch.manual_seed(1)
    updates = [torch.randn(count, *shape) for count, shape in ((2, (8, 24)), (1, (8, 8)), (3, (16, 8)))]
    found = all_orthogonal(updates, (3.4445, -4.7750, 2.0315), 5)
    for update, one in zip(updates, found, strict=True):
        torch.testing.assert_close(one, orthogonalise(update, (3.4445, -4.7750, 2.0315), 5), atol=1e-4, rtol=1e-4)
