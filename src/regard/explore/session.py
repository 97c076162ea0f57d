"""A session: the loaded runs, and the inputs traced most recently.

A request names its run, its input and its question in full. So two browsers never disturb each other, and a trace that
was dropped is simply computed again. One request at a time uses the models.
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

MOST_TRACES = 12  # in memory
MOST_ATTENTIONS = 4  # in memory, of each trace
MOST_TEXT = 200_000  # characters of an input
MOST_IMAGE = 64 * 2**20  # bytes of an uploaded image, or characters of one in base64
UPLOADED = "sent/"  # the prefix of the names of uploaded images
TEXTS = ("text", "question", "target", "context")
# Of an input, in the order of the form.
FIELDS = ("text", "question", "image", "box", "moves", "target", "context", "wish")
NUMBERS = ("box",)  # fields that are counted from 1, which is their default
# Token ids in place of the text; how many of them the model wrote; the ids that an output must begin with.
TOKEN_FIELDS = ("tokens", "written", "forced")

T = TypeVar("T")


class TracedInput:
    """One input of one run, and its trace. `warnings`: printed while it was traced, such as that the input was cut."""

    def __init__(self, session: Session, run: int, fields: dict[str, Any], trace: Trace, warnings: Sequence[str] = ()):
        self.session, self.run, self.fields, self.trace = session, run, fields, trace
        self.warnings = list(dict.fromkeys(warnings))
        self._attention: OrderedDict[str, AttentionTrace] = OrderedDict()
        self._cache: dict[str, Any] = {}

    @property
    def task(self) -> Task[Any]:
        return self.session.tasks[self.run]

    def cached(self, name: str, compute: Callable[[], T]) -> T:
        """The result of `compute`, which runs only the first time this name is asked for."""
        if name not in self._cache:
            self._cache[name] = compute()
        result: T = self._cache[name]
        return result

    @cached_property
    def parts(self) -> dict[str, PartTrace]:
        return {part.name: part for part in self.trace.parts()}

    @property
    def longest(self) -> int:
        """Positions of the longest stack."""
        return max(len(stack.pieces) for stack in self.trace.subject.stacks)

    def part(self, name: str) -> PartTrace:
        if name not in self.parts:
            raise UsageError(f"There is no part '{name}'.", "This model does not have it.", "Choose another.")
        return self.parts[name]

    def attention(self, name: str) -> AttentionTrace:
        """Queries, keys, values, scores and weights of a part. Only the last few are kept: they are large."""
        if name not in self._attention:
            part = self.part(name)
            if not part.attends:
                raise UsageError(
                    f"'{name}' has no attention.", "It mixes positions in another way.", "Choose another part."
                )
            self._attention[name] = part.attention()
            while len(self._attention) > MOST_ATTENTIONS:
                self._attention.popitem(last=False)
        self._attention.move_to_end(name)
        return self._attention[name]


class Session:
    """Runs side by side. `traced` gives the trace of an input, from memory or computed again."""

    def __init__(self, tasks: Sequence[Task[Any]], first: dict[str, Any] | None = None):
        """`first`: the input that the page begins with. Only its image may be any file."""
        self.tasks = list(tasks)
        self.lock = threading.RLock()
        self._traced: OrderedDict[str, TracedInput] = OrderedDict()
        self._upload_folder = tempfile.TemporaryDirectory(prefix="regard-explore-")
        self._uploads: dict[str, Path] = {}  # by the names that inputs use
        self._original_names: dict[Path, str] = {}  # what the files were called before the upload
        self._check_shared_input()
        # Where two runs have a sample of the same name, the first run's is used.
        self.images = {f"samples/{file.name}": file for task in reversed(self.tasks) for file in _samples(task)}
        first = {name: value for name, value in (first or {}).items() if value}
        if "image" in first:
            file = Path(first["image"])
            first["image"] = file.name
            self.images = {file.name: file} | self.images
        self.first = first or self.examples(0)[0]

    def close(self) -> None:
        self._upload_folder.cleanup()

    @property
    def busy(self) -> bool:
        """Whether another thread is computing."""
        free = self.lock.acquire(blocking=False)
        if free:
            self.lock.release()
        return not free

    def field_names(self, run: int) -> list[str]:
        """The fields of an input of this run: the arguments of the task's `subject`."""
        task: Any = self.tasks[run]
        if not hasattr(task, "subject"):
            task.trace()  # raises the error that says why
        parameters = inspect.signature(task.subject).parameters
        return [name for name in FIELDS if name in parameters]

    def _check_shared_input(self) -> None:
        """Runs side by side are given the same input, so all must be able to read what the first reads."""
        names = self.field_names(0)
        for run, task in enumerate(self.tasks[1:], start=1):
            needed = self._required_fields(run) or self.field_names(run)[:1]
            if any(name not in names for name in needed):
                first, second = (other.folder.path.name for other in (self.tasks[0], task))
                raise UsageError(
                    f"'{second}' cannot be shown beside '{first}'.",
                    f"It reads the {' and the '.join(needed)}, and '{first}' the {names[0]}: "
                    "there is no input for both.",
                    "Choose two runs that read the same kind of input.",
                )

    def _required_fields(self, run: int) -> list[str]:
        task: Any = self.tasks[run]
        parameters = inspect.signature(task.subject).parameters
        return [name for name in self.field_names(run) if parameters[name].default is inspect.Parameter.empty]

    def input_for(self, run: int, fields: dict[str, Any]) -> dict[str, Any]:
        """An input as another run reads it: only the fields that it has."""
        names = self.field_names(run)
        return {name: value for name, value in fields.items() if name in names}

    def examples(self, run: int) -> list[dict[str, Any]]:
        """Inputs to begin with."""
        task: Any = self.tasks[run]
        names = self.field_names(run)
        if "image" in names:
            return [{"image": name} for name in self.images] or [{}]
        if "context" in names:
            return [{"question": task.example, "context": task.example_context}]
        return [{names[0]: str(example)} for example in task.first_inputs()]

    def traced(self, run: int, fields: dict[str, Any]) -> TracedInput:
        with self.lock:
            if not 0 <= run < len(self.tasks):
                raise UsageError(f"There is no run {run + 1}.", f"There are {len(self.tasks)}.", "Choose another.")
            fields = self._checked(run, fields)
            key = canonical({"run": run, "input": fields})
            if key not in self._traced:
                with console.collecting() as warnings:
                    trace = self._trace(run, fields)
                self._traced[key] = TracedInput(self, run, fields, trace, warnings)
                while len(self._traced) > MOST_TRACES:
                    self._traced.popitem(last=False)
            self._traced.move_to_end(key)
            return self._traced[key]

    def _checked(self, run: int, fields: dict[str, Any]) -> dict[str, Any]:
        names = self.field_names(run)
        for name, value in fields.items():
            if name not in (*names, *TOKEN_FIELDS):
                raise UsageError(f"An input has no '{name}'.", f"It has {', '.join(names)}.", "Leave it out.")
            if name not in (*TOKEN_FIELDS, *NUMBERS):
                _check_text(name, value)
        read = {name: _number(name, value) if name in NUMBERS else value for name, value in fields.items()}
        return {name: self._stripped(run, name, value) for name, value in read.items() if value not in ("", None, [])}

    def _stripped(self, run: int, name: str, value: Any) -> Any:
        """Texts lose the spaces and line ends around them, unless the model continues them: there they matter."""
        continues = self.tasks[run].settings.task in ("language", "masked", "chat")
        return value.strip() if name in TEXTS and isinstance(value, str) and not continues else value

    def _trace(self, run: int, fields: dict[str, Any]) -> Trace:
        task: Any = self.tasks[run]
        arguments = {name: fields[name] for name in self.field_names(run) if name in fields}
        for name in self._required_fields(run):
            if not str(arguments.get(name, "")).strip():
                raise UsageError(f"The {name} is missing.", "There is no input.", f"Give the {name}.")
        if "image" in arguments:
            arguments["image"] = self.image(arguments["image"])
        if "forced" in fields:
            arguments["forced"] = self._forced(run, fields["forced"])
        try:
            subject = task.subject(**arguments)
        except RegardError as error:
            raise self._with_original_names(error) from None
        if "tokens" not in fields:
            return trace(subject)
        with tokens_must_fit():
            return trace(with_tokens(subject, fields["tokens"], fields.get("written", 0)))

    def _forced(self, run: int, ids: Any) -> list[int]:
        """The ids that an output must begin with."""
        task: Any = self.tasks[run]
        if "forced" not in inspect.signature(task.subject).parameters:
            raise UsageError("No word can be forced here.", "This model does not generate text.", "Leave it out.")
        return _ids(ids, task.model.target_embedding.table.num_embeddings)

    def upload(self, name: str, content: bytes) -> str:
        """Keep an image until the session ends; returns the name that an input may use for it."""
        original = Path(name.replace("\\", "/")).name[-80:] or "image"
        if not content:
            raise UsageError(f"The image '{original}' cannot be read.", "It is empty.", "Choose another image.")
        if len(content) > MOST_IMAGE:
            raise UsageError(
                f"The image '{original}' is too large.", f"It has over {MOST_IMAGE:,} bytes.", "Make it smaller."
            )
        with self.lock:
            path = self._stored(content, original)
            image = f"{UPLOADED}{path.stem}-{original}"
            self._uploads[image] = path
        return image

    def _stored(self, content: bytes, original: str) -> Path:
        path = Path(self._upload_folder.name) / f"{hashlib.sha256(content).hexdigest()[:12]}.image"
        if not path.exists():
            path.write_bytes(content)
        self._original_names[path] = original
        return path

    def _with_original_names(self, error: RegardError) -> RegardError:
        """The same error, naming uploaded files as the user knows them."""
        lines = [error.what, error.why, error.fix]
        for path, original in self._original_names.items():
            lines = [line.replace(str(path), original) for line in lines]
        return type(error)(*lines)

    def image(self, name: str) -> Path:
        """The file of an image: a sample of the run, the command's argument, an upload, or a data: address."""
        if name.startswith("data:"):
            return self._from_data_address(name)
        if name in self._uploads:
            return self._uploads[name]
        if name.startswith(UPLOADED):
            raise UsageError(
                f"The image '{name.removeprefix(UPLOADED).partition('-')[2]}' is no longer here.",
                "Images opened on the page are deleted when the command ends.",
                "Open the file again, or choose another image.",
            )
        if name not in self.images:
            raise UsageError(
                f"'{name}' is not an image of this page.",
                "It is not one of the run's samples.",
                "Open the file instead.",
            )
        return self.images[name]

    def _from_data_address(self, address: str) -> Path:
        try:
            content = base64.b64decode(address.partition(",")[2], validate=True)
        except (ValueError, binascii.Error):
            raise UsageError("The image cannot be read.", "It is not valid base64.", "Open it again.") from None
        return self._stored(content, "in the address")


