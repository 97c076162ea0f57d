"""How a trained model writes: searching, or sampling."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from regard.settings.base import NotNegative, Positive, Settings


class SamplingSettings(Settings):
    """How the next token is drawn."""

    temperature: float = Field(0.0, ge=0, description="above 0: sample; 0: the likeliest")
    top_k: NotNegative = Field(0, description="sample from the k likeliest tokens; 0: from all")
    top_p: float = Field(1.0, gt=0, le=1.0, description="sample from the likeliest tokens that sum to p")
    slots: NotNegative = Field(0, le=65536, description="texts decoded side by side; 0: as many as memory allows")
    int8: bool = Field(False, description="on a CPU: products in eight bits; faster, and nearly the same")


class AnswerSettings(Settings):
    """How answers are found."""

    max_answer: Positive = Field(30, le=10_000, description="most tokens of an answer")


class SearchSettings(SamplingSettings):
    """How texts about a source are searched for."""

    beam: int = Field(5, gt=0, le=1000, description="hypotheses kept; 1: greedy")
    length_penalty: float = Field(0.6, ge=0, description="scores are divided by ((5 + length) / 6) ** this")
    no_repeat: NotNegative = Field(
        0, le=64, description="as many tokens never come twice in the same order in an output; 0: they may"
    )


class BeamSettings(SearchSettings):
    """How translations are searched for."""

    max_ratio: float = Field(2.0, gt=0, description="an output has at most this times the source's tokens + 20")


class CaptionDecoding(SearchSettings):
    """How captions are searched for."""

    max_tokens: Positive = Field(60, le=65536, description="most tokens of a caption")


class SummaryDecoding(BeamSettings):
    """How summaries are searched for."""

    max_ratio: float = Field(0.5, gt=0, description="a summary has at most this times the text's tokens + 20")
    no_repeat: NotNegative = Field(
        3, le=64, description="as many tokens never come twice in the same order in a summary; 0: they may"
    )


class GenerationSettings(SamplingSettings):
    """How texts are continued."""

    min_p: float = Field(
        0.0, ge=0, le=1.0, description="sample from tokens with this share of the likeliest's probability"
    )
    repetition_penalty: float = Field(1.0, ge=1.0, description="makes tokens already written less likely")
    max_tokens: Positive = Field(200, description="most tokens written")
    lookup: NotNegative = Field(
        0, le=256, description="temperature 0: tokens guessed at each step from what the text repeats; 0: none"
    )

    @model_validator(mode="after")
    def _lookup_is_of_one_greedy_text(self) -> Self:
        if self.lookup and self.temperature > 0:
            raise ValueError(
                f"lookup = {self.lookup} guesses the likeliest tokens, and temperature = {self.temperature:g} draws "
                "others; use temperature 0, or lookup 0"
            )
        if self.lookup and self.slots > 1:
            raise ValueError(
                f"lookup = {self.lookup} writes one text at a time, and slots = {self.slots} are for several; "
                "leave one of them out"
            )
        return self
