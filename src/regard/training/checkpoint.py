"""Checkpoints: everything needed to continue as if nothing had happened.

`checkpoints/step-N/` holds the weights, the optimizer's state, the moving average where there is one, and
`state.json`; `manifest.json` lists the sha256 of each. A checkpoint is written under a temporary name,
flushed, and renamed: it is there whole or not at all. On resume each manifest is checked, newest first,
and the first checkpoint that is whole is used. No pickle is read or written.

Where every process holds some rows of each tensor, each writes its own: `model-1-of-2.safetensors`. Whoever reads them
puts the rows together again, so any number of processes can go on from there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.errors import RegardError, first_problem
from regard.files import flush, must_be_a_file, read_small, sha256
from regard.training.folder import RunFolder, saved_steps, step_folders
from regard.training.processes import ALONE, Processes
from regard.training.rows import divided, like, own_rows
from regard.training.tensors import map_tensors, save_tensors

AnyModel = TypeVar("AnyModel", bound=nn.Module)

CHECKED_AT_ONCE = 8
REQUIRED = ("model", "optimizer")


@dataclass(frozen=True)
class _Manifest:
    sha256: dict[str, str]


_MANIFEST = TypeAdapter(_Manifest)


@dataclass(frozen=True)
class Checkpoint:
    """One saved moment of a training."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    state: dict[str, Any]


class CheckpointError(Exception):
    """A checkpoint could not be written. Those before it are untouched."""


