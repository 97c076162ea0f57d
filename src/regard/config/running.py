"""How a trained model is used, and on which machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regard.config.base import SAMPLING, NotNegative, Positive, Settings, of


class DecodingSettings(Settings):
    beam: int = Field(5, gt=0, le=1000, description="hypotheses kept; 1: greedy", json_schema_extra=of("translate"))
    length_penalty: float = Field(
        0.6,
        ge=0,
        description="scores are divided by ((5 + length) / 6) ** this",
        json_schema_extra=of("translate"),
    )
    max_ratio: float = Field(
        2.0,
        gt=0,
        description="a translation has at most this times the source's tokens + 20",
        json_schema_extra=of("translate"),
    )
    batch_tokens: Positive = Field(4096, description="tokens read together")
    temperature: float = Field(0.0, ge=0, description="above 0: sample; 0: the likeliest", json_schema_extra=SAMPLING)
    top_k: NotNegative = Field(
        0, description="sample from the k likeliest tokens; 0: from all", json_schema_extra=SAMPLING
    )
    top_p: float = Field(
        1.0, gt=0, le=1.0, description="sample from the likeliest tokens that sum to p", json_schema_extra=SAMPLING
    )
    min_p: float = Field(
        0.0,
        ge=0,
        le=1.0,
        description="sample from tokens with this share of the likeliest's probability",
        json_schema_extra=of("language"),
    )
    repetition_penalty: float = Field(
        1.0, ge=1.0, description="makes tokens already written less likely", json_schema_extra=of("language")
    )
    max_tokens: Positive = Field(200, description="most tokens written", json_schema_extra=of("language"))


class SystemSettings(Settings):
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto · cpu · cuda · cuda:1")
    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 on CUDA")
    compile: Literal["auto", "yes", "no"] = Field("auto", description="torch.compile; auto: on CUDA, for long runs")
    threads: NotNegative = Field(0, description="CPU threads; 0: as torch chooses")
