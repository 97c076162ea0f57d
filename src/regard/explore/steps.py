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
from regard.explore.session import TracedInput
from regard.explore.stages import key_stack, last_norm, stack_of
from regard.explore.step import Figure, Step
from regard.explore.steps_of_mixers import mixer_steps, search_steps
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.readout import Mapped, Normed, SpanReadout
from regard.layers.additive import AdditiveAttention
from regard.layers.bahdanau import RecurrentSearch
from regard.layers.norm import RMSNorm
from regard.layers.patches import PatchEmbedding
from regard.layers.positions import NoPositions, Positions
from regard.layers.windows import WindowAttention
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
    """Where the walk begins: at the only answer, else in the middle, which has neighbours on both sides."""
    answers = traced.trace.subject.answers
    if stack is traced.trace.last and len(answers) == 1 and answers[0].position is not None:
        return answers[0].position
    return len(stack.stack.pieces) // 2


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
    if isinstance(embed, PatchEmbedding):
        sentence, formula = "Each patch is flattened and projected linearly to a vector.", "x = pixels · W + b"
    elif isinstance(embed, PatchMerging):
        sentence = (
            "Four neighbouring patches of the previous stage are concatenated, normalised, and mapped to one vector."
        )
        formula = "x = norm([x_1; x_2; x_3; x_4]) · W"
    elif isinstance(embed, nn.LayerNorm | RMSNorm):
        sentence, formula = "Each patch is flattened and projected linearly to a vector.", "x = pixels · W + b"
    else:
        scaled = getattr(embed, "scale", 1.0) != 1
        sentence = "The token's vector is its row of the embedding matrix" + (", scaled by √D." if scaled else ".")
        formula = "x = √D · E[token]" if scaled else "x = E[token]"
    token = Figure(f"{name}.token", "strip", "vector", rows=name)
    title = "Token → vector" if hasattr(embed, "table") else "Patch → vector"
    yield Step("token", "Input", title, sentence, formula, [token])
    positions = getattr(embed, "positions", None) or getattr(embed, "along", None)
    normed = not isinstance(norm, nn.Identity)
    if positions is not None or getattr(embed, "positions_RSD", None) is not None:
        sentence = (
            "Nothing is added here: positions enter by rotating queries and keys, or not at all."
            if isinstance(positions, NoPositions)
            else "A vector that depends only on the position is added."
        )
        total = f"{name}.summed" if normed else f"{name}.embedded"
        place = Figure(f"{name}.place", "strip", "position", "+", rows=name)
        figures = [token, place, Figure(total, "strip", "sum", "=", rows=name)]
        yield Step("position", "Input", "+ position", sentence, "x = token + position", figures)
    if normed:
        before = Figure(f"{name}.summed", "strip", "sum", rows=name)
        after = Figure(f"{name}.embedded", "strip", "normalised", "→", rows=name)
        yield Step("embedded", "Input", "Norm", _about_norm(norm), _norm_formula(norm), [before, after])


# ---------------------------------------------------------------- a layer


def _layer(traced: TracedInput, stack: StackTrace, layer: LayerTrace) -> Iterator[Step]:
    for part in layer.parts:
        group = part.title
        site, key = part.name, part.name.rpartition(".")[2]
        pre = layer.block.pre_norm
        norm = layer.norm_of(part)
        stream = Figure(f"{site}.before", "strip", "x", rows=stack.name)
        if pre:
            figures = [stream, Figure(f"{site}.read", "strip", "normalised", "→", rows=stack.name)]
            yield Step(f"{key}.norm", group, "Norm", _about_norm(norm), _norm_formula(norm), figures)
        if part.attends:
            yield from _attention(traced, stack, part, group)
        elif hasattr(part.module, "activate"):
            yield from _feedforward(stack, part, group)
        else:
            yield from mixer_steps(stack, part, group)
        wrote = Figure(f"{site}.wrote", "strip", "written", "+", rows=stack.name)
        total = Figure(f"{site}.{'after' if pre else 'sum'}", "strip", "sum", "=", rows=stack.name)
        sentence = "The part's output is added to its input, the residual stream."
        yield Step(f"{key}.residual", group, "Residual", sentence, "x ← x + written", [stream, wrote, total])
        if not pre:
            figures = [
                Figure(f"{site}.sum", "strip", "sum", rows=stack.name),
                Figure(f"{site}.after", "strip", "normalised", "→", rows=stack.name),
            ]
            yield Step(f"{key}.after", group, "Norm", _about_norm(norm), _norm_formula(norm), figures)


