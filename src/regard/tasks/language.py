"""Language: plain text in, a model that continues it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from regard import console
from regard.errors import RegardError, UsageError
from regard.recipes import changed
from regard.settings import CausalModel, GenerationSettings, Problem, TextModelSettings
from regard.tasks.running_text import RunningText
from regard.tasks.task import About

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.text_batches import TextBatch
    from regard.data.tokenizers import TextTokenizer
    from regard.decoding.long_sources import LongSources
    from regard.inside.subject import Subject
    from regard.models.causal import Causal

CONFIG = "config.json"
MOST_SAMPLES = 10_000
SAMPLE_PROMPT, SAMPLE_LENGTH = 32, 100  # tokens of the sample that each validation writes


@dataclass(frozen=True)
class _Known:
    """What is read back from config.json."""

    unseen_ids: list[int] = field(default_factory=list)
    start_id: int | None = None


class LanguageSettings(TextModelSettings):
    model: CausalModel = CausalModel()
    decoding: GenerationSettings = GenerationSettings()

    @property
    def causal(self) -> bool:
        """Whether a position sees only those before it."""
        return True

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        if self.training.row_length < 2:
            yield Problem("training.row_length = 1 gives a token nothing to follow from", "raise it")

    def check_parts(self) -> Iterator[Problem]:
        yield from super().check_parts()
        if self.decoding.lookup and self.model.in_order:
            yield Problem(
                f'model.feedback = "{self.model.feedback}" cannot take back what decoding.lookup = '
                f"{self.decoding.lookup} has guessed wrongly",
                "set lookup to 0, or feedback to none",
            )
        if self.decoding.lookup and not self.model.part("mixer").has_slots:
            yield Problem(
                f'model.mixer = "{self.model.mixer}" cannot take back what decoding.lookup = {self.decoding.lookup} '
                "has guessed wrongly",
                "set lookup to 0, or use attention",
            )


@dataclass(frozen=True)
class Piece:
    """A further bit of text, as it is written. It may be empty: part of a character is held back until it is whole."""

    sample: int
    text: str
    token: str
    probability: float
    candidates: list[tuple[str, float]]
    ended: bool = False
    same_pass: bool = False  # the model gave its token together with the one before


class Language(RunningText[LanguageSettings]):
    """`regard.load("runs/shakespeare").generate("ROMEO:")`"""

    about = About(
        noun="a language model",
        verb="generate",
        metrics=("bits_per_byte", "loss"),
        starter="shakespeare-cpu",
        advice="Edit data.text; the rest is for a megabyte or a few, on a laptop.",
    )
    Settings = LanguageSettings
    example = "Once upon a time"
    used_on_gpu = ("regard.decoding.generate", "regard.layers.slot_attention", "regard.layers.quick_step")
    sentences = False
    starts_from = ("language", "classify-text")

    model: Causal

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def with_starts(cls, settings: LanguageSettings) -> bool:
        return settings.data.documents == "apart"

    @property
    def starts(self) -> bool:
        """Not in a run of an earlier version, where the first token of a document was predicted from the last <end>."""
        earlier = (self.folder.path / CONFIG).exists() and self.folder.read_json(CONFIG, _Known).start_id is None
        return self.with_starts(self.settings) and not earlier

    def prepare(self) -> None:
        from regard.data.text_batches import NextTokenStream, unseen_tokens

        super().prepare()
        training = self.settings.training
        self.unseen = unseen_tokens(self.ids.train, self.tokenizer.size)
        self.stream = NextTokenStream(self.ids.train, self._rows, training.row_length, self.settings.seed)

    def restore(self) -> None:
        super().restore()
        self.unseen = self.folder.read_json(CONFIG, _Known).unseen_ids
        if not set(self.unseen) <= set(range(self.tokenizer.size)):
            raise RegardError(
                f"config.json in '{self.folder.path}' does not fit the run.",
                "unseen_ids is to list tokens of its tokenizer.",
                "Restore the file, or train again.",
            )

    def build(self) -> Causal:
        from regard.models.causal import Causal

        return Causal(self.settings.model, self.tokenizer.size)

    def rehearsal(self) -> TextBatch:
        import torch

        from regard.data.text_batches import TextBatch
        from regard.data.tokenizers import SPECIALS
        from regard.models.causal import Causal

        tokens_BT = torch.full((max(2, self.REHEARSED // self.context), self.context), len(SPECIALS))
        self.model = Causal(changed(self.settings.model, layers=2), self.settings.tokenizer.vocabulary)
        return TextBatch(labels=tokens_BT, tokens_BT=tokens_BT)

    def architecture(self) -> dict[str, Any]:
        from regard.data.tokenizers import END, START

        return {
            "architecture": "causal",
            "vocabulary": self.tokenizer.size,
            **({"start_id": START} if self.starts else {}),
            "end_id": END,
            "unseen_ids": self.unseen,
        }

    @property
    def _rows(self) -> int:
        return max(1, self.settings.training.tokens_per_batch // self.context)

    @property
    def context(self) -> int:
        """The longest text that the model has learned to read, in tokens."""
        return self.settings.training.row_length

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: TextBatch) -> Tensor:
        """[B, T, D]; documents that share a row do not see each other if the settings say so."""
        from regard.data.text_batches import documents

        if self.settings.data.documents == "together":
            return self.model.hidden(batch.tokens_BT)
        return self.model.hidden(batch.tokens_BT, *documents(batch.tokens_BT))

    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        """Over every token but the first and every <start>, each row of the context's length by itself.

        loss           mean, in nats per token
        perplexity     e to that
        bits_per_byte  all of it in bits, over the bytes that the predicted tokens stand for
        """
        from regard.data.text_batches import in_order
        from regard.training.measure import measure

        measured = measure(
            self.model, in_order(ids, self._rows, self.context), self.logits, self.hardware, self.processes
        )
        size = int(self.tokenizer.byte_lengths()[ids[1:]].sum())
        bits = measured.total / math.log(2)
        return {"loss": measured.loss, "perplexity": measured.perplexity, "bits_per_byte": bits / max(size, 1)}

    def measured_how(self) -> str:
        return f"every token once, each row of {self.context} by itself"

    def validate(self, step: int) -> dict[str, float]:
        """Also writes how the model continues the first words of the validation text, or of its first document."""
        from regard.data.tokenizers import END
        from regard.decoding.generate import generate

        metrics = super().validate(step)
        prompt = self.ids.valid[:SAMPLE_PROMPT].astype(int).tolist()
        if self.starts and END in prompt[1:]:  # nothing is read of two documents at once
            prompt = prompt[: prompt.index(END, 1)]
        settings = self.settings.decoding.model_copy(
            update={"temperature": 0.8, "max_tokens": SAMPLE_LENGTH, "lookup": 0}
        )
        written = generate(
            self.model,
            [prompt],
            settings,
            context=self.context,
            end=END,
            never=self._never(),
            engines=self.engines(settings.int8),
        )
        texts = self.tokenizer.decode([prompt, [token.token for token in written]])
        self.folder.write_text(f"samples/step-{step}.txt", " ⟶ ".join(texts) + "\n")
        return metrics

    def next_commands(self) -> list[str]:
        return [
            f'regard generate {self.folder.path} --prompt "{self.example}"',
            f"regard evaluate {self.folder.path}",
        ]

    def _never(self) -> tuple[int, ...]:
        """Tokens that are never written; one that training never showed has kept some random probability."""
        from regard.data.tokenizers import PAD, START

        return (PAD, START, *self.unseen)

    # ------------------------------------------------------------ a loaded run

    def generate(
        self,
        prompts: str | Sequence[str] = "",
        *,
        samples: int = 1,
        stop: Sequence[str] = (),
        seed: int = 1,
        numbers: Sequence[int] | None = None,
        noticed: Callable[[int, int], None] | None = None,
        **decoding: Any,
    ) -> list[str]:
        """How each prompt continues, `samples` times each. Keywords override [decoding]: temperature=0.8 …

        What is drawn depends on the seed and the number of the prompt; `numbers` are its place if not given. `noticed`
        is told the place of each prompt and its tokens, instead of a warning about each that is too long.
        """
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        texts = [""] * (len(prompts) * samples)
        how: dict[str, Any] = {"numbers": numbers, "noticed": noticed} | decoding
        for piece in self.generate_pieces(prompts, samples=samples, stop=stop, seed=seed, **how):
            texts[piece.sample] += piece.text
        return texts

    def generate_pieces(
        self,
        prompts: Sequence[str],
        *,
        samples: int = 1,
        stop: Sequence[str] = (),
        seed: int = 1,
        top: int = 0,
        numbers: Sequence[int] | None = None,
        noticed: Callable[[int, int], None] | None = None,
        **decoding: Any,
    ) -> Iterator[Piece]:
        """The text as it is written, piece by piece. Text number n continues prompt n // samples."""
        if not 1 <= samples <= MOST_SAMPLES:
            raise UsageError(
                f"{samples:,} samples cannot be written.",
                f"One to {MOST_SAMPLES:,} are written at a time.",
                "Use --samples 1, or call again with another --seed.",
            )
        if seed < 0:
            raise UsageError(f"The seed {seed} is negative.", "A seed is 0 or more.", "Use --seed 1.")
        if any(not text for text in stop):
            raise UsageError("A text to stop at is empty.", "It would stop before the first token.", "Leave it out.")
        settings = changed(self.settings.decoding, **decoding)
        if settings.lookup and not self.model.trunk.has_slots:
            raise UsageError(
                f"Nothing can be looked up for '{self.folder.path}'.",
                f"{self._what_mixes} cannot take back a token that was guessed wrongly.",
                "Leave out --lookup.",
            )
        encoded = [
            ids
            for place, prompt in enumerate(prompts)
            for ids in [self.encode(prompt, noticed and partial(noticed, place))] * samples
        ]
        rows = [number * samples + sample for number in numbers for sample in range(samples)] if numbers else None
        return self._pieces(encoded, rows, settings, stop, seed, top)

    @property
    def _what_mixes(self) -> str:
        model = self.settings.model
        return "Feedback" if model.in_order else f'Its mixer "{model.mixer}"'

    def _pieces(
        self,
        encoded: list[list[int]],
        numbers: list[int] | None,
        settings: GenerationSettings,
        stop: Sequence[str],
        seed: int,
        top: int,
    ) -> Iterator[Piece]:
        from regard.data.tokenizers import END
        from regard.decoding.generate import generate

        writers = [TextWriter(self.tokenizer, stop) for _ in encoded]
        written = generate(
            self.model,
            encoded,
            settings,
            context=self.context,
            end=END,
            never=self._never(),
            seed=seed,
            numbers=numbers,
            top=top,
            finished=lambda row: writers[row].stopped,
            engines=self.engines(settings.int8),
        )
        for each in written:
            writer = writers[each.row]
            candidates = [(self.tokenizer.piece(token), p) for token, p in each.candidates]
            text = writer.end() if each.token == END else writer.add(each.token)
            token = self.tokenizer.piece(each.token)
            yield Piece(each.row, text, token, each.probability, candidates, writer.stopped, each.same_pass)
        for row, writer in enumerate(writers):
            if not writer.stopped and (rest := writer.rest()):
                yield Piece(row, rest, "", 1.0, [], True)

    def long_prompts(self) -> LongSources:
        """What remembers which prompts are longer than the model can read."""
        from regard.decoding.long_sources import LongSources

        most, limit = self.context - 1, "tokens that the context has room for"
        return LongSources(most, most, what="prompt", advice="", limit=limit, done="read", kept="end")

    def encode(self, prompt: str, noticed: Callable[[int], None] | None = None) -> list[int]:
        """The ids of a prompt; of one longer than the context, the last part. `noticed` is told how many there are.

        Where documents are kept apart, a prompt is the beginning of one, as training has shown it. Otherwise an empty
        prompt is a new line.
        """
        from regard.data.tokenizers import END, START

        ids = self.tokenizer.encode([prompt])[0] if prompt else []
        if self.starts:
            ids = [START, *ids]
        elif not ids:
            ids = [END] if self.settings.data.documents == "apart" else self.tokenizer.encode(["\n"])[0]
        if noticed:
            noticed(len(ids))
        if len(ids) >= self.context:
            if noticed is None:
                console.warn(
                    f"The prompt has {len(ids):,} tokens, the context {self.context:,}: only the last "
                    f"{self.context - 1:,} are read."
                )
            ids = ids[-(self.context - 1) :]
        return ids

    def subject(self, text: str, more: int = 0) -> Subject:
        """A text, and the model's prediction after each of its tokens, to trace.

        `more`: how many tokens the model generates first, greedily.
        """
        return self._subject(self.encode(text), more, text)

    def _subject(self, prompt: list[int], more: int, text: str) -> Subject:
        from regard.inside import subjects
        from regard.inside.forcing import continued

        never, engines = self._never(), self.engines(self.settings.decoding.int8)
        ids = continued(self.model, prompt, more, context=self.context, never=never, engines=engines)
        return subjects.causal(
            self.model,
            ids,
            self.tokenizer.piece,
            never,
            generated=len(ids) - len(prompt),
            input_text=text,
            output_text=self.tokenizer.decode([ids[len(prompt) :]])[0],
            with_prefix=lambda tokens, more: self._subject([ids[0], *tokens], more, text),
        )

    def distil(self, modes: int) -> float:
        """From now on decode with each long filter as a sum of `modes` exponentials: the same cost for every token.

        Returns how far the worst layer's filters are off, ‖h − ĥ‖ / ‖h‖.
        """
        layers: list[Any] = [module for module in self.model.modules() if hasattr(module, "distil")]
        most = max((layer.most_modes(self.context) for layer in layers), default=0)
        if not layers:
            raise UsageError(
                f"'{self.folder.path}' cannot be distilled.",
                f'Its mixer "{self.settings.model.mixer}" has no long filters.',
                'Give a run with model.mixer = "hyena".',
            )
        if not 1 <= modes <= most:
            raise UsageError(
                f"'{self.folder.path}' cannot be distilled into {modes} exponentials.",
                f"Its filters have {self.context:,} taps, which is enough for 1 to {most}.",
                f"Use --modes {min(16, most)}.",
            )
        return max(layer.distil(modes, self.context) for layer in layers)


