"""The machine that a model runs on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regard.settings.base import NotNegative, Positive, Settings

SAME_BYTES = "on a GPU: the same bytes from the same seed every time; some kernels are slower"


class SystemSettings(Settings):
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$", description="auto · cpu · cuda · cuda:1")
    precision: Literal["auto", "float32", "bfloat16", "float8"] = Field(
        "auto", description="auto: bfloat16 on CUDA · float8: trains with products in eight bits, on an H100 or later"
    )
    compile: Literal["auto", "yes", "no"] = Field(
        "auto", description="torch.compile; auto: on CUDA, for blocks without kernels of their own, where it saves time"
    )
    deterministic: bool = Field(False, description=SAME_BYTES)
    threads: NotNegative = Field(0, le=4096, description="CPU threads; 0: as torch chooses")
    patience: Positive = Field(
        1800, le=10**6, description="seconds that one process of several waits for another, before that counts as hung"
    )


class ReproducibleSystem(SystemSettings):
    """Of tasks whose kernels take no longer for it."""

    deterministic: bool = Field(True, description=SAME_BYTES)
