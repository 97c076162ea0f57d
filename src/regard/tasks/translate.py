"""Translate: sentence pairs in, a translator out.

`PairTask` is what every encoder-decoder on pairs of texts shares; `Translate` is what only a translator has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from regard import console
from regard.data.lines import skipped_lines
from regard.data.pairs import PairSource, Sample, has_text, not_empty, pair_source, pair_splits
from regard.data.splits import SHOWN_AS, must_not_be_empty
from regard.errors import RegardError, UsageError
from regard.recipes import changed
from regard.settings import (
    BeamSettings,
    FileList,
    PackedTraining,
    PairData,
    PairFiles,
    PairModel,
    PairTokenizerSettings,
    Problem,
    ReproducibleSystem,
    SentenceSettings,
    TranslationTraining,
)
from regard.tasks.task import About, Task

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.pair_batches import PairBatch
    from regard.data.tokenised import TokenisedPairs
    from regard.data.tokenizers import TextTokenizer
    from regard.decoding.hypothesis import SearchRecord
    from regard.decoding.long_sources import LongSources
    from regard.decoding.translate import Translator
    from regard.evaluation.metrics import Evaluation, Score
    from regard.inside.alignment import Aligner, Choice
    from regard.inside.subject import Subject
    from regard.models.seq2seq import Seq2Seq
    from regard.training.folder import RunFolder

MOST_VALIDATION_SENTENCES = 2000  # translated at each validation; the loss is over all of them
LONGEST_FIRST = {False: 14, True: 50}  # words of a text that the page of `regard explore` begins with
SAMPLES = 5  # sentences shown at each validation


class PairSettings(SentenceSettings):
    """Of an encoder-decoder on pairs of texts."""

    data: PairFiles = PairFiles()
    tokenizer: PairTokenizerSettings = PairTokenizerSettings()
    model: PairModel = PairModel()
    training: PackedTraining = PackedTraining()
    decoding: BeamSettings = BeamSettings()
    system: ReproducibleSystem = ReproducibleSystem()

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        named = [name for name in ("train", "valid", "test") if getattr(self.data, name)]
        if self.data.sample and named:
            yield Problem(f"data.sample and data.{named[0]} are both set", 'name one; data.sample="" is for own files')
        if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
            yield Problem(
                'model.tie_embeddings = "all" needs tokenizer.joint = true',
                'set that, or use "target" instead of "all"',
            )
        if self.model.copy and not self.tokenizer.joint:
            yield Problem(
                "model.copy = true needs tokenizer.joint = true",
                "set that: a word can only be copied if both sides have the same vocabulary",
            )


class TranslateSettings(PairSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "bleu")

    data: PairData = PairData()
    training: TranslationTraining = TranslationTraining()

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if self.training.select == "bleu" and not self.training.validate_bleu:
            yield Problem('training.select = "bleu" needs training.validate_bleu = true', "set that")


P = TypeVar("P", bound=PairSettings)


class PairTask(Task[P]):
    """An encoder reads one text, a decoder writes the other. A subclass says how outputs are scored."""

    shortens: ClassVar[bool] = False  # whether what is written is a short form of what is read
    written_as: ClassVar[str] = "translation"  # what is written,
    writing: ClassVar[str] = "translating"  # what the writing is called,
    unit: ClassVar[str] = "sentences"  # what is counted,
    example = "A sentence."
    used_on_gpu = (
        "regard.decoding.translate",
        "regard.layers.slot_attention",
        "regard.layers.quick_step",
        "regard.evaluation.metrics",
    )
    model: Seq2Seq
    tokenizers: Tokenizers
    alignment_choice: Choice | None = None  # the layer and reading that align words best, once that was asked for

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: P) -> None:
        pair_splits(settings.data)

    @classmethod
    def examine(cls, settings: P) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_pairs, with_bad_lines

        sources = pair_splits(settings.data)
        tokenizers = learn_tokenizers(settings.tokenizer, sources["train"])
        survey = survey_pairs(sources, tokenizers.both, settings.data.max_length, cls.shortens)
        return with_bad_lines(survey, sources.values())

    def prepare(self) -> None:
        from regard.data.bpe_dropout import BpeDropout
        from regard.data.pair_batches import PairStream, Rectangle, cut_off

        data, training = self.settings.data, self.settings.training
        self.sources = pair_splits(data)
        skipped_lines(self.sources.values()).warn()
        self.remember_data({name: source.fingerprint for name, source in self.sources.items()})
        if not Tokenizers.are_in(self.folder):
            learn_tokenizers(self.settings.tokenizer, self.sources["train"]).save(self.folder)
        self.restore()
        self.pairs = self.cut(self._tokenised())
        self.rectangle = Rectangle.fitting(
            self.pairs["train"],
            training.tokens_per_batch,
            training.row_length,
            data.max_length,
            apart=not self.settings.packed,
        )
        dropout = None
        if chance := self.settings.tokenizer.dropout:
            cutters = {
                id(tokenizer): BpeDropout(tokenizer, chance, self.settings.seed) for tokenizer in self.tokenizers.both
            }
            dropout = (cutters[id(self.tokenizers.source)], cutters[id(self.tokenizers.target)])
        name, longest_target = self.longest_target
        stream = PairStream(
            self.pairs["train"], self.rectangle, self.settings.seed, data.max_length, dropout, longest_target
        )
        if stream.too_long:
            console.warn(
                f"{stream.too_long:,} of {len(self.pairs['train']):,} pairs are longer than "
                f"{name} = {longest_target} tokens and are left out of training."
            )
        for name in ("valid", "test"):
            if count := cut_off(self.pairs[name], self.rectangle, self._most_positions):
                console.warn(
                    f"{count:,} of {len(self.pairs[name]):,} {SHOWN_AS[name]} pairs are longer than a row of "
                    f"{training.row_length} tokens, or than the model's positions: the loss is over their beginning."
                )
        self.stream = stream

    def _tokenised(self) -> dict[str, TokenisedPairs]:
        """All splits, the test too: a mistake in it must not be found after the training."""
        from regard.data.cache import cache_folder
        from regard.data.tokenised import tokenise_pairs

        cache = cache_folder(self.settings.data.cache)
        with console.progress(0, "tokenising") as show:
            pairs = {
                name: tokenise_pairs(source, self.tokenizers.both, cache, lambda done: show(done, "pairs"))
                for name, source in self.sources.items()
            }
        must_not_be_empty({name: len(split) for name, split in pairs.items()}, "pair with text on both sides", "pairs")
        return pairs

    def cut(self, pairs: dict[str, TokenisedPairs]) -> dict[str, TokenisedPairs]:
        """The pairs as they are learned: here whole, and those that are too long are left out."""
        return pairs

    @property
    def longest_target(self) -> tuple[str, int]:
        """In tokens, and which setting says so."""
        return "data.max_length", self.settings.data.max_length

    def restore(self) -> None:
        self.tokenizers = Tokenizers.load(self.folder)

    def build(self) -> Seq2Seq:
        from regard.models.seq2seq import Seq2Seq

        return Seq2Seq(self.settings.model, self.tokenizers.source.size, self.tokenizers.target.size)

    def rehearsal(self) -> PairBatch:
        from regard.data.pair_batches import made_up_pairs
        from regard.models.seq2seq import Seq2Seq

        words, length = self.settings.tokenizer.vocabulary, self.settings.training.row_length
        self.model = Seq2Seq(changed(self.settings.model, layers=2, decoder_layers=2), words, words)
        return made_up_pairs(max(2, self.REHEARSED // length), length)

    def architecture(self) -> dict[str, Any]:
        from regard.data.tokenizers import END, PAD, START

        return {
            "architecture": "seq2seq",
            "source_vocabulary": self.tokenizers.source.size,
            "target_vocabulary": self.tokenizers.target.size,
            "pad_id": PAD,
            "start_id": START,
            "end_id": END,
        }

    def describe(self) -> str:
        return f"{len(self.pairs['train']):,} pairs · vocabulary {self.tokenizers.target.size:,}"

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: PairBatch) -> Tensor:
        """At every target position, for the next token: [B, T, D]."""
        return self.model.hidden(*_read_by_model(batch))

    def logits(self, batch: PairBatch) -> Tensor:
        """Of the next token, at every target position: [B, T, W]."""
        if self.head_alone:
            return super().logits(batch)
        logits_BTW: Tensor = self.model(*_read_by_model(batch))
        return logits_BTW

    def loss(self, batch: PairBatch) -> Tensor:
        from regard.training.head_loss import logits_loss

        training = self.settings.training
        if self.head_alone:
            return super().loss(batch)
        return logits_loss(self.logits, batch, training.label_smoothing, training.consistency)

    @property
    def head_alone(self) -> bool:
        return not self.settings.model.copy

    @property
    def scores_validation(self) -> bool:
        """Whether a validation also writes outputs and scores them."""
        raise NotImplementedError

    def quick_scores(self, outputs: list[str], targets: list[str]) -> dict[str, float]:
        """What a validation tells of them."""
        raise NotImplementedError

    def scorer(self, samples: list[Sample]) -> Callable[[list[str]], list[Score]]:
        """What scores the outputs of a test, with intervals; each sample has its source and every good target."""
        raise NotImplementedError

    def validate(self, step: int) -> dict[str, float]:
        most = MOST_VALIDATION_SENTENCES if self.scores_validation else SAMPLES
        pairs = list(itertools.islice(not_empty(self.sources["valid"]), most))
        # A model that has run away may write nothing.
        outputs = [
            best[0].text if best else ""
            for best in self.translator(beam=1).translate([source for source, _ in pairs], best=1)
        ]
        shown = zip(pairs[:SAMPLES], outputs, strict=False)
        name = f"{self.written_as:<11}"
        blocks = [f"source       {s}\nreference    {t}\n{name}  {output}\n" for (s, t), output in shown]
        self.folder.write_text(f"samples/step-{step}.txt", "\n".join(blocks))
        metrics = self._loss_on("valid")
        return metrics | (self.quick_scores(outputs, [target for _, target in pairs]) if self.scores_validation else {})

    def test(self) -> dict[str, float]:
        return self._loss_on("test") | self._translated(self.sources["test"], self.translator()).metrics

    def _loss_on(self, split: str) -> dict[str, float]:
        """Mean loss (nats per token) and perplexity over all pairs with text on both sides."""
        from regard.data.pair_batches import in_order
        from regard.training.measure import measure

        batches = in_order(self.pairs[split], self.rectangle, self._most_positions)
        measured = measure(self.model, batches, self.logits, self.hardware, self.processes)
        return {"loss": measured.loss, "perplexity": measured.perplexity}

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Write an output for held-out pairs and score them. Options are of [decoding]."""
        source = self.held_out(files, split)
        skipped_lines([source]).warn()
        return self._translated(source, self.translator(**options))

    def held_out(self, files: FileList | None, split: str) -> PairSource:
        """The pairs to score: of the run's own split, or of the files given."""
        if files:
            source = pair_source(files, self.settings.data)
        else:
            source = pair_splits(self.settings.data)[split]
            self.notice_change({split: source.fingerprint}, split)
        if not any(True for _ in not_empty(source)):
            raise RegardError(
                "There is nothing to score.",
                f"The {split} data has no pair with text on both sides.",
                "Name other files.",
            )
        return source

    def _translated(self, pairs: PairSource, translator: Translator) -> Evaluation:
        """The best output for every line, and the scores of all against their references.

        A line that is blank on a side is scored as it stands, as sacreBLEU does with files. A bad one that is skipped
        has a blank line among the outputs, and no score.
        """
        from regard.evaluation.metrics import Evaluation

        lines = list(pairs.samples())
        scored = [pair for pair in lines if pair is not None]
        blank, skipped = sum(not has_text(pair) for pair in scored), len(lines) - len(scored)
        if blank:
            console.warn(f"{blank:,} of {len(lines):,} pairs have a blank side. They are scored as they stand.")
        scores = self.scorer(scored)
        long = replace(self.long_sources(translator), advice="")  # scores are of lines as they are
        with console.progress(len(lines), self.writing) as show:
            best = translator.translate(
                [pair[0] if pair is not None else "" for pair in lines],
                progress=lambda done: show(done, ""),
                best=1,
                noticed=lambda line, tokens: long.notice(line + 1, tokens),
            )
        long.warn()
        outputs = [hypotheses[0].text if hypotheses else "" for hypotheses in best]
        hypotheses = [output for output, pair in zip(outputs, lines, strict=True) if pair is not None]
        details = {"lines": len(lines), "blank": blank, "left_out": skipped}
        return Evaluation(scores(hypotheses), len(scored), self.unit, outputs, details)

    def next_commands(self) -> list[str]:
        commands = [
            f'echo "{self.example}" | regard {self.about.verb} {self.folder.path}',
            f"regard evaluate {self.folder.path}",
        ]
        if self.settings.model.cross != "none":  # else there is nothing to see
            commands.append(f'regard explain {self.folder.path} "{self.example}" -o attention.png')
        return commands

    # ------------------------------------------------------------ a loaded run

    def write(
        self,
        sources: Sequence[str] | str,
        prefixes: Sequence[str] | None,
        seed: int,
        decoding: dict[str, Any],
        split_sentences: bool = False,
    ) -> list[str]:
        """The best output for each source; with `split_sentences`, for each sentence of it, joined again."""
        sources = [sources] if isinstance(sources, str) else sources
        translator = self.translator(**decoding)
        long = self.long_sources(translator, split_sentences)
        every = translator.translate(
            sources,
            prefixes=prefixes,
            seed=seed,
            split=split_sentences,
            best=1,
            noticed=lambda line, tokens: long.notice(line + 1, tokens),
        )
        long.warn()
        return [hypotheses[0].text if hypotheses else "" for hypotheses in every]

    def translator(self, **decoding: Any) -> Translator:
        """What writes with these settings of [decoding]; it gives all hypotheses with their scores."""
        from regard.decoding.translate import Translator

        settings = changed(self.settings.decoding, **decoding)
        source, target = self.tokenizers.both
        return Translator(source, target, settings, self.longest_source, self.engines(settings.int8))

    @property
    def longest_source(self) -> int:
        """In tokens: what comes after is not read."""
        return self._most_positions

    def long_sources(self, translator: Translator, split: bool = False) -> LongSources:
        """What remembers which lines are longer than the translator can read, or has learned to."""
        from regard.decoding.long_sources import LongSources

        long = LongSources(translator.max_positions, self.settings.data.max_length)
        return replace(long, what="sentence", advice="") if split else long

    @property
    def _most_positions(self) -> int:
        """The longest sentence that the model can take, in tokens."""
        model = self.settings.model
        most: int = model.part("positions").most_positions(model)
        return most

    def subject(self, text: str, target: str = "", forced: Sequence[int] = ()) -> Subject:
        """A source, and its best output or a given one, to trace. `forced`: ids that the output starts with."""
        from regard.inside import subjects
        from regard.inside.forcing import completed
        from regard.inside.subject import check_length

        translator = self.translator()
        source, target_tokenizer = self.tokenizers.both
        _check_not_blank(text)
        long = self.long_sources(translator, split=True)
        length = len(source.encode([text])[0]) + 1
        check_length(length)  # before it is translated
        long.notice(1, length)
        long.warn()
        if target:
            ids = target_tokenizer.encode([target])[0]
        else:
            ids = completed(forced, lambda: translator.translate([text], forced=[forced], best=1)[0][0].tokens)
        output = target_tokenizer.decode([ids])[0]
        return subjects.pair(
            self.model,
            translator.encode(text),
            ids,
            (source.piece, target_tokenizer.piece),
            generated=not target,
            input_text=text,
            output_text=output,
            with_prefix=lambda tokens, _: self.subject(text, forced=tokens),
            aligner=self._aligner(text, output, ids),
        )

    def _aligner(self, text: str, output: str, ids: list[int]) -> Aligner:
        from regard.inside.alignment import Aligner, Words
        from regard.inside.alignment_choice import choose

        source, target = self.tokenizers.both
        words = Words.of(source, text, source.encode([text])[0])
        return Aligner(words.cut(self.longest_source - 1), Words.of(target, output, ids), lambda: choose(self))

    def first_inputs(self) -> list[str]:
        """Sentences held out of training: a model says little about words that it has never seen."""
        most = LONGEST_FIRST[self.shortens]
        try:
            pairs = itertools.islice(not_empty(pair_splits(self.settings.data)["valid"]), MOST_VALIDATION_SENTENCES)
            short = (source for source, _ in pairs if 5 <= len(source.split()) <= most)
            return list(itertools.islice(short, 2)) or [self.example]
        except RegardError:  # the data is no longer there
            return [self.example]

    def record_search(self, text: str, **decoding: Any) -> SearchRecord:
        """How the output was searched for: every candidate of every step. Options are of [decoding]."""
        _check_not_blank(text)
        return self.translator(**decoding).record(text)


