"""What is hidden, guessed or made up: the sections of single tasks."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from regard.settings.base import BatchSize, Chance, Length, NotNegative, Positive, Settings, Share, Width


class MaskingSettings(Settings):
    """BERT's objective: some tokens are chosen to be predicted, and most of those are hidden."""

    share: float = Field(0.15, gt=0.0, lt=1.0, description="tokens to be predicted, of all")
    random: Share = Field(0.1, description="of these, replaced by another token instead of the mask")
    same: Share = Field(0.1, description="of these, left as they are")

    @model_validator(mode="after")
    def _some_are_hidden(self) -> Self:
        if self.random + self.same > 1:
            raise ValueError(f"random = {self.random} and same = {self.same} are more than all; lower one of them")
        return self


class EmbeddingSettings(Settings):
    """CBOW with negative sampling: a word is guessed from the mean of the words around it."""

    width: Width = Field(100, description="size of every word's vector")
    window: Positive = Field(5, le=1000, description="words to each side, at most; how many is drawn for every word")
    negatives: Positive = Field(5, le=1000, description="wrong words that each right one is distinguished from")
    subsample: float = Field(1e-3, ge=0, description="words above this share of the text are often left out; 0: none")
    minimum_count: Positive = Field(5, description="rarer words get no vector")
    words_per_batch: BatchSize = Field(4096, description="words guessed in one update")


class SyntheticSettings(Settings):
    """Made-up sequences that say what a mixer can remember. See `regard.data.synthetic`."""

    kind: Literal["copy", "reverse", "sort", "recall", "recall-one-shot", "recall-multi", "permutations"] = Field(
        "recall",
        description="copy · reverse · sort · recall (the value of a key) · recall-one-shot · recall-multi · "
        "permutations (what all so far amount to)",
    )
    vocabulary: int = Field(
        30,
        ge=4,
        le=1 << 20,
        description="symbols; for recall, half of them are keys and half values; for permutations 6, 24 or 120",
    )
    length: int = Field(1024, ge=4, le=1 << 24, description="tokens of a whole sequence, its answer included")
    learn_from: Literal["query", "all"] = Field(
        "query",
        description="recall learns from: query (the last position) · all (every key that has occurred before)",
    )
    test_sequences: Length = Field(1000, description="sequences to validate on, and as many others to test on")

    @model_validator(mode="after")
    def _sequences_can_be_made(self) -> Self:
        recall = self.kind.startswith("recall")
        if self.kind == "permutations":
            if not self.elements:
                raise ValueError(
                    f"vocabulary = {self.vocabulary} is not how many permutations there are; use 6 (of three "
                    "elements), 24 (of four) or 120 (of five)"
                )
            return self
        if self.length % 2:
            raise ValueError(
                f"length = {self.length} is odd, and a sequence is made of pairs or of two halves; use an even length"
            )
        if recall and self.vocabulary % 2:
            raise ValueError(
                f"vocabulary = {self.vocabulary} is odd, and half of it are keys, half values; use an even vocabulary"
            )
        if self.kind == "recall-one-shot" and self.length < self.vocabulary + 2:
            raise ValueError(
                f"length = {self.length} has no room for each of {self.vocabulary // 2} keys with its value, and a "
                f"query; set length to {self.vocabulary + 2} or more"
            )
        return self

    @property
    def elements(self) -> int:
        """How many there are as many permutations of as there are symbols; 0: none of the numbers that can be used."""
        return {6: 3, 24: 4, 120: 5}.get(self.vocabulary, 0)


class DetectionSettings(Settings):
    """What becomes of all the boxes that a model proposes for an image."""

    overlap: Chance = Field(
        0.5, description="of two boxes of a class that overlap by more (intersection over union), the surer is kept"
    )
    most: Positive = Field(100, le=1000, description="boxes found in an image, at most: the surest")


class PixelSettings(Settings):
    """Pixels as tokens: each is the nearest of a few colours, and a model guesses the next (iGPT)."""

    palette: Literal["grey", "k-means"] = Field(
        "grey", description="grey (levels at equal distances) · k-means (colours found in the images)"
    )
    colours: int = Field(16, ge=2, le=4096, description="how many levels or colours; each is a token")


class MatchSettings(Settings):
    """Games that a trained model plays against others."""

    games: NotNegative = Field(1000, le=1_000_000, description="games as each side, against each opponent; 0: none")
