"""The walk through a model, step by step: what happens to one position, in words, formulas and figures.

A step names the matrices that illustrate it (matrices.py, stages.py); head and position are chosen on the page. The
steps of a layer follow its block: pre- or post-norm, attention or another mixer, with or without cross-attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from regard.errors import UsageError
from regard.explore.notation import (
    NORMED,
    about_scale,
    activation,
    learned,
    legend,
    read_letter,
    root,
    scaled,
    with_bias,
    written_letter,
)
from regard.explore.session import TracedInput
from regard.explore.stages import last_norm, stack_of
from regard.explore.step import Figure, Step
from regard.explore.steps_of_attention import attention_steps
from regard.explore.steps_of_mixers import mixer_steps
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.readout import Mapped, Normed, SpanReadout
from regard.layers.norm import RMSNorm
from regard.layers.patches import PatchEmbedding
from regard.layers.positions import NoPositions
from regard.models.swin import PatchMerging


def steps(traced: TracedInput, stack: str, layer: int = 0) -> dict[str, Any]:
    """The steps of a layer, those before the first, and those after the last."""
    trace = stack_of(traced, stack)
    if not 0 <= layer < len(trace.layers):
        raise UsageError(f"There is no layer {layer + 1}.", f"There are {len(trace.layers)}.", "Choose another.")
    walk = [
        *_input(trace),
        *_layer(traced, trace, trace.layers[layer]),
        *_next_layer(trace, layer),
        *_output(traced, trace),
    ]
    return {
        "layers": len(trace.layers),
        "position": first_position(traced, trace),
        "steps": [asdict(step) for step in walk],
    }


def first_position(traced: TracedInput, stack: StackTrace) -> int:
    """Where the walk begins: at the only answer, else in the middle, which has neighbours on all sides."""
    answers, grid = traced.trace.subject.answers, stack.stack.grid
    if stack is traced.trace.last and len(answers) == 1 and answers[0].position is not None:
        return answers[0].position
    count = len(stack.stack.pieces)
    if grid is None:
        return count // 2
    return min(stack.stack.before + grid[0] // 2 * grid[1] + grid[1] // 2, count - 1)


def likeliest(traced: TracedInput, answer: int, count: int = 10) -> dict[str, Any]:
    """The likeliest tokens of an answer, and the token of the output whatever its rank."""
    trace = traced.trace
    if not 0 <= answer < len(trace.logits_AW):
        raise UsageError(f"There is no answer {answer + 1}.", f"There are {len(trace.logits_AW)}.", "Choose another.")
    logits_W = trace.logits_AW[answer]
    p_W = trace.subject.log_p(logits_W, answer).exp()
    tokens = torch.topk(trace.subject.allowed_logits(logits_W, answer), min(count, len(p_W))).indices.tolist()
    output = trace.subject.answers[answer].token
    tokens = [*tokens, *([output] if output not in tokens else [])]
    tokens = [token for token in tokens if token not in trace.subject.never_of(answer)]
    return {
        "tokens": tokens,
        "names": [trace.subject.name_of(token) for token in tokens],
        "logits": [float(logits_W[token]) for token in tokens],
        "probabilities": [float(p_W[token]) for token in tokens],
        "output": output,
    }


# ---------------------------------------------------------------- before the first block


def _input(stack: StackTrace) -> Iterator[Step]:
    name, norm, embed = stack.name, stack.embedding.norm, stack.stack.embed
    width = f"{stack.layers[0].before_TD.shape[1]:,} components"
    if isinstance(embed, PatchEmbedding):
        sentence, formula = (
            "The pixels of the patch, in one row, are mapped linearly to a vector x.",
            "x = pixels W + b",
        )
    elif isinstance(embed, PatchMerging):
        sentence = (
            "Four neighbouring patches of the previous stage are concatenated, normalised, and mapped to one vector."
        )
        formula = "x = norm([x_1; x_2; x_3; x_4]) W"
    elif isinstance(embed, nn.LayerNorm | RMSNorm):
        sentence, formula = (
            "The pixels of the patch, in one row, are mapped linearly to a vector x.",
            "x = pixels W + b",
        )
    else:
        sentence, formula = "The token's vector x is its row of the embedding matrix E.", "x = E[token]"
        if getattr(embed, "scale", 1.0) != 1:
            sentence = "The token's vector x is its row of the embedding matrix E, times the root of its width d_model."
            formula = "x = √d_model · E[token]"
            width = f"{root('d_model', stack.layers[0].before_TD.shape[1])}"
    if not hasattr(embed, "table"):
        terms = "x_1 … x_4: the four neighbours" if isinstance(embed, PatchMerging) else "b: a learned bias"
        width = legend("W: a learned matrix", terms, width)
    token = Figure(f"{name}.token", "strip", "x", rows=name)
    title = "Token → vector" if hasattr(embed, "table") else "Patch → vector"
    yield Step("token", "Input", title, sentence, formula, [token], width)
    positions = getattr(embed, "positions", None) or getattr(embed, "along", None)
    normed = not isinstance(norm, nn.Identity)
    if positions is not None or getattr(embed, "positions_RSD", None) is not None:
        sentence = (
            "Nothing is added here: positions enter by rotating queries and keys, or not at all."
            if isinstance(positions, NoPositions)
            else "A vector p that depends only on the position is added."
        )
        total = f"{name}.summed" if normed else f"{name}.embedded"
        place = Figure(f"{name}.place", "strip", "p", "+", rows=name)
        figures = [token, place, Figure(total, "strip", "x + p", "=", rows=name)]
        yield Step("position", "Input", "+ position", sentence, "x ← x + p", figures)
    if normed:
        before = Figure(f"{name}.summed", "strip", "x", rows=name)
        after = Figure(f"{name}.embedded", "strip", "x, normalised", "→", rows=name)
        yield _norm("embedded", "Input", norm, [before, after])


# ---------------------------------------------------------------- a layer


def _layer(traced: TracedInput, stack: StackTrace, layer: LayerTrace) -> Iterator[Step]:
    for part in layer.parts:
        group = part.title
        site, key = part.name, part.name.rpartition(".")[2]
        pre = layer.block.pre_norm
        norm = layer.norm_of(part)
        x, written = read_letter(layer), written_letter(part)
        stream = Figure(f"{site}.before", "strip", "x", rows=stack.name)
        if pre:
            figures = [stream, Figure(f"{site}.read", "strip", x, "→", rows=stack.name)]
            yield _norm(f"{key}.norm", group, norm, figures, f"{NORMED} =")
        if part.attends:
            yield from attention_steps(traced, stack, part, group, x)
        elif hasattr(part.module, "activate"):
            yield from _feedforward(stack, part, group, x)
        else:
            yield from mixer_steps(stack, part, group, x)
        wrote = Figure(f"{site}.wrote", "strip", written, "+", rows=stack.name)
        total = Figure(f"{site}.{'after' if pre else 'sum'}", "strip", f"x + {written}", "=", rows=stack.name)
        sentence = f"The output {written} is added to x, the residual stream."
        yield Step(f"{key}.residual", group, "Residual", sentence, f"x ← x + {written}", [stream, wrote, total])
        if not pre:
            figures = [
                Figure(f"{site}.sum", "strip", "x", rows=stack.name),
                Figure(f"{site}.after", "strip", "x, normalised", "→", rows=stack.name),
            ]
            yield _norm(f"{key}.after", group, norm, figures)


def _feedforward(stack: StackTrace, part: PartTrace, group: str, x: str) -> Iterator[Step]:
    module, site = part.module, part.name
    key, name = site.rpartition(".")[2], stack.name
    name_of_activation = activation(module)
    formula = f"h = {name_of_activation}({x} W_1{with_bias(module.expand, 'b_1')})"
    about = f"{x} is projected to a wider vector; the activation {name_of_activation}, component by component, gives h."
    if module.gated:
        formula += f" ⊙ ({x} V{with_bias(module.expand, 'c')})"
        about = (
            f"{x} is projected to two wider vectors: the first, after the activation, gates the second; ⊙ multiplies "
        )
        about += "component by component."
    figures = [Figure(f"{site}.read", "strip", x, rows=name), Figure(f"{site}.inner", "strip", "h", "→", rows=name)]
    widths = f"{part.read_TD.shape[1]:,} → {module.contract.in_features:,} components"
    about_layer = learned(module.expand, "W_1, V" if module.gated else "W_1", "b_1, c" if module.gated else "b_1")
    yield Step(f"{key}.inner", group, "Expand", about, formula, figures, legend(about_layer, widths))
    figures = [Figure(f"{site}.inner", "strip", "h", rows=name), Figure(f"{site}.wrote", "strip", "f", "→", rows=name)]
    about_layer = learned(module.contract, "W_2", "b_2")
    about = "A second matrix projects h back to the width of the model."
    formula = f"f = {scaled(part, 'h W_2' + with_bias(module.contract, 'b_2'))}"
    yield Step(f"{key}.wrote", group, "Contract", about, formula, figures, legend(about_layer, about_scale(part)))


def _next_layer(stack: StackTrace, layer: int) -> Iterator[Step]:
    if layer + 1 == len(stack.layers):
        return
    last = stack.layers[layer].parts[-1]
    figures = [Figure(f"{last.name}.after", "strip", "x", rows=stack.name)]
    sentence = f"Layer {layer + 2} reads this vector and repeats these steps with its own weights."
    yield Step("next-layer", "Next layer", f"To layer {layer + 2}", sentence, f"x → layer {layer + 2}", figures)


# ---------------------------------------------------------------- after the last block


def _output(traced: TracedInput, stack: StackTrace) -> Iterator[Step]:
    trace, name = traced.trace, stack.name
    norm = last_norm(traced, stack)
    stream = Figure(f"{stack.layers[-1].parts[-1].name}.after", "strip", "x, after the last layer", rows=name)
    out = Figure(f"{name}.out", "strip", "x, normalised", "→", rows=name)
    if not isinstance(norm, nn.Identity):
        yield _norm("out", "Output", norm, [stream, out], title="Last norm")
    if stack is not trace.last:
        stacks = [stack.name for stack in trace.stacks]
        following = stacks[stacks.index(name) + 1]
        across = any(part.cross for part in trace.parts())
        sentence = (
            f"Every layer of the {following} computes its keys and values from this vector, there called m."
            if across
            else f"{following.capitalize()} merges this vector with its neighbours into larger patches."
        )
        figure = Figure(f"{name}.out", "strip", "m, passed on" if across else "x, passed on", rows=name)
        yield Step(
            "next-stack",
            "Output",
            f"To {'the ' if across else ''}{following}",
            sentence,
            f"{'m = x' if across else 'x'} → {following}",
            [figure],
        )
        return
    readout = trace.subject.readout
    if readout is None:
        sentence = "The answer is not a linear map of the last layer's output."
        figures = [Figure("probabilities", "bars", "likeliest")]
        yield Step("probabilities", "Output", "Answer", sentence, "p = softmax(ℓ)", figures)
        return
    if readout.pool in ("mean", "both"):
        first = " and from the first position" if readout.pool == "both" else ""
        about = f"The answer is read from the mean of all positions t{first}."
        formula = "x ← Σ_t x_t / T" if readout.pool == "mean" else "x ← [x_1; Σ_t x_t / T]"
        count = f"T = {len(stack.stack.pieces) - readout.before:,} positions"
        yield Step("pooled", "Output", "Mean", about, formula, [Figure("0.hidden", "strip", "x")], count)
    for number, step in enumerate(readout.steps):
        before = Figure(f"{number}.hidden", "strip", "x, before")
        figures = [before, Figure(f"{number + 1}.hidden", "strip", "x, after", "→")]
        if isinstance(step, Normed):
            yield _norm(f"hidden.{number}", "Output", step.norm, figures)
        elif isinstance(step, Mapped):
            yield Step(
                f"hidden.{number}",
                "Output",
                "Linear",
                "A linear layer before the output head.",
                f"x ← x W{with_bias(step.layer, 'b')}",
                figures,
                learned(step.layer, "W", "b"),
            )
        else:
            about = "The GELU activation, component by component."
            yield Step(f"hidden.{number}", "Output", "Activation", about, "x ← gelu(x)", figures)
    hidden = Figure(f"{len(readout.steps)}.hidden", "strip", "x")
    bias = with_bias(readout.head, "b")
    about = (
        "The dot product of x with the vector of each word or class is its logit ℓ. These vectors are the columns of W."
    )
    if isinstance(readout, SpanReadout):
        about = (
            "The dot products of x with one vector for the start and one for the end are the logits ℓ of each position."
        )
        hidden = Figure(f"{name}.out", "strip", "x", rows=name)
    figures = [hidden, Figure("logits", "bars", "logits ℓ of the likeliest", "→")]
    table = getattr(getattr(stack.stack.embed, "table", None), "weight", None)
    tied = "W: the embedding matrix E of the input again, transposed" if readout.head.weight is table else ""
    bias_legend = "b: a learned bias" if bias else ""
    yield Step("logits", "Output", "Logits", about, f"ℓ = x W{bias}", figures, legend(tied, bias_legend))
    about, formula = "Softmax turns all logits ℓ into probabilities p.", "p_i = exp(ℓ_i − max) / Σ_j exp(ℓ_j − max)"
    largest = "max: the largest logit · i, j: words or classes"
    if trace.subject.independent:
        about, largest = "Each class has its own probability p; they need not sum to 1.", ""
        formula = "p = 1 / (1 + exp(−ℓ))"
    elif not trace.subject.softmax_over_all and (trace.subject.never or trace.subject.never_at):
        about = "Softmax turns the logits ℓ of all tokens that can be generated into probabilities p."
    figures = [Figure("probabilities", "bars", "probabilities p of the likeliest")]
    yield Step("probabilities", "Output", "Probabilities", about, formula, figures, largest)


def _norm(id: str, group: str, norm: Any, figures: list[Figure], becomes: str = "x ←", title: str = "Norm") -> Step:
    """`becomes`: where the result goes; with pre-norm, beside the residual stream."""
    epsilon = f"ε = {norm.eps:g}".replace("e-0", "e-").replace("-", "−") if norm.eps else ""
    if isinstance(norm, nn.LayerNorm):
        about = "x is brought to mean 0 and variance 1; a learned gain γ then scales it, and a learned bias β is added."
        formula = f"{becomes} (x − mean) / √(variance + ε) · γ + β"
        return Step(
            id, group, title, about, formula, figures, legend("mean, variance: of the components of x", epsilon)
        )
    about = "x is brought to a mean square of 1; a learned gain γ then scales it."
    formula = f"{becomes} x / √(mean of squares + ε) · γ"
    return Step(id, group, title, about, formula, figures, legend("mean of squares: of the components of x", epsilon))
