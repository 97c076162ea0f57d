"""`regard chat`: a conversation in the terminal, or over a pipe: a line in, a reply out."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard import console
from regard.cli.app import (
    DeviceOption,
    Int8Option,
    JsonOption,
    MaxTokensOption,
    RunArgument,
    SeedOption,
    TopKOption,
    app,
)
from regard.cli.lines import BREAKS
from regard.errors import RegardError
from regard.files import writing
from regard.words import counted

if TYPE_CHECKING:
    from regard.tasks.chat import Remembered

HELP = "/reset starts over, /save FILE keeps the conversation, /quit or Ctrl-D ends. Ctrl-C stops a reply."
PROMPT = "> "


@app.command()
def chat(
    run: RunArgument,
    max_tokens: MaxTokensOption = None,
    temperature: Annotated[
        float | None, typer.Option(help="0: always the likeliest; 1: as probable.", show_default="as trained")
    ] = None,
    top_k: TopKOption = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the likeliest tokens that sum to p.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens already written become less likely.")
    ] = None,
    seed: SeedOption = 1,
    int8: Int8Option = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Talk with a model that was trained on conversations.

    What is typed is a turn; the reply appears as it is written. The model reads as many of the last turns as its
    context has room for; the oldest leave whole. /reset starts over, /save FILE keeps the conversation as a line of
    .jsonl, /quit or Ctrl-D ends. Ctrl-C stops a reply; twice while nothing is being written, it ends too.

    Standard input may be a pipe: each line is the next turn of one conversation, and there is one line out for it,
    empty for a command. With --json, one JSON object per reply.
    """
    given = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "int8": int8 or None,
    }
    decoding = {name: value for name, value in given.items() if value is not None}
    from regard.recipes import changed
    from regard.run import load_weights, open_run, require

    task = open_run(run)
    require(task, "reply_pieces")
    changed(task.settings.decoding, **decoding)  # a mistake is reported before the weights are loaded
    _Conversation(load_weights(task, device), seed, decoding, as_json).hold()


class _Stopped(Exception):
    """Ctrl-C while a line was waited for."""


class _Conversation:
    """Turns so far, and what is done with the next line."""

    def __init__(self, run: Any, seed: int, decoding: dict[str, Any], as_json: bool):
        self.run, self.seed, self.decoding, self.as_json = run, seed, decoding, as_json
        self.turns: list[tuple[bool, str]] = []  # whether it is the model's, and its text
        self.person = sys.stdin is not None and sys.stdin.isatty()
        self.reading = False  # whether a line is waited for
        self.stopped = False  # whether Ctrl-C has come since the last line
        self.told_of: set[str] = set()  # what is said once only

    def hold(self) -> None:
        """Until the input ends, or Ctrl-C comes twice while a line is waited for."""
        if self.person:
            console.say(HELP)
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            impatient = False
            while True:
                try:
                    line = self._read()
                except _Stopped:
                    print(file=sys.stderr)
                    if impatient:
                        return
                    console.say(f"Ctrl-C once more ends the conversation. {HELP}")
                    impatient = True
                    continue
                impatient = False
                if line is None or line.split()[:1] == ["/quit"]:
                    return
                self._take(line)
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: Any) -> None:
        """Ctrl-C: stops a reply, and never more than that, also where it comes just as the reply ends."""
        self.stopped = True
        if self.reading:
            raise _Stopped

    def _read(self) -> str | None:
        """The next line; None at the end of the input."""
        try:
            self.reading = True
            if self.person:
                return input(PROMPT)
            raw = sys.stdin.buffer.readline()
        except EOFError:
            print(file=sys.stderr)
            return None
        finally:
            self.reading = False
        try:
            return raw.decode().rstrip("\r\n") if raw else None
        except UnicodeDecodeError as error:
            raise RegardError("The input is not valid UTF-8.", f"{error}", "Convert it to UTF-8.") from None

    def _take(self, line: str) -> None:
        """A command, or what is said. Over a pipe, there is one line out for it."""
        from regard.data.lines import encodable

        said = line.strip()
        if said and not said.startswith("/") and encodable(line):
            self._answer(said)
            return
        if not encodable(line):  # a terminal may give any bytes
            console.warn("That is not valid UTF-8, and nothing is said to it.")
        elif said:
            self._command(said)
        if not self.person and not self.as_json:
            print(flush=True)

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "/reset":
            self.turns, self.told_of = [], set()
            console.say("The conversation starts over.")
        elif name == "/save" and rest.strip():
            self._save(Path(rest.strip()))
        else:
            missing = "/save needs the name of a file." if name == "/save" else f"There is no command '{line}'."
            console.warn(f"{missing} {HELP}")

    def _save(self, path: Path) -> None:
        """In the form that a training reads; another conversation goes behind it. A mistake does not end the chat."""
        turns = [{"who": "us" if ours else "them", "text": text} for ours, text in self.turns if text]
        if len(turns) < 2:
            console.warn("Nothing is saved: there is no conversation yet.")
            return
        try:
            with writing(path, "Name another file."), path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"turns": turns}, ensure_ascii=False) + "\n")
            console.say(f"{counted(len(turns), 'turn', 'is')} saved in '{path}'.")
        except RegardError as error:
            console.warn(f"{error.what} {error.why}")

    def _answer(self, said: str) -> None:
        """Reply, as it is written. What was written when Ctrl-C came is the reply."""
        self.turns.append((False, said))
        room = self.decoding.get("max_tokens", self.run.settings.decoding.max_tokens)
        read = self.run.remembered(self.turns, room)
        self._tell_of_the_forgotten(read)
        reply, self.stopped = "", False
        # Another seed for each turn, so that a question asked twice may be answered otherwise.
        seed = self.seed + len(self.turns) - 1
        for piece in self.run.reply_pieces(self.turns, seed=seed, **self.decoding):
            if self.stopped:
                break
            reply += piece
            if not self.as_json:
                print(BREAKS.sub(" ", piece), end="", flush=True)
        self.turns.append((True, reply.strip()))
        if self.as_json:
            forgotten = {"turns_forgotten": read.forgotten, "tokens_cut": read.cut}
            content = {"said": said, "reply": reply.strip()} | forgotten | {"stopped": self.stopped}
            print(json.dumps(content, ensure_ascii=False), flush=True)
        else:
            print(flush=True)

    def _tell_of_the_forgotten(self, read: Remembered) -> None:
        """Once in a conversation."""
        limit = f"the model reads {counted(self.run.context, 'token')} (data.max_length), its reply among them"
        told = {
            "turns": f"From here on the oldest turns are forgotten: {limit}." if read.forgotten else "",
            "tokens": f"Only the end of what you said is read: {limit}." if read.cut > 0 else "",
        }
        for what, sentence in told.items():
            if sentence and what not in self.told_of:
                console.warn(sentence)
                self.told_of.add(what)
