"""Translate: sentence pairs in, a translator out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard import console
from regard.data.pairs import PairSource, has_text, not_empty, pair_source, pair_splits
from regard.data.splits import SHOWN_AS
from regard.errors import RegardError
from regard.recipes import changed
from regard.settings import (
    BeamSettings,
    FileList,
    PairData,
    PairTokenizerSettings,
    Problem,
    ReproducibleSystem,
    SentenceSettings,
    TranslationModel,
    TranslationTraining,
)
from regard.tasks.task import About, Task

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.pair_batches import PairBatch
    from regard.data.tokenised import TokenisedPairs
    from regard.data.tokenizers import TextTokenizer
    from regard.decoding.long_sources import LongSources
    from regard.decoding.translate import Translator
    from regard.evaluation.metrics import Evaluation
    from regard.explain.translation import TracedTranslation
    from regard.models.seq2seq import Seq2Seq
    from regard.training.folder import RunFolder

MOST_VALIDATION_SENTENCES = 2000  # translated at each validation; the loss is over all of them
SAMPLES = 5  # sentences shown at each validation


class TranslateSettings(SentenceSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "bleu")

    data: PairData = PairData()
    tokenizer: PairTokenizerSettings = PairTokenizerSettings()
    model: TranslationModel = TranslationModel()
    training: TranslationTraining = TranslationTraining()
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
        if self.training.select == "bleu" and not self.training.validate_bleu:
            yield Problem('training.select = "bleu" needs training.validate_bleu = true', "set that")


class Translate(Task[TranslateSettings]):
    """`regard.load("runs/demo").translate(["The dog sleeps."])`"""

    about = About(
        noun="a translator",
        verb="translate",
        metrics=("bleu", "chrf"),
        starter="starter",
        advice="Edit data.train; the rest is for some 10,000 to 100,000 pairs, and half an hour on a laptop.",
    )
    Settings = TranslateSettings

    model: Seq2Seq
    tokenizers: Tokenizers

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: TranslateSettings) -> None:
        pair_splits(settings.data)

    @classmethod
    def examine(cls, settings: TranslateSettings) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_pairs

        sources = pair_splits(settings.data)
        tokenizers = learn_tokenizers(settings.tokenizer, sources["train"])
        return survey_pairs(sources, tokenizers.both, settings.data.max_length)

    def prepare(self) -> None:
        from regard.data.bpe_dropout import BpeDropout
        from regard.data.pair_batches import PairStream, Rectangle, cut_off

        data, training = self.settings.data, self.settings.training
        self.sources = pair_splits(data)
        self.remember_data({name: source.fingerprint for name, source in self.sources.items()})
        if not Tokenizers.are_in(self.folder):
            learn_tokenizers(self.settings.tokenizer, self.sources["train"]).save(self.folder)
        self.restore()
        self.pairs = self._tokenised()
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
        stream = PairStream(self.pairs["train"], self.rectangle, self.settings.seed, data.max_length, dropout)
        if stream.too_long:
            console.warn(
                f"{stream.too_long:,} of {len(self.pairs['train']):,} pairs are longer than "
                f"data.max_length = {data.max_length} tokens and are left out of training."
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
        for name, words in {"train": "training", "valid": "validation", "test": "test"}.items():
            if not len(pairs[name]):
                raise RegardError(
                    f"The {words} data is empty.",
                    "No pair with text on both sides is left for it.",
                    "Check the files named in [data]; with few pairs, name files for it or raise data.held_out.",
                )
        return pairs

    def restore(self) -> None:
        self.tokenizers = Tokenizers.load(self.folder)

    def build(self) -> Seq2Seq:
        from regard.models.seq2seq import Seq2Seq

        return Seq2Seq(self.settings.model, self.tokenizers.source.size, self.tokenizers.target.size)

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
        return self.model.hidden(
            batch.source_BS,
            batch.source_segments_BS,
            batch.source_positions_BS,
            batch.target_BT,
            batch.target_segments_BT,
            batch.target_positions_BT,
        )

    def validate(self, step: int) -> dict[str, float]:
        from regard.evaluation.metrics import bleu

        bleu_too = self.settings.training.validate_bleu
        most = MOST_VALIDATION_SENTENCES if bleu_too else SAMPLES
        pairs = list(itertools.islice(not_empty(self.sources["valid"]), most))
        # A model that has run away may write nothing.
        outputs = [
            best[0].text if best else ""
            for best in self.translator(beam=1).translate([source for source, _ in pairs], best=1)
        ]
        shown = zip(pairs[:SAMPLES], outputs, strict=False)
        blocks = [f"source       {s}\nreference    {t}\ntranslation  {output}\n" for (s, t), output in shown]
        self.folder.write_text(f"samples/step-{step}.txt", "\n".join(blocks))
        metrics = self._loss_on("valid")
        return metrics | ({"bleu": bleu(outputs, [target for _, target in pairs])} if bleu_too else {})

    def test(self) -> dict[str, float]:
        return self._loss_on("test") | self._translated(self.sources["test"], self.translator()).metrics

    def _loss_on(self, split: str) -> dict[str, float]:
        """Mean loss (nats per token) and perplexity over all pairs with text on both sides."""
        from regard.data.pair_batches import in_order
        from regard.training.measure import measure

        batches = in_order(self.pairs[split], self.rectangle, self._most_positions)
        measured = measure(self.model, batches, self.logits, self.hardware)
        return {"loss": measured.loss, "perplexity": measured.perplexity}

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Translate held-out pairs and score them. Options are of [decoding]."""
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
        return self._translated(source, self.translator(**options))

    def _translated(self, pairs: PairSource, translator: Translator) -> Evaluation:
        """The best translation of every line, and the scores of all against their references.

        A line that is blank on a side is scored as it stands, as sacreBLEU does with files. A bad one that is skipped
        has a blank line among the translations, and no score.
        """
        from regard.evaluation.metrics import Evaluation, TranslationScorer

        lines = list(pairs.lines())
        scored = [pair for pair in lines if pair is not None]
        blank, skipped = sum(not has_text(pair) for pair in scored), len(lines) - len(scored)
        if blank:
            console.warn(f"{blank:,} of {len(lines):,} pairs have a blank side. They are scored as they stand.")
        if skipped:
            console.warn(f'{skipped:,} of {len(lines):,} lines are left out of the score: data.bad_lines = "skip".')
        scorer = TranslationScorer([target for _, target in scored])
        long = replace(self.long_sources(translator), advice="")  # scores are of lines as they are
        with console.progress(len(lines), "translating") as show:
            best = translator.translate(
                [pair[0] if pair is not None else "" for pair in lines],
                progress=lambda done: show(done, ""),
                best=1,
                noticed=lambda line, tokens: long.notice(line + 1, tokens),
            )
        long.warn()
        outputs = [hypotheses[0].text if hypotheses else "" for hypotheses in best]
        hypotheses = [output for output, pair in zip(outputs, lines, strict=True) if pair is not None]
        scores = scorer.scores(hypotheses)
        details = {"lines": len(lines), "blank": blank, "left_out": skipped}
        return Evaluation(scores, len(scored), "sentences", outputs, details)

    def next_commands(self) -> list[str]:
        commands = [
            f'echo "A sentence." | regard translate {self.folder.path}',
            f"regard evaluate {self.folder.path}",
        ]
        if self.settings.model.cross != "none":  # else there is nothing to see
            commands.append(f'regard explain {self.folder.path} "A sentence." -o attention.png')
        return commands

    # ------------------------------------------------------------ a loaded run

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
        sentences = [sentences] if isinstance(sentences, str) else sentences
        translator = self.translator(**decoding)
        long = self.long_sources(translator, split_sentences)
        every = translator.translate(
            sentences,
            prefixes=prefixes,
            seed=seed,
            split=split_sentences,
            best=1,
            noticed=lambda line, tokens: long.notice(line + 1, tokens),
        )
        long.warn()
        return [hypotheses[0].text if hypotheses else "" for hypotheses in every]

    def translator(self, **decoding: Any) -> Translator:
        """What translates with these settings of [decoding]; it gives all hypotheses with their scores."""
        from regard.decoding.translate import Translator

        settings = changed(self.settings.decoding, **decoding)
        source, target = self.tokenizers.both
        return Translator(source, target, settings, self._most_positions, self.engines(settings.int8))

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

    def traced(self, text: str, target: str = "") -> TracedTranslation:
        """What the model computed for a sentence and its best translation, or the one given."""
        from regard.explain.translation import trace_translation

        translator = self.translator()
        ids = self.tokenizers.target.encode([target])[0] if target else translator.translate([text])[0][0].tokens
        return trace_translation(self.model, translator.encode(text), ids, self.tokenizers.both, self.hardware.device)

    def explain(self, text: str, output: Path, what: str, target: str = "") -> dict[str, Any]:
        """Draw cross-attention of every layer and head, or an alignment, or the positions that are added."""
        from regard.explain.positions import draw_positions
        from regard.explain.translation import draw_alignment, draw_attention

        if what == "positions":
            positions, model = self.model.source_embedding.positions, self.settings.model
            count = draw_positions(positions, model.positions, model.max_positions, self.hardware.device, output)
            return {"positions": model.positions, "shown": count}
        traced = self.traced(text, target)
        draw_alignment(traced, output) if what == "alignment" else draw_attention(traced, output)
        return {"source": text, "translation": traced.text}


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
