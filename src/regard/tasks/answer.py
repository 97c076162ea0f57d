"""Answer: questions about texts in, a model that finds the answer in a text out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from regard import console
from regard.data.lines import skipped_lines
from regard.data.questions import Question, question_source, question_splits
from regard.data.splits import must_not_be_empty
from regard.errors import RegardError, UsageError
from regard.settings import (
    AnswerSettings,
    AnswerTraining,
    FileList,
    Problem,
    QuestionData,
    SentenceSettings,
    SequenceModel,
    TokenizerSettings,
)
from regard.tasks.task import About, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.question_batches import QuestionBatch, QuestionRows
    from regard.data.questions import QuestionSource
    from regard.data.tokenised_questions import TokenisedQuestions, Windows
    from regard.data.tokenizers import TextTokenizer
    from regard.decoding.spans import Answer as FoundAnswer
    from regard.decoding.spans import WindowGuess
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.reader import Reader

SHORTEST = 16  # tokens that a question, some of its context and what is around them need at least
NAMED = 3  # questions that are left out and shown


class AnswerTaskSettings(SentenceSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "exact_match", "f1")

    data: QuestionData = QuestionData()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: SequenceModel = SequenceModel()
    training: AnswerTraining = AnswerTraining()
    decoding: AnswerSettings = AnswerSettings()

    @property
    def causal(self) -> bool:
        """Whether a position sees only those before it."""
        return False

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if self.data.max_length < SHORTEST:
            yield Problem(
                f"data.max_length = {self.data.max_length} leaves no room for a question and a context",
                f"set it to {SHORTEST} or more",
            )
        if self.data.sample and self.data.train:
            yield Problem("data.sample and data.train both name the questions to train on", "leave one of them empty")


class Answer(Task[AnswerTaskSettings]):
    """`regard.load("runs/stories").answer("Where is Mary?", "Mary went to the kitchen.").text`"""

    about = About(
        noun="a model that answers questions",
        verb="answer",
        metrics=("exact_match", "f1"),
        starter="starter-answer",
        advice="Edit data.train; some 10,000 questions or more, and better from a masked run: --from RUN.",
    )
    Settings = AnswerTaskSettings
    example = "Where is Mary?"
    example_context = "Mary went to the attic."
    starts_from = ("masked", "answer")
    handed_on = ("tokenizer.json",)

    model: Reader
    tokenizer: TextTokenizer

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: AnswerTaskSettings) -> None:
        question_splits(settings.data)

    @classmethod
    def examine(cls, settings: AnswerTaskSettings) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_questions, with_bad_lines

        sources = question_splits(settings.data)
        return with_bad_lines(survey_questions(sources, settings.data.no_answer), sources.values())

    def prepare(self) -> None:
        from regard.data.question_batches import QuestionStream
        from regard.data.tokenizers import train_tokenizer

        tokens = self.settings.tokenizer
        self.sources = question_splits(self.settings.data)
        skipped_lines(self.sources.values()).warn()
        self.remember_data({name: source.fingerprint for name, source in self.sources.items()})
        if not self.folder.has("tokenizer.json"):
            texts = itertools.islice(_texts(self.sources["train"]), tokens.sample_lines)
            self.folder.write_text("tokenizer.json", train_tokenizer(texts, tokens).to_json())
        self.restore()
        self.questions = {name: self._tokenised(source) for name, source in self.sources.items()}
        must_not_be_empty({name: len(split) for name, split in self.questions.items()}, "question", "questions")
        self._name_left_out()
        windows = self._windows(self.questions["train"], self._not_learned)
        self.stream = QuestionStream(windows, self._shape, self.settings.seed)

    def _tokenised(self, source: QuestionSource) -> TokenisedQuestions:
        from regard.data.cache import cache_folder
        from regard.data.tokenised_questions import tokenise_questions

        return tokenise_questions(source, self.tokenizer, cache_folder(self.settings.data.cache))

    def _windows(self, questions: TokenisedQuestions, skip: Sequence[int] = ()) -> Windows:
        from regard.data.tokenised_questions import windows_of

        return windows_of(questions, self.settings.data.max_length, self.settings.data.stride, skip)

    @property
    def _not_learned(self) -> tuple[int, ...]:
        """The states of questions that are left out of training."""
        from regard.data.tokenised_questions import NONE, NOT_FOUND

        return (NOT_FOUND,) if self.settings.data.no_answer else (NOT_FOUND, NONE)

    def _name_left_out(self) -> None:
        """Count the questions that cannot be learned from, and show some."""
        states = self.questions["train"].states
        left_out = [
            question
            for question, state in zip(self.sources["train"], states, strict=True)
            if state in self._not_learned
        ]
        if left_out:
            shown = "; ".join(
                f"'{each.question[:60]}' → '{''.join(each.answers[:1])[:40]}'" for each in left_out[:NAMED]
            )
            console.warn(
                f"{len(left_out):,} of {len(states):,} training questions are left out: their answer is not in their "
                f"context. {shown}{' …' if len(left_out) > NAMED else ''}"
            )

    @property
    def _shape(self) -> QuestionRows:
        from regard.data.question_batches import QuestionRows

        training = self.settings.training
        rows = training.tokens_per_batch // training.row_length
        return QuestionRows(rows, training.row_length, apart=not self.settings.packed)

    def restore(self) -> None:
        from regard.data.tokenizers import TextTokenizer

        self.tokenizer = TextTokenizer.load(self.folder.checked("tokenizer.json"))

    def build(self) -> Reader:
        from regard.models.reader import Reader

        return Reader(self.settings.model, self.tokenizer.size)

    def architecture(self) -> dict[str, Any]:
        from regard.data.tokenizers import END, START

        return {"architecture": "reader", "vocabulary": self.tokenizer.size, "start_id": START, "end_id": END}

    def describe(self) -> str:
        train = self.questions["train"]
        return f"{len(train):,} questions · {len(train.contexts):,} contexts · vocabulary {self.tokenizer.size:,}"

    # ------------------------------------------------------------ training and scoring

    def log_probabilities(self, batch: QuestionBatch) -> Tensor:
        """Of the start and the end of the answer at every position: [2, B, T]."""
        return self.model(batch.tokens_BT, batch.segments_BT, batch.positions_BT, batch.readable_BT)

    def loss(self, batch: QuestionBatch) -> Tensor:
        from regard.training.span_loss import span_loss

        training = self.settings.training
        return span_loss(self.log_probabilities, batch, training.label_smoothing, training.consistency)

    def _guesses(self, windows: Windows) -> Iterator[tuple[int, WindowGuess, float]]:
        """For every window its number, what the model says of it, and how likely it finds the known answer (log)."""
        import numpy as np
        import torch

        from regard.data.question_batches import in_order
        from regard.decoding.spans import WindowGuess
        from regard.training.span_loss import log_likelihood

        def of_batch(batch: QuestionBatch) -> NDArray[np.float32]:
            """At every position how likely the answer starts there, ends there, and the known one is right: [3, N]."""
            with torch.inference_mode(), self.hardware.autocast():
                on_device = batch.to(self.hardware.device)
                log_p_2BT = self.log_probabilities(on_device)
                likely_BT = log_likelihood(log_p_2BT, on_device)
            return torch.cat([log_p_2BT, likely_BT[None]]).flatten(1).cpu().numpy()

        laid_out: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []  # of each batch its windows, where they start

        def batches() -> Iterator[QuestionBatch]:
            for batch, numbers in in_order(windows, self._shape):
                laid_out.append((numbers, np.flatnonzero((batch.labels != batch.nothing).numpy())))
                yield batch

        self.model.eval()
        found = self.processes.each(batches(), of_batch)
        for (start_N, end_N, likely_N), (numbers, starts) in zip(found, laid_out, strict=True):
            for number, at in zip(numbers.tolist(), starts.tolist(), strict=True):
                context = at + int(windows.question_length[number]) + 2
                inside = slice(context, context + int(windows.length[number]))
                not_here = float(start_N[at] + end_N[at])
                guess = WindowGuess(int(windows.first[number]), start_N[inside], end_N[inside], not_here)
                yield number, guess, float(likely_N[at])

    def _answers(
        self, questions: TokenisedQuestions, texts: Sequence[Question]
    ) -> tuple[list[list[FoundAnswer]], float]:
        """The likeliest answers to each question; and the mean loss over the windows whose answer is known."""
        from regard.data.tokenised_questions import NOT_FOUND
        from regard.decoding.spans import answers_of

        windows = self._windows(questions)
        of_question: list[list[WindowGuess]] = [[] for _ in texts]
        total, known = 0.0, 0
        for number, guess, likely in self._guesses(windows):
            question = int(windows.question[number])
            of_question[question].append(guess)
            if questions.states[question] != NOT_FOUND:
                total, known = total - likely, known + 1
        found, places, before = [], None, -1
        for text, guesses, context in zip(texts, of_question, questions.context_of.tolist(), strict=True):
            if context != before:
                places, before = self.tokenizer.places(text.context, questions.contexts[context]), context
            found.append(answers_of(guesses, text.context, places, self._longest, self.settings.data.no_answer))  # type: ignore[arg-type]
        return found, total / max(known, 1)

    @property
    def _longest(self) -> int:
        return self.settings.decoding.max_answer

    def validate(self, step: int) -> dict[str, float]:
        return self._measure("valid")

    def test(self) -> dict[str, float]:
        return self._measure("test")

    def _measure(self, split: str) -> dict[str, float]:
        from regard.evaluation.answers import AnswerScores

        texts = list(self.sources[split])
        found, loss = self._answers(self.questions[split], texts)
        return {"loss": loss} | AnswerScores.of([_best(answers) for answers in found], texts).metrics

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Exact match and F1, of all questions and of those with an answer; and what counting words finds."""
        from regard.data.tokenised_questions import NOT_FOUND
        from regard.evaluation.answers import AnswerScores, sliding_window, usual_length
        from regard.evaluation.metrics import Evaluation

        sources = question_splits(self.settings.data)
        source = question_source(files, self.settings.data) if files else sources[split]
        if not files:
            self.notice_change({split: source.fingerprint}, split)
        skipped_lines([source]).warn()
        texts = list(source)
        if not texts:
            raise RegardError("There is nothing to score.", f"The {split} data has no question.", "Name another file.")
        questions = self._tokenised(source)
        found = [_best(answers) for answers in self._answers(questions, texts)[0]]
        scores = AnswerScores.of(found, texts)
        details: dict[str, Any] = {"parts": {}}
        notes: list[str] = []
        for name, has_answer in (("with an answer", True), ("without an answer", False)):
            part = [
                (answer, text) for answer, text in zip(found, texts, strict=True) if bool(text.answers) == has_answer
            ]
            if part and len(part) < len(texts):
                measured = AnswerScores.of(*zip(*part, strict=True))
                details["parts"][name.replace(" ", "_")] = {"questions": len(part)} | measured.metrics
                notes.append(_line(f"{len(part):,} {name}", measured))
        details["not_in_context"] = int((questions.states == NOT_FOUND).sum())
        if details["not_in_context"]:
            notes.append(f"{details['not_in_context']:,} answers are not in their context: they cannot be found.")
        if baselines:
            words = usual_length(sources["train"])
            simpler = AnswerScores.of(sliding_window(texts, words), texts)
            details["baselines"] = [{"name": "sliding window", "words": words} | simpler.metrics]
            notes += ["", f"Without a model, the {words} word(s) whose surroundings share most with the question:"]
            notes.append(_line("sliding window", simpler))
        return Evaluation(scores.scores, len(texts), "questions", found, details, notes)

    def next_commands(self) -> list[str]:
        return [
            f"regard evaluate {self.folder.path}",
            f'echo "Mary went to the attic." | regard answer {self.folder.path} "Where is Mary?"',
        ]

    # ------------------------------------------------------------ a loaded run

    def answer(self, question: str, context: str) -> FoundAnswer:
        """The likeliest answer, its probability, and the characters of the context that it is."""
        return self.answers(question, context, top=1)[0]

    def answers(self, question: str, context: str, top: int = 5) -> list[FoundAnswer]:
        """The likeliest answers, best first. An empty text: the answer is not in the context."""
        from regard.data.tokenised_questions import asked

        if top < 1:
            raise UsageError(f"{top} answers cannot be shown.", "At least one is.", "Use --top 1.")
        _must_be_text("question", question)
        _must_be_text("context", context)
        found, _ = self._answers(asked(self.tokenizer, question, context), [Question(question, context)])
        return found[0][:top]

    def subject(self, question: str, context: str) -> Subject:
        """A question and the window of its context with the likeliest answer, to trace."""
        from regard.data.questions import Place
        from regard.data.tokenised_questions import asked, tokens_of, window_around, windows_of
        from regard.data.tokenizers import END, START
        from regard.inside import subjects

        best = self.answer(question, context)
        data = self.settings.data
        windows = windows_of(asked(self.tokenizer, question, context), data.max_length, data.stride)
        first, last = 0, 0
        has_answer = bool(best.text)
        if has_answer:
            places_T2 = self.tokenizer.places(context, self.tokenizer.encode([context])[0])
            first, last = tokens_of(Place(best.start, best.end), places_T2)
        window = window_around(windows, first, last)
        ids = [START, *window.question_ids().tolist(), END, *window.context_ids().tolist(), END]
        before = int(window.question_length[0]) + 2
        readable = [position == 0 or before <= position < len(ids) - 1 for position in range(len(ids))]
        offset = before - int(window.first[0])
        span = (first + offset, last + offset) if has_answer else (0, 0)
        return subjects.reader(
            self.model, ids, readable, self.tokenizer.piece, span, input_text=question, output_text=best.text
        )


def _texts(source: QuestionSource) -> Iterator[str]:
    """What a tokenizer is learned from: the questions, and every context once."""
    before = None
    for question in source:
        if question.context != before:
            yield question.context
            before = question.context
        yield question.question


def _best(answers: Sequence[FoundAnswer]) -> str:
    return answers[0].text if answers else ""


def _line(name: str, scores: Any) -> str:
    metrics = scores.metrics
    return f"  {name:<28} exact_match {metrics['exact_match']:6.2f}   f1 {metrics['f1']:6.2f}"


def _must_be_text(what: str, text: str) -> None:
    from regard.data.lines import HALF_A_CHARACTER, encodable

    if not encodable(text):
        raise UsageError(f"The {what} is not Unicode.", HALF_A_CHARACTER, "Give it in UTF-8.")
    if not text.strip():
        raise UsageError(f"The {what} is empty.", "A question is answered from a text.", f"Give a {what}.")
