"""What all settings share: their types, and which tasks know them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Chance = Annotated[float, Field(ge=0.0, le=1.0)]
FileList = list[str] | list[list[str]]
SMALLEST_VOCABULARY = 259  # three special tokens and every byte

Mixer = Literal["attention", "local", "hyena", "rnn", "lstm", "gru"]
RECURRENT: tuple[Mixer, ...] = ("rnn", "lstm", "gru")
PACKABLE: tuple[Mixer, ...] = ("attention", "local")  # several sequences may share a row

Task = Literal[
    "translate", "language", "masked", "classify-text", "embeddings", "classify-image", "pixels", "synthetic"
]
TASKS: tuple[Task, ...] = get_args(Task)


def of(*tasks: Task) -> dict[str, Any]:
    """Marks a setting that only these tasks know."""
    return {"tasks": list(tasks)}


RUNNING_TEXT = of("language", "masked", "embeddings")
TEXT_NETWORKS = of("translate", "language", "masked", "classify-text")
TEXTS = of("translate", "language", "masked", "classify-text", "embeddings")
IMAGES = of("classify-image", "pixels")
FILES = of("translate", "language", "masked", "classify-text", "embeddings", "classify-image", "pixels")
TOKEN_NETWORKS = of("translate", "language", "masked", "classify-text", "synthetic")
NETWORKS = of("translate", "language", "masked", "classify-text", "synthetic", "classify-image", "pixels")
TOKENS = of("translate", "language", "masked", "classify-text", "synthetic", "pixels")
SAMPLING = of("translate", "language", "pixels")


class Settings(BaseModel):
    """Frozen, strict, and closed: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
