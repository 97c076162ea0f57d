"""A trained text classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard import console
from regard.settings import FileList
from regard.data.labelled import LabelledSource, splits
from regard.data.shards import LabelledShards, Ragged, cache_folder, tokenise_labelled
from regard.errors import RegardError
from regard.evaluation.bag_of_words import advice, bags_of_words, samples_per_length
from regard.evaluation.classification import Guess, beside, class_report, guesses
from regard.evaluation.metrics import Evaluation
from regard.explain.confusion import draw_confusion
from regard.models.classifier import Classifier
from regard.runs.base import Run
from regard.tasks.classify import probabilities
from regard.tasks.same_data import notice_change


class ClassificationRun(Run):
    """`regard.load("runs/trec").classify(["Who wrote Hamlet ?"])`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.tokenizer = self._tokenizer()
        self.classes: list[str] = self.folder.read_json("labels.json")
        self.model = self._load(Classifier(self.config.model, self.tokenizer.size, len(self.classes)))

    def classify(self, texts: Sequence[str]) -> list[Guess]:
        """The class of each text."""
        if not texts:
            return []
        ids = self.tokenizer.encode(texts)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in ids])])
        flat = np.array([token for row in ids for token in row], np.int64)
        shards = LabelledShards(Ragged(flat, offsets), np.zeros(len(texts), np.int64))
        found = probabilities(self.model, shards, self.config, self.hardware)
        return guesses(found, self.classes)

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Accuracy and macro-F1, a picture of the confusions, and what bags of words reach on the same texts."""
        sources = splits(self.config.data)
        source = sources[split]
        if files:
            names = [str(Path(name).resolve()) for name in files if isinstance(name, str)]
            source = LabelledSource.of("test", self.config.data.model_copy(update={"test": names}))
        else:
            notice_change(self.folder, {split: source.fingerprint}, split)
        texts = tokenise_labelled(source, self.tokenizer, self.classes, cache_folder(self.config.data.cache))
        if not len(texts):
            raise RegardError("There is nothing to score.", f"The {split} data has no text.", "Name another file.")
        found = probabilities(self.model, texts, self.config, self.hardware).argmax(-1)
        report = class_report(texts.classes, found, self.classes)
        picture = self._picture("confusion", files, split)
        draw_confusion(report.counts_CC, self.classes, picture)
        details = report.to_json() | {"confusion_picture": str(picture.resolve())}
        notes = [f"{picture.resolve()}"]
        if baselines:
            train, test = list(sources["train"]), list(source)
            with console.progress(0, "bags of words"):
                found_baselines = bags_of_words(train, test)
            details["baselines"] = [baseline.to_json() for baseline in found_baselines]
            details["samples_per_length"] = samples_per_length(train)
            notes = [
                *beside("Bags of words with a linear classifier, trained on the same texts:", found_baselines, report),
                "",
                advice(train),
                "",
                *notes,
            ]
        outputs = [self.classes[number] for number in found]
        return Evaluation(report.scores, len(texts), "texts", outputs, details, notes)
