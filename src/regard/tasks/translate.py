"""The translation task: from a recipe to a trained, scored translator in a run folder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import console
from regard.settings import Config, ModelSettings
from regard.data.batch import DataState
from regard.data.bpe_dropout import BpeDropout
from regard.data.pair_batches import PairBatch, PairStream, Rectangle, in_order
from regard.data.pairs import Pair, PairSource, not_empty, splits
from regard.data.shards import PairShards, cache_folder, tokenise
from regard.data.tokenizers import END, PAD, START, TextTokenizer, train_tokenizer
from regard.decoding.translate import Translator
from regard.errors import RegardError
from regard.evaluation.metrics import bleu, translation_scores
from regard.hardware import Hardware
from regard.models.seq2seq import Seq2Seq
from regard.tasks.common import draw_curves
from regard.tasks.same_data import remember_data
from regard.training.folder import RunFolder
from regard.training.loss import cross_entropy, training_loss

MOST_VALIDATION_SENTENCES = 2000  # translated at each validation; the loss is over all of them


@dataclass(frozen=True)
class Tokenizers:
    source: TextTokenizer
    target: TextTokenizer

    @classmethod
    def load(cls, folder: Path) -> Tokenizers | None:
        joint = folder / "tokenizer.json"
        if joint.exists():
            tokenizer = TextTokenizer.load(joint)
            return cls(tokenizer, tokenizer)
        source, target = folder / "source_tokenizer.json", folder / "target_tokenizer.json"
        if source.exists() and target.exists():
            return cls(TextTokenizer.load(source), TextTokenizer.load(target))
        return None

    def save(self, folder: RunFolder) -> None:
        if self.source is self.target:
            folder.write_text("tokenizer.json", self.source.to_json())
        else:
            folder.write_text("source_tokenizer.json", self.source.to_json())
            folder.write_text("target_tokenizer.json", self.target.to_json())

    def both(self) -> tuple[TextTokenizer, TextTokenizer]:
        return self.source, self.target


@dataclass(frozen=True)
class PreparedPairs:
    """The data of a run, ready to train on."""

    tokenizers: Tokenizers
    train: PairShards
    valid: PairShards
    valid_text: list[Pair]
    test: PairShards
    test_text: list[Pair]


def prepare(config: Config, folder: RunFolder) -> PreparedPairs:
    """Read and check all data; learn the tokenizers where the run has none yet."""
    sources = splits(config.data)
    remember_data(folder, {name: source.fingerprint for name, source in sources.items()})
    tokenizers = Tokenizers.load(folder.path)
    if tokenizers is None:
        tokenizers = learn_tokenizers(config, sources["train"])
        tokenizers.save(folder)
    cache = cache_folder(config.data.cache)
    with console.progress(0, "tokenising") as show:
        train = tokenise(sources["train"], tokenizers.both(), cache, lambda done: show(done, "pairs"))
    valid = tokenise(sources["valid"], tokenizers.both(), cache)
    # Read now, though it is needed only at the end: a mistake in it must not be found after the training.
    test = tokenise(sources["test"], tokenizers.both(), cache)
    for name, count in {"training": len(train), "validation": len(valid), "test": len(test)}.items():
        if not count:
            raise RegardError(
                f"The {name} data is empty.",
                "No pair with text on both sides is left for it.",
                "Check the files named in [data]; with few pairs, name files for it or raise data.held_out.",
            )
    valid_text = list(itertools.islice(not_empty(sources["valid"]), MOST_VALIDATION_SENTENCES))
    return PreparedPairs(tokenizers, train, valid, valid_text, test, list(not_empty(sources["test"])))


def learn_tokenizers(config: Config, pairs: PairSource) -> Tokenizers:
    settings = config.tokenizer

    def texts(*sides: int) -> Iterator[str]:
        for pair in itertools.islice(not_empty(pairs), settings.sample_lines):
            for side in sides:
                yield pair[side]

    if settings.joint:
        tokenizer = train_tokenizer(texts(0, 1), settings)
        return Tokenizers(tokenizer, tokenizer)
    return Tokenizers(train_tokenizer(texts(0), settings), train_tokenizer(texts(1), settings))


class TranslationTask:
    """What the trainer needs to know of translation."""

    def __init__(self, config: Config, folder: RunFolder, hardware: Hardware):
        self.config, self.folder, self.hardware = config, folder, hardware
        self.data = data = prepare(config, folder)
        training, max_length = config.training, config.data.max_length
        self.rectangle = Rectangle.fitting(
            data.train, training.tokens_per_batch, training.row_length, max_length, apart=not config.packed
        )
        dropout = None
        if config.tokenizer.dropout:
            source, target = data.tokenizers.both()
            first = BpeDropout(source, config.tokenizer.dropout, config.seed)
            dropout = (
                first,
                first if target is source else BpeDropout(target, config.tokenizer.dropout, config.seed),
            )
        self.stream = PairStream(data.train, self.rectangle, config.seed, max_length, dropout)
        if self.stream.too_long:
            console.warn(
                f"{self.stream.too_long:,} of {len(data.train):,} pairs are longer than "
                f"data.max_length = {max_length} tokens and are left out of training."
            )

    def build(self) -> Seq2Seq:
        return build(self.config.model, self.data.tokenizers)

    def architecture(self) -> dict[str, Any]:
        return {
            "architecture": "seq2seq",
            "source_vocabulary": self.data.tokenizers.source.size,
            "target_vocabulary": self.data.tokenizers.target.size,
            "pad_id": PAD,
            "start_id": START,
            "end_id": END,
        }

    def size(self) -> str:
        return f"{len(self.data.train):,} pairs · vocabulary {self.data.tokenizers.target.size:,}"

    def batches(self, state: DataState) -> Iterator[tuple[PairBatch, DataState]]:
        return self.stream.batches(state)

    def loss(self, model: nn.Module, batch: PairBatch) -> Tensor:
        settings = self.config.training
        return training_loss(lambda rows: _logits(model, rows), batch, settings.label_smoothing, settings.consistency)

    def validate(self, model: nn.Module, step: int) -> dict[str, float]:
        metrics = self.loss_over(model, self.data.valid)
        count = len(self.data.valid_text) if self.config.training.validate_bleu else 5
        pairs = self.data.valid_text[:count]
        found = self.translator(model, beam=1).translate([source for source, _ in pairs])
        outputs = [best[0].text if best else "" for best in found]  # a model that has run away may write nothing
        if self.config.training.validate_bleu:
            metrics["bleu"] = bleu(outputs, [target for _, target in pairs])
        shown = zip(pairs[:5], outputs, strict=False)
        self.folder.write_text(
            f"samples/step-{step}.txt",
            "\n".join(
                f"source       {source}\nreference    {target}\ntranslation  {output}\n"
                for (source, target), output in shown
            ),
        )
        return metrics

    def draw(self) -> None:
        draw_curves(self.folder)

    def test(self, model: nn.Module) -> dict[str, float]:
        metrics = self.loss_over(model, self.data.test)
        scores = evaluate(self.translator(model), self.data.test_text)[1]
        return metrics | {score.name: score.value for score in scores}

    def next_commands(self) -> list[str]:
        commands = [
            f'echo "A sentence." | regard translate {self.folder.path}',
            f"regard evaluate {self.folder.path}",
        ]
        if self.config.model.cross != "none":  # else there is nothing to see
            commands.append(f'regard explain {self.folder.path} "A sentence." -o attention.png')
        return commands

    @torch.inference_mode()
    def loss_over(self, model: nn.Module, shards: PairShards) -> dict[str, float]:
        """Mean loss (nats a token) and perplexity over all pairs."""
        model.eval()
        total, targets = 0.0, 0
        for batch in in_order(shards, self.rectangle):
            on_device = batch.to(self.hardware.device)
            with self.hardware.autocast():
                total += cross_entropy(_logits(model, on_device), on_device.labels_BT, ignore=PAD).item()
            targets += batch.targets
        loss = total / max(targets, 1)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700))}

    def translator(self, model: nn.Module, beam: int = 0) -> Translator:
        assert isinstance(model, Seq2Seq)
        return make_translator(self.config, model, self.data.tokenizers, self.hardware, beam)


def build(settings: ModelSettings, tokenizers: Tokenizers) -> Seq2Seq:
    return Seq2Seq(settings, tokenizers.source.size, tokenizers.target.size)


def make_translator(
    config: Config, model: Seq2Seq, tokenizers: Tokenizers, hardware: Hardware, beam: int = 0
) -> Translator:
    settings = config.decoding.model_copy(update={"beam": beam}) if beam else config.decoding
    longest = config.model.max_positions if config.model.positions == "learned" else 1 << 20
    return Translator(model, tokenizers.source, tokenizers.target, settings, longest, hardware.device)


def evaluate(translator: Translator, pairs: list[Pair]) -> tuple[list[str], list[Any]]:
    """Translate the sources and score the best translation of each against its reference."""
    with console.progress(len(pairs), "translating") as show:
        found = translator.translate([source for source, _ in pairs], progress=lambda done: show(done, ""))
    outputs = [best[0].text if best else "" for best in found]
    return outputs, translation_scores(outputs, [target for _, target in pairs])


def _logits(model: nn.Module, batch: PairBatch) -> Tensor:
    logits: Tensor = model(
        batch.source_BS,
        batch.source_segments_BS,
        batch.source_positions_BS,
        batch.target_BT,
        batch.target_segments_BT,
        batch.target_positions_BT,
    )
    return logits
