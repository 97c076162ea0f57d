"""How text becomes numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from regard.settings.base import Length, Positive, Problem, Settings, Share

SMALLEST_VOCABULARY = 259  # three special tokens and every byte


class TokenizerSettings(Settings):
    kind: Literal["bpe", "word", "character", "byte"] = Field("bpe", description="bpe · word · character · byte")
    vocabulary: Length = Field(10_000, description="most entries in the vocabulary (byte: always 259)")
    lowercase: bool = Field(False, description="small letters only; what is decoded then has no capitals")
    sample_lines: Positive = Field(
        1_000_000, description="most pairs, lines or pieces of 1 MB read to learn the vocabulary"
    )

    def check(self) -> Iterator[Problem]:
        if self.kind != "byte" and self.vocabulary < SMALLEST_VOCABULARY:
            yield Problem(
                f"tokenizer.vocabulary = {self.vocabulary} is less than the {SMALLEST_VOCABULARY} entries for special "
                "tokens and bytes",
                f"set it to {SMALLEST_VOCABULARY} or more",
            )


class PairTokenizerSettings(TokenizerSettings):
    """Of two languages."""

    joint: bool = Field(True, description="one vocabulary for source and target")
    dropout: Share = Field(0.0, description="BPE dropout: chance to skip a merge, in training only")

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if self.dropout and self.kind != "bpe":
            yield Problem(
                f'tokenizer.dropout needs tokenizer.kind = "bpe", not "{self.kind}"', "set it to 0, or use bpe"
            )
