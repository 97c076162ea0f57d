"""Trace: everything that a model computed for one input, part by part.

The fast path never stores attention weights. A trace runs the model as it is and notes what every part read and wrote;
from what an attention read, its weights are then recomputed by the formula. To show that both are the same, the model
runs a second time with every mixer replaced by its formula: `difference` is how far any logit moved.

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
from regard.inside.formulas import has_formula, written_out
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.sites import PARTS, watching
from regard.inside.subject import Stack, Subject, must_be_short, plainly
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

LETTERS = 60  # of an input or an output, where a trace is told in a line


class Trace:
    """What `run.trace("A text.")` gives."""

    def __init__(self, subject: Subject, stacks: list[StackTrace], logits_AW: Tensor):
        self.subject, self.stacks, self.logits_AW = subject, stacks, logits_AW

    def __repr__(self) -> str:
        given, said = (
            textwrap.shorten(text, LETTERS, placeholder=" …") for text in (self.subject.input_text, self.output_text)
        )
        return f"Trace({given!r} → {said!r}; {'; '.join(map(str, self.stacks))}; difference {self.difference:.1e})"

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        from regard.inside.notebook import as_html

        return as_html(self)

    @property
    def output_text(self) -> str:
        """The output of the model, in words."""
        return self.subject.output_text or self.subject.answers[-1].label

    def __getitem__(self, name: str) -> StackTrace:
        """A stack by its name: trace["encoder"]."""
        for stack in self.stacks:
            if stack.name == name:
                return stack
        known = [stack.name for stack in self.stacks]
        raise UsageError(f"There is no stack '{name}'.", "There is no such stack.", did_you_mean(str(name), known))

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
        """The one looked at if none is named: of words written about something the least certain, else the last."""
        last = len(self.subject.answers) - 1
        if len(self.subject.stacks) == 1 or self.subject.last.grid:
            return last
        p_AW = self.p_AW
        return min(range(last + 1), key=lambda number: float(p_AW[number, self.subject.answers[number].token]))

    def token(self, token: int | str | None, answer: int) -> int:
        """A word or class by its number or its name; None: what was said there."""
        if token is None:
            return self.subject.answers[answer].token
        found = self._token(token)
        if found in self.subject.never_of(answer):
            raise UsageError(
                f"{self.subject.name_of(found)} cannot be generated at this position.",
                "It is never generated there.",
                "Choose another token.",
            )
        return found

    def _token(self, token: int | str) -> int:
        subject, count = self.subject, self.logits_AW.shape[-1]
        if isinstance(token, int) and 0 <= token < count:
            return token
        if not isinstance(token, str):
            raise UsageError(f"There is no token {token}.", f"There are {count:,}.", f"Use one from 0 to {count - 1}.")
        names = [subject.name_of(number) for number in range(count)]
        stripped = [name.strip() for name in names]
        for spelled, known in ((token, names), (f" {token}", names), (token, stripped)):
            if spelled in known:
                return known.index(spelled)
        raise UsageError(
            f"The model has no token '{token}'.",
            "A word may be several tokens; --what tokens shows them.",
            did_you_mean(token, stripped) if count < 50 else "Choose one of its tokens.",
        )

    def lens(self) -> Lens:
        """What the model would say after each layer."""
        from regard.inside.lens import lens

        return lens(self)

    def candidates(self, count: int = 10, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Candidates:
        """What the model could have said at each place, and how likely it is drawn with these settings."""
        from regard.inside.candidates import candidates

        return candidates(self, count, temperature, top_k, top_p)

    def force(self, answer: int, token: int | str, more: int | None = None) -> Trace:
        """The trace with this token as that answer, and what the model writes after it."""
        from regard.inside.forcing import force

        answer = self.subject.place(answer)
        return trace(force(self.subject, answer, self.token(token, answer), more))

    def contributions(self, answer: int | str | None = None, token: int | str | None = None) -> Named:
        """What each head and part added to the logit of an answer, or of another token in its place.

        `contributions("alte")`: where "alte" was said, or of "alte" in place of the first answer.
        """
        from regard.inside.contributions import contributions

        if isinstance(answer, str):
            labels = [each.label.strip() for each in self.subject.answers]
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
        """What the model says with these off: heads "decoder.0.cross.3", positions ("encoder", 3)."""
        from regard.inside.ablation import Off, ablated

        return ablated(self, Off(_names(heads), _names(parts), _names(layers), _positions(positions)), by, reference)

    def patch(
        self,
        from_: Trace,
        what: What = "residual",
        answer: int | None = None,
        tokens: tuple[int, int] | None = None,
    ) -> Named:
        """How far each activation of another input, put in here, leads to what was said about that one."""
        from regard.inside.patching import patch

        return patch(self, from_, what, answer, tokens)

    def rollout(self, stack: str = "") -> Named:
        """How much of each position of the input is in each at the end of a stack, by its attention."""
        from regard.inside.rollout import rollout

        return rollout(self, stack)

    def attribute(
        self,
        method: Method = "integrated-gradients",
        answer: int | None = None,
        token: int | str | None = None,
        steps: int | None = None,
    ) -> Attribution:
        """How much each position of the input speaks for an answer, or for another token in its place."""
        from regard.inside.attribution import attribute

        return attribute(self, method, self.first_answer if answer is None else answer, token, steps)

    def influence(
        self, stack: str = "", part: str = "", of: str = "", probes: int | None = None, seed: int = 0
    ) -> Named:
        """How strongly each position at the end of a stack, or of one part, depends on each that it reads."""
        from regard.inside.influence import influence

        return influence(self, stack, part, of, probes, seed)

    def heads(
        self, scores: Sequence[Score] | None = None, seed: int = 0, period: int | None = None
    ) -> dict[str, Named]:
        """What each head does, in numbers: every score, or those asked for."""
        from regard.inside.heads import PERIOD, SCORES, heads

        return heads(self, SCORES if scores is None else scores, seed, period or PERIOD)

    def alignment(self, layer: int | None = None, reading: Reading | None = None, head: int | None = None) -> Named:
        """Which source word each written word comes from; by default as it was found best on validation text."""
        from regard.inside.alignment import alignment

        return alignment(self, layer, reading, head)

    def operator(self, part: str, channel: int | None = None) -> Named:
        """Hyena at "layers.0.mixer" as a matrix, of one channel; or the mean of the sizes of all."""
        from regard.inside.operator import mean_operator, operator

        found, pieces = self._part(part)
        return mean_operator(found, pieces) if channel is None else operator(found, channel, pieces)

    def filters(self, part: str) -> list[Named]:
        """The filters of Hyena at "layers.0.mixer", as long as this input."""
        from regard.inside.operator import filters

        return filters(self._part(part)[0])

    def _part(self, name: str) -> tuple[PartTrace, list[str]]:
        """A part, and what stands at its positions."""
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
        both = torch.isfinite(formula_AW) | torch.isfinite(self.logits_AW)
        return float((formula_AW - self.logits_AW)[both].abs().max())


@torch.no_grad()
def trace(subject: Subject) -> Trace:
    """Run the model on the subject, and note what every part did."""
    must_be_short(max(len(stack.pieces) for stack in subject.stacks))
    keep = [f"{stack.name}.{n}.{part}.heads" for stack in subject.stacks for n, part in _with_heads(stack)]
    with _noted(subject) as noted, watching(subject, keep) as joined:
        logits_AW = subject.logits()[0]
    stacks = []
    for stack in subject.stacks:
        layers = []
        for number, block in enumerate(stack.blocks):
            name = f"{stack.name}.{number}"
            parts = [
                _part(f"{name}.{part}", block, *noted[f"{name}.{part}"], joined.get(f"{name}.{part}.heads"))
                for part in PARTS
                if getattr(block, part) is not None
            ]
            inputs, after_BTD = noted[name]
            layers.append(LayerTrace(name, block, inputs[0][0], parts, after_BTD[0]))
        inputs, output_BTD = noted[f"{stack.name}.embedding"]
        stacks.append(StackTrace(stack, embedded(stack.embed, inputs, output_BTD), layers))
    return Trace(subject, stacks, logits_AW)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    """One, or several."""
    several = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    for name in several:
        if not isinstance(name, str):
            raise UsageError(
                f"{name!r} is not a name.", "Parts are named.", 'Use such as "decoder.0.cross.3" for a head.'
            )
    return several


def _positions(positions: Any) -> tuple[tuple[str, int], ...]:
    """Pairs of a stack and a position in it."""
    several = tuple(positions) if isinstance(positions, Iterable) else (positions,)
    for each in several:
        if not (isinstance(each, tuple | list) and len(each) == 2 and isinstance(each[0], str)):
            raise UsageError(f"{each!r} is not a position.", "It is in a stack.", 'Use such as [("encoder", 3)].')
    return tuple((stack, position) for stack, position in several)


def input_stacks(trace: Trace) -> list[StackTrace]:
    """Those that read the input: not a stage of a Swin whose patches are made of those of the stage before."""
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
def _noted(subject: Subject) -> Iterator[dict[str, tuple[tuple[Any, ...], Tensor]]]:
    """What went into, and came out of, every embedding, block and part."""
    noted: dict[str, tuple[tuple[Any, ...], Tensor]] = {}
    handles = []

    def watch(name: str, module: nn.Module) -> None:
        def note(_: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            noted[name] = inputs, output

        handles.append(module.register_forward_hook(note))

    for stack in subject.stacks:
        watch(f"{stack.name}.embedding", stack.embed)
        for number, block in enumerate(stack.blocks):
            watch(f"{stack.name}.{number}", block)
            for part in PARTS:
                if getattr(block, part) is not None:
                    watch(f"{stack.name}.{number}.{part}", getattr(block, part))
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _by_formula(subject: Subject) -> Iterator[None]:
    """Inside, every mixer and cross-attention gives what its formula gives."""
    handles = []
    for stack in subject.stacks:
        for block in stack.blocks:
            for part in (block.mixer, block.cross):
                if part is not None and has_formula(part):

                    def by_formula(module: Any, inputs: tuple[Tensor, Context], output: Tensor) -> Tensor:
                        return written_out(module, *inputs)

                    handles.append(part.register_forward_hook(by_formula))
    with plainly(subject.model):
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
