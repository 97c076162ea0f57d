"""The page as one file: the same modules, with the answers about one input in it.

What the page will ask for is asked here, and the answers are kept under the text of their questions; so the page
does not know that there is no server. Matrices fill the file up to its size: attention first, reduced where it must be,
then the rest, layer by layer. What did not fit, or would take too long, is said on the page where it would stand.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, permutations
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.explore.arrays import PACKING
from regard.explore.matrices import OF_ATTENTION, matrix
from regard.explore.page import index
from regard.explore.questions import answer, runs
from regard.explore.session import Looked, Session, canonical
from regard.explore.stages import READERS
from regard.explore.steps import first_position, likeliest, steps
from regard.explore.training import checkpoints
from regard.files import write_atomically, writing
from regard.inside.attribution import METHODS
from regard.layers.windows import WindowAttention

SIZES = {256: 4_800_000, 512: 15_500_000}  # bytes of a file, by the positions of its longest stack
MOST_CHANGES = 2_000  # heads, parts and positions that are switched off one by one
MOST_CHANGED = 100_000  # answers that all of these have together
MOST_EXPLAINED = 24  # answers, each by itself
WORK = 3e12  # multiplications that may be spent on what changes: minutes on two cores
LEAST = 1e7  # that a position takes however small the model is, about: the work around them
PASSES = 600  # of the model, that an attribution with its faithfulness takes, about
SIDES = (512, 256, 128, 64)  # rows and columns of attention: the most that fits
SMALLEST = 2_000  # bytes of a matrix, about
DIGITS = 7
MOST_ANSWERS = 100  # to whose logits the contributions are kept: the last ones
MOST_POSITIONS = 96  # of a matrix that is an answer, not packed
QUICK_INFLUENCE = 40  # positions up to which it is computed without being asked, as on the page (mixers.js)
MOST_WORDS = 100  # of an input, of which the neighbours are kept
Question = tuple[str, dict[str, Any]]


def write_page(session: Session, path: Path) -> list[str]:
    """Write the page; what was left out of it, in words."""
    content, left_out = recorded(session)
    title = f"{session.tasks[0].folder.path.name} – Regard"
    page = index(json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"), title)
    with writing(path, "Choose a writable path with -o."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page.encode())
    return left_out


def recorded(session: Session) -> tuple[dict[str, Any], list[str]]:
    answers: dict[str, Any] = {}
    names: list[Name] = []
    for run in range(len(session.tasks)):
        given = session.input_for(run, session.first)
        looked = session.looked(run, given)
        ask = partial(_ask, session, answers, run)
        for what, options in questions(looked):
            ask(given, what, options)
        names += [(looked, given, name) for name in matrix_names(looked)]
        if hasattr(looked.task, "complete"):  # what the model made of half the image is looked into as well
            completed = {"image": ask(given, "complete", {})["picture"]}
            ask(completed, "look", {})
            looked = session.looked(run, completed)
            names += [(looked, completed, f"{part.name}.weights") for part in looked.trace.parts() if part.attends]
    for run, other in permutations(range(len(session.tasks)), 2):
        ours, theirs = (session.looked(each, session.input_for(each, session.first)) for each in (run, other))
        for what, options in compared(ours, theirs):
            _ask(session, answers, other, theirs.given, what, options)
    first = session.looked(0, session.first)
    packed = _packed(answers)
    matrices, said = _filled(names, _room(first) - len(packed))
    content = {"runs": runs(session), "first": session.first, "answers": packed, "matrices": matrices}
    return content, [*_too_long(first), *said]


def _ask(
    session: Session, answers: dict[str, Any], run: int, given: dict[str, Any], what: str, options: dict[str, Any]
) -> Any:
    """An answer, and that it was asked; None where there is none."""
    key = canonical({"run": run, "input": given, "what": what, "options": options})
    try:
        answers[key] = {"value": answer(session, run, given, what, options)}
    except RegardError as error:
        answers[key] = {"error": {"what": error.what, "why": error.why, "fix": error.fix}}
    return answers[key].get("value")


def _packed(answers: dict[str, Any]) -> str:
    """The answers as JSON, gzipped, in base64: numbers have a few digits, and labels stand there many times."""
    raw = json.dumps(_rounded(answers), ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(raw, PACKING, mtime=0)).decode()


def answers_in(content: dict[str, Any]) -> dict[str, Any]:
    """What was packed: answers, or errors in their place, by the text of their questions."""
    answers: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(content["answers"])))
    return answers


def _rounded(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(each) for each in content]
    return float(f"{content:.{DIGITS}g}") if isinstance(content, float) else content


def _room(looked: Looked) -> int:
    """Bytes that are left beside the page itself."""
    size = next((size for most, size in SIZES.items() if _longest(looked) <= most), max(SIZES.values()))
    return size - len(index("0").encode())


Name = tuple[Looked, dict[str, Any], str]


def _filled(names: list[Name], room: int) -> tuple[dict[str, Any], list[str]]:
    """As many matrices as there is room for; and, in words, what was reduced or left out."""
    attention = [name for name in names if name[2].endswith(".weights")]
    kept = _attention(attention, room)
    room -= sum(entry.size for entry in kept)
    reduced = sum(max(entry.head["step"]) > 1 for entry in kept)
    for name in names:
        if name[2].endswith(".weights") or room < SMALLEST:
            continue
        entry = _entry(name)
        if entry.size <= room:
            kept.append(entry)
            room -= entry.size
    said = []
    if reduced:
        said.append(f"{reduced} of {len(attention)} attention maps are reduced: each cell is the maximum of a block.")
    if len(kept) < len(names):
        said.append(
            f"{len(names) - len(kept)} of {len(names)} matrices did not fit the size limit; the page marks the gaps."
        )
    return {entry.key: {"head": entry.head, "data": entry.data} for entry in kept}, said


def _attention(names: list[Name], room: int) -> list[Entry]:
    """Of every layer; while all together are too large, the largest has fewer rows and columns."""
    kept, sides = [_entry(name) for name in names], [0] * len(names)
    while sum(entry.size for entry in kept) > room:
        coarser = [n for n, side in enumerate(sides) if side + 1 < len(SIDES)]
        if not coarser:
            break
        worst = max(coarser, key=lambda n: kept[n].size)
        sides[worst] += 1
        kept[worst] = _entry(names[worst], SIDES[sides[worst]])
    return kept


@dataclass(frozen=True)
class Entry:
    """A matrix as it stands in the file."""

    key: str
    head: dict[str, Any]
    data: str

    @property
    def size(self) -> int:
        return len(self.data) + len(json.dumps({self.key: self.head}, ensure_ascii=False).encode())


def _entry(name: Name, most: int = SIDES[0]) -> Entry:
    looked, given, of = name
    made = matrix(looked, of, most=most, compact=True)
    key = canonical({"run": looked.run, "input": given, "name": of})
    return Entry(key, made.head, base64.b64encode(made.packed()).decode())


def passes(looked: Looked) -> int:
    """How many passes of the model the file may cost."""
    parameters = sum(parameter.numel() for parameter in looked.task.model.parameters())
    return int(WORK / ((parameters + LEAST) * _longest(looked)))


def _too_long(looked: Looked) -> list[str]:
    """What is left out because it would take long, in words."""
    said = []
    answers, split = len(looked.trace.subject.answers), _split(looked)
    if split < answers:
        said.append(f"Contributions are included for {split} of {answers} answers.")
    if not _scored(looked):
        said.append("Head scores are omitted (one forward pass per head).")
    methods, done = len(METHODS), sum(1 for _ in attributions(looked))
    if done < methods:
        said.append(f"{methods - done} of {methods} attribution methods are omitted: they would take minutes.")
    every, some = sum(1 for _ in single_changes(looked)), _changes(looked)
    if some < every:
        said.append(f"{every - some} of {every} ablations are omitted; heads are included first.")
    return said


def _scored(looked: Looked) -> bool:
    """Whether heads are switched off one by one, to tell what each does."""
    return sum(part.heads for part in looked.trace.parts()) <= passes(looked)


def _split(looked: Looked) -> int:
    """Of how many answers it is told what each part added. Each goes over all that was traced."""
    return min(len(looked.trace.subject.answers), MOST_ANSWERS, max(1, passes(looked) // 4))


def _changes(looked: Looked) -> int:
    answers = max(1, len(looked.trace.subject.answers))
    every = sum(1 for _ in single_changes(looked))
    return min(every, MOST_CHANGES, MOST_CHANGED // answers, passes(looked))


def questions(looked: Looked) -> Iterator[Question]:
    """What the views ask about an input, with the options that they begin with."""
    answers = len(looked.trace.subject.answers)
    yield "look", {}
    yield "lens", {}
    yield "norms", {}
    yield from (("contributions", {"answer": number}) for number in _in_turn(looked)[: _split(looked)])
    for number in range(answers):
        yield "candidates", {"answer": number}
        yield "likeliest", {"answer": number}
    if hasattr(looked.task, "record_search"):
        yield "beams", {}
    elif looked.trace.subject.with_prefix is not None:
        yield "continuation", {}
    for stack in looked.trace.stacks:
        for layer in range(len(stack.layers)):
            yield "steps", {"stack": stack.name, "layer": layer}
    yield from cells(looked)
    yield from about_mixers(looked)
    yield from about_words(looked)
    yield from about_training(looked)
    yield from attributions(looked)
    yield from about_images(looked)
    yield from (("ablate", options) for options in islice(single_changes(looked), _changes(looked)))


def _in_turn(looked: Looked) -> list[int]:
    """All answers, the one that is shown first before the others, and those from the last."""
    first = looked.trace.first_answer
    return sorted(range(len(looked.trace.subject.answers)), key=lambda number: (number != first, -number))


def about_images(looked: Looked) -> Iterator[Question]:
    """Of a picture, and what every head sees in it from where the first answer that is shown is read."""
    if any(stack.stack.grid for stack in looked.trace.stacks):
        yield "image", {}
        first = looked.trace.first_answer
        parts = [part for part in looked.trace.parts() if part.attends]
        yield from (("seen", {"part": part.name, "answer": first}) for part in parts)
        windows = [part.name for part in parts if isinstance(part.module, WindowAttention)]
        yield from (("bias", {"part": part}) for part in windows)


def compared(ours: Looked, theirs: Looked) -> Iterator[Question]:
    """What is asked about another run beside this one (compare.js): at the same places, about the same words."""
    said, told = ours.trace.subject.answers, theirs.trace.subject.answers

    def beside(number: int) -> int:
        """The same place, or the last, if that is last."""
        return len(told) - 1 if number == len(said) - 1 else min(number, len(told) - 1)

    for number in _in_turn(ours)[: _split(ours)]:
        if said[number].label != told[beside(number)].label:
            yield "contributions", {"answer": beside(number), "token": said[number].label}
    if any(stack.stack.grid for stack in theirs.trace.stacks):
        first = beside(ours.trace.first_answer)
        yield from (("seen", {"part": part.name, "answer": first}) for part in theirs.trace.parts() if part.attends)


def attributions(looked: Looked) -> Iterator[Question]:
    """By every method for the answer that is shown first; by the first method for the others, if they are few."""
    answer, *others = _in_turn(looked)
    affordable = passes(looked) // PASSES
    asked = [("attribution", {"method": method, "answer": answer}) for method in METHODS]
    if len(others) < MOST_EXPLAINED:
        method = next(iter(METHODS))
        asked += [("attribution", {"method": method, "answer": number}) for number in others]
    yield from asked[:affordable]


def about_mixers(looked: Looked) -> Iterator[Question]:
    """Scores of heads; influence and operators, which grow with the square of the length."""
    parts = list(looked.trace.parts())
    if any(part.attends for part in parts) and _scored(looked):
        yield "heads", {}
    if _longest(looked) <= QUICK_INFLUENCE:
        yield "influence", {}
    if _longest(looked) <= MOST_POSITIONS:
        for part in [part.name for part in parts if hasattr(part.module, "toeplitz")][:1]:
            yield from ((what, {"part": part}) for what in ("filters", "toeplitz", "operator"))


def about_words(looked: Looked) -> Iterator[Question]:
    subject = looked.trace.subject
    for stack, ids in zip(subject.stacks, subject.tokens or (), strict=False):
        yield "projection", {"stack": stack.name}
        tokens = list(dict.fromkeys(ids))[:MOST_WORDS]
        yield from (("neighbours", {"stack": stack.name, "token": token}) for token in tokens)
    if subject.tokens:
        yield "merges", {}
    yield "rotations", {"stack": subject.stacks[0].name}


def about_training(looked: Looked) -> Iterator[Question]:
    yield "curves", {}
    yield "checkpoints", {}
    last = [part.name for part in looked.trace.parts() if part.attends][-1:]
    for step in (*({"step": step} for step in checkpoints(looked)["shown"]), {}):
        yield "at_checkpoint", step
        yield "at_checkpoint", step | {"what": "lens"}
        if _longest(looked) <= MOST_POSITIONS:
            yield from (("at_checkpoint", step | {"what": "weights", "part": part}) for part in last)


def _longest(looked: Looked) -> int:
    return max(len(stack.pieces) for stack in looked.trace.subject.stacks)


def cells(looked: Looked) -> Iterator[Question]:
    """The arithmetic that a walk begins with: of the first number of every vector, in the first layer and head."""
    for stack in looked.trace.stacks:
        position = first_position(looked, stack)
        answers = looked.trace.subject.answers
        answer = next((n for n, each in enumerate(answers) if each.position in (None, position)), None)
        for show in (show for step in steps(looked, stack.name)["steps"] for show in step["shows"]):
            row = position if show["rows"] else answer
            if row is not None and show["draw"] in ("strip", "bars"):
                column = 0 if show["draw"] == "strip" else likeliest(looked, row)["tokens"][0]
                head = {"head": 0} if show["heads"] else {}
                yield "arithmetic", {"name": show["matrix"], "row": row, "column": column} | head


def single_changes(looked: Looked) -> Iterator[dict[str, Any]]:
    """Every head, part, layer and position switched off alone."""
    parts = list(looked.trace.parts())
    yield from ({"heads": [f"{part.name}.{head}"]} for part in parts for head in range(part.heads))
    yield from ({"parts": [part.name]} for part in parts)
    yield from ({"layers": [layer.name]} for stack in looked.trace.stacks for layer in stack.layers)
    for stack in looked.trace.stacks:
        yield from ({"positions": [[stack.name, position]]} for position in range(len(stack.stack.pieces)))


def matrix_names(looked: Looked) -> Iterator[str]:
    """Those of every part that a view may ask for, the most looked at first."""
    parts = list(looked.trace.parts())
    yield from (f"{part.name}.weights" for part in parts if part.attends)
    yield "logits"
    for stack in looked.trace.stacks:
        yield from (f"{stack.name}.{what}" for what in ("content", "position", "constant", "residual"))
    for part in parts:
        yield from (f"{part.name}.{what}" for what in OF_ATTENTION if part.attends and what != "weights")
        yield from (f"{part.name}.{what}" for what in ("read", "wrote"))
    yield from (name for name in of_steps(looked) if name.rpartition(".")[2] in READERS)


def of_steps(looked: Looked) -> Iterator[str]:
    """Every matrix of the walk that is drawn whole."""
    names: dict[str, None] = {}
    for stack in looked.trace.stacks:
        for layer in range(len(stack.layers)):
            shows = [show for step in steps(looked, stack.name, layer)["steps"] for show in step["shows"]]
            names |= dict.fromkeys(show["matrix"] for show in shows if show["draw"] != "bars")
    yield from names