class Checkpoints:
    def __init__(self, folder: Path, every: int, keep: int, warn: Callable[[str], None], processes: Processes = ALONE):
        """`every`: the regular distance between checkpoints; an interrupt may add one in between.

        `processes`: those that save together, each its own rows of every tensor.
        """
        self.folder, self.every, self.keep, self.warn = folder, every, keep, warn
        self.processes = processes

    def save(self, step: int, checkpoint: Checkpoint, best: int) -> None:
        """Write, then point `last` at it and `best` at the best step, and only then prune older ones."""
        first, temporary = self.processes.first, self._temporary(step)
        there = first and step in self.steps() and self.problem(step) is None
        if self.processes.tell(there):
            if first:
                self._tidy(step, best)  # the same step again, after an interrupt: it holds the same numbers
            return
        try:
            self._together(lambda: self._begin(temporary) if first else {})
            digests = self._together(lambda: self._write(temporary, checkpoint))
            self._together(lambda: self._end(temporary, step, digests) if first else {})
        finally:
            if first:
                shutil.rmtree(temporary, ignore_errors=True)
        if first:
            self._tidy(step, best)

    def _together(self, act: Callable[[], dict[str, str]]) -> dict[str, str]:
        """A step of saving that all processes take; what each finds, of all. If it fails for one, it does for all."""
        try:
            told = {"found": act()}
        except (OSError, SafetensorError) as error:
            told = {"error": {"": str(error)}}
        of_all = [json.loads(raw) for raw in self.processes.gather(json.dumps(told).encode())]
        if failed := next((each["error"] for each in of_all if "error" in each), None):
            raise CheckpointError(failed[""])
        return {name: digest for each in of_all for name, digest in each["found"].items()}

    def _begin(self, temporary: Path) -> dict[str, str]:
        self.folder.mkdir(exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        return {}

    def _write(self, temporary: Path, checkpoint: Checkpoint) -> dict[str, str]:
        """This process's files, on disk, with their digests."""
        part = f"-{self.processes.rank + 1}-of-{self.processes.count}" if self.processes.count > 1 else ""
        kinds = {"model": checkpoint.weights, "optimizer": checkpoint.optimizer}
        kinds |= {"average": checkpoint.average} if checkpoint.average else {}
        written = []
        for kind, tensors in kinds.items():
            # What is not divided, such as a count of steps, is the first one's.
            own = {
                name: own_rows(tensor) for name, tensor in tensors.items() if self.processes.first or divided(tensor)
            }
            written.append(temporary / f"{kind}{part}.safetensors")
            save_tensors(written[-1], own)
        if self.processes.first:
            written.append(temporary / "state.json")
            written[-1].write_text(json.dumps(checkpoint.state, indent=2))
        for path in written:
            flush(path)
        return {path.name: sha256(path) for path in written}

    def _end(self, temporary: Path, step: int, digests: dict[str, str]) -> dict[str, str]:
        """All files are there: give them their name."""
        final, manifest = self._path(step), temporary / "manifest.json"
        manifest.write_text(json.dumps({"step": step, "sha256": dict(sorted(digests.items()))}, indent=2))
        flush(manifest)
        flush(temporary)
        if final.exists():
            shutil.rmtree(final)  # it is damaged
        temporary.rename(final)
        flush(self.folder)
        return {}

    def steps(self) -> list[int]:
        """The steps saved, oldest first."""
        return saved_steps(self.folder)

    def regular_steps(self) -> list[int]:
        """Without those that an interrupt added: these are the same however often a run was stopped."""
        return [step for step in self.steps() if step % self.every == 0]

    def newest(self) -> int | None:
        """The newest step whose checkpoint is whole; each damaged one is named in a warning."""
        with suppress(OSError):
            self._sweep()
        steps = step_folders(self.folder)
        whole = next((step for step in reversed(steps) if self.is_whole(step)), None)
        if steps and whole is None:
            self.warn(f"No checkpoint in '{self.folder}' is whole. Training begins again with the first step.")
        return whole

    def is_whole(self, step: int) -> bool:
        return self.whole([step]) == [step]

    def whole(self, steps: Sequence[int]) -> list[int]:
        """Those of these steps whose checkpoints are whole, checked side by side; each other is named in a warning."""
        with ThreadPoolExecutor(CHECKED_AT_ONCE) as pool:
            problems = dict(zip(steps, pool.map(self.problem, steps), strict=True))
        for step, problem in problems.items():
            if problem is not None:
                self.warn(f"The checkpoint '{self._path(step)}' is damaged ({problem}). It is left out.")
        return [step for step, problem in problems.items() if problem is None]

    def problem(self, step: int) -> str | None:
        """What is wrong with a checkpoint; None if every file is what was written."""
        folder = self._path(step)
        try:
            manifest = _MANIFEST.validate_json(read_small(folder / "manifest.json"))
            tensors = [name for name in sorted(manifest.sha256) if name.endswith(".safetensors")]
            unreadable = [name for name in tensors if not _readable(folder / name)]
            if unreadable:
                return f"{', '.join(unreadable)} cannot be read"
            damaged = [name for name, digest in manifest.sha256.items() if sha256(folder / name) != digest]
        except ValidationError as error:
            return f"manifest.json: {first_problem(error)}"
        except OSError as error:
            return str(error).replace("\n", " ")
        missing = [kind for kind in REQUIRED if not _parts(kind, manifest.sha256)]
        if missing or "state.json" not in manifest.sha256:
            return f"{', '.join(missing) or 'state.json'} is not in its manifest"
        return f"{', '.join(damaged)} does not match its sha256" if damaged else None

    def load(self, step: int) -> Checkpoint:
        folder = self._path(step)
        return Checkpoint(
            weights=_read(folder, "model"),
            optimizer=_read(folder, "optimizer"),
            average=_read(folder, "average"),
            state=json.loads(read_small(folder / "state.json")),
        )

    def mean(self, steps: list[int]) -> dict[str, Tensor]:
        """The mean of the weights saved at these steps, one file in memory at a time."""
        total: dict[str, Tensor] = {}
        for step in steps:
            for name, tensor in _read(self._path(step), "model").items():
                total[name] = total[name].add_(tensor) if name in total else tensor.to(torch.float64, copy=True)
        return {name: tensor.div_(len(steps)).float() for name, tensor in total.items()}

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def _temporary(self, step: int) -> Path:
        return self.folder / f".step-{step}.tmp"

    def _tidy(self, newest: int, best: int) -> None:
        """Point `last` and `best` at what they are, and prune. Failing at this loses nothing."""
        try:
            self._point("last", newest)
            if best in self.steps():
                self._point("best", best)
            self._prune(newest, best)
            flush(self.folder)
        except OSError as error:
            self.warn(f"The checkpoint at step {newest:,} is saved, but older ones could not be removed: {error}.")

    def _point(self, name: str, step: int) -> None:
        link, temporary = self.folder / name, self.folder / f".{name}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(f"step-{step}")
        temporary.replace(link)

    def _prune(self, newest: int, best: int) -> None:
        # Any after the newest is damaged, else training would have gone on from it.
        saved = [step for step in self.steps() if step <= newest]
        regular = [step for step in self.regular_steps() if step <= newest]
        kept = {*saved[-2:], *regular[-self.keep :], best}
        self._sweep()
        for step in self.steps():
            if step not in kept:
                # Renamed first: what is half removed does not look like a checkpoint.
                self._path(step).rename(self._temporary(step))
        self._sweep()

    def _sweep(self) -> None:
        """Remove what is left of a save or a removal that was killed or failed."""
        for leftover in self.folder.glob(".*.tmp"):
            if leftover.is_symlink():  # of `last` or `best`
                leftover.unlink()
            else:
                shutil.rmtree(leftover)


# ---------------------------------------------------------------- parts of tensors


def _parts(kind: str, names: Collection[str]) -> list[str]:
    """The files with tensors of this kind, in the order of their rows; none if there are none, or if one is missing."""
    if (alone := f"{kind}.safetensors") in names:
        return [alone]
    counts = {int(first[1]) for name in names if (first := re.fullmatch(rf"{kind}-1-of-(\d+)\.safetensors", name))}
    parts = [f"{kind}-{number}-of-{count}.safetensors" for count in counts for number in range(1, count + 1)]
    return parts if set(parts) <= set(names) else []


def _read(folder: Path, kind: str) -> dict[str, Tensor]:
    """Tensors of one kind, their rows put together; none where there is no file of that kind."""
    parts = [load_file(folder / name) for name in _parts(kind, [path.name for path in folder.iterdir()])]
    if len(parts) < 2:
        return parts[0] if parts else {}
    return {
        name: torch.cat([part[name] for part in parts]) if name in parts[1] else tensor
        for name, tensor in parts[0].items()
    }


# ---------------------------------------------------------------- tensors of a model


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Each weight once, under its first name; a tied weight is not repeated."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def check_shapes(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Names and shapes must be the model's own."""
    own = dict(model.named_parameters())
    if own.keys() != weights.keys():
        different = sorted(own.keys() ^ weights.keys())
        raise ValueError(f"the weights are not this model's: {', '.join(different[:3])} …")
    for name, parameter in own.items():
        if parameter.shape != weights[name].shape:
            raise ValueError(f"{name} is {list(weights[name].shape)} where the model has {list(parameter.shape)}")


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model; names and shapes must be the model's own."""
    check_shapes(model, weights)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(like(weights[name], parameter))


def must_fit(model: nn.Module, weights: Mapping[str, Tensor], run: Path) -> None:
    """A clear error if the weights of a finished run are not for its model."""
    try:
        check_shapes(model, weights)
    except ValueError as error:
        raise RegardError(
            f"The weights in '{run}' do not fit its config.toml.", f"{error}", "Restore the file that was changed."
        ) from None


def load_model(model: AnyModel, weights: Mapping[str, Tensor], run: Path) -> AnyModel:
    """The model with the weights of a finished run. They are not copied: a mapped file stays mapped."""
    must_fit(model, weights, run)
    for name, parameter in model.named_parameters():
        parameter.data = weights[name].to(parameter)  # a weight that is tied has the new numbers at both places
    return model


def read_weights(folder: RunFolder, checked: Future[Path] | None = None) -> dict[str, Tensor]:
    """The weights of a finished run, mapped into memory; a clear error if they are missing, damaged, or no numbers.

    `checked`: where the file is being checked against its digest already.
    """
    path = folder.model
    if not path.is_file():
        raise RegardError(
            f"The run '{folder.path}' has no {path.name} yet.",
            "Its training is not finished.",
            f"Continue it: regard train {folder.path} --resume",
        )
    try:
        weights = map_tensors(path)  # first: it sees at once if the file has another length
        checked.result() if checked else folder.checked(path.name)
    except (OSError, SafetensorError) as error:
        raise RegardError(
            f"Cannot read the weights '{path}'.",
            f"{error}",
            "A damaged file must be restored, or the model trained again.",
        ) from None
    if bad := not_finite(weights):
        raise RegardError(
            f"The weights '{path}' are not finite numbers.",
            f"{bad} holds infinity or NaN, so the model can give no answer.",
            "Restore the file, or train again with a lower training.learning_rate.",
        )
    return weights


def not_finite(weights: Mapping[str, Tensor]) -> str | None:
    """The first weight that holds infinity or NaN."""
    return next((name for name, tensor in weights.items() if not _is_finite(tensor)), None)


def _is_finite(tensor: Tensor) -> bool:
    """Whether the least and the greatest number are finite: NaN is both where there is one. Takes no memory."""
    return not tensor.numel() or all(bound.isfinite().item() for bound in torch.aminmax(tensor))


def _readable(path: Path) -> bool:
    """Whether a file of tensors has the length that it says; seen at once, before it is hashed."""
    must_be_a_file(path)
    try:
        with safe_open(path, "pt"):
            return True
    except SafetensorError:
        return False
