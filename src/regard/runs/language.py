"""A trained language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from regard import console
from regard.settings import DecodingSettings
from regard.data.tokenizers import END, PAD, START
from regard.decoding.generate import generate
from regard.errors import UsageError
from regard.layers.hyena import Hyena
from regard.layers.streaming import Modes
from regard.models.causal import Causal
from regard.runs.running_text import TextRun
from regard.tasks.language import measure

ROWS_AT_ONCE = 64  # texts written side by side
MOST_SAMPLES = 10_000


@dataclass(frozen=True)
class Piece:
    """A further bit of text, as it is written. It may be empty: part of a character is held back until it is whole."""

    sample: int
    text: str
    token: str
    probability: float
    candidates: list[tuple[str, float]]
    ended: bool = False


class LanguageRun(TextRun):
    """`regard.load("runs/shakespeare").generate("ROMEO:")`"""

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.model = self._load(Causal(self.config.model, self.tokenizer.size))
        self.context = self.config.training.row_length
        # A token that training never showed has kept some random probability.
        unseen = self.folder.read_json("config.json").get("unseen_ids", [])
        self.never = (PAD, START, *unseen)

    def generate(
        self,
        prompts: str | Sequence[str] = "",
        *,
        samples: int = 1,
        stop: Sequence[str] = (),
        seed: int = 1,
        **decoding: Any,
    ) -> list[str]:
        """How each prompt goes on, `samples` times each. Keywords override [decoding]: temperature=0.8 …"""
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        texts = [""] * (len(prompts) * samples)
        for piece in self.stream(prompts, samples=samples, stop=stop, seed=seed, **decoding):
            texts[piece.sample] += piece.text
        return texts

    def stream(
        self,
        prompts: Sequence[str],
        *,
        samples: int = 1,
        stop: Sequence[str] = (),
        seed: int = 1,
        top: int = 0,
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
        settings = self._with("decoding", **decoding).decoding
        encoded = [ids for ids in map(self.encode, prompts) for _ in range(samples)]
        return self._written(encoded, settings, stop, seed, top)

    def _written(
        self, encoded: list[list[int]], settings: DecodingSettings, stop: Sequence[str], seed: int, top: int
    ) -> Iterator[Piece]:
        for first in range(0, len(encoded), ROWS_AT_ONCE):
            rows = encoded[first : first + ROWS_AT_ONCE]
            writers = [_Writer(self, stop) for _ in rows]

            def stopped(row: int, writers: list[_Writer] = writers) -> bool:
                return writers[row].stopped

            found = generate(
                self.model,
                rows,
                settings,
                context=self.context,
                end=END,
                never=self.never,
                seed=seed,
                first_row=first,
                top=top,
                device=self.hardware.device,
                finished=stopped,
            )
            for written in found:
                writer = writers[written.row]
                candidates = [(self.tokenizer.piece(token), p) for token, p in written.candidates]
                text, token = writer.add(written.token), self.tokenizer.piece(written.token)
                yield Piece(first + written.row, text, token, written.probability, candidates, writer.stopped)
            for row, writer in enumerate(writers):
                if not writer.stopped and (rest := writer.rest()):
                    yield Piece(first + row, rest, "", 1.0, [], True)

    def distil(self, modes: int) -> float:
        """From now on write with each of Hyena's filters as a sum of `modes` exponentials: same cost for every token.

        Returns how far the worst layer's filters are off, ‖h − ĥ‖ / ‖h‖.
        """
        layers = [module for module in self.model.modules() if isinstance(module, Hyena)]
        most = Modes.most(self.context)
        if not layers or not 1 <= modes <= most:
            raise UsageError(
                f"'{self.folder.path}' cannot be distilled into {modes} exponentials.",
                f"Its filters have {self.context:,} taps, which is enough for 1 to {most}."
                if layers
                else f'Its mixer is "{self.config.model.mixer}".',
                f"Use --modes {min(16, most)}." if layers else 'Give a run with model.mixer = "hyena".',
            )
        return max(layer.distil(modes, self.context) for layer in layers)

    def encode(self, prompt: str) -> list[int]:
        """The ids of a prompt; of one longer than the context, the last part. An empty one starts a new document."""
        ids = self.tokenizer.encode([prompt])[0] if prompt else []
        if not ids:
            ids = [END] if self.config.data.documents == "apart" else self.tokenizer.encode(["\n"])[0]
        if len(ids) >= self.context:
            console.warn(
                f"The prompt has {len(ids):,} tokens, the context {self.context:,}: only the last "
                f"{self.context - 1:,} are read."
            )
            ids = ids[-(self.context - 1) :]
        return ids

    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        return measure(self.model, ids, self.tokenizer, self.config, self.hardware)

    def how(self, what: str) -> str:
        return f"{what} · every token once, rows of {self.context} on their own"


class _Writer:
    """Turns tokens into text; a character of several tokens comes out when it is whole.

    Where texts to stop at are given, what may be the beginning of one is held back.
    """

    def __init__(self, run: LanguageRun, stop: Sequence[str]):
        self.run, self.stop = run, list(stop)
        self.tokens: list[int] = []
        self.shown = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """The text that has become certain with this token."""
        if token == END:
            self.stopped = True
            return self.rest()
        self.tokens.append(token)
        text = self._text()
        places = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        if places:
            self.stopped = True
            return self._show(text[: min(places)])
        return self._show(text[: len(text) - self._uncertain(text)])

    def rest(self) -> str:
        return self._show(self._text())

    def _text(self) -> str:
        return self.run.tokenizer.decode([self.tokens])[0]

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
