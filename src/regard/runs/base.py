"""What all runs share: a folder, its settings, a device, and weights put into a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from regard.settings import Config, FileList
from regard.data.tokenizers import TextTokenizer
from regard.errors import RegardError
from regard.evaluation.metrics import Evaluation
from regard.hardware import Hardware
from regard.recipes import validate
from regard.training.checkpoint import load_weights, read_tensors
from regard.training.folder import RunFolder

Model = TypeVar("Model", bound=nn.Module)


class Run(ABC):
    """A trained model with its settings."""

    def __init__(self, path: Path | str, device: str = "auto"):
        self.folder = RunFolder.open(path)
        self.config: Config = self.folder.read_config()
        self.hardware = Hardware.choose(self._with("system", device=device).system)

    @abstractmethod
    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Score held-out data: the run's own, or the files given."""

    def moved(self, data: Path) -> None:
        """From now on the run's own data is looked for in this folder."""
        self.config = self._with("data", root=str(data.resolve()))

    def _picture(self, name: str, files: FileList | None, split: str) -> Path:
        """Where to draw what an evaluation found. That of the run's own test is not overwritten by any other."""
        other = f"-{Path(str(files[0])).name.partition('.')[0]}" if files else f"-{split}"
        return self.folder.plots / f"{name}{'' if other == '-test' and not files else other}.png"

    def _load(self, model: Model) -> Model:
        """The model with the run's weights, on its device."""
        try:
            load_weights(model, read_tensors(self.folder.model))
        except ValueError as error:
            raise RegardError(
                f"The weights in '{self.folder.path}' do not fit its config.toml.",
                f"{error}",
                "Restore the file that was changed.",
            ) from None
        return model.to(self.hardware.device).eval()

    def _tokenizer(self) -> TextTokenizer:
        path = self.folder.path / "tokenizer.json"
        if not path.exists():
            raise self._unfinished()
        return TextTokenizer.load(path)

    def _unfinished(self) -> RegardError:
        return RegardError(
            f"The run '{self.folder.path}' has no tokenizer yet.",
            "Training stopped before it was made.",
            "Go on with `regard train ... --resume`.",
        )

    def _with(self, section: str, **changes: Any) -> Config:
        """The run's config with some settings of a section changed, and checked again."""
        tree = self.config.model_dump()
        tree[section] |= changes
        return validate(tree)
