"""Synthetic: a causal model learns made-up sequences, to see what its mixer can remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from regard.errors import UsageError
from regard.settings import CausalModel, FileList, NetworkSettings, SyntheticSettings, TokenTraining
from regard.tasks.task import About, Task, must_have_no_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from regard.data.text_batches import TextBatch
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.causal import Causal
    from regard.settings import Problem
    from regard.training.measure import Measured

SAMPLES = 5  # sequences shown at each validation


class SyntheticTaskSettings(NetworkSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    synthetic: SyntheticSettings = SyntheticSettings()
    model: CausalModel = CausalModel()
    training: TokenTraining = TokenTraining()

    @property
    def row(self) -> tuple[str, int]:
        return "synthetic.length", self.synthetic.length

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.training.check_rows(*self.row)


class Synthetic(Task[SyntheticTaskSettings]):
    """`regard.load("runs/recall").evaluate().metrics["accuracy"]`"""

    about = About(
        noun="a model of made-up sequences",
        verb="evaluate",
        metrics=("accuracy", "loss"),
        starter="recall",
        advice="Edit [synthetic] and model.mixer; no files are needed.",
    )
    Settings = SyntheticTaskSettings

    model: Causal

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def examine(cls, settings: SyntheticTaskSettings) -> tuple[dict[str, Any], list[str]]:
        return settings.synthetic.model_dump(), ["There are no files to check: sequences are made up."]

    def prepare(self) -> None:
        from regard.data.synthetic import SyntheticStream

        self.stream = SyntheticStream(self.settings.synthetic, self._rows, self.settings.seed)

    def restore(self) -> None:
        """Nothing is needed but the settings."""

    @property
    def _rows(self) -> int:
        return self.settings.training.tokens_per_batch // self.settings.synthetic.length

    def build(self) -> Causal:
        from regard.data.synthetic import vocabulary_size
        from regard.models.causal import Causal

        return Causal(self.settings.model, vocabulary_size(self.settings.synthetic))

    def architecture(self) -> dict[str, Any]:
        from regard.data.synthetic import vocabulary_size

        return {
            "architecture": "causal",
            "vocabulary": vocabulary_size(self.settings.synthetic),
            "synthetic": self.settings.synthetic.model_dump(),
        }

    def describe(self) -> str:
        from regard.data.synthetic import chance

        settings = self.settings.synthetic
        return (
            f"{settings.kind} · {settings.vocabulary} symbols · sequences of {settings.length:,} tokens · "
            f"chance {chance(settings):.3g} %"
        )

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: TextBatch) -> Tensor:
        return self.model.hidden(batch.tokens_BT)

    def validate(self, step: int) -> dict[str, float]:
        self.folder.write_text(f"samples/step-{step}.txt", self._sample())
        return _metrics(self._measure("valid"))

    def test(self) -> dict[str, float]:
        return _metrics(self._measure("test"))

    def _measure(self, split: str) -> Measured:
        from regard.data.synthetic import held_out
        from regard.training.measure import measure

        batch = held_out(self.settings.synthetic, split)
        return measure(
            self.model, batch.split(-(-len(batch.labels) // self._rows)), self.logits, self.hardware, self.processes
        )

    def _sample(self) -> str:
        """The first few sequences: what was read, what was expected, and what came."""
        import torch

        from regard.data.synthetic import held_out, spell

        settings = self.settings.synthetic
        batch = held_out(settings, "valid").first(SAMPLES)
        with torch.inference_mode(), self.hardware.autocast():
            guesses_BT = self.logits(batch.to(self.hardware.device)).argmax(-1).cpu()

        def words(tokens: Tensor) -> str:
            return " ".join(spell(settings, token) for token in tokens.tolist())

        blocks = []
        for tokens_T, labels_T, guesses_T in zip(batch.tokens_BT, batch.labels, guesses_BT, strict=True):
            asked_T = labels_T != batch.nothing
            blocks.append(
                f"read      {words(tokens_T)}\n"
                f"expected  {words(labels_T[asked_T])}\n"
                f"came      {words(guesses_T[asked_T])}\n"
            )
        return "\n".join(blocks)

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """Score the sequences that are held out for it: the same every time, and for every seed."""
        from regard.data.synthetic import chance
        from regard.evaluation.metrics import Evaluation, Score

        must_have_no_files(
            files, "A model of made-up sequences reads no files.", "It is scored on sequences that are made for it."
        )
        settings, measured = self.settings.synthetic, self._measure(split)
        level = chance(settings)
        signatures = {
            "loss": f"{split} · nats per label, over {measured.targets:,} labels",
            "accuracy": f"{split} · % of the labels; chance: {level:.2f}",
            "whole": f"{split} · % of the sequences with every label right",
        }
        scores = [Score(name, value, None, signatures[name]) for name, value in _metrics(measured).items()]
        details = {"chance": level, "kind": settings.kind, "length": settings.length, "vocabulary": settings.vocabulary}
        return Evaluation(scores, settings.test_sequences, "sequences", details=details)

    def next_commands(self) -> list[str]:
        path = self.folder.path
        return [f"regard evaluate {path}", f"regard train {path} seed={self.settings.seed + 1} --out {path}-again"]

    # ------------------------------------------------------------ looking into layers

    def subject(self, text: str = "") -> Subject:
        """A sequence, as symbols separated by spaces, to trace; by default the first of the validation split."""
        from regard.data.synthetic import held_out, spell, vocabulary_size
        from regard.inside import subjects

        settings = self.settings.synthetic
        names = [spell(settings, token) for token in range(vocabulary_size(settings))]
        unknown = [symbol for symbol in text.split() if symbol not in names]
        if unknown:
            raise UsageError(
                f"'{unknown[0]}' is not a symbol of this task.",
                f"Its symbols are {', '.join(names[:8])} …",
                "Write symbols with spaces between them, or none.",
            )
        ids = [names.index(symbol) for symbol in text.split()]
        ids = ids or held_out(settings, "valid").first(1).tokens_BT[0].tolist()
        return subjects.causal(self.model, ids, names.__getitem__, input_text=" ".join(names[token] for token in ids))


def _metrics(measured: Measured) -> dict[str, float]:
    """
    loss      mean, in nats per label
    accuracy  percentage of the labels that are guessed
    whole     percentage of the sequences of which every label is: those that would be written without a mistake
    """
    return {"loss": measured.loss, "accuracy": measured.accuracy, "whole": measured.whole}
