"""A chat model: what is learned of conversations, what is remembered, and how one talks with it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import regard
from command import regard as command
from expect import error_of
from regard.cli.chat import _Conversation
from regard.data.batch import DataState
from regard.data.chat_batches import ChatRows, Cut, encoded, in_order, us_and_them
from regard.data.conversations import ConversationSource, Turn, conversation_splits, with_sides
from regard.data.lines import Skipped
from regard.data.samples import small_talk
from regard.data.tokenizers import END, PAD, START, train_tokenizer
from regard.evaluation.kneser_ney import KneserNey
from regard.settings import ChatData, TokenizerSettings

SMALL = ["model.width=64", "model.heads=2", "model.feedforward=128", "data.max_length=192", "training.row_length=192"]
SMALL += ["training.steps=60", "training.validate_every=60", "training.warmup=10", "training.tokens_per_batch=768"]
SMALL += ["training.optimizer=muon", "training.learning_rate=0.01", "data.sample="]
SMALL += [f'data.{split}=["{split}.jsonl"]' for split in ("train", "valid", "test")]
HELLO = "Hello, I am Greta."


@pytest.fixture(scope="module")
def talker(conversations: Path, train_once: Any) -> Any:
    return train_once("talker", "chat-demo", *SMALL, data=conversations)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    texts = [turn for turns in small_talk.conversations(50) for turn in turns]
    return train_tokenizer(texts, TokenizerSettings(kind="word", vocabulary=500))


# ---------------------------------------------------------------- files


def source(path: Path, **settings: Any) -> ConversationSource:
    return ConversationSource("train", ChatData(**settings), (path,))


SAID = [("Ann", "Hello!"), ("Ben", "Hi."), ("Ann", "How are you?"), ("Ben", "Well.")]


def test_every_form_gives_the_same_conversation(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"turns": [{"who": who, "text": text} for who, text in SAID]}) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"talk": [text for _, text in SAID]}) + "\n")
    (tmp_path / "c.tsv").write_text("x\t" + " ↵ ".join(f"{who}: {text}" for who, text in SAID) + "\tmore\n")
    (tmp_path / "d.txt").write_text("|".join(text for _, text in SAID) + "\n")
    expected = [[Turn(bool(n % 2), bool(n % 2), text) for n, (_, text) in enumerate(SAID)]]
    assert list(source(tmp_path / "a.jsonl")) == expected
    assert list(source(tmp_path / "b.jsonl", turns_field="talk")) == expected
    assert list(source(tmp_path / "c.tsv", column=1)) == expected
    assert list(source(tmp_path / "d.txt", separator="|", name_until="")) == expected


def test_whose_turns_are_learned_is_a_setting():
    learned = {us: [turn.learned for turn in with_sides(SAID, us)] for us in ("second", "both", "Ann", "Zoe")}
    assert learned["second"] == [False, True] * 2 and learned["Ann"] == [True, False] * 2
    assert all(learned["both"]) and not any(learned["Zoe"])
    assert [turn.ours for turn in with_sides(SAID, "both")] == [False, True] * 2
    assert [turn.ours for turn in with_sides(SAID, "Ann")] == [True, False] * 2


def test_what_is_no_conversation_is_left_out_counted_and_named(tmp_path, capsys):
    bad = ["no json", '{"turns": "a"}', '{"turns": [1, 2]}', '{"turns": ["alone"]}', '{"turns": ["a", "  "]}', "[]"]
    bad += ['{"turns": ["a", "b\\ud800"]}']
    good = json.dumps({"turns": ["Hello!", "Hi."]})
    (tmp_path / "a.jsonl").write_bytes("\n".join([good, *bad, "", good]).encode() + b"\n\xff\n")
    skipped = Skipped()
    assert len(list(source(tmp_path / "a.jsonl").read(skipped))) == 2
    assert skipped.total == 8
    skipped.warn()
    told = " ".join(capsys.readouterr().err.split())
    assert f"8 lines of '{tmp_path / 'a.jsonl'}' are left out: line 2: It is not valid JSON" in told


def test_held_out_conversations_are_in_one_split_only(tmp_path):
    lines = [json.dumps({"turns": turns}) + "\n" for turns in small_talk.conversations(200)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    splits = conversation_splits(ChatData(train=["a.jsonl"], root=str(tmp_path), held_out=0.1))
    texts = {name: {str(conversation) for conversation in split} for name, split in splits.items()}
    assert sum(map(len, texts.values())) == 200 and min(map(len, texts.values())) > 5
    assert not texts["train"] & texts["valid"] and not texts["train"] & texts["test"]
    assert "empty" in error_of(conversation_splits, ChatData()).why


# ---------------------------------------------------------------- batches


def test_only_the_replies_are_labels(tokenizer):
    us, them = us_and_them(tokenizer)
    talk = encoded([with_sides(SAID, "second")], tokenizer, 100, Cut())
    texts = tokenizer.encode([text for _, text in SAID])
    expected = [START, them, *texts[0], END, us, *texts[1], END, them, *texts[2], END, us, *texts[3], END]
    assert talk.ids[0].tolist() == expected
    [batch] = in_order(talk, ChatRows(1, len(expected) + 3))
    labels = [PAD] * (len(texts[0]) + 3) + [*texts[1], END] + [PAD] * (len(texts[2]) + 3) + [*texts[3], END]
    assert batch.labels[0, : len(expected)].tolist() == [*labels, PAD]
    assert batch.tokens_BT[0, : len(expected)].tolist() == expected
    assert not batch.labels[0, len(expected) :].any() and not batch.segments_BT[0, len(expected) :].any()


def test_a_long_conversation_is_cut_between_turns(tokenizer):
    conversations = [
        with_sides([(str(n % 2), turn) for n, turn in enumerate(turns)], "both")
        for turns in small_talk.conversations(20)
    ]
    whole = encoded(conversations, tokenizer, 10_000, Cut())
    cut = Cut()
    pieces = encoded(conversations, tokenizer, 40, cut)
    assert cut.conversations == 20 and not cut.turns
    assert pieces.ids.lengths.max() <= 40 and (pieces.ids.ids[pieces.ids.offsets[:-1]] == START).all()
    assert (pieces.ids.ids[pieces.ids.offsets[1:] - 1] == END).all()
    without_start = [talk.ids.ids[talk.ids.ids != START] for talk in (whole, pieces)]
    assert np.array_equal(*without_start)
    encoded(conversations, tokenizer, 5, cut)
    assert cut.turns > 0


def test_rows_hold_every_piece_once_and_they_do_not_see_each_other(talker):
    task = regard.load(talker.folder.path)
    task.prepare()
    batch = next(itertools.islice(task.stream.batches(DataState()), 1))[0]
    together = task.logits(batch)
    row, segment = 0, 2
    at = (batch.segments_BT[row] == segment).nonzero()[:, 0]
    assert len(at) > 10
    alone = task.model.to_logits(task.model.hidden(batch.tokens_BT[row : row + 1, at]))
    torch.testing.assert_close(together[row, at], alone[0], rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- scores


def test_perplexity_is_that_of_the_replies_and_stands_beside_n_grams(talker, conversations):
    found = talker.evaluate()
    total = count = 0.0
    for conversation in ConversationSource("test", talker.settings.data, (conversations / "test.jsonl",)):
        talk = encoded([conversation], talker.tokenizer, talker.context, Cut())
        for piece, learned in zip(range(len(talk)), talk.learned.ids, strict=False):
            ids = torch.tensor(talk.ids[piece])[None]
            log_p = F.log_softmax(talker.model.to_logits(talker.model.hidden(ids[:, :-1])).float(), -1)
            of_each = -log_p[0].gather(1, ids[0, 1:, None])[:, 0]
            marks = torch.tensor(talk.learned[piece][1:]) > 0
            total, count = total + of_each[marks].sum().item(), count + int(marks.sum())
            assert learned == 0
    assert found.count == count
    assert found.metrics["loss"] == pytest.approx(total / count, rel=1e-4)
    [baseline] = found.details["baselines"]
    assert baseline["name"].startswith("5-grams") and f"{baseline['perplexity']:.2f}" in found.notes[-1]
    splits = conversation_splits(talker.settings.data)
    train, test = (encoded(splits[name], talker.tokenizer, talker.context, Cut()) for name in ("train", "test"))
    log_p = KneserNey(train.ids, talker.tokenizer.size + 2).log_probabilities(test.ids)
    inner = [log_p[start - n : end - n - 1] for n, (start, end) in enumerate(itertools.pairwise(test.ids.offsets))]
    replies = np.concatenate([each[test.learned[n][1:] > 0] for n, each in enumerate(inner)])
    assert baseline["perplexity"] == pytest.approx(float(np.exp(-replies.mean())))


# ---------------------------------------------------------------- talking


def test_the_oldest_turns_leave_whole(talker):
    turns = [(bool(n % 2), text) for n, text in enumerate(small_talk.conversations(1)[0] * 6)][:-1]
    prompt, forgotten, cut = talker.remembered(turns, 60)
    us, _ = us_and_them(talker.tokenizer)
    assert 0 < forgotten < len(turns) and len(prompt) + 60 <= talker.context
    assert talker.remembered(turns[forgotten:], 60) == (prompt, 0, 0) and not cut
    assert len(talker.remembered(turns[forgotten - 1 :], 0).ids) + 60 > talker.context
    assert prompt[0] == START and prompt[-1] == us and prompt.count(END) == len(turns) - forgotten
    long, _, cut = talker.remembered([(False, "the " * 1000)], 60)
    assert len(long) + 60 <= talker.context and long[-2] == END
    assert cut + len(long) - 2 == len(talker.tokenizer.encode(["the " * 1000])[0]) + 2


def test_a_reply_is_text_and_depends_on_what_was_said(talker):
    replies = [talker.reply(said) for said in (HELLO, "Thank you.")]
    assert len(set(replies)) == 2 and all(replies)
    assert talker.reply(HELLO) == replies[0]
    assert talker.reply(HELLO, max_tokens=2) != replies[0]
    drawn = {talker.reply(HELLO, temperature=2.0, seed=seed) for seed in range(5)}
    assert len(drawn) > 1


def test_it_talks_over_a_pipe(talker, tmp_path):
    run = talker.folder.path
    first = talker.reply(HELLO)
    second = talker.reply([HELLO, first.strip(), "Thank you."])
    lines = ["/save empty.jsonl", HELLO, "Thank you.", "/save talk.jsonl", "/reset", HELLO, "", "/nonsense"]
    lines += ["/quit", "never read"]
    result = command("chat", run, stdin="\n".join(lines) + "\n", cwd=tmp_path)
    assert result.stdout.splitlines() == ["", first, second, "", "", first, "", ""]  # one for each line that is read
    assert "there is no conversation yet" in result.stderr and not (tmp_path / "empty.jsonl").exists()
    assert "There is no command '/nonsense'" in result.stderr
    saved = json.loads((tmp_path / "talk.jsonl").read_text())["turns"]
    assert [turn["text"] for turn in saved] == [HELLO, first.strip(), "Thank you.", second.strip()]
    assert [turn["who"] for turn in saved] == ["them", "us"] * 2
    assert len(list(source(tmp_path / "talk.jsonl", us="us"))) == 1
    told = [json.loads(line) for line in command("chat", run, "--json", stdin=HELLO + "\n").stdout.splitlines()]
    assert [(each["said"], each["reply"], each["stopped"]) for each in told] == [(HELLO, first.strip(), False)]


def test_what_cannot_be_saved_or_read_is_said(talker, tmp_path, trained):
    result = command("chat", talker.folder.path, stdin=f"/save {tmp_path}\n{HELLO}\n")
    assert "Warning" in result.stderr and result.stdout.strip()
    assert "not valid UTF-8" in command("chat", talker.folder.path, stdin=b"\xff\n", code=1).error[0]
    assert "a chat model" in command("chat", trained.folder.path, code=2).error[1]


# Python for a process that is interrupted after the first piece of its first reply.
INTERRUPTED = """
import os, signal
from regard.tasks.chat import Chat
whole = Chat.reply_pieces
def pieces(self, turns, **options):
    for piece in whole(self, turns, **options):
        yield piece
        if len(turns) == 1:
            os.kill(os.getpid(), signal.SIGINT)