def _attention(traced: TracedInput, stack: StackTrace, part: PartTrace, group: str) -> Iterator[Step]:
    site, key, module = part.name, part.name.rpartition(".")[2], part.module
    own, keys = stack.name, key_stack(traced.trace, part).name
    whose = f"the {keys}'s " if part.cross else ""
    additive = isinstance(module, AdditiveAttention | RecurrentSearch)

    read = Figure(f"{site}.read", "strip", "x", rows=own)
    query = Figure(f"{site}.queries", "strip", "query q", "→", True, own)
    all_keys = Figure(f"{site}.keys", "map", f"{whose}keys K, all positions", "", True, keys)
    all_values = Figure(f"{site}.values", "map", f"{whose}values V, all positions", "", True, keys)
    yield Step(
        f"{key}.qkv",
        group,
        "Query, key, value",
        _about_projections(part, keys),
        _projection_formula(part, additive),
        [read, query]
        + (
            []
            if part.cross
            else [
                Figure(f"{site}.keys", "strip", "key k", "", True, own),
                Figure(f"{site}.values", "strip", "value v", "", True, own),
            ]
        )
        + [all_keys, all_values],
    )
    formula = "e_j = Σ_d v_d tanh(q_d + k_j,d)" if additive else f"s_j = q · k_j / √{_key_width(module)}"
    if isinstance(module, WindowAttention):
        formula += " + relative position bias"
    yield Step(
        f"{key}.scores",
        group,
        "Scores",
        f"{_about_scores(part, keys, additive)} {_about_mask(part)}".strip(),
        formula,
        [
            Figure(f"{site}.queries", "strip", "query q", "", True, own),
            Figure(f"{site}.scores", "row", "scores of this position", "→", True, own, keys),
            Figure(f"{site}.scores", "map", "scores of all positions", "", True, own, keys),
        ],
    )
    weights = Figure(f"{site}.weights", "row", "weights of this position", "→", True, own, keys)
    yield Step(
        f"{key}.weights",
        group,
        "Softmax",
        "Softmax turns the scores into weights, non-negative and summing to 1 (masked positions get 0).",
        "a_j = exp(s_j − max) / Σ_i exp(s_i − max)",
        [
            Figure(f"{site}.scores", "row", "scores of this position", "", True, own, keys),
            weights,
            Figure(f"{site}.weights", "map", "weights of all positions", "", True, own, keys),
        ],
    )
    yield Step(
        f"{key}.heads",
        group,
        "Weighted values",
        f"{whose.capitalize() or 'The '}values of all positions are summed, each multiplied by its weight.",
        "z = Σ_j a_j v_j",
        [
            Figure(f"{site}.weights", "row", "weights of this position", "", True, own, keys),
            all_values,
            Figure(f"{site}.heads", "strip", "z", "→", True, own),
        ],
    )
    wrote = Figure(f"{site}.wrote", "strip", "written", "→", rows=own)
    if isinstance(module, RecurrentSearch):
        yield from search_steps(part, group, read, wrote)
        return
    after = (" + b" if module.to_out.bias is not None else "") + (" · layer scale" if part.scale_D is not None else "")
    figures = [Figure(f"{site}.joined", "strip", "heads, concatenated" if part.heads > 1 else "z", rows=own), wrote]
    if part.heads > 1:
        about = "The heads' outputs are concatenated and projected by W_O."
        formula = f"written = [z_1; … z_{part.heads}] · W_O{after}"
        yield Step(f"{key}.wrote", group, "Heads joined · W_O", about, formula, figures)
    else:
        about = "The output of the head is projected by W_O."
        yield Step(f"{key}.wrote", group, "Product with W_O", about, f"written = z · W_O{after}", figures)


