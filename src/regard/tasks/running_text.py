"""What tasks over running text share: reading, dividing and scoring it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from regard.data.text import text_source
from regard.errors import RegardError
from regard.settings import FileList, RunningTextSettings
from regard.tasks.task import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from regard.data.running_text import TextSplits
    from regard.data.tokenizers import TextTokenizer
    from regard.evaluation.metrics import Evaluation

T = TypeVar("T", bound=RunningTextSettings)


class RunningText(Task[T]):
    """A task that reads one long text, or documents one after the other."""

    # In single sentences a word is the same token wherever it stands; a model of running text takes it as it is.
    sentences: ClassVar[bool] = True
    handed_on = ("tokenizer.json",)

    tokenizer: TextTokenizer
    ids: TextSplits

    @classmethod
    def with_starts(cls, settings: T) -> bool:
        """Whether a new run's documents begin with <start>."""
        return False

    @property
    def starts(self) -> bool:
        """Whether this run's documents begin with <start>."""
        return self.with_starts(self.settings)

    @classmethod
    def check_files(cls, settings: T) -> None:
        for listed in (settings.data.text, settings.data.valid, settings.data.test):
            if listed or listed is settings.data.text:
                text_source(listed, settings.data)

    @classmethod
    def examine(cls, settings: T) -> tuple[dict[str, Any], list[str]]:
        from regard.data.running_text import divide_text, learn_text_tokenizer, must_have_text
        from regard.data.survey import survey_text

        text = text_source(settings.data.text, settings.data)
        tokenizer = learn_text_tokenizer(text, settings.tokenizer, cls.sentences)
        splits = divide_text(text, settings.data, tokenizer, cls.with_starts(settings))
        must_have_text(splits, text, settings.data)
        return survey_text(text, splits, tokenizer.size, getattr(settings.training, "row_length", 0))

    def prepare(self) -> None:
        from regard.data.running_text import learn_text_tokenizer, must_have_text, text_fingerprints

        data = self.settings.data
        text = text_source(data.text, data)
        self.remember_data(text_fingerprints(data))
        if not self.folder.has("tokenizer.json"):
            tokenizer = learn_text_tokenizer(text, self.settings.tokenizer, self.sentences)
            self.folder.write_text("tokenizer.json", tokenizer.to_json())
        RunningText.restore(self)
        self.ids = self._divided()
        must_have_text(self.ids, text, data)

    def _divided(self) -> TextSplits:
        from regard.data.running_text import divide_text

        data = self.settings.data
        return divide_text(text_source(data.text, data), data, self.tokenizer, self.starts)

    def restore(self) -> None:
        from regard.data.tokenizers import TextTokenizer

        self.tokenizer = TextTokenizer.load(self.folder.checked("tokenizer.json"))

    def describe(self) -> str:
        return f"{len(self.ids.train):,} tokens · vocabulary {self.tokenizer.size:,}"

    @abstractmethod
    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        """The metrics of a text."""

    @abstractmethod
    def measured_how(self) -> str:
        """What the metrics are of, in words."""

    def unread(self, ids: NDArray[Any]) -> int:
        """How many tokens at the end of a text `measure` does not read."""
        return 0

    def validate(self, step: int) -> dict[str, float]:
        return self.measure(self.ids.valid)

    def test(self) -> dict[str, float]:
        return self.measure(self.ids.held_out)

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        from regard.evaluation.metrics import Evaluation, Score

        ids, what = self._held_out(files, split)
        if len(ids) < 2:
            raise RegardError("There is nothing to score.", f"The {what} text is empty.", "Name another file.")
        left_out = self.unread(ids)
        signature = f"{what} · {self.measured_how()}" + (f" · the last {left_out:,} left out" if left_out else "")
        scores = [Score(name, value, None, signature) for name, value in self.measure(ids).items()]
        return Evaluation(scores, len(ids), "tokens", details={"left_out": left_out})

    def _held_out(self, files: FileList | None, split: str) -> tuple[NDArray[Any], str]:
        from regard.data.cache import cache_folder
        from regard.data.running_text import text_fingerprints
        from regard.data.tokenised import tokenise_text

        data = self.settings.data
        if files:
            names = [name for item in files for name in ([item] if isinstance(item, str) else item)]
            source = text_source(names, data.model_copy(update={"root": "."}))
            ids = tokenise_text(source, self.tokenizer, cache_folder(data.cache), self.starts, workers=data.workers)
            return ids, ", ".join(names)
        self.notice_change(text_fingerprints(data), split)
        splits = self._divided()
        return (splits.valid, "valid") if split == "valid" or not len(splits.test) else (splits.test, "test")
