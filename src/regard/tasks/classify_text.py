"""Classify texts: labelled texts in, a model that names the class of a text out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from regard import console
from regard.data.labelled import check_labels, labelled_source, labelled_splits, labels_of
from regard.data.lines import skipped_lines
from regard.data.splits import must_not_be_empty
from regard.errors import RegardError
from regard.settings import (
    FileList,
    LabelledData,
    Problem,
    SentenceSettings,
    TextClassifierModel,
    TextClassifierTraining,
    TokenizerSettings,
)
from regard.tasks.task import About, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.labelled import LabelledSource
    from regard.data.labelled_batches import LabelledBatch, LabelledRows
    from regard.data.tokenised import TokenisedTexts
    from regard.data.tokenizers import TextTokenizer
    from regard.evaluation.classification import Guess
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.classifier import Classifier


class ClassifyTextSettings(SentenceSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    data: LabelledData = LabelledData()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: TextClassifierModel = TextClassifierModel()
    training: TextClassifierTraining = TextClassifierTraining()

    @property
    def causal(self) -> bool:
        """Whether a position sees only those before it."""
        return self.model.causal

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if self.data.max_length < 3:
            yield Problem(
                f"data.max_length = {self.data.max_length} leaves no room for a text between <start> and <end>",
                "set it to the length of your texts",
            )
        if self.model.causal and self.model.pooling == "first":
            yield Problem(
                'model.pooling = "first" reads a class before the text, where a causal model has seen nothing',
                'use "last" or "mean"',
            )


class ClassifyText(Task[ClassifyTextSettings]):
    """`regard.load("runs/trec").classify(["Who wrote Hamlet ?"])`"""

    about = About(
        noun="a text classifier",
        verb="classify",
        metrics=("accuracy", "macro_f1"),
        starter="starter-classify",
        advice="Edit data.train; the rest works as it is for some 1,000 to 100,000 texts.",
    )
    Settings = ClassifyTextSettings
    example = "A text."
    starts_from = ("language", "masked", "classify-text")
    handed_on = ("tokenizer.json",)
    reads = "texts"  # what `classify` takes

    model: Classifier
    tokenizer: TextTokenizer
    classes: list[str]

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: ClassifyTextSettings) -> None:
        labelled_splits(settings.data)

    @classmethod
    def examine(cls, settings: ClassifyTextSettings) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_labelled, with_bad_lines
        from regard.evaluation.bag_of_words import advice

        sources = labelled_splits(settings.data)
        counts, problems = with_bad_lines(survey_labelled(sources), sources.values())
        return counts, [*problems, advice(list(sources["train"]))]

    def first_inputs(self) -> list[str]:
        """Texts held out of training, if there are short ones."""
        try:
            texts = (each.text for each in itertools.islice(labelled_splits(self.settings.data)["valid"], 1000))
            short = (text for text in texts if 4 <= len(text.split()) <= 30)
            return list(itertools.islice(short, 2)) or [self.example]
        except RegardError:  # the data is no longer there
            return [self.example]

    def prepare(self) -> None:
        from regard.data.labelled_batches import LabelledStream
        from regard.data.tokenizers import train_tokenizer

        data, tokens = self.settings.data, self.settings.tokenizer
        sources = labelled_splits(data)
        skipped_lines(sources.values()).warn()
        self.remember_data({name: source.fingerprint for name, source in sources.items()})
        self.folder.write_json("labels.json", labels_of(sources["train"]))
        if not self.folder.has("tokenizer.json"):
            texts = (example.text for example in itertools.islice(sources["train"], tokens.sample_lines))
            self.folder.write_text("tokenizer.json", train_tokenizer(texts, tokens).to_json())
        self.restore()
        self.texts = {name: self._tokenised(source) for name, source in sources.items()}
        must_not_be_empty({name: len(split) for name, split in self.texts.items()}, "labelled text", "texts")
        self.stream = LabelledStream(self.texts["train"], self._shape, self.settings.seed, data.max_length)
        longer = int((self.texts["train"].texts.lengths > data.max_length - 2).sum())
        if longer:
            console.warn(
                f"{longer:,} of {len(self.texts['train']):,} training texts are longer than data.max_length = "
                f"{data.max_length} tokens; only their beginning is read."
            )

    def _tokenised(self, source: LabelledSource) -> TokenisedTexts:
        from regard.data.cache import cache_folder
        from regard.data.tokenised import tokenise_labelled

        cache = cache_folder(self.settings.data.cache)
        with console.progress(0, "tokenising") as show:
            return tokenise_labelled(source, self.tokenizer, self.classes, cache, lambda done: show(done, "texts"))

    @property
    def _shape(self) -> LabelledRows:
        from regard.data.labelled_batches import LabelledRows

        training = self.settings.training
        rows = training.tokens_per_batch // training.row_length
        at_end = self.settings.model.pooling == "last"
        return LabelledRows(rows, training.row_length, at_end, apart=not self.settings.packed)

    def restore(self) -> None:
        from regard.data.tokenizers import TextTokenizer

        self.tokenizer = TextTokenizer.load(self.folder.checked("tokenizer.json"))
        self.classes = check_labels(self.folder.read_json("labels.json", list[str]), self.folder.path / "labels.json")

    def build(self) -> Classifier:
        from regard.models.classifier import Classifier

        return Classifier(self.settings.model, self.tokenizer.size, len(self.classes))

    def architecture(self) -> dict[str, Any]:
        from regard.data.tokenizers import END, START

        return {
            "architecture": "classifier",
            "vocabulary": self.tokenizer.size,
            "classes": self.classes,
            "start_id": START,
            "end_id": END,
        }

    def describe(self) -> str:
        classes = len(self.classes)
        return f"{len(self.texts['train']):,} texts · {classes} classes · vocabulary {self.tokenizer.size:,}"

    # ------------------------------------------------------------ training and scoring

    def logits(self, batch: LabelledBatch) -> Tensor:
        """Of the classes at every position: [B, T, C]."""
        return self.model(batch.tokens_BT, batch.segments_BT, batch.positions_BT)

    def probabilities(self, texts: TokenisedTexts) -> NDArray[np.float32]:
        """Of every class for every text: [N, C]."""
        import numpy as np
        import torch

        from regard.data.labelled_batches import in_order

        def of_batch(batch: LabelledBatch) -> NDArray[np.float32]:
            on_device = batch.to(self.hardware.device)
            with torch.inference_mode(), self.hardware.autocast():
                logits_BTC = self.logits(on_device)
            read_BT = on_device.labels != batch.nothing
            return logits_BTC[read_BT].float().softmax(-1).cpu().numpy()

        self.model.eval()
        numbers: list[NDArray[np.int64]] = []  # of the texts of each batch

        def batches() -> Iterator[LabelledBatch]:
            for batch, its_numbers in in_order(texts, self._shape, self.settings.data.max_length):
                numbers.append(its_numbers)
                yield batch

        p_NC = np.zeros((len(texts), len(self.classes)), np.float32)
        for part_PC, its_numbers in zip(self.processes.each(batches(), of_batch), numbers, strict=True):
            p_NC[its_numbers] = part_PC
        return p_NC

    def validate(self, step: int) -> dict[str, float]:
        return self._measure(self.texts["valid"])

    def test(self) -> dict[str, float]:
        return self._measure(self.texts["test"])

    def _measure(self, texts: TokenisedTexts) -> dict[str, float]:
        from regard.evaluation.classification import class_metrics, macro_f1

        p_NC = self.probabilities(texts)
        f1 = macro_f1(texts.classes, p_NC.argmax(-1))
        return class_metrics(texts.classes, p_NC) | {"macro_f1": f1}

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Accuracy and macro-F1, a picture of the confusions, and what bags of words reach on the same texts."""
        from regard.evaluation.bag_of_words import advice, bags_of_words, samples_per_length
        from regard.evaluation.classification import baseline_notes, class_report
        from regard.evaluation.metrics import Evaluation
        from regard.explain.confusion import draw_confusion

        sources = labelled_splits(self.settings.data)
        source = labelled_source(files, self.settings.data) if files else sources[split]
        if not files:
            self.notice_change({split: source.fingerprint}, split)
        skipped_lines([source]).warn()
        texts = self._tokenised(source)
        if not len(texts):
            raise RegardError("There is nothing to score.", f"The {split} data has no text.", "Name another file.")
        guessed_N = self.probabilities(texts).argmax(-1)
        report = class_report(texts.classes, guessed_N, self.classes)
        picture = self.drawn(
            self.picture("confusion", files, split),
            lambda path: draw_confusion(report.counts_CC, self.classes, path),
        )
        records = [record is not None for record in source.records()]
        left_out = len(records) - len(texts)
        if left_out:
            console.warn(
                f"{left_out:,} of {len(records):,} lines have no text, or cannot be read: they are left out of scores."
            )
        details = report.to_json() | {"left_out": left_out, "confusion_picture": picture}
        notes = [picture] if picture else []
        if baselines:
            train, test = list(sources["train"]), list(source)
            with console.progress(0, "bags of words"):
                simpler = bags_of_words(train, test)
            details["baselines"] = [baseline.to_json() for baseline in simpler]
            details["samples_per_length"] = samples_per_length(train)
            title = "Bags of words with a linear classifier, trained on the same texts:"
            notes = [*baseline_notes(title, simpler, report), "", advice(train), "", *notes]
        guessed = iter(guessed_N.tolist())
        outputs = [self.classes[next(guessed)] if has_text else "" for has_text in records]
        return Evaluation(report.scores, len(texts), "texts", outputs, details, notes)

    def next_commands(self) -> list[str]:
        return [
            f"regard evaluate {self.folder.path}",
            f'echo "A text." | regard classify {self.folder.path}',
        ]

    # ------------------------------------------------------------ a loaded run

    def classify(self, texts: Sequence[str]) -> list[Guess]:
        """The class of each text."""
        import numpy as np

        from regard.data.ragged import Ragged
        from regard.data.tokenised import TokenisedTexts
        from regard.evaluation.classification import guesses

        if not texts:
            return []
        unknown_N = np.zeros(len(texts), np.int64)
        return guesses(
            self.probabilities(TokenisedTexts(Ragged.from_lists(self.tokenizer.encode(texts)), unknown_N)), self.classes
        )

    def subject(self, text: str) -> Subject:
        """A text and its class, to trace."""
        from regard.data.labelled_batches import FRAME
        from regard.data.tokenizers import END, START
        from regard.inside import subjects

        ids, most = self.tokenizer.encode([text])[0], self.settings.data.max_length - FRAME
        if len(ids) > most:
            console.warn(f"The text has {len(ids):,} tokens: only the first {most:,} are read.")
        ids = [START, *ids[:most], END]
        read_at = len(ids) - 1 if self._shape.at_end else 0
        return subjects.classifier(self.model, ids, read_at, self.classes, self.tokenizer.piece, input_text=text)
