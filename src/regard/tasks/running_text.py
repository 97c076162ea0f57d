"""What tasks over running text share: reading, dividing and scoring it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from regard.data import text as text_files
from regard.errors import RegardError
from regard.settings import FileList, RunningTextSettings
from regard.tasks.task import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from regard.data.text import DividedText
    from regard.data.tokenizers import TextTokenizer
    from regard.evaluation.metrics import Evaluation

T = TypeVar("T", bound=RunningTextSettings)


class RunningText(Task[T]):
    """A task that reads one long text, or documents one after the other."""

    document_starts: ClassVar[bool] = False  # whether documents begin with <start>
    # In single sentences a word is the same token wherever it stands; a model of running text takes it as it is.
    sentences: ClassVar[bool] = True
    handed_on = ("tokenizer.json",)

    tokenizer: TextTokenizer
    ids: DividedText

    @classmethod
    def check_files(cls, settings: T) -> None:
        text_files.text_splits(settings.data)

    @classmethod
    def examine(cls, settings: T) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_text

        row_length = getattr(settings.training, "row_length", 0)
        return survey_text(settings.data, settings.tokenizer, cls.document_starts, cls.sentences, row_length)

    def prepare(self) -> None:
        from regard.data.text import learn_tokenizer, text_splits

        data = self.settings.data
        sources = text_splits(data)
        self.remember_data({name: source.fingerprint for name, source in sources.items()})
        if not (self.folder.path / "tokenizer.json").exists():
            tokenizer = learn_tokenizer(sources["train"], self.settings.tokenizer, self.sentences)
            self.folder.write_text("tokenizer.json", tokenizer.to_json())
        RunningText.restore(self)
        self.ids = self._divided()
        if not len(self.ids.train) and not len(self.ids.valid):
            raise RegardError(
                "The text is empty.",
                f"There is nothing in {', '.join(str(path) for path in sources['train'].paths[:3])}.",
                "Check the files that data.text names.",
            )
        if len(self.ids.valid) < 2:
            raise RegardError(
                "There is no text to validate on.",
                f"data.held_out = {data.held_out} of {len(self.ids.train):,} tokens is nothing.",
                "Add text, raise data.held_out, or name a file in data.valid.",
            )

    def _divided(self) -> DividedText:
        from regard.data.text import divide

        return divide(self.settings.data, self.tokenizer, self.document_starts)

    def restore(self) -> None:
        from regard.data.tokenizers import TextTokenizer

        self.tokenizer = TextTokenizer.load(self.folder.path / "tokenizer.json")

    def describe(self) -> str:
        return f"{len(self.ids.train):,} tokens · vocabulary {self.tokenizer.size:,}"

    @abstractmethod
    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        """The metrics of a text."""

    @abstractmethod
    def measured_how(self) -> str:
        """What the metrics are of, in words."""

    def validate(self, step: int) -> dict[str, float]:
        return self.measure(self.ids.valid)

    def test(self) -> dict[str, float]:
        """On the test text, or where there is none, on the validation text."""
        return self.measure(self.ids.test if len(self.ids.test) else self.ids.valid)

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        from regard.evaluation.metrics import Evaluation, Score

        ids, what = self._held_out(files, split)
        if len(ids) < 2:
            raise RegardError("There is nothing to score.", f"The {what} text is empty.", "Name another file.")
        signature = f"{what} · {self.measured_how()}"
        scores = [Score(name, value, None, signature) for name, value in self.measure(ids).items()]
        return Evaluation(scores, len(ids), "tokens")

    def _held_out(self, files: FileList | None, split: str) -> tuple[NDArray[Any], str]:
        from regard.data.cache import cache_folder
        from regard.data.tokenised import tokenise_text

        data = self.settings.data
        if files:
            names = [name for item in files for name in ([item] if isinstance(item, str) else item)]
            source = text_files.text_source(names, data.model_copy(update={"root": "."}))
            ids = tokenise_text(source, self.tokenizer, cache_folder(data.cache), self.document_starts)
            return ids, ", ".join(names)
        fingerprints = {name: source.fingerprint for name, source in text_files.text_splits(data).items()}
        self.notice_change(fingerprints, split)
        ids = self._divided()
        return (ids.valid, "valid") if split == "valid" or not len(ids.test) else (ids.test, "test")
