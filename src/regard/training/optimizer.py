"""Adam, AdamW and Muon, with decay for matrices only; and the norm of all gradients.

Muon is for the linear maps inside the blocks; embeddings, norms, biases and the output layer are left to AdamW. So are,
without decay, weights with the shape of a matrix that are not linear maps: modules name them with `no_decay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.layers.block import Block
from regard.settings import PartSettings, TrainingSettings
from regard.training.muon import Muon
from regard.training.replayed import Replayed
from regard.training.rows import divided, like, own_rows, whole
from regard.training.uncompiled import uncompiled

UncompiledAdam, UncompiledAdamW = uncompiled(torch.optim.Adam), uncompiled(torch.optim.AdamW)
UncompiledMuon = uncompiled(Muon)
Scaled = tuple[torch.optim.Optimizer, float]  # with the factor from the schedule's rate to its own


@dataclass(frozen=True)
class Weights:
    """The trainable weights of a model, by what they are."""

    maps: list[nn.Parameter]  # linear maps inside the blocks
    tables: list[nn.Parameter]  # other matrices: embeddings, the output layer
    others: list[nn.Parameter]  # norms, biases, and what `no_decay` names: never decayed
    device: torch.device

    @classmethod
    def from_model(cls, model: nn.Module) -> Weights:
        trainable = [weight for weight in model.parameters() if weight.requires_grad]
        free = {id(weight) for weight in no_decay(model)}
        in_blocks = {id(weight) for block in blocks(model) for weight in block.parameters()}
        maps, tables, others = [], [], []
        for weight in trainable:
            if weight.dim() < 2 or id(weight) in free:
                others.append(weight)
            # A map to a single number is a vector; more dimensions are those of a convolution.
            elif id(weight) in in_blocks and weight.dim() == 2 and min(weight.shape) > 1:
                maps.append(weight)
            else:
                tables.append(weight)
        return cls(maps, tables, others, trainable[0].device)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """All weights, as torch's optimizers take them."""
        return [
            {"params": [*self.maps, *self.tables], "weight_decay": weight_decay},
            {"params": self.others, "weight_decay": 0.0},
        ]

    def rate(self) -> Any:
        """A learning rate to start with. On a GPU it is a number in memory, for a captured update to read."""
        return torch.zeros((), device=self.device) if self.device.type == "cuda" else 0.0


# ---------------------------------------------------------------- the methods


class Method:
    """A way to update weights. A subclass makes its optimizers of torch; the learning rate is set at every step."""

    Settings: ClassVar[type[PartSettings]] = PartSettings  # its own table in a recipe, [training.NAME]
    capturable: ClassVar[bool] = False  # its step can be captured in a CUDA graph; it then starts with `weights.rate()`
    remembers: ClassVar[int] = 0  # numbers kept of each weight, at least: for a first look at the memory it takes

    @staticmethod
    def make(weights: Weights, settings: TrainingSettings) -> list[Scaled]:
        raise NotImplementedError


class Adam(Method):
    capturable = True
    remembers = 2

    @staticmethod
    def make(weights: Weights, settings: TrainingSettings) -> list[Scaled]:
        return [(UncompiledAdam(weights.groups(settings.weight_decay), **_adam(weights, settings)), 1.0)]


class AdamW(Method):
    capturable = True
    remembers = 2

    @staticmethod
    def make(weights: Weights, settings: TrainingSettings) -> list[Scaled]:
        return [(UncompiledAdamW(weights.groups(settings.weight_decay), **_adam(weights, settings)), 1.0)]


class MuonSettings(PartSettings):
    learning_rate: float = Field(0.02, gt=0, description="Muon's highest rate; `learning_rate` is that of AdamW")
    momentum: float = Field(0.95, ge=0.0, lt=1.0, description="Muon's memory of the gradient")


class MuonAndAdamW(Method):
    Settings = MuonSettings
    capturable = True
    remembers = 1

    @staticmethod
    def make(weights: Weights, settings: TrainingSettings) -> list[Scaled]:
        own, decay = settings.own("optimizer", MuonSettings), settings.weight_decay
        rest = Weights([], weights.tables, weights.others, weights.device)
        optimizers = AdamW.make(rest, settings)
        if weights.maps:
            muon = UncompiledMuon(weights.maps, lr=weights.rate(), momentum=own.momentum, weight_decay=decay)
            optimizers.append((muon, own.learning_rate / settings.learning_rate))
        return optimizers


def _adam(weights: Weights, settings: TrainingSettings) -> dict[str, Any]:
    return {
        "lr": weights.rate(),
        "betas": (settings.beta1, settings.beta2),
        "eps": settings.epsilon,
        "fused": True,
        "capturable": weights.device.type == "cuda",
    }


# ---------------------------------------------------------------- what the loop uses