def _number(name: str, value: Any) -> int | None:
    """A number from 1; None for 1 itself, so that an input has one form."""
    digits = "" if value is None else str(value).strip()
    if digits and not (type(value) in (int, str) and digits.isascii() and digits.isdigit() and 0 < len(digits) < 10):
        raise UsageError(f"The {name} is not a number.", f"It is {value!r:.80}.", "Use 1 or more.")
    return int(digits) if digits and int(digits) != 1 else None


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
def tokens_must_fit() -> Iterator[None]:
    """Turn a model's own errors about too many or too few tokens into one for the user; limits differ by model."""
    try:
        yield
    except (IndexError, RuntimeError, ValueError) as error:
        raise UsageError(
            "These tokens do not fit this model.",
            "There are more, or fewer, than it can read.",
            "Use the original number of tokens.",
        ) from error


def with_tokens(subject: Subject, tokens: Any, written: Any = 0) -> Subject:
    """The subject with these ids in place of its own. `written`: how many of the last ones the model wrote."""
    if subject.with_tokens is None:
        raise UsageError(
            "The tokens of this input cannot be changed.", "They are not words.", "Change the input instead."
        )
    embeds: list[Any] = [stack.embed for stack in subject.stacks]
    if not isinstance(tokens, list) or len(tokens) != len(embeds):
        raise UsageError("These tokens cannot be read.", "They are not one list per stack.", "Choose them again.")
    for ids, embed in zip(tokens, embeds, strict=True):
        _ids(ids, embed.table.num_embeddings)
    if not isinstance(written, int) or not 0 <= written < len(tokens[-1]):
        raise UsageError(
            "These tokens cannot be read.",
            f"{written!r:.40} of {len(tokens[-1])} cannot have been generated.",
            "Choose them again.",
        )
    return subject.with_tokens(tokens, written)


def _ids(ids: Any, words: int) -> list[int]:
    """The ids, if they are ids of a vocabulary of this many words."""
    if not isinstance(ids, list) or not ids or any(type(i) is not int or not 0 <= i < words for i in ids):
        raise UsageError(
            "These tokens cannot be read.",
            f"They are not ids from 0 to {words - 1}.",
            "Choose them from the vocabulary.",
        )
    return ids


def _samples(task: Task[Any]) -> list[Path]:
    return sorted(
        task.folder.samples.glob("*.png"),
        key=lambda path: (int(path.stem) if path.stem.isdigit() else 10**9, path.name),
    )


def canonical(content: Any) -> str:
    """The same text for the same content; source.js writes it in the same way."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
