"""Ablation: what the model predicts with some of it switched off.

    head          o_h ← 0, or its mean over positions              o_h: output of the head, before W_out
    part          its output ← 0, or its mean over positions
    layer         all its parts
    position      x_t ← x_t without its content                    x_t: input of the first block
    effect        ln p(answer | off) − ln p(answer)

Means are over all positions of the reference inputs, by default of this input alone. Positions are always emptied,
never averaged. A model that copies words from its source can still copy the word at an emptied position, since it
copies from the text itself.

Shapes: N ablations · B of them in a chunk · T positions · A answers · W words or classes · X width of a site
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from regard.errors import UsageError, did_you_mean
from regard.inside.lens import answer_names
from regard.inside.named import Named, Result, named
from regard.inside.sites import PARTS, sites_of, watching
from regard.inside.subject import Subject
from regard.inside.variants import Read, log_p_of_answers, replacing, variants

if TYPE_CHECKING:
    from regard.inside.trace import Trace

By = Literal["zero", "mean"]


@dataclass(frozen=True)
class Off:
    """What is switched off at the same time."""

    heads: tuple[str, ...] = ()  # "decoder.0.cross.3"
    parts: tuple[str, ...] = ()  # "decoder.0.cross"
    layers: tuple[str, ...] = ()  # "decoder.0"
    positions: tuple[tuple[str, int], ...] = ()  # ("encoder", 3)

    @property
    def names(self) -> list[str]:
        return [
            *self.heads,
            *self.parts,
            *self.layers,
            *(f"{stack} at {position}" for stack, position in self.positions),
        ]


@dataclass(frozen=True, repr=False)
class Ablated(Result):
    """The output of the ablated model."""

    off: Off
    logits_AW: Tensor
    words: list[str]  # the likeliest, for each answer
    likeliest: Named  # their probabilities: [A]
    change: Named  # of ln p of the original answers: [A]

    @property
    def facts(self) -> dict[str, Any]:
        return {"off": self.off.names, "words": self.words}


def ablated(trace: Trace, off: Off, by: By = "zero", reference: Sequence[Trace] | None = None) -> Ablated:
    subject = trace.subject
    logits_AW = ablate(subject, [off], by, reference or [trace])[0]
    before_A, after_A = log_p_of_answers(subject, torch.stack([trace.logits_AW, logits_AW]))
    best_A = subject.likeliest(logits_AW)
    p_A = subject.log_p(logits_AW).exp().gather(1, best_A[:, None])[:, 0]
    words = [subject.name_of(token) for token in best_A.tolist()]
    axes = [("answer", answer_names(trace))]
    return Ablated(
        off,
        logits_AW,
        words,
        named("probability of the likeliest", p_A, axes, words=words),
        named("change of log-probability", after_A - before_A, axes, "nats", off=off.names, by=by),
    )


def ablate(
    subject: Subject,
    offs: Sequence[Off],
    by: By = "zero",
    reference: Sequence[Trace] | None = None,
    read: Read = lambda logits_BAW: logits_BAW,
) -> Tensor:
    """`read` of the logits with each of these switched off: [N, …]; by default the logits themselves, [N, A, W]."""
    return variants(subject, len(offs), Plan(subject, offs, by, reference).edits, read)


def with_positions_emptied(trace: Trace, empty: Mapping[str, Tensor], read: Read) -> Tensor:
    """`read` of the logits with positions emptied: [N, …]. `empty`: for each stack, which to empty: [N, T]."""
    masks = {f"{stack}.embedding": empty_NT[..., None] for stack, empty_NT in empty.items()}
    replacements = {f"{stack}.embedding": trace[stack].embedding.without_content_TD for stack in empty}
    return variants(trace.subject, len(next(iter(empty.values()))), replacing(masks, replacements), read)


class Plan:
    """Which values of which site are replaced in which row, and by what."""

    def __init__(
        self, subject: Subject, offs: Sequence[Off], by: By = "zero", reference: Sequence[Trace] | None = None
    ):
        if by not in ("zero", "mean"):
            raise UsageError(f"Unknown ablation method '{by}'.", 'The methods are "zero" and "mean".', 'Use "zero".')
        self.subject, self.device = subject, next(subject.model.parameters()).device
        self.sites = sites_of(subject)
        self.off: dict[str, Tensor] = {}  # a mask for each site: [N, T or 1, X or 1]
        for row, off in enumerate(offs):
            for head in off.heads:
                self._switch_head(row, len(offs), head)
            for part in [*off.parts, *(part for layer in off.layers for part in self._parts_of(layer))]:
                self._check_name(part, self._all_parts(), "part")
                self._mask(part, (len(offs), 1, 1))[row] = True
            for stack, position in off.positions:
                self._switch_position(row, len(offs), stack, position)
        self.edits = replacing(self.off, self._replacements(by, reference))

    def _switch_head(self, row: int, rows: int, name: str) -> None:
        part, _, number = name.rpartition(".")
        heads = {f"{known}.{head}" for known in self._all_parts() for head in range(self._heads(known))}
        if part in self._all_parts() and not self._heads(part):
            raise UsageError(
                f"'{part}' has no heads.", "Only attention has them.", f"Switch the whole part off: '{part}'."
            )
        self._check_name(name, heads, "head")
        to_out: Any = self.sites[f"{part}.heads"]
        width = to_out.in_features // self._heads(part)
        off_N1X = self._mask(f"{part}.heads", (rows, 1, width * self._heads(part)))
        off_N1X[row, :, int(number) * width : (int(number) + 1) * width] = True

    def _switch_position(self, row: int, rows: int, name: str, position: int) -> None:
        self._check_name(name, [stack.name for stack in self.subject.stacks], "stack")
        length = len(self.subject.stack(name).pieces)
        if not 0 <= position < length:
            raise UsageError(
                f"There is no position {position} in '{name}'.", f"It has {length}.", f"Use one from 0 to {length - 1}."
            )
        self._mask(f"{name}.embedding", (rows, length, 1))[row, position] = True

    def _mask(self, site: str, shape: tuple[int, ...]) -> Tensor:
        if site not in self.off:
            self.off[site] = torch.zeros(shape, dtype=torch.bool, device=self.device)
        return self.off[site]

    def _replacements(self, by: By, reference: Sequence[Trace] | None) -> dict[str, Tensor]:
        """The values that replace those of each site: [T or 1, X], or a scalar 0."""
        from regard.inside.trace import trace

        values = {site: torch.zeros((), device=self.device) for site in self.off}
        embeddings = [site for site in self.off if site.endswith(".embedding")]
        if embeddings:
            own = next((each for each in reference or () if each.subject is self.subject), None) or trace(self.subject)
            values |= {site: own[site.removesuffix(".embedding")].embedding.without_content_TD for site in embeddings}
        if by == "mean":
            subjects = [each.subject for each in reference] if reference else [self.subject]
            if any(subject.model is not self.subject.model for subject in subjects):
                raise UsageError(
                    "The reference comes from another model.",
                    "A mean over one model's heads is meaningless in another.",
                    "Take traces of the same loaded run.",
                )
            values |= means(subjects, [site for site in self.off if site not in embeddings])
        return values

    def _parts_of(self, layer: str) -> list[str]:
        layers = [f"{stack.name}.{n}" for stack in self.subject.stacks for n in range(len(stack.blocks))]
        self._check_name(layer, layers, "layer")
        return [part for part in self._all_parts() if part.rpartition(".")[0] == layer]

    def _all_parts(self) -> list[str]:
        return [site for site in self.sites if site.rpartition(".")[2] in PARTS]

    def _heads(self, part: str) -> int:
        return int(getattr(self.sites[part], "heads", 0))

    @staticmethod
    def _check_name(name: str, known: Collection[str], what: str) -> None:
        if name not in known:
            fix = did_you_mean(name, known) if known else "Switch a part or a layer off."
            raise UsageError(f"'{name}' is not a {what} of this model.", f"No {what} has this name.", fix)


def means(subjects: Sequence[Subject], sites: Collection[str]) -> dict[str, Tensor]:
    """The activations of each site, averaged over all positions of all these inputs: [X]."""
    sums: dict[str, Tensor] = {}
    positions = dict.fromkeys(sites, 0)
    for subject in subjects:
        with watching(subject, keep=sites) as activations:
            subject.logits()
        for site in sites:
            x_TX = activations[site][0].float()
            sums[site] = sums[site] + x_TX.sum(0) if site in sums else x_TX.sum(0)
            positions[site] += len(x_TX)
    return {site: sums[site] / positions[site] for site in sites}
