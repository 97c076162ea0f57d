"""Summarize: long texts with a short one each in; what writes such summaries out.

The encoder-decoder of `translate`, on other pairs: what differs is how long texts are read, that no phrase comes twice,
and how a summary is scored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from regard import console
from regard.data.pairs import Sample, not_empty, pair_splits
from regard.data.splits import SHOWN_AS
from regard.settings import FileList, Problem, SummaryData, SummaryDecoding, SummaryTraining
from regard.tasks.task import About
from regard.tasks.translate import PairSettings, PairTask

if TYPE_CHECKING:
    from regard.data.tokenised import TokenisedPairs
    from regard.decoding.long_sources import LongSources
    from regard.decoding.translate import Translator
    from regard.evaluation.metrics import Evaluation, Score

MOST_NEIGHBOURS = 200_000  # training texts among which the nearest is looked for


class SummarizeSettings(PairSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "rouge1")

    data: SummaryData = SummaryData()
    training: SummaryTraining = SummaryTraining()
    decoding: SummaryDecoding = SummaryDecoding()

    @property
    def longest_in_a_row(self) -> tuple[str, int]:
        """Rows are of summaries; the texts have rows of their own, as long as they need."""
        return "data.max_summary", self.data.max_summary

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if self.training.select == "rouge1" and not self.training.validate_rouge:
            yield Problem('training.select = "rouge1" needs training.validate_rouge = true', "set that")

    def completed(self) -> Self:
        length = max(self.row[1], self.data.max_length)
        return super().completed().model_copy(update={"model": self.model.for_length(length)})


class Summarize(PairTask[SummarizeSettings]):
    """`regard.load("runs/summaries").summarize(["A long text …"])`"""

    about = About(
        noun="a summariser",
        verb="summarize",
        metrics=("rouge1", "rouge2", "rougel"),
        starter="starter-summarize",
        advice="Edit data.train; the rest is for some 10,000 to 100,000 texts of up to a page.",
    )
    Settings = SummarizeSettings
    shortens = True
    written_as, writing, unit = "summary", "summarising", "texts"
    example = "A long text. It has several sentences."

    # ------------------------------------------------------------ long texts

    def cut(self, pairs: dict[str, TokenisedPairs]) -> dict[str, TokenisedPairs]:
        """The beginning of every text."""
        most = self.settings.data.max_length - 1  # and <end>
        for name, split in pairs.items():
            if count := int((split.source.lengths > most).sum()):
                console.warn(
                    f"{count:,} of {len(split):,} {SHOWN_AS[name]} texts are longer than data.max_length = "
                    f"{most + 1} tokens: only their beginning is read."
                )
        return {name: replace(split, source=split.source.beginnings(most)) for name, split in pairs.items()}

    @property
    def longest_target(self) -> tuple[str, int]:
        return "data.max_summary", self.settings.data.max_summary

    @property
    def longest_source(self) -> int:
        return min(super().longest_source, self.settings.data.max_length)

    def long_sources(self, translator: Translator, split: bool = False) -> LongSources:
        from regard.decoding.long_sources import LongSources

        most = translator.max_positions
        limit = "tokens of data.max_length"
        return LongSources(most, most, what="text", advice="", limit=limit, done="read")

    # ------------------------------------------------------------ scoring

    @property
    def scores_validation(self) -> bool:
        return self.settings.training.validate_rouge

    def quick_scores(self, outputs: list[str], targets: list[str]) -> dict[str, float]:
        from regard.evaluation.rouge import rouge

        return rouge(outputs, [[target] for target in targets])

    def scorer(self, samples: list[Sample]) -> Callable[[list[str]], list[Score]]:
        from regard.evaluation.rouge import rouge_scores

        return partial(rouge_scores, references=[sample[1:] for sample in samples])

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Summarise held-out texts and score that; with `baselines`, beside what needs no model."""
        from regard.evaluation.rouge import simpler_notes, simpler_summaries

        result = super().evaluate(files, split, **options)
        if not baselines:
            return result
        scored = [sample for sample in self.held_out(files, split).samples() if sample is not None]
        train = list(itertools.islice(not_empty(pair_splits(self.settings.data)["train"]), MOST_NEIGHBOURS))
        texts, references = [sample[0] for sample in scored], [sample[1:] for sample in scored]
        simpler = simpler_summaries(train, texts, references)
        return replace(
            result,
            details=result.details | {"baselines": [way.to_json() for way in simpler]},
            notes=result.notes + simpler_notes(simpler, result.metrics["rouge1"]),
        )

    # ------------------------------------------------------------ a loaded run

    def summarize(
        self, texts: Sequence[str] | str, *, prefixes: Sequence[str] | None = None, seed: int = 1, **decoding: Any
    ) -> list[str]:
        """The best summary of each text. Keywords override [decoding]: beam=1, no_repeat=0 …"""
        return self.write(texts, prefixes, seed, decoding)