class Translate(PairTask[TranslateSettings]):
    """`regard.load("runs/demo").translate(["The dog sleeps."])`"""

    about = About(
        noun="a translator",
        verb="translate",
        metrics=("bleu", "chrf"),
        starter="starter",
        advice="Edit data.train; the rest is for some 10,000 to 100,000 pairs, and half an hour on a laptop.",
    )
    Settings = TranslateSettings

    @property
    def scores_validation(self) -> bool:
        return self.settings.training.validate_bleu

    def quick_scores(self, outputs: list[str], targets: list[str]) -> dict[str, float]:
        from regard.evaluation.metrics import bleu

        return {"bleu": bleu(outputs, targets)}

    def scorer(self, samples: list[Sample]) -> Callable[[list[str]], list[Score]]:
        from regard.evaluation.metrics import TranslationScorer

        return TranslationScorer([sample[1] for sample in samples]).scores

    def evaluate_alignment(
        self,
        links: Path,
        files: FileList | None = None,
        split: str = "test",
        *,
        first: int = 1,
        swapped: bool = False,
    ) -> Evaluation:
        """How well cross-attention aligns the words of these pairs, by links that people drew."""
        from regard.inside.alignment_scores import evaluate_alignment

        source = self.held_out(files, split)
        pairs = [("", "") if pair is None else pair for pair in source.lines()]
        return evaluate_alignment(self, pairs, links, first, swapped)

    def translate(
        self,
        sentences: Sequence[str] | str,
        *,
        prefixes: Sequence[str] | None = None,
        seed: int = 1,
        split_sentences: bool = False,
        **decoding: Any,
    ) -> list[str]:
        """The best translation of each sentence. Keywords override [decoding]: beam=1, temperature=0.8 …

        With `split_sentences`, each may be several sentences, which are translated one by one and joined again.
        """
        return self.write(sentences, prefixes, seed, decoding, split_sentences)


