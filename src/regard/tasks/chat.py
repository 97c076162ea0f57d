"""Chat: conversations in, a model that replies out.

A causal model as in `language`, over conversations instead of running text: a token before each turn says whose it is,
and only the turns of one side are learned. What it replies is only as good as its perplexity on held-out replies says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from regard import console
from regard.data.conversations import (
    ConversationSource,
    conversation_files,
    conversation_splits,
)
from regard.data.lines import Skipped
from regard.data.splits import SHOWN_AS, Obstacle
from regard.errors import RegardError
from regard.recipes import changed
from regard.settings import CausalModel, ChatData, FileList, GenerationSettings, PackedTraining, SentenceSettings
from regard.tasks.task import About, Task

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.chat_batches import ChatBatch, Talk
    from regard.data.tokenizers import TextTokenizer
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.causal import Causal

CONFIG = "config.json"
BASELINE_ORDER = 5
SAMPLES, SAMPLE_LENGTH = 3, 60  # conversations whose first reply each validation writes, and its most tokens


class ChatSettings(SentenceSettings):
    data: ChatData = ChatData()
    model: CausalModel = CausalModel()
    training: PackedTraining = PackedTraining()
    decoding: GenerationSettings = GenerationSettings()

    @property
    def causal(self) -> bool:
        """Whether a position sees only those before it."""
        return True


@dataclass(frozen=True)
class _Known:
    """What is read back from config.json."""

    unseen_ids: list[int] = field(default_factory=list)


class Remembered(NamedTuple):
    """What a model reads of a conversation."""

    ids: list[int]
    forgotten: int  # turns, the oldest, that there is no room for
    cut: int  # tokens at the beginning of a turn that is too long alone


class Chat(Task[ChatSettings]):
    """`regard.load("runs/chat-demo").reply(["Hello, I am Anna."])`"""

    about = About(
        noun="a chat model",
        verb="chat",
        metrics=("loss", "perplexity"),
        starter="starter-chat",
        advice="Edit data.train; the rest is for some thousand conversations, on a laptop.",
    )
    Settings = ChatSettings
    example = "Hello!"

    model: Causal
    tokenizer: TextTokenizer

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: ChatSettings) -> None:
        conversation_splits(settings.data)

    @classmethod
    def examine(cls, settings: ChatSettings) -> tuple[dict[str, Any], list[str]]:
        from regard.data.chat_batches import Cut, encoded

        sources = conversation_splits(settings.data)
        tokenizer = learn_tokenizer(settings, sources["train"])
        figures: dict[str, Any] = {"vocabulary": tokenizer.size}
        advice: list[str] = []
        skipped = Skipped()
        for name, source in sources.items():
            found, cut = Skipped(), Cut()
            conversations = list(source.read(found))
            skipped.add(found)
            talk = encoded(conversations, tokenizer, settings.data.max_length, cut)
            figures[name] = {
                "conversations": len(conversations),
                "turns": sum(map(len, conversations)),
                "tokens": len(talk.ids.ids),
                "tokens_of_replies": int(talk.learned.ids.sum()),
                "cut_between_turns": cut.conversations,
                "turns_cut": cut.turns,
            }
            if not len(talk):
                advice.append(Obstacle(f"There is no reply to learn in the {SHOWN_AS[name]} data; look at data.us."))
        figures["bad_lines"] = skipped.total
        return figures, skipped.told() + advice

    def prepare(self) -> None:
        from regard.data.chat_batches import ChatRows, ChatStream
        from regard.data.text_batches import unseen_tokens

        settings = self.settings
        sources = conversation_splits(settings.data)
        self.remember_data({name: source.fingerprint for name, source in sources.items()})
        if not self.folder.has("tokenizer.json"):
            self.folder.write_text("tokenizer.json", learn_tokenizer(settings, sources["train"]).to_json())
        self._load_tokenizer()
        self.sources = sources
        skipped = Skipped()
        try:
            self.talk = {name: self._encoded(source, skipped) for name, source in sources.items()}
        finally:  # bad lines may be why a split is empty
            skipped.warn()
        self.unseen = unseen_tokens(self.talk["train"].ids.ids, self.tokenizer.size + 2)
        training = settings.training
        rows = max(1, training.tokens_per_batch // training.row_length)
        self.shape = ChatRows(rows, training.row_length, apart=not settings.packed)
        self.stream = ChatStream(self.talk["train"], self.shape, settings.seed)

    def _encoded(self, source: ConversationSource, skipped: Skipped) -> Talk:
        """Of one split; what was cut is told, and what was left out noted."""
        from regard.data.chat_batches import Cut, encoded

        found, cut, name = Skipped(), Cut(), SHOWN_AS[source.name]
        talk = encoded(source.read(found), self.tokenizer, self.context, cut)
        skipped.add(found)
        if cut.conversations or cut.turns:
            turns = f"; {cut.turns:,} turns are longer alone, and lose their end" if cut.turns else ""
            console.warn(
                f"{cut.conversations:,} {name} conversations are longer than data.max_length = {self.context} tokens "
                f"and are cut between turns{turns}."
            )
        if not len(talk):
            raise RegardError(
                f"The {name} data has no reply to learn.",
                f'No conversation has a turn of data.us = "{self.settings.data.us}".',
                "Check the files and data.us; with few conversations, raise data.held_out.",
            )
        return talk

    def restore(self) -> None:
        self._load_tokenizer()
        self.unseen = self.folder.read_json(CONFIG, _Known).unseen_ids
        if not set(self.unseen) <= set(range(self.tokenizer.size + 2)):
            raise RegardError(
                f"config.json in '{self.folder.path}' does not fit the run.",
                "unseen_ids is to list tokens of its tokenizer.",
                "Restore the file, or train again.",
            )

    def _load_tokenizer(self) -> None:
        from regard.data.tokenizers import TextTokenizer

        self.tokenizer = TextTokenizer.load(self.folder.checked("tokenizer.json"))

    def build(self) -> Causal:
        from regard.data.chat_batches import TURN_TOKENS
        from regard.models.causal import Causal

        return Causal(self.settings.model, self.tokenizer.size + TURN_TOKENS)

    def architecture(self) -> dict[str, Any]:
        from regard.data.chat_batches import TURN_TOKENS, us_and_them
        from regard.data.tokenizers import END, START

        us, them = us_and_them(self.tokenizer)
        return {
            "architecture": "causal",
            "vocabulary": self.tokenizer.size + TURN_TOKENS,
            "start_id": START,
            "end_id": END,
            "us_id": us,
            "them_id": them,
            "unseen_ids": self.unseen,
        }

    def describe(self) -> str:
        talk = self.talk["train"]
        learned = int(talk.learned.ids.sum())
        return f"{len(talk.ids.ids):,} tokens, {learned:,} of them in replies · vocabulary {self.tokenizer.size:,}"

    @property
    def context(self) -> int:
        """The longest conversation that the model has learned to read, in tokens."""
        return self.settings.data.max_length

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: ChatBatch) -> Tensor:
        """[B, T, D]; conversations that share a row do not see each other."""
        return self.model.hidden(batch.tokens_BT, batch.segments_BT, batch.positions_BT)

    def measure(self, talk: Talk) -> dict[str, float]:
        """Over every token of the replies and the <end> of each.

        loss           mean, in nats per token
        perplexity     e to that
        bits_per_byte  all of it in bits, over the bytes of the replies
        """
        from regard.data.chat_batches import in_order
        from regard.training.measure import measure

        measured = measure(self.model, in_order(talk, self.shape), self.logits, self.hardware, self.processes)
        ids = talk.ids.ids[talk.learned.ids > 0]
        size = int(self.tokenizer.byte_lengths()[ids].sum())
        bits = measured.total / math.log(2)
        return {"loss": measured.loss, "perplexity": measured.perplexity, "bits_per_byte": bits / max(size, 1)}

    def validate(self, step: int) -> dict[str, float]:
        """Also writes what the model replies in the first conversations."""
        blocks = []
        for number, conversation in enumerate(self.sources["valid"]):
            if number == SAMPLES:
                break
            turns = [(turn.ours, turn.text) for turn in conversation]
            said = turns[: next((n for n, (ours, _) in enumerate(turns) if ours and n), 1)]
            reply = "".join(self.reply_pieces(said, temperature=0.0, max_tokens=SAMPLE_LENGTH, lookup=0))
            blocks.append("\n".join([*(text for _, text in said), f"⟶ {reply}\n"]))
        self.folder.write_text(f"samples/step-{step}.txt", "\n".join(blocks))
        return self.measure(self.talk["valid"])

    def test(self) -> dict[str, float]:
        return self.measure(self.talk["test"])

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Perplexity of held-out replies; with `baselines`, beside that of n-grams of the same tokens."""
        from regard.data.chat_batches import ChatRows
        from regard.evaluation.metrics import Evaluation, Score

        data, training = self.settings.data, self.settings.training
        sources = conversation_splits(data)
        if files:
            alone = data.model_copy(update={"root": ".", "sample": ""})
            source = ConversationSource("test", alone, conversation_files(files, alone, "the test data"))
        else:
            source = sources[split]
            self.notice_change({split: source.fingerprint}, split)
        rows = max(1, training.tokens_per_batch // training.row_length)
        self.shape = ChatRows(rows, training.row_length, apart=not self.settings.packed)
        skipped = Skipped()
        talk = self._encoded(source, skipped)
        skipped.warn()
        signature = f"{'files' if files else split} · every token of the replies, and their ends"
        scores = [Score(name, value, None, signature) for name, value in self.measure(talk).items()]
        details: dict[str, Any] = {}
        notes: list[str] = []
        if baselines:
            simpler = self._baseline(sources["train"], talk)
            name = f"{BASELINE_ORDER}-grams, Kneser-Ney"
            details["baselines"] = [{"name": name, "perplexity": simpler}]
            notes = ["", "On the same tokens:", f"  {name:<28} perplexity {simpler:8.2f}"]
        return Evaluation(scores, int(talk.learned.ids.sum()), "tokens", details=details, notes=notes)

    def _baseline(self, train: ConversationSource, talk: Talk) -> float:
        """Perplexity of n-grams that have read all turns of the training data."""
        import numpy as np

        from regard.data.chat_batches import TURN_TOKENS, Cut, encoded
        from regard.evaluation.kneser_ney import KneserNey, perplexity

        learned = encoded(train, self.tokenizer, self.context, Cut())
        model = KneserNey(learned.ids, self.tokenizer.size + TURN_TOKENS, BASELINE_ORDER)
        first = np.zeros(len(talk.learned.ids), bool)
        first[talk.learned.offsets[:-1]] = True
        return perplexity(model.log_probabilities(talk.ids), talk.learned.ids[~first] > 0)

    def next_commands(self) -> list[str]:
        return [f"regard chat {self.folder.path}", f"regard evaluate {self.folder.path}"]

    # ------------------------------------------------------------ a loaded run

    def reply(self, turns: Sequence[str] | str, *, seed: int = 1, **decoding: Any) -> str:
        """What the model says after these turns, of which the last is not its own. Keywords override [decoding]."""
        turns = [turns] if isinstance(turns, str) else turns
        sides = [((len(turns) - number) % 2 == 0, text) for number, text in enumerate(turns)]
        return "".join(self.reply_pieces(sides, seed=seed, **decoding))

    def reply_pieces(self, turns: Sequence[tuple[bool, str]], *, seed: int = 1, **decoding: Any) -> Iterator[str]:
        """The reply as it is written, piece by piece. `turns`: whether each is the model's own, and its text."""
        from regard.data.tokenizers import END
        from regard.decoding.generate import generate
        from regard.tasks.language import TextWriter

        settings = changed(self.settings.decoding, **decoding)
        prompt = self.remembered(turns, settings.max_tokens).ids
        writer = TextWriter(self.tokenizer, ())
        written = generate(
            self.model,
            [prompt],
            settings,
            context=self.context,
            end=END,
            never=self._never(),
            seed=seed,
            engines=self.engines(settings.int8),
        )
        for each in written:
            if each.token == END:
                break
            if text := writer.add(each.token):
                yield text
        if rest := writer.rest():
            yield rest

    def _never(self) -> list[int]:
        """Tokens that are never written; one that training never showed has kept some random probability."""
        from regard.data.tokenizers import PAD, START

        return sorted({PAD, START, *self.unseen, self.tokenizer.size, self.tokenizer.size + 1})

    def subject(self, text: str, more: int = 0) -> Subject:
        """A message to the model, to trace; the last answer is the first token of the reply.

        `more`: how many tokens of the reply are generated first, greedily.
        """
        return self._subject(self.remembered([(False, text)], room=max(1, more)).ids, more, text)

    def _subject(self, prompt: list[int], more: int, text: str) -> Subject:
        from regard.inside import subjects
        from regard.inside.forcing import continued

        marks = {self.tokenizer.size: "<us>", self.tokenizer.size + 1: "<them>"}
        never, engines = self._never(), self.engines(self.settings.decoding.int8)
        ids = continued(self.model, prompt, more, context=self.context, never=never, engines=engines)
        return subjects.causal(
            self.model,
            ids,
            lambda token: marks.get(token) or self.tokenizer.piece(token),
            never,
            generated=len(ids) - len(prompt),
            input_text=text,
            output_text=self.tokenizer.decode([ids[len(prompt) :]])[0],
            with_prefix=lambda tokens, more: self._subject([ids[0], *tokens], more, text),
        )

    def remembered(self, turns: Sequence[tuple[bool, str]], room: int) -> Remembered:
        """What a reply is written after. The oldest turns leave whole, so that there is room for the reply: of the
        context, `room` tokens or half."""
        from regard.data.chat_batches import turn_ids, us_and_them
        from regard.data.tokenizers import START

        most = self.context - min(room, self.context // 2) - 2  # <start>, and <us> before the reply
        texts = self.tokenizer.encode([text for _, text in turns])
        kept: list[int] = []
        count = cut = 0
        for (ours, _), ids in zip(reversed(turns), reversed(texts), strict=True):
            turn = turn_ids(ids, ours, self.tokenizer)
            if len(kept) + len(turn) > most and count:
                break
            kept = [*turn[:1], *turn[1:][-(most - 1) :], *kept]  # of a turn that is too long alone, the last part
            cut = max(cut, len(turn) - most)
            count += 1
        return Remembered([START, *kept, us_and_them(self.tokenizer)[0]], len(turns) - count, cut)


def learn_tokenizer(settings: ChatSettings, conversations: ConversationSource) -> TextTokenizer:
    import itertools

    from regard.data.tokenizers import train_tokenizer

    texts = (turn.text for conversation in conversations for turn in conversation)
    return train_tokenizer(itertools.islice(texts, settings.tokenizer.sample_lines), settings.tokenizer)