def _key_width(module: Any) -> int:
    return int(module.to_qkv.in_features // module.heads if isinstance(module, WindowAttention) else module.key_width)


def _about_projections(part: PartTrace, keys: str) -> str:
    module = part.module
    about = (
        f"The query is computed from this position; keys and values from the output of the {keys}."
        if part.cross
        else "Three linear projections of the vector give this head's query, key and value."
    )
    if not isinstance(getattr(module, "query_norm", nn.Identity()), nn.Identity):
        about += " Query and key are then normalised."
    rotate = getattr(module, "rotate", Positions.rotate)
    if rotate is not Positions.rotate and not part.cross:
        about += " Query and key are rotated by an angle that grows with the position."
    shared = module.heads // module.key_value_heads if hasattr(module, "key_value_heads") else 1
    if shared > 1:
        about += f" {shared} heads share their keys and values."
    return about


def _projection_formula(part: PartTrace, additive: bool) -> str:
    memory = "m" if part.cross else "x"
    if additive:
        return f"q = x · W_Q + b    k = {memory} · W_K    v = {memory}"
    bias = " + b" if part.module.to_qkv.bias is not None else ""
    return f"q = x · W_Q{bias}    k = {memory} · W_K{bias}    v = {memory} · W_V{bias}"


def _about_scores(part: PartTrace, keys: str, additive: bool) -> str:
    all_keys = f"every key of the {keys}" if part.cross else "every key"
    if additive:
        return f"An additive score of this query against {all_keys}: their sum through tanh, times a learned vector."
    bias = ", plus a learned bias for their offset" if isinstance(part.module, WindowAttention) else ""
    return f"The dot product of this query with {all_keys}, scaled by 1/√d_k{bias}."


def _about_mask(part: PartTrace) -> str:
    if part.cross or part.context is None:
        return ""
    if isinstance(part.module, WindowAttention):
        return "Only patches of the same window are visible; the others are masked (grey)."
    if hasattr(part.module, "window"):
        earlier = "earlier " if part.context.causal else ""
        return f"Only nearby {earlier}positions are visible; the others are masked (grey)."
    return "Later positions are masked (grey)." if part.context.causal else ""


def _feedforward(stack: StackTrace, part: PartTrace, group: str) -> Iterator[Step]:
    module, site = part.module, part.name
    key, name = site.rpartition(".")[2], stack.name
    bias = " + b" if module.expand.bias is not None else ""
    formula = f"y = {module.activation_name}(x · W_in{bias})"
    about = "The vector is projected to a wider one, then a nonlinearity is applied element by element."
    if module.gated:
        formula = f"y = {module.activation_name}(x · W_gate{bias}) · (x · W_in{bias})"
        about = "The vector is projected to two wider ones: the first, after the activation, gates the second."
    inner = Figure(f"{site}.inner", "strip", "inner", "→", rows=name)
    yield Step(
        f"{key}.inner", group, "Expand", about, formula, [Figure(f"{site}.read", "strip", "x", rows=name), inner]
    )
    scaled = " · layer scale" if part.scale_D is not None else ""
    figures = [
        Figure(f"{site}.inner", "strip", "inner", rows=name),
        Figure(f"{site}.wrote", "strip", "written", "→", rows=name),
    ]
    about = "A second matrix projects the inner vector back to the width of the model."
    yield Step(f"{key}.wrote", group, "Contract", about, f"written = y · W_out{bias}{scaled}", figures)


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
    out = Figure(f"{name}.out", "strip", "normalised", "→", rows=name)
    if not isinstance(norm, nn.Identity):
        yield Step("out", "Output", "Last norm", _about_norm(norm), _norm_formula(norm), [stream, out])
    if stack is not trace.last:
        stacks = [stack.name for stack in trace.stacks]
        following = stacks[stacks.index(name) + 1]
        across = any(part.cross for part in trace.parts())
        sentence = (
            f"Every layer of the {following} computes its keys and values from this vector."
            if across
            else f"{following.capitalize()} merges this vector with its neighbours into larger patches."
        )
        figure = Figure(f"{name}.out", "strip", "passed on", rows=name)
        yield Step(
            "next-stack", "Output", f"To {'the ' if across else ''}{following}", sentence, f"x → {following}", [figure]
        )
        return
    readout = trace.subject.readout
    if readout is None:
        sentence = "The answer is not a linear map of the last layer's output."
        figures = [Figure("probabilities", "bars", "likeliest")]
        yield Step("probabilities", "Output", "Answer", sentence, "p = softmax(z)", figures)
        return
    if readout.pool in ("mean", "both"):
        first = " and from the first position" if readout.pool == "both" else ""
        about = f"The answer is read from the mean of all positions{first}."
        yield Step("pooled", "Output", "Mean", about, "h = Σ_t x_t / T", [Figure("0.hidden", "strip", "h")])
    for number, step in enumerate(readout.steps):
        figures = [Figure(f"{number}.hidden", "strip", "before"), Figure(f"{number + 1}.hidden", "strip", "after", "→")]
        if isinstance(step, Normed):
            yield Step(f"hidden.{number}", "Output", "Norm", _about_norm(step.norm), _norm_formula(step.norm), figures)
        elif isinstance(step, Mapped):
            yield Step(
                f"hidden.{number}",
                "Output",
                "Linear",
                "A linear layer before the output head.",
                "y = x · W + b",
                figures,
            )
        else:
            about = "The GELU activation, element by element."
            yield Step(f"hidden.{number}", "Output", "Activation", about, "y = gelu(x)", figures)
    hidden = Figure(f"{len(readout.steps)}.hidden", "strip", "h")
    bias = " + b" if readout.head.bias is not None else ""
    about = "The dot product with the output vector of each word or class is its logit."
    if isinstance(readout, SpanReadout):
        about = "The dot products with one vector for the start and one for the end are the logits of each position."
        hidden = Figure(f"{name}.out", "strip", "h", rows=name)
    figures = [hidden, Figure("logits", "bars", "logits of the likeliest", "→")]
    yield Step("logits", "Output", "Logits", about, f"z = h · W{bias}", figures)
    about, formula = "Softmax turns all logits into probabilities.", "p_i = exp(z_i − max) / Σ_j exp(z_j − max)"
    if trace.subject.independent:
        about, formula = "Each class has its own probability; they need not sum to 1.", "p = 1 / (1 + exp(−z))"
    elif not trace.subject.softmax_over_all and (trace.subject.never or trace.subject.never_at):
        about = "Softmax turns the logits of all tokens that can be generated into probabilities."
    figures = [Figure("probabilities", "bars", "probabilities of the likeliest")]
    yield Step("probabilities", "Output", "Probabilities", about, formula, figures)


def _about_norm(norm: nn.Module) -> str:
    if isinstance(norm, nn.LayerNorm):
        return "The vector is normalised to mean 0 and variance 1; a learned gain and bias then scale and shift it."
    return "The vector is normalised to length √D; a learned gain then scales it."


def _norm_formula(norm: nn.Module) -> str:
    if isinstance(norm, nn.LayerNorm):
        return "y = (x − mean) / √(variance + ε) · g + b"
    return "y = x / √(mean of squares + ε) · g"