class Optimizer:
    """The optimizers of a method, each with its share of the model's weights, stepped as one."""

    def __init__(self, model: nn.Module, settings: TrainingSettings):
        self.parameters = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.method: type[Method] = settings.part("optimizer")
        self.optimizers = self.method.make(Weights.from_model(model), settings)
        device = next(iter(self.parameters.values())).device
        self.captured = self.method.capturable and device.type == "cuda"
        self.clip_norm = settings.clip_norm
        self.moved = False  # whether `apply` has begun to change weights, since this was last set to False
        self._begin(settings)

    def step(self, rate: float) -> None:
        """Update every weight at this rate, and set the gradients back to zero."""
        for optimizer, factor in self.optimizers:
            for group in optimizer.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate * factor)
                else:
                    group["lr"] = rate * factor
        self.update()

    def norm(self) -> Tensor:
        """The norm of all gradients together; they are scaled down to `clip_norm` if that is above 0."""
        weights = list(self.parameters.values())
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = exact_norm(gradients) if self.exact else whole(torch.nn.utils.get_total_norm(gradients, foreach=True))
        if self.clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(weights, self.clip_norm, norm, foreach=True)
        return norm

    def apply(self) -> None:
        for optimizer, _ in self.optimizers:
            # A fused one takes memory before it begins, and then no more; others while they move weights.
            self.moved = self.moved or not optimizer.defaults.get("fused")
            optimizer.step()
            self.moved = True

    def zero_gradients(self) -> None:
        """In place: a captured graph adds to the same memory at every step."""
        for optimizer, _ in self.optimizers:
            optimizer.zero_grad(set_to_none=False)

    def begin_again(self, settings: TrainingSettings) -> None:
        """Without gradients, and with nothing captured; what is remembered from step to step stays."""
        self.forget_gradients()
        self._begin(settings)

    def _begin(self, settings: TrainingSettings) -> None:
        self.exact = settings.pieces > 1 and settings.reduce == "exact"  # whoever holds which rows
        self._capture()

    def forget_gradients(self) -> None:
        for weight in self.parameters.values():
            weight.grad = None

    def take_gradients(self, captured: bool) -> tuple[list[Tensor], list[bool]]:
        """The gradient of every weight, zero where there is none, and which there are; afterwards they are gone.

        `captured`: a graph adds to them, so they stay where they are, as zeros.
        """
        weights = list(self.parameters.values())
        there = [weight.grad is not None for weight in weights]
        taken = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        if captured:
            taken = [gradient.clone() for gradient in taken]
            self.zero_gradients()
        else:
            self.forget_gradients()
        return taken, there

    def put_gradients(self, gradients: list[Tensor], there: list[bool]) -> None:
        """Back into the weights, after they were added to others."""
        for weight, gradient, known in zip(self.parameters.values(), gradients, there, strict=True):
            if weight.grad is not None:
                weight.grad.copy_(gradient)
            elif known:
                weight.grad = gradient

    def _update(self) -> None:
        self.apply()
        self.zero_gradients()

    def _capture(self) -> None:
        """An update is hundreds of small kernels: on a GPU they are captured, and replayed as one."""
        self.gradient_norm = Replayed(self.norm, self.captured)
        self.update = Replayed(self._update, self.captured)

    # ------------------------------------------------------------ updates that nobody waits for

    @property
    def can_be_guarded(self) -> bool:
        """Whether all optimizers leave everything as it is while a tensor `found_inf` is 1, as torch's fused ones do.

        It is how torch's own gradient scaler skips a step without waiting for the GPU.
        """
        return all(getattr(optimizer, "_step_supports_amp_scaling", False) for optimizer, _ in self.optimizers)

    def guard(self, failed: Tensor, rates: Tensor) -> None:
        """From now on nothing moves while `failed` is 1; and optimizer n takes its rate from `rates[n]`."""
        for (optimizer, _), rate in zip(self.optimizers, rates.unbind(), strict=True):
            optimizer.found_inf, optimizer.grad_scale = failed, None  # type: ignore[attr-defined]
            for group in optimizer.param_groups:
                group["lr"] = rate

    # ------------------------------------------------------------ saving and resuming

    def still_to_remember(self) -> int:
        """Bytes that it will remember from step to step and does not yet, at least."""
        numbers = 0
        for optimizer, _ in self.optimizers:
            is_adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
            kept = Adam.remembers if is_adam else self.method.remembers
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            numbers += kept * sum(weight.nbytes for weight in weights if weight not in optimizer.state)
        return numbers

    def tensors(self) -> dict[str, Tensor]:
        """All that is remembered from step to step, as named tensors: 'exp_avg/decoder.0…'."""
        return {
            f"{key}/{name}": value
            for name, parameter in self.parameters.items()
            for optimizer, _ in self.optimizers
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for key_and_name, value in tensors.items():
            key, _, name = key_and_name.partition("/")
            parameter = self.parameters[name]
            for optimizer, _ in self.optimizers:
                if any(parameter is own for group in optimizer.param_groups for own in group["params"]):
                    # Adam's step counter stays where torch keeps it: with the parameter when fused.
                    optimizer.state[parameter][key] = like(value, parameter).to(parameter.device).clone()
        self._capture()


def exact_norm(gradients: list[Tensor]) -> Tensor:
    """Of all gradients together, the same whether one process holds them or several hold some rows each.

    Sums of squares depend on their order, but in float64 only in digits that float32 does not have.
    """
    squares = [torch.linalg.vector_norm(own_rows(one), dtype=torch.float64).square() for one in gradients]
    total = torch.stack(squares).sum()
    if divided(gradients[0]):
        torch.distributed.all_reduce(total)
    return total.sqrt().float()


def blocks(model: nn.Module) -> list[Block]:
    return [module for module in model.modules() if isinstance(module, Block)]


def no_decay(model: nn.Module) -> list[nn.Parameter]:
    """The weights that modules say are not linear maps."""
    modules: list[Any] = [module for module in model.modules() if hasattr(module, "no_decay")]
    return [weight for module in modules for weight in module.no_decay()]
