"""Masked: plain text in, a model that fills in what is hidden out (BERT, RoBERTa)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.errors import UsageError
from regard.settings import MaskingSettings, TextModelSettings, TokenModel
from regard.tasks.running_text import RunningText
from regard.tasks.task import About

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.masked_batches import MaskedBatch, Masking
    from regard.inside.subject import Subject
    from regard.models.masked import Masked as MaskedModel

MASK = "[MASK]"
BESIDE = "a"  # a word that stands for the guessed one before a mark


class MaskedSettings(TextModelSettings):
    model: TokenModel = TokenModel()
    masking: MaskingSettings = MaskingSettings()

    @property
    def causal(self) -> bool:
        """Whether a position sees only those before it."""
        return False


@dataclass(frozen=True)
class Candidate:
    """A token that may stand at the mask, its probability, and the text with it in place."""

    token: str
    probability: float
    text: str


class Masked(RunningText[MaskedSettings]):
    """`regard.load("runs/bert-small").fill("The [MASK] sat.")`"""

    about = About(
        noun="a masked language model",
        verb="fill",
        metrics=("loss", "accuracy"),
        starter="bert-small",
        advice="Edit data.text; the rest is for some 10 to 1,000 MB of text, on a GPU: without one it takes days.",
    )
    Settings = MaskedSettings
    example = "The [MASK] sat."
    starts_from = ("masked", "classify-text")

    model: MaskedModel

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def with_starts(cls, settings: MaskedSettings) -> bool:
        return True

    def prepare(self) -> None:
        from regard.data.masked_batches import MaskedStream

        super().prepare()
        length = self.settings.training.row_length
        self.stream = MaskedStream(self.ids.train, self._rows, length, self.settings.seed, self.masking)

    def build(self) -> MaskedModel:
        from regard.models.masked import Masked as MaskedModel

        return MaskedModel(self.settings.model, self._vocabulary)

    def architecture(self) -> dict[str, Any]:
        from regard.data.tokenizers import END, START

        return {
            "architecture": "masked",
            "vocabulary": self._vocabulary,
            "mask_id": self._vocabulary - 1,
            "start_id": START,
            "end_id": END,
        }

    @property
    def masking(self) -> Masking:
        from regard.data.masked_batches import Masking

        return Masking(self.settings.masking, self.tokenizer.size)

    @property
    def _vocabulary(self) -> int:
        """The tokenizer's entries, and the mask after them."""
        return self.tokenizer.size + 1

    @property
    def _rows(self) -> int:
        return max(1, self.settings.training.tokens_per_batch // self.settings.training.row_length)

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: MaskedBatch) -> Tensor:
        """[B, M, D]; documents that share a row do not see each other if the settings say so."""
        from regard.data.text_batches import documents

        if self.settings.data.documents == "together":
            return self.model.hidden(batch.tokens_BT, masked_BM=batch.positions_BM)
        return self.model.hidden(batch.tokens_BT, *documents(batch.tokens_BT), batch.positions_BM)

    def measure(self, ids: NDArray[Any]) -> dict[str, float]:
        """Loss and perplexity of hidden tokens, and the percentage of them that is guessed first."""
        from regard.data.masked_batches import in_order
        from regard.training.measure import measure

        batches = in_order(ids, self._rows, self.settings.training.row_length, self.masking)
        measured = measure(self.model, batches, self.logits, self.hardware, self.processes)
        return {"loss": measured.loss, "perplexity": measured.perplexity, "accuracy": measured.accuracy}

    def unread(self, ids: NDArray[Any]) -> int:
        """What does not fill a row."""
        return len(ids) % min(self.settings.training.row_length, len(ids))

    def measured_how(self) -> str:
        return f"{self.settings.masking.share:.0%} of the tokens hidden"

    def next_commands(self) -> list[str]:
        return [
            f'regard fill {self.folder.path} "The [MASK] sat."',
            f"regard train trec --from {self.folder.path}",
        ]

    # ------------------------------------------------------------ a loaded run

    def fill(self, text: str, top: int = 5) -> list[list[Candidate]]:
        """For each [MASK] in the text, the likeliest tokens, best first."""
        import torch

        from regard.data.tokenizers import SPECIALS

        if top < 1:
            raise UsageError(f"{top} candidates cannot be shown.", "At least one is.", "Use --top 5.")
        ids, masks = self._encode_masked(text)
        parts = text.split(MASK)
        with torch.inference_mode():
            tokens_1T, masked_1M = (torch.tensor([row], device=self.hardware.device) for row in (ids, masks))
            logits_MW = self.model(tokens_1T, masked_BM=masked_1M)[0].float()
            logits_MW[:, : len(SPECIALS)] = -torch.inf
            logits_MW[:, self._vocabulary - 1] = -torch.inf
            p_MK, tokens_MK = logits_MW.softmax(-1).topk(min(top, self.tokenizer.size - len(SPECIALS)))
        return [
            [
                self._candidate(parts, row, token, p)
                for token, p in zip(tokens_MK[row].tolist(), p_MK[row].tolist(), strict=True)
            ]
            for row in range(len(masks))
        ]

    def subject(self, text: str) -> Subject:
        """A text with [MASK] in it, and the model's predictions there, to trace."""
        from regard.data.tokenizers import SPECIALS
        from regard.inside import subjects

        ids, masks = self._encode_masked(text)
        mask = self._vocabulary - 1
        return subjects.masked(
            self.model,
            ids,
            masks,
            lambda token: MASK if token == mask else self.tokenizer.piece(token),
            [*range(len(SPECIALS)), mask],
            input_text=text,
        )

    def _encode_masked(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of a text, and where in it something is hidden."""
        from regard.data.tokenizers import END, START

        parts = text.split(MASK)
        if len(parts) < 2:
            raise UsageError(
                f"The text has no {MASK}.", f"A token is guessed where {MASK} stands.", f'Write it: "The {MASK} sat."'
            )
        ids, masks = [START], []
        for number, (part, beside) in enumerate(parts_read(text)):
            if number:
                masks.append(len(ids))
                ids.append(self._vocabulary - 1)
            if part:
                ids += self.tokenizer.encode([part])[0][len(self.tokenizer.encode([BESIDE])[0]) if beside else 0 :]
        ids.append(END)
        context = self.settings.training.row_length
        if len(ids) > context:
            raise UsageError(
                f"The text has {len(ids):,} tokens.", f"The model reads {context:,} at a time.", "Shorten the text."
            )
        return ids, masks

    def _candidate(self, parts: list[str], number: int, token: int, probability: float) -> Candidate:
        """The text with this token in place of the mask of that number."""
        piece = self.tokenizer.piece(token)
        word = piece.strip() or piece
        text = MASK.join(parts[: number + 1]) + word + MASK.join(parts[number + 1 :])
        return Candidate(word, probability, text)


def parts_read(text: str) -> list[tuple[str, bool]]:
    """The texts between masks as they are tokenised; a space beside a mask belongs to the word that is guessed.

    True: it begins with `BESIDE`, which is not read. Else a mark right after a mask would get the token with a space
    before it, which starts a sentence.
    """
    parts = []
    for number, part in enumerate(text.split(MASK)):
        part = part.rstrip()
        beside = number > 0 and bool(part) and not part[0].isspace() and not part[0].isalnum()
        parts.append((BESIDE + part if beside else part.strip(), beside))
    return parts
