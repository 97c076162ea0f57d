"""A trained masked language model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from regard.data.tokenizers import END, SPECIALS, START
from regard.errors import UsageError
from regard.models.masked import Masked
from regard.runs.running_text import TextRun
from regard.tasks.masked import measure, vocabulary

MASK = "[MASK]"


@dataclass(frozen=True)
class Candidate:
    """A token that may stand at the mask, its probability, and the text with it in place."""

    token: str
    probability: float
    text: str


class MaskedRun(TextRun):
    """`regard.load("runs/bert-small").fill("The [MASK] sat.")`"""

    starts = True

    def __init__(self, path: Path | str, device: str = "auto"):
        super().__init__(path, device)
        self.model = self._load(Masked(self.config.model, vocabulary(self.tokenizer)))

    @torch.inference_mode()
    def fill(self, text: str, top: int = 5) -> list[list[Candidate]]:
        """For each [MASK] in the text, the likeliest tokens, best first."""
        parts = text.split(MASK)
        if len(parts) < 2:
            raise UsageError(
                f"The text has no {MASK}.", f"A token is guessed where {MASK} stands.", f'Write it: "The {MASK} sat."'
            )
        if top < 1:
            raise UsageError(f"{top} candidates cannot be shown.", "At least one is.", "Use --top 5.")
        ids, masks = [START], []
        for number, part in enumerate(parts):
            if number:
                masks.append(len(ids))
                ids.append(self.tokenizer.size)
            ids += self._part(part, after_mask=number > 0)
        ids.append(END)
        context = self.config.training.row_length
        if len(ids) > context:
            raise UsageError(
                f"The text has {len(ids):,} tokens.", f"The model reads {context:,} at a time.", "Shorten the text."
            )
        tokens_1T = torch.tensor([ids], device=self.hardware.device)
        places_1M = torch.tensor([masks], device=self.hardware.device)
        logits_MW = self.model(tokens_1T, places_BM=places_1M)[0].float()
        logits_MW[:, : len(SPECIALS)] = -torch.inf
        logits_MW[:, self.tokenizer.size] = -torch.inf
        p_MK, tokens_MK = logits_MW.softmax(-1).topk(min(top, self.tokenizer.size - len(SPECIALS)))
        return [
            [
                self._candidate(parts, row, token, p)
                for token, p in zip(tokens_MK[row].tolist(), p_MK[row].tolist(), strict=True)
            ]
            for row in range(len(masks))
        ]

    def _part(self, part: str, after_mask: bool) -> list[int]:
        """The ids of the text between two masks. A space before a mask belongs to the word that is guessed."""
        part = part.rstrip()
        if after_mask and part and not part[0].isspace() and not part[0].isalnum():
            # A mark right after the mask: not the token with a space before it, that starts a sentence.
            return self.tokenizer.encode(["a" + part])[0][len(self.tokenizer.encode(["a"])[0]) :]
        return self.tokenizer.encode([part.strip()])[0] if part.strip() else []

    def _candidate(self, parts: list[str], number: int, token: int, probability: float) -> Candidate:
        """The text with this token in place of the mask of that number."""
        piece = self.tokenizer.piece(token)
        word = piece.strip() or piece
        text = MASK.join(parts[: number + 1]) + word + MASK.join(parts[number + 1 :])
        return Candidate(word, probability, text)

    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        return measure(self.model, ids, self.tokenizer, self.config, self.hardware)

    def how(self, what: str) -> str:
        return f"{what} · {self.config.masking.share:.0%} of the tokens hidden"
