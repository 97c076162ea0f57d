"""Trace: everything that a model computed for one input, part by part.

The fast path never stores attention weights. A trace runs the model unchanged and records the input and output of every
part; attention weights are recomputed from the recorded inputs. To verify them, the model runs a second time with every
mixer replaced by its formula: `difference` is the largest change of a logit.

Shapes: B batch, of one · T positions · A answers · W words or classes · D model width · X heads, concatenated
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean
from regard.inside.embedded import embedded
from regard.inside.formulas import formula_output, has_formula
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.sites import PARTS, watching
from regard.inside.subject import Stack, Subject, check_length, unfused_eval
from regard.layers.block import Block
from regard.layers.context import Context
from regard.models.swin import PatchMerging

if TYPE_CHECKING:
    from regard.inside.ablation import Ablated, By
    from regard.inside.alignment import Reading
    from regard.inside.attribution import Attribution, Method
    from regard.inside.candidates import Candidates
    from regard.inside.heads import Score
    from regard.inside.lens import Lens
    from regard.inside.named import Named
    from regard.inside.patching import What

MOST_LETTERS = 60  # of the input and the output in a repr


class Trace:
    """The result of `run.trace("A text.")`."""

    def __init__(self, subject: Subject, stacks: list[StackTrace], logits_AW: Tensor):
        self.subject, self.stacks, self.logits_AW = subject, stacks, logits_AW

    def __repr__(self) -> str:
        input_text, output_text = (
            textwrap.shorten(text, MOST_LETTERS, placeholder=" …")
            for text in (self.subject.input_text, self.output_text)
        )
        stacks = "; ".join(map(str, self.stacks))
        return f"Trace({input_text!r} → {output_text!r}; {stacks}; difference {self.difference:.1e})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from regard.inside.notebook import as_html

        return as_html(self)

    @property
    def output_text(self) -> str:
        """The output of the model as text."""
        return self.subject.output_text or self.subject.answers[-1].label

    def __getitem__(self, name: str) -> StackTrace:
        """A stack by its name: trace["encoder"]."""
        for stack in self.stacks:
            if stack.name == name:
                return stack
        known = [stack.name for stack in self.stacks]
        raise UsageError(
            f"There is no stack '{name}'.", f"This model has {', '.join(known)}.", did_you_mean(str(name), known)
        )

    @property
    def last(self) -> StackTrace:
        return self.stacks[-1]

    def parts(self) -> Iterator[PartTrace]:
        for stack in self.stacks:
            for layer in stack.layers:
                yield from layer.parts

    @property
    def p_AW(self) -> Tensor:
        """The probability of every word or class, for each answer."""
        return self.subject.log_p(self.logits_AW).exp()

    @property
    def first_answer(self) -> int:
        """The default answer: that of the subject, else the least certain token of a decoder, or the last answer."""
        answers = self.subject.answers
        if self.subject.first is not None:
            return self.subject.first
        if len(self.subject.stacks) == 1 or self.subject.last.grid:
            return len(answers) - 1
        p_AW = self.p_AW
        return min(range(len(answers)), key=lambda number: float(p_AW[number, answers[number].token]))

    def token(self, token: int | str | None, answer: int) -> int:
        """The id of a token or class, given by its id or name; None: that of the answer itself."""
        if token is None:
            return self.subject.answers[answer].token
        token = self.token_id(token)
        if token in self.subject.never_of(answer):
            raise UsageError(
                f"{self.subject.name_of(token)} cannot be generated at this position.",
                "It is never generated there.",
                "Choose another token.",
            )
        return token

    def token_id(self, token: int | str) -> int:
        """The id of a token or class by its name: as it is, with a space before it, or as pictures show it."""
        subject, count = self.subject, self.logits_AW.shape[-1]
        if isinstance(token, int) and not isinstance(token, bool) and 0 <= token < count:
            return token
        if not isinstance(token, str):
            raise UsageError(f"There is no token {token}.", f"There are {count:,}.", f"Use one from 0 to {count - 1}.")
        names = [subject.name_of(number) for number in range(count)]
        stripped = [name.strip() for name in names]
        as_typed = token.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")
        for name, known in ((token, names), (f" {token}", names), (as_typed, names), (token, stripped)):
            if name in known:
                return known.index(name)
        if count < 50:  # classes, or tokens so few that they can be listed
            raise UsageError(f"The model has no output '{token}'.", f"It has {count}.", did_you_mean(token, stripped))
        raise UsageError(
            f"The model has no token '{token}'.",
            "A word may be several tokens; --what tokens shows those of a text.",
            "Choose one of its tokens.",
        )

    def lens(self) -> Lens:
        """The logit lens: what the model would predict after each layer."""
        from regard.inside.lens import lens

        return lens(self)

    def candidates(self, count: int = 10, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Candidates:
        """The most probable tokens for each answer, and the probability that each is sampled with these settings."""
        from regard.inside.candidates import candidates

        return candidates(self, count, temperature, top_k, top_p)

    def force(self, answer: int, token: int | str, more: int | None = None) -> Trace:
        """The trace with this token forced as that answer, and the rest regenerated."""
        from regard.inside.forcing import force

        answer = self.subject.answer_index(answer)
        return trace(force(self.subject, answer, self.token(token, answer), more))

    def contributions(self, answer: int | str | None = None, token: int | str | None = None) -> Named:
        """What each head and part added to the logit of an answer, or of another token in its place.

        `contributions("alte")`: of the answer "alte"; if there is none, of "alte" in place of the default answer.
        """
        from regard.inside.contributions import contributions

        if isinstance(answer, str):
            labels = [answer.label.strip() for answer in self.subject.answers]
            token, answer = (token, labels.index(answer)) if answer in labels else (answer, None)
        return contributions(self, self.first_answer if answer is None else answer, token)

    def ablate(
        self,
        heads: str | Sequence[str] = (),
        parts: str | Sequence[str] = (),
        layers: str | Sequence[str] = (),
        positions: Sequence[tuple[str, int]] = (),
        by: By = "zero",
        reference: Sequence[Trace] | None = None,
    ) -> Ablated:
        """The output with these switched off: heads "decoder.0.cross.3", positions ("encoder", 3)."""
        from regard.inside.ablation import Off, ablated

        off = Off(_as_names(heads), _as_names(parts), _as_names(layers), _as_positions(positions))
        return ablated(self, off, by, reference)

    def patch(
        self,
        from_: Trace,
        what: What = "residual",
        answer: int | None = None,
        tokens: tuple[int | str, int | str] | None = None,
    ) -> Named:
        """How far each activation of another input, patched in here, moves the output towards that of the other."""
        from regard.inside.patching import patch

        return patch(self, from_, what, answer, tokens)

    def rollout(self, stack: str = "") -> Named:
        """How much of each input position is in each output position of a stack, by its attention."""
        from regard.inside.rollout import rollout

        return rollout(self, stack)

    def attribute(
        self,
        method: Method = "integrated-gradients",
        answer: int | None = None,
        token: int | str | None = None,
        steps: int | None = None,
    ) -> Attribution:
        """The contribution of each input position to an answer, or to another token in its place."""
        from regard.inside.attribution import attribute

        return attribute(self, method, self.first_answer if answer is None else answer, token, steps)

    def influence(
        self, stack: str = "", part: str = "", source: str = "", probes: int | None = None, seed: int = 0
    ) -> Named:
        """How strongly each output position of a stack or part depends on each input position, of it or of `source`."""
        from regard.inside.influence import influence

        return influence(self, stack, part, source, probes, seed)

    def heads(
        self, scores: Sequence[Score] | None = None, seed: int = 0, period: int | None = None
    ) -> dict[str, Named]:
        """What each head does, in numbers: all scores, or the given ones."""
        from regard.inside.heads import PERIOD, SCORES, heads

        return heads(self, SCORES if scores is None else scores, seed, PERIOD if period is None else period)

    def alignment(self, layer: int | None = None, reading: Reading | None = None, head: int | None = None) -> Named:
        """Which source word each output word comes from. Defaults are chosen on validation text."""
        from regard.inside.alignment import alignment

        return alignment(self, layer, reading, head)

    def operator(self, part: str, channel: int | None = None) -> Named:
        """The Hyena layer "layers.0.mixer" as a matrix: of one channel, or the mean of |M| over all channels."""
        from regard.inside.operator import mean_operator, operator

        hyena, pieces = self._part(part)
        return mean_operator(hyena, pieces) if channel is None else operator(hyena, channel, pieces)

    def filters(self, part: str) -> list[Named]:
        """The filters of the Hyena layer "layers.0.mixer", as long as this input."""
        from regard.inside.operator import filters

        return filters(self._part(part)[0])

    def _part(self, name: str) -> tuple[PartTrace, list[str]]:
        """A part, and the tokens or patches at its positions."""
        for stack in self.stacks:
            for layer in stack.layers:
                for part in layer.parts:
                    if part.name == name:
                        return part, stack.stack.pieces
        names = [part.name for part in self.parts()]
        raise UsageError(f"'{name}' is not a part of this model.", "There is no such part.", did_you_mean(name, names))

    @cached_property
    def difference(self) -> float:
        """The largest change of a logit when every mixer is recomputed from its formula (formulas.py)."""
        with _by_formula(self.subject):
            formula_AW = self.subject.logits()[0]
        finite_AW = torch.isfinite(formula_AW) | torch.isfinite(self.logits_AW)
        return float((formula_AW - self.logits_AW)[finite_AW].abs().max())


@torch.no_grad()
def trace(subject: Subject) -> Trace:
    """Run the model on the subject, and record what every part read and wrote."""
    check_length(max(len(stack.pieces) for stack in subject.stacks))
    keep = [f"{stack.name}.{n}.{part}.heads" for stack in subject.stacks for n, part in _with_heads(stack)]
    with _recording(subject) as recorded, watching(subject, keep) as joined:
        logits_AW = subject.logits()[0]
    stacks = []
    for stack in subject.stacks:
        layers = []
        for number, block in enumerate(stack.blocks):
            name = f"{stack.name}.{number}"
            parts = [
                _part(f"{name}.{part}", block, *recorded[f"{name}.{part}"], joined.get(f"{name}.{part}.heads"))
                for part in PARTS
                if getattr(block, part) is not None
            ]
            inputs, after_BTD = recorded[name]
            layers.append(LayerTrace(name, block, inputs[0][0], parts, after_BTD[0]))
        inputs, output_BTD = recorded[f"{stack.name}.embedding"]
        stacks.append(StackTrace(stack, embedded(stack.embed, inputs, output_BTD), layers))
    return Trace(subject, stacks, logits_AW)


def _as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """A single name counts as a list of one."""
    listed = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    for name in listed:
        if not isinstance(name, str):
            raise UsageError(
                f"{name!r} is not a name.",
                "Heads, parts and layers are given by name.",
                'A head is named like "decoder.0.cross.3".',
            )
    return listed


def _as_positions(positions: Any) -> tuple[tuple[str, int], ...]:
    """Pairs of a stack and a position in it."""
    listed = tuple(positions) if isinstance(positions, Iterable) else (positions,)
    for pair in listed:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise UsageError(
                f"{pair!r} is not a position.",
                "A position is a pair: the name of a stack, and a number.",
                'Use a list such as [("encoder", 3)].',
            )
    return tuple((stack, position) for stack, position in listed)


def input_stacks(trace: Trace) -> list[StackTrace]:
    """The stacks that read the input; later stages of a Swin read merged patches of the stage before."""
    return [stack for stack in trace.stacks if not isinstance(stack.stack.embed, PatchMerging)]


def _with_heads(stack: Stack) -> Iterator[tuple[int, str]]:
    for number, block in enumerate(stack.blocks):
        for part in PARTS:
            if getattr(getattr(block, part), "heads", 0):
                yield number, part


def _part(name: str, block: Block, inputs: tuple[Any, ...], output_BTD: Tensor, joined: Tensor | None) -> PartTrace:
    part = name.rpartition(".")[2]
    scale_D = block.scales.get(part, None)
    context = inputs[1] if len(inputs) > 1 else None
    wrote_TD = output_BTD[0] if scale_D is None else output_BTD[0] * scale_D
    joined_TX = joined[0] if joined is not None else None
    return PartTrace(name, getattr(block, part), inputs[0][0], wrote_TD, context, joined_TX, scale_D)


@contextmanager
def _recording(subject: Subject) -> Iterator[dict[str, tuple[tuple[Any, ...], Tensor]]]:
    """Inside, the inputs and the output of every embedding, block and part are recorded, by name."""
    recorded: dict[str, tuple[tuple[Any, ...], Tensor]] = {}
    handles = []

    def watch(name: str, module: nn.Module) -> None:
        def record(_: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            recorded[name] = inputs, output

        handles.append(module.register_forward_hook(record))

    for stack in subject.stacks:
        watch(f"{stack.name}.embedding", stack.embed)
        for number, block in enumerate(stack.blocks):
            watch(f"{stack.name}.{number}", block)
            for part in PARTS:
                if getattr(block, part) is not None:
                    watch(f"{stack.name}.{number}.{part}", getattr(block, part))
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _by_formula(subject: Subject) -> Iterator[None]:
    """Inside, the output of every mixer and cross-attention is replaced by that of its formula."""
    handles = []
    for stack in subject.stacks:
        for block in stack.blocks:
            for part in (block.mixer, block.cross):
                if part is not None and has_formula(part):

                    def by_formula(module: Any, inputs: tuple[Tensor, Context], output: Tensor) -> Tensor:
                        return formula_output(module, *inputs)

                    handles.append(part.register_forward_hook(by_formula))
    with unfused_eval(subject.model):
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
