"""The page as one file: the same modules, with the answers about one input inside.

Everything that the page will ask is asked here, and answers are stored under the text of their questions, so the page
does not notice that there is no server. Matrices fill the file up to its size limit: attention first, max-pooled if
necessary, then the others, layer by layer. Where something did not fit or would take too long, the page says so.
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
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.explore.arrays import COMPRESSION
from regard.explore.matrices import OF_ATTENTION, matrix
from regard.explore.page import index
from regard.explore.questions import answer, runs
from regard.explore.session import Session, TracedInput, canonical
from regard.explore.stages import STAGES
from regard.explore.steps import first_position, likeliest, steps
from regard.explore.training import checkpoints
from regard.files import write_atomically, writing
from regard.inside.attribution import METHODS
from regard.layers.windows import WindowAttention

SIZES = {256: 4_800_000, 512: 15_500_000}  # bytes of a file, by the positions of its longest stack
MOST_ABLATIONS = 2_000  # heads, parts, layers and positions that are switched off one by one
MOST_ABLATED_ANSWERS = 100_000  # answers of all ablations together
MOST_ATTRIBUTED = 24  # answers with an attribution
MOST_CONTRIBUTIONS = 100  # answers whose logits are split into contributions: the last ones
MOST_POSITIONS = 96  # of a matrix that is an answer, which is not packed
MOST_WORDS = 100  # of an input, whose neighbours are included
WORK = 3e12  # multiplications to spend on ablations: minutes on two cores
OVERHEAD = 1e7  # multiplications that take as long as everything else at a position, however small the model
PASSES = 600  # of the model, for one attribution with its faithfulness
QUICK_INFLUENCE = 40  # positions up to which the page computes influence without being asked (mixers.js)
SIDES = (512, 256, 128, 64)  # rows and columns of an attention map: the largest that fits
MOST_NAMES = 3  # of matrices that did not fit
SMALLEST = 2_000  # bytes of a matrix, about
DIGITS = 7
Question = tuple[str, dict[str, Any]]  # its name and its options


def write_page(session: Session, path: Path) -> list[str]:
    """Write the page; returns sentences about what was left out."""
    content, omissions = recorded(session)
    title = f"{session.tasks[0].folder.path.name} – Regard"
    page = index(json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"), title)
    with writing(path, "Choose a writable path with -o."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page.encode())
    return omissions


def recorded(session: Session) -> tuple[dict[str, Any], list[str]]:
    """The content of the file, and sentences about what was left out."""
    answers: dict[str, Any] = {}
    requests: list[MatrixRequest] = []
    for run in range(len(session.tasks)):
        fields = session.input_for(run, session.first)
        traced = session.traced(run, fields)
        ask = partial(_ask, session, answers, run)
        for what, options in questions(traced):
            ask(fields, what, options)
        requests += [MatrixRequest(traced, fields, name) for name in matrix_names(traced)]
        if hasattr(traced.task, "complete"):  # a completed image is looked into as well
            completed = {"image": ask(fields, "complete", {})["picture"]}
            ask(completed, "overview", {})
            traced = session.traced(run, completed)
            names = [f"{part.name}.weights" for part in traced.trace.parts() if part.attends]
            requests += [MatrixRequest(traced, completed, name) for name in names]
    for run, other in permutations(range(len(session.tasks)), 2):
        ours, theirs = (session.traced(each, session.input_for(each, session.first)) for each in (run, other))
        for what, options in comparison_questions(ours, theirs):
            _ask(session, answers, other, theirs.fields, what, options)
    first = session.traced(0, session.first)
    packed = _packed(answers)
    matrices, omitted_matrices = _fitted(requests, _room(first) - len(packed))
    content = {"runs": runs(session), "first": session.first, "answers": packed, "matrices": matrices}
    return content, [*_omitted_work(first), *omitted_matrices]


def _ask(
    session: Session, answers: dict[str, Any], run: int, fields: dict[str, Any], what: str, options: dict[str, Any]
) -> Any:
    """Record the answer to a question, or its error; returns the answer, if there is one."""
    key = canonical({"run": run, "input": fields, "what": what, "options": options})
    try:
        answers[key] = {"value": answer(session, run, fields, what, options)}
    except RegardError as error:
        answers[key] = {"error": {"what": error.what, "why": error.why, "fix": error.fix}}
    return answers[key].get("value")


def _packed(answers: dict[str, Any]) -> str:
    """JSON, gzipped, in base64. Numbers are rounded; labels, which recur often, compress well."""
    raw = json.dumps(_rounded(answers), ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(raw, COMPRESSION, mtime=0)).decode()


def unpacked_answers(content: dict[str, Any]) -> dict[str, Any]:
    """The answers in a recording, or errors in their place, by the text of their questions."""
    answers: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(content["answers"])))
    return answers


def _rounded(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(value) for value in content]
    return float(f"{content:.{DIGITS}g}") if isinstance(content, float) else content


# ---------------------------------------------------------------- matrices


class MatrixRequest(NamedTuple):
    """A matrix that the page may ask for. `fields`: the input as the page names it, before it is checked."""

    traced: TracedInput
    fields: dict[str, Any]
    name: str

    @property
    def key(self) -> str:
        return canonical({"run": self.traced.run, "input": self.fields, "name": self.name})


@dataclass(frozen=True)
class RecordedMatrix:
    key: str
    head: dict[str, Any]
    data: str

    @property
    def size(self) -> int:
        return len(self.data) + len(json.dumps({self.key: self.head}, ensure_ascii=False).encode())


def _room(traced: TracedInput) -> int:
    """Bytes left for answers and matrices beside the page itself."""
    size = next((size for most, size in SIZES.items() if traced.longest <= most), max(SIZES.values()))
    return size - len(index("0").encode())


def _fitted(requests: list[MatrixRequest], room: int) -> tuple[dict[str, Any], list[str]]:
    """As many matrices as there is room for, and sentences about what was reduced or left out."""
    attention = [request for request in requests if request.name.endswith(".weights")]
    matrices = _fitted_attention(attention, room)
    room -= sum(recording.size for recording in matrices)
    reduced = sum(max(recording.head["step"]) > 1 for recording in matrices)
    for request in requests:
        if request.name.endswith(".weights") or room < SMALLEST:
            continue
        recording = _recorded_matrix(request)
        if recording.size <= room:
            matrices.append(recording)
            room -= recording.size
    omissions = []
    if reduced:
        omissions.append(
            f"{reduced} of {len(attention)} attention maps are reduced: each cell is the maximum of a block."
        )
    included = {recording.key for recording in matrices}
    missing = [request.name for request in requests if request.key not in included]
    if missing:
        names = ", ".join([*missing[:MOST_NAMES], *["…"] * (len(missing) > MOST_NAMES)])
        omissions.append(
            f"{len(missing)} of {len(requests)} matrices did not fit the size limit ({names}); the page marks the gaps."
        )
    return {recording.key: {"head": recording.head, "data": recording.data} for recording in matrices}, omissions


def _fitted_attention(requests: list[MatrixRequest], room: int) -> list[RecordedMatrix]:
    """Every attention map. While they are too large together, the largest gets fewer rows and columns."""
    matrices, sides = [_recorded_matrix(request) for request in requests], [0] * len(requests)
    while sum(recording.size for recording in matrices) > room:
        reducible = [n for n, side in enumerate(sides) if side + 1 < len(SIDES)]
        if not reducible:
            break
        largest = max(reducible, key=lambda n: matrices[n].size)
        sides[largest] += 1
        matrices[largest] = _recorded_matrix(requests[largest], SIDES[sides[largest]])
    return matrices


def _recorded_matrix(request: MatrixRequest, most: int = SIDES[0]) -> RecordedMatrix:
    packed = matrix(request.traced, request.name, most=most, compact=True)
    return RecordedMatrix(request.key, packed.head, base64.b64encode(packed.packed()).decode())


def matrix_names(traced: TracedInput) -> Iterator[str]:
    """The matrices that a view may ask for, the most useful first."""
    parts = list(traced.trace.parts())
    yield from (f"{part.name}.weights" for part in parts if part.attends)
    yield "logits"
    for stack in traced.trace.stacks:
        yield from (f"{stack.name}.{quantity}" for quantity in ("content", "position", "constant", "residual"))
    for part in parts:
        yield from (f"{part.name}.{quantity}" for quantity in OF_ATTENTION if part.attends and quantity != "weights")
        yield from (f"{part.name}.{quantity}" for quantity in ("read", "wrote"))
    yield from (name for name in _step_matrices(traced) if name.rpartition(".")[2] in STAGES)


def _step_matrices(traced: TracedInput) -> Iterator[str]:
    """Every matrix that the walk draws in full."""
    names: dict[str, None] = {}
    for stack in traced.trace.stacks:
        for layer in range(len(stack.layers)):
            figures = [figure for step in steps(traced, stack.name, layer)["steps"] for figure in step["figures"]]
            names |= dict.fromkeys(figure["matrix"] for figure in figures if figure["draw"] != "bars")
    yield from names


# ---------------------------------------------------------------- what is affordable


def affordable_passes(traced: TracedInput) -> int:
    """How many forward passes the file may cost."""
    parameters = sum(parameter.numel() for parameter in traced.task.model.parameters())
    return int(WORK / ((parameters + OVERHEAD) * traced.longest))


def _omitted_work(traced: TracedInput) -> list[str]:
    """Sentences about what is left out because it would take long."""
    omissions = []
    answers, split = len(traced.trace.subject.answers), _count_contributions(traced)
    if split < answers:
        omissions.append(f"Contributions are included for {split} of {answers} answers.")
    if not _has_head_scores(traced):
        omissions.append("Head scores are omitted (one forward pass per head).")
    methods, included = len(METHODS), sum(1 for _ in attribution_questions(traced))
    if included < methods:
        omissions.append(f"{methods - included} of {methods} attribution methods are omitted: they would take minutes.")
    possible, included = sum(1 for _ in single_ablations(traced)), _count_ablations(traced)
    if included < possible:
        omissions.append(f"{possible - included} of {possible} ablations are omitted; heads are included first.")
    return omissions


def _has_head_scores(traced: TracedInput) -> bool:
    """Scores switch heads off one by one."""
    return sum(part.heads for part in traced.trace.parts()) <= affordable_passes(traced)


def _count_contributions(traced: TracedInput) -> int:
    """How many answers are split into contributions. Each takes about as long as four passes."""
    return min(len(traced.trace.subject.answers), MOST_CONTRIBUTIONS, max(1, affordable_passes(traced) // 4))


def _count_ablations(traced: TracedInput) -> int:
    answers = max(1, len(traced.trace.subject.answers))
    possible = sum(1 for _ in single_ablations(traced))
    return min(possible, MOST_ABLATIONS, MOST_ABLATED_ANSWERS // answers, affordable_passes(traced))


def single_ablations(traced: TracedInput) -> Iterator[dict[str, Any]]:
    """Every head, part, layer and position switched off by itself."""
    parts = list(traced.trace.parts())
    yield from ({"heads": [f"{part.name}.{head}"]} for part in parts for head in range(part.heads))
    yield from ({"parts": [part.name]} for part in parts)
    yield from ({"layers": [layer.name]} for stack in traced.trace.stacks for layer in stack.layers)
    for stack in traced.trace.stacks:
        yield from ({"positions": [[stack.name, position]]} for position in range(len(stack.stack.pieces)))


# ---------------------------------------------------------------- questions


def questions(traced: TracedInput) -> Iterator[Question]:
    """What the views ask about an input, with their initial options."""
    yield "overview", {}
    yield "lens", {}
    yield "norms", {}
    yield from (("contributions", {"answer": n}) for n in _answer_order(traced)[: _count_contributions(traced)])
    for number in range(len(traced.trace.subject.answers)):
        yield "candidates", {"answer": number}
        yield "likeliest", {"answer": number}
    if hasattr(traced.task, "record_search"):
        yield "beams", {}
    elif traced.trace.subject.with_prefix is not None:
        yield "continuation", {}
    for stack in traced.trace.stacks:
        for layer in range(len(stack.layers)):
            yield "steps", {"stack": stack.name, "layer": layer}
    yield from arithmetic_questions(traced)
    yield from mixer_questions(traced)
    yield from word_questions(traced)
    yield from training_questions(traced)
    yield from attribution_questions(traced)
    yield from image_questions(traced)
    yield from (("ablate", options) for options in islice(single_ablations(traced), _count_ablations(traced)))


def _answer_order(traced: TracedInput) -> list[int]:
    """All answers: the one that views start with, then the others from the last to the first."""
    first = traced.trace.first_answer
    return sorted(range(len(traced.trace.subject.answers)), key=lambda number: (number != first, -number))


def arithmetic_questions(traced: TracedInput) -> Iterator[Question]:
    """The arithmetic that a walk begins with: of the first number of every vector, in the first layer and head."""
    for stack in traced.trace.stacks:
        position = first_position(traced, stack)
        answers = traced.trace.subject.answers
        order = sorted(range(len(answers)), key=lambda n: n != traced.trace.first_answer)
        answer = next((n for n in order if answers[n].position in (None, position)), None)
        for figure in (figure for step in steps(traced, stack.name)["steps"] for figure in step["figures"]):
            row = position if figure["rows"] else answer
            if row is not None and figure["draw"] in ("strip", "bars"):
                column = 0 if figure["draw"] == "strip" else likeliest(traced, row)["tokens"][0]
                head = {"head": 0} if figure["heads"] else {}
                yield "arithmetic", {"name": figure["matrix"], "row": row, "column": column} | head


def mixer_questions(traced: TracedInput) -> Iterator[Question]:
    """Scores of heads; influence and operators, whose size is quadratic in the length."""
    parts = list(traced.trace.parts())
    if any(part.attends for part in parts) and _has_head_scores(traced):
        yield "heads", {}
    if traced.longest <= QUICK_INFLUENCE:
        yield "influence", {}
    if traced.longest <= MOST_POSITIONS:
        for part in [part.name for part in parts if hasattr(part.module, "toeplitz")][:1]:
            yield from ((what, {"part": part}) for what in ("filters", "toeplitz", "operator"))


def word_questions(traced: TracedInput) -> Iterator[Question]:
    subject = traced.trace.subject
    for stack, ids in zip(subject.stacks, subject.tokens or (), strict=False):
        yield "projection", {"stack": stack.name}
        tokens = list(dict.fromkeys(ids))[:MOST_WORDS]
        yield from (("neighbours", {"stack": stack.name, "token": token}) for token in tokens)
    if subject.tokens:
        yield "merges", {}
    yield "rotations", {"stack": subject.stacks[0].name}


def training_questions(traced: TracedInput) -> Iterator[Question]:
    yield "curves", {}
    yield "checkpoints", {}
    last = [part.name for part in traced.trace.parts() if part.attends][-1:]
    for step in (*({"step": step} for step in checkpoints(traced)["shown"]), {}):
        yield "at_checkpoint", step
        yield "at_checkpoint", step | {"what": "lens"}
        if traced.longest <= MOST_POSITIONS:
            yield from (("at_checkpoint", step | {"what": "weights", "part": part}) for part in last)


def attribution_questions(traced: TracedInput) -> Iterator[Question]:
    """Every method for the answer that views start with; for the others, if they are few, the first method."""
    answer, *others = _answer_order(traced)
    affordable = affordable_passes(traced) // PASSES
    wanted = [("attribution", {"method": method, "answer": answer}) for method in METHODS]
    if len(others) < MOST_ATTRIBUTED:
        method = next(iter(METHODS))
        wanted += [("attribution", {"method": method, "answer": number}) for number in others]
    yield from wanted[:affordable]


def image_questions(traced: TracedInput) -> Iterator[Question]:
    """The overlays of a picture, and every head's attention from where the first answer is read."""
    if any(stack.stack.grid for stack in traced.trace.stacks):
        yield "image", {}
        first = traced.trace.first_answer
        parts = [part for part in traced.trace.parts() if part.attends]
        yield from (("readout_attention", {"part": part.name, "answer": first}) for part in parts)
        windows = [part.name for part in parts if isinstance(part.module, WindowAttention)]
        yield from (("bias", {"part": part}) for part in windows)


def comparison_questions(ours: TracedInput, theirs: TracedInput) -> Iterator[Question]:
    """What compare.js asks about another run beside this one: the same places, the same words."""
    our_answers, their_answers = ours.trace.subject.answers, theirs.trace.subject.answers
    last = len(their_answers) - 1

    def theirs_for(number: int) -> int:
        """The answer in the same place; the last one for our last one."""
        return last if number == len(our_answers) - 1 else min(number, last)

    for number in _answer_order(ours)[: _count_contributions(ours)]:
        word, answer = our_answers[number].label, theirs_for(number)
        if word != their_answers[answer].label:
            yield "contributions", {"answer": answer, "token": word}
    if any(stack.stack.grid for stack in theirs.trace.stacks):
        answer = theirs_for(ours.trace.first_answer)
        parts = [part.name for part in theirs.trace.parts() if part.attends]
        yield from (("readout_attention", {"part": part, "answer": answer}) for part in parts)
