"""A session: the loaded runs, and what has lately been traced of them.

Requests say everything themselves: which run, which input, what is asked. So two browsers never disturb each other,
and what was forgotten is computed again. One request at a time uses the models.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import inspect
import json
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from regard import console
from regard.errors import RegardError, UsageError
from regard.inside.parts import PartTrace
from regard.inside.subject import Subject
from regard.inside.trace import Trace, trace
from regard.layers.attention_trace import AttentionTrace
from regard.tasks.task import Task

TRACES = 12  # kept
MOST_TEXT = 200_000  # characters of an input
MOST_IMAGE = 64 * 2**20  # bytes of one that is sent, or characters of it as base64
SENT = "sent/"  # before the names of images that the page sent
TEXTS = ("text", "question", "target", "context")
FIELDS = ("text", "question", "image", "moves", "target", "context", "wish")  # of an input, in the order of a form
OF_TOKENS = ("tokens", "written", "forced")  # ids instead of the text; how many the model wrote; how an output begins

Made = TypeVar("Made")


class Looked:
    """One input of one run, traced. `warnings`: what was said meanwhile, as that the input was cut."""

    def __init__(self, session: Session, run: int, given: dict[str, Any], traced: Trace, warnings: Sequence[str] = ()):
        self.session, self.run, self.given, self.trace = session, run, given, traced
        self.warnings = list(dict.fromkeys(warnings))
        self._attention: OrderedDict[str, AttentionTrace] = OrderedDict()
        self._made: dict[str, Any] = {}

    @property
    def task(self) -> Task[Any]:
        return self.session.tasks[self.run]

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What is needed again and again about this input, made when it is first asked for."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    @cached_property
    def parts(self) -> dict[str, PartTrace]:
        return {part.name: part for part in self.trace.parts()}

    def part(self, name: str) -> PartTrace:
        if name not in self.parts:
            raise UsageError(f"There is no part '{name}'.", "There is no such part.", "Choose another.")
        return self.parts[name]

    def attention(self, name: str) -> AttentionTrace:
        """The formula of a part, written out; the last few are kept."""
        if name not in self._attention:
            part = self.part(name)
            if not part.attends:
                raise UsageError(f"'{name}' has no attention.", "It mixes in another way.", "Choose another part.")
            self._attention[name] = part.attention()
            while len(self._attention) > 4:
                self._attention.popitem(last=False)
        self._attention.move_to_end(name)
        return self._attention[name]


class Session:
    """Runs side by side. `looked` gives what was traced of an input, from memory or anew."""

    def __init__(self, tasks: Sequence[Task[Any]], first: dict[str, Any] | None = None):
        """`first`: the input that the page begins with; its image may be any file, those of the page may not."""
        self.tasks = list(tasks)
        self.lock = threading.RLock()
        self._looked: OrderedDict[str, Looked] = OrderedDict()
        self._uploads = tempfile.TemporaryDirectory(prefix="regard-explore-")
        self._sent: dict[str, Path] = {}  # images that the page sent, by what they are called since
        self._shown: dict[Path, str] = {}  # what they were called
        self._check_beside()
        # Of two samples of one name, the first run's.
        self.images = {f"samples/{file.name}": file for task in reversed(self.tasks) for file in _samples(task)}
        first = {name: value for name, value in (first or {}).items() if value}
        if "image" in first:
            file = Path(first["image"])
            first["image"] = file.name
            self.images = {file.name: file} | self.images
        self.first = first or self.examples(0)[0]

    def close(self) -> None:
        self._uploads.cleanup()

    @property
    def busy(self) -> bool:
        """Whether another thread is computing."""
        free = self.lock.acquire(blocking=False)
        if free:
            self.lock.release()
        return not free

    def fields(self, run: int) -> list[str]:
        """What an input of this run is made of: the arguments of its `subject`."""
        task: Any = self.tasks[run]
        if not hasattr(task, "subject"):
            task.trace()  # says why not
        names = inspect.signature(task.subject).parameters
        return [name for name in FIELDS if name in names]

    def _check_beside(self) -> None:
        """Runs that are side by side are given the same input."""
        fields = self.fields(0)
        for run, task in enumerate(self.tasks[1:], start=1):
            own = self._needs(run) or self.fields(run)[:1]
            if any(name not in fields for name in own):
                names = [each.folder.path.name for each in (self.tasks[0], task)]
                raise UsageError(
                    f"'{names[1]}' cannot be shown beside '{names[0]}'.",
                    f"It reads the {' and the '.join(own)}, and '{names[0]}' the {fields[0]}: "
                    "there is no input for both.",
                    "Choose two runs that read the same kind of input.",
                )

    def _needs(self, run: int) -> list[str]:
        """The fields that an input of this run cannot do without."""
        task: Any = self.tasks[run]
        parameters = inspect.signature(task.subject).parameters
        return [name for name in self.fields(run) if parameters[name].default is inspect.Parameter.empty]

    def input_for(self, run: int, given: dict[str, Any]) -> dict[str, Any]:
        """What another run is given of an input: the fields that it has."""
        fields = self.fields(run)
        return {name: value for name, value in given.items() if name in fields}

    def examples(self, run: int) -> list[dict[str, Any]]:
        """Inputs to begin with."""
        task: Any = self.tasks[run]
        fields = self.fields(run)
        if "image" in fields:
            return [{"image": name} for name in self.images] or [{}]
        if "context" in fields:
            return [{"question": task.example, "context": task.example_context}]
        return [{fields[0]: str(task.first_input())}]

    def looked(self, run: int, given: dict[str, Any]) -> Looked:
        with self.lock:
            if not 0 <= run < len(self.tasks):
                raise UsageError(f"There is no run {run + 1}.", f"There are {len(self.tasks)}.", "Choose another.")
            given = self._checked(run, given)
            key = canonical({"run": run, "input": given})
            if key not in self._looked:
                with console.collecting() as warnings:
                    traced = self._traced(run, given)
                self._looked[key] = Looked(self, run, given, traced, warnings)
                while len(self._looked) > TRACES:
                    self._looked.popitem(last=False)
            self._looked.move_to_end(key)
            return self._looked[key]

    def _checked(self, run: int, given: dict[str, Any]) -> dict[str, Any]:
        fields = self.fields(run)
        for name, value in given.items():
            if name not in (*fields, *OF_TOKENS):
                raise UsageError(f"An input has no '{name}'.", f"It has {', '.join(fields)}.", "Leave it out.")
            if name not in OF_TOKENS:
                _check_text(name, value)
        return {name: self._cut(run, name, value) for name, value in given.items() if value not in ("", None, [])}

    def _cut(self, run: int, name: str, value: Any) -> Any:
        """Without spaces and line ends around a text, unless the model reads on: there they are something to say."""
        goes_on = self.tasks[run].settings.task in ("language", "masked", "chat")
        return value.strip() if name in TEXTS and isinstance(value, str) and not goes_on else value

    def _traced(self, run: int, given: dict[str, Any]) -> Trace:
        task: Any = self.tasks[run]
        arguments = {name: given[name] for name in self.fields(run) if name in given}
        for name in self._needs(run):
            if not str(arguments.get(name, "")).strip():
                raise UsageError(f"The {name} is missing.", "There is no input.", f"Give the {name}.")
        if "image" in arguments:
            arguments["image"] = self.image(arguments["image"])
        if "forced" in given:
            arguments["forced"] = self._forced(run, given["forced"])
        try:
            subject = task.subject(**arguments)
        except RegardError as error:
            raise self._named(error) from None
        if "tokens" not in given:
            return trace(subject)
        with fitting():
            return trace(with_tokens(subject, given["tokens"], given.get("written", 0)))

    def _forced(self, run: int, ids: Any) -> list[int]:
        """The ids that an output begins with, whatever the model would rather say."""
        task: Any = self.tasks[run]
        if "forced" not in inspect.signature(task.subject).parameters:
            raise UsageError("No word can be forced here.", "This model does not generate text.", "Leave it out.")
        words = task.model.target_embedding.table.num_embeddings
        return _ids(ids, words)

    def send(self, name: str, raw: bytes) -> str:
        """Keep an image that the page sends, until the session ends; what it is called from now on."""
        shown = Path(name.replace("\\", "/")).name[-80:] or "image"
        if not raw:
            raise UsageError(f"The image '{shown}' cannot be read.", "It is empty.", "Choose another image.")
        if len(raw) > MOST_IMAGE:
            raise UsageError(
                f"The image '{shown}' is too large.", f"It has over {MOST_IMAGE:,} bytes.", "Make it smaller."
            )
        with self.lock:
            path = self._kept(raw, shown)
            called = f"{SENT}{path.stem}-{shown}"
            self._sent[called] = path
        return called

    def _kept(self, raw: bytes, shown: str) -> Path:
        path = Path(self._uploads.name) / f"{hashlib.sha256(raw).hexdigest()[:12]}.image"
        if not path.exists():
            path.write_bytes(raw)
        self._shown[path] = shown
        return path

    def _named(self, error: RegardError) -> RegardError:
        """The same error, with the names of files that were sent as a person knows them."""
        lines = [error.what, error.why, error.fix]
        for path, shown in self._shown.items():
            lines = [line.replace(str(path), shown) for line in lines]
        return type(error)(*lines)

    def image(self, name: str) -> Path:
        """A sample of the run, the file that the command was given, or one that the page sent."""
        if name.startswith("data:"):
            return self._within(name)
        if name in self._sent:
            return self._sent[name]
        if name.startswith(SENT):
            raise UsageError(
                f"The image '{name.removeprefix(SENT).partition('-')[2]}' is no longer here.",
                "Images that were opened on the page are forgotten when the command ends.",
                "Open the file again, or choose another image.",
            )
        if name not in self.images:
            raise UsageError(
                f"'{name}' is not an image of this page.", "Only samples of the run are.", "Open the file instead."
            )
        return self.images[name]

    def _within(self, address: str) -> Path:
        """The image that an address has in itself."""
        try:
            raw = base64.b64decode(address.partition(",")[2], validate=True)
        except (ValueError, binascii.Error):
            raise UsageError("The image cannot be read.", "It was not sent as base64.", "Open it again.") from None
        return self._kept(raw, "in the address")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise UsageError(f"The {name} is not a text.", f"It is {value!r:.80}.", "Give a text.")
    most = MOST_IMAGE if name == "image" else MOST_TEXT
    if len(value) > most:
        raise UsageError(f"The {name} is too long.", f"It has over {most:,} characters.", "Give a shorter one.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The {name} is not Unicode.", "It contains an unpaired surrogate.", "Give it in UTF-8."
        ) from None


@contextmanager
def fitting() -> Iterator[None]:
    """Inside, a model may be given other tokens. How many it accepts differs from model to model."""
    try:
        yield
    except (IndexError, RuntimeError, ValueError) as error:
        raise UsageError(
            "These tokens do not fit this model.",
            "There are more, or fewer, than it can read.",
            "Use the original number of tokens.",
        ) from error


def with_tokens(subject: Subject, tokens: Any, written: Any = 0) -> Subject:
    """The same with these ids in place of its own, of which the model has written the last so many."""
    if subject.with_tokens is None:
        raise UsageError("Its tokens cannot be changed.", "They are not words.", "Change the input instead.")
    embeds: list[Any] = [stack.embed for stack in subject.stacks]
    if not isinstance(tokens, list) or len(tokens) != len(embeds):
        raise UsageError("These tokens cannot be read.", "They are not a list for each stack.", "Choose them again.")
    for ids, embed in zip(tokens, embeds, strict=True):
        _ids(ids, embed.table.num_embeddings)
    if not isinstance(written, int) or not 0 <= written < len(tokens[-1]):
        raise UsageError("These tokens cannot be read.", f"{written!r:.40} of them are not.", "Choose them again.")
    return subject.with_tokens(tokens, written)


def _ids(ids: Any, words: int) -> list[int]:
    """What was sent, if it is ids of that many words."""
    if not isinstance(ids, list) or not ids or any(type(i) is not int or not 0 <= i < words for i in ids):
        raise UsageError(
            "These tokens cannot be read.",
            f"They are not ids from 0 to {words - 1}.",
            "Choose them from its words.",
        )
    return ids


def _samples(task: Task[Any]) -> list[Path]:
    return sorted(
        task.folder.samples.glob("*.png"),
        key=lambda path: (int(path.stem) if path.stem.isdigit() else 10**9, path.name),
    )


def canonical(content: Any) -> str:
    """The same text for the same content; the page writes it alike (source.js)."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