Chat.reply_pieces = pieces
"""


def test_ctrl_c_stops_a_reply_and_not_the_program(talker):
    first = next(iter(talker.reply_pieces([(False, HELLO)])))
    second = talker.reply([HELLO, first.strip(), "Thank you."])
    assert first != talker.reply(HELLO)
    result = command("chat", talker.folder.path, stdin=f"{HELLO}\nThank you.\n", before=INTERRUPTED)
    assert result.stdout.splitlines() == [first, second]


class Keyboard:
    """Standard input on which lines are typed, and Ctrl-C is pressed where there is None."""

    def __init__(self, *keys: str | None):
        self.keys, self.buffer = list(keys), self

    def isatty(self) -> bool:
        return False

    def readline(self) -> bytes:
        key = self.keys.pop(0) if self.keys else ""
        if key is None:
            os.kill(os.getpid(), signal.SIGINT)
        return f"{key}\n".encode() if key else b""


def talk(talker, monkeypatch, capsys, *keys, **decoding) -> tuple[list[str], str, Keyboard]:
    keyboard = Keyboard(*keys)
    monkeypatch.setattr(sys, "stdin", keyboard)
    _Conversation(talker, 1, decoding, as_json=False).hold()
    shown = capsys.readouterr()
    return shown.out.splitlines(), " ".join(shown.err.split()), keyboard


def test_ctrl_c_just_after_a_reply_ends_nothing_and_twice_in_a_row_it_ends_all(talker, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGINT)
    replies, _, keyboard = talk(talker, monkeypatch, capsys, HELLO, None, HELLO, None, None, "never read")
    assert len(replies) == 2 and keyboard.keys == ["never read"]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_as_the_last_piece_is_written_keeps_the_reply(talker, monkeypatch, capsys):
    whole = talker.reply(HELLO)
    pieces = type(talker).reply_pieces

    def pressed_at_the_end(self, turns, **options):
        yield from pieces(self, turns, **options)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(type(talker), "reply_pieces", pressed_at_the_end)
    replies, _, _ = talk(talker, monkeypatch, capsys, HELLO, HELLO)
    assert replies[0] == whole and len(replies) == 2


def test_what_no_longer_fits_is_said_once(talker, monkeypatch, capsys):
    long = "the " * (talker.context // 3)
    _, told, _ = talk(talker, monkeypatch, capsys, *[long] * 5, max_tokens=2)
    assert told.count("the oldest turns are forgotten") == 1 and "Only the end" not in told
    _, told, _ = talk(talker, monkeypatch, capsys, *[long * 9] * 2, max_tokens=2)
    assert told.count("Only the end of what you said is read") == 1