def _check_not_blank(text: str) -> None:
    if not text.strip():
        raise UsageError("The text is blank.", "There is nothing to trace.", "Give a text with at least one word.")


def _read_by_model(batch: PairBatch) -> tuple[Tensor, ...]:
    """Source and target: tokens, segments, positions of each."""
    source = (batch.source_BS, batch.source_segments_BS, batch.source_positions_BS)
    return *source, batch.target_BT, batch.target_segments_BT, batch.target_positions_BT


# ---------------------------------------------------------------- tokenizers


@dataclass(frozen=True)
class Tokenizers:
    """One for both languages, or one for each."""

    source: TextTokenizer
    target: TextTokenizer

    @staticmethod
    def are_in(folder: RunFolder) -> bool:
        joint, source, target = map(folder.has, ("tokenizer.json", "source_tokenizer.json", "target_tokenizer.json"))
        return joint or (source and target)

    @classmethod
    def load(cls, folder: RunFolder) -> Tokenizers:
        from regard.data.tokenizers import TextTokenizer

        if folder.has("tokenizer.json"):
            tokenizer = TextTokenizer.load(folder.checked("tokenizer.json"))
            return cls(tokenizer, tokenizer)
        source, target = (TextTokenizer.load(folder.checked(f"{side}_tokenizer.json")) for side in ("source", "target"))
        return cls(source, target)

    def save(self, folder: RunFolder) -> None:
        if self.source is self.target:
            folder.write_text("tokenizer.json", self.source.to_json())
        else:
            folder.write_text("source_tokenizer.json", self.source.to_json())
            folder.write_text("target_tokenizer.json", self.target.to_json())

    @property
    def both(self) -> tuple[TextTokenizer, TextTokenizer]:
        return self.source, self.target


def learn_tokenizers(settings: PairTokenizerSettings, pairs: PairSource) -> Tokenizers:
    from regard.data.tokenizers import train_tokenizer

    def texts(*sides: int) -> Iterator[str]:
        for pair in itertools.islice(not_empty(pairs), settings.sample_lines):
            for side in sides:
                yield pair[side]

    if settings.joint:
        tokenizer = train_tokenizer(texts(0, 1), settings)
        return Tokenizers(tokenizer, tokenizer)
    return Tokenizers(train_tokenizer(texts(0), settings), train_tokenizer(texts(1), settings))