class TextWriter:
    """Turns tokens into text; a character of several tokens comes out when it is whole.

    Where texts to stop at are given, what may be the beginning of one is held back.
    """

    def __init__(self, tokenizer: TextTokenizer, stop: Sequence[str]):
        self.tokenizer, self.stop = tokenizer, list(stop)
        self.tokens: list[int] = []
        self.shown = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """The text that has become certain with this token."""
        self.tokens.append(token)
        text = self._text()
        ends = [at for stop in self.stop if (at := text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return self._show(text[: min(ends)])
        return self._show(text[: len(text) - self._uncertain(text)])

    def end(self) -> str:
        """The model has ended the text: what was held back is certain now."""
        self.stopped = True
        return self.rest()

    def rest(self) -> str:
        return self._show(self._text())

    def _text(self) -> str:
        return self.tokenizer.decode([self.tokens])[0]

    def _show(self, text: str) -> str:
        new = text[len(self.shown) :]
        self.shown = max(self.shown, text, key=len)
        return new

    def _uncertain(self, text: str) -> int:
        """How many letters at the end may still change, or begin a text to stop at."""
        broken = len(text) - len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
        begun = [
            size
            for stop in self.stop
            for size in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:size])
        ]
        return max(broken, *begun, 0) if begun else broken
