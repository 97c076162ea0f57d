"""The steps of attention: queries, keys and values, scores, weights, and the output of the heads.

    z = Σ_j a_j v_j        a = softmax(s)        s_j = q · k_j / √d_k        o = [z_1; …; z_h] W_O + b_O

Additive attention scores with e_j = Σ_i w_i tanh(q_i + k_j,i); in Bahdanau's decoder, a recurrent cell then reads z.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from regard.explore.notation import about_scale, joined_letters, learned, legend, output_formula, root, with_bias
from regard.explore.session import TracedInput
from regard.explore.stages import key_stack
from regard.explore.step import Figure, Step
from regard.explore.steps_of_mixers import search_steps
from regard.explore.sums_of_attention import is_additive
from regard.inside.parts import PartTrace, StackTrace
from regard.layers.bahdanau import RecurrentSearch
from regard.layers.positions import Positions
from regard.layers.windows import WindowAttention


def attention_steps(traced: TracedInput, stack: StackTrace, part: PartTrace, group: str, x: str) -> Iterator[Step]:
    site, key, module = part.name, part.name.rpartition(".")[2], part.module
    own, keys = stack.name, key_stack(traced.trace, part).name
    whose = f"the {keys}'s " if part.cross else ""
    additive = is_additive(part)
    s = "e" if additive else "s"
    biases = "b: learned biases" if additive or module.to_qkv.bias is not None else ""

    read = Figure(f"{site}.read", "strip", x, rows=own)
    query = Figure(f"{site}.queries", "strip", "query q", "→", True, own)
    all_keys = Figure(f"{site}.keys", "map", f"{whose}keys K, all positions", "", True, keys)
    all_values = Figure(f"{site}.values", "map", f"{whose}values V, all positions", "", True, keys)
    yield Step(
        f"{key}.qkv",
        group,
        "Query, key, value",
        _about_projections(part, keys, x),
        _projection_formula(part, x),
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
        legend(f"m: the output of the {keys}" if part.cross else "", "W: learned matrices", biases),
    )
    formula = "e_j = Σ_i w_i tanh(q_i + k_j,i)" if additive else "s_j = q · k_j / √d_k"
    if isinstance(module, WindowAttention):
        formula += " + B_j"
    scores = Figure(f"{site}.scores", "row", f"scores {s} of this position", "→", True, own, keys)
    yield Step(
        f"{key}.scores",
        group,
        "Scores",
        f"{_about_scores(part, keys, additive)} {_about_mask(part)}".strip(),
        formula,
        [
            Figure(f"{site}.queries", "strip", "query q", "", True, own),
            scores,
            Figure(f"{site}.scores", "map", "scores of all positions", "", True, own, keys),
        ],
        "i: components · j: positions" if additive else root("d_k", _key_width(module)),
    )
    weights = Figure(f"{site}.weights", "row", "weights a of this position", "→", True, own, keys)
    yield Step(
        f"{key}.weights",
        group,
        "Softmax",
        f"Softmax turns the scores {s} into weights a, non-negative and summing to 1 (masked positions get 0).",
        f"a_j = exp({s}_j − max) / Σ_i exp({s}_i − max)",
        [
            replace(scores, sign=""),
            weights,
            Figure(f"{site}.weights", "map", "weights of all positions", "", True, own, keys),
        ],
        "max: the largest score, subtracted so that no exponential is too large · i, j: positions",
    )
    yield Step(
        f"{key}.heads",
        group,
        "Weighted values",
        f"{whose.capitalize() or 'The '}values v_j of all positions j are summed, each multiplied by its weight a_j: "
        f"the output z of {'the head' if part.heads > 1 else 'attention'}.",
        "z = Σ_j a_j v_j",
        [
            replace(weights, sign=""),
            all_values,
            Figure(f"{site}.heads", "strip", "z", "→", True, own),
        ],
    )
    wrote = Figure(f"{site}.wrote", "strip", "o", "→", rows=own)
    if isinstance(module, RecurrentSearch):
        yield from search_steps(part, group, read)
        return
    joined = joined_letters(part)
    figures = [Figure(f"{site}.joined", "strip", joined, rows=own), wrote]
    formula = output_formula(part, joined)
    if part.heads > 1:
        title, about = "Heads joined", f"The outputs z of the {part.heads} heads are concatenated and projected by W_O."
    else:
        title, about = "Output projection", "The output z is projected by W_O."
    yield Step(
        f"{key}.wrote",
        group,
        title,
        about,
        formula,
        figures,
        legend(learned(module.to_out, "W_O", "b_O"), about_scale(part)),
    )


def _key_width(module: Any) -> int:
    return int(module.to_qkv.in_features // module.heads if isinstance(module, WindowAttention) else module.key_width)


def _about_projections(part: PartTrace, keys: str, x: str) -> str:
    module = part.module
    head = "this head's query q, key k and value v" if part.heads > 1 else "the query q, the key k and the value v"
    about = f"Three linear projections of {x} give {head}."
    if part.cross:
        about = f"The query q is computed from this position; keys k and values v from the output of the {keys}."
    if isinstance(module, RecurrentSearch):
        about = f"The query q is computed from the state s before this position; keys k from the output of the {keys}."
    if is_additive(part):
        about += " The values v are that output itself."
    if not isinstance(getattr(module, "query_norm", nn.Identity()), nn.Identity):
        about += " Query and key are then normalised."
    rotate = getattr(module, "rotate", Positions.rotate)
    if rotate is not Positions.rotate and not part.cross:
        about += " Query and key are rotated by an angle that grows with the position."
    shared = module.heads // module.key_value_heads if hasattr(module, "key_value_heads") else 1
    if shared > 1:
        about += f" {shared} heads share their keys and values."
    return about


def _projection_formula(part: PartTrace, x: str) -> str:
    source = "m" if part.cross else x
    if is_additive(part):
        return f"q = {'s_t−1' if isinstance(part.module, RecurrentSearch) else x} W_Q + b_Q    k = m W_K    v = m"
    q, k, v = (f" W_{name}{with_bias(part.module.to_qkv, f'b_{name}')}" for name in "QKV")
    return f"q = {x}{q}    k = {source}{k}    v = {source}{v}"


def _about_scores(part: PartTrace, keys: str, additive: bool) -> str:
    all_keys = f"the key k_j of every position j{f' of the {keys}' if part.cross else ''}"
    if additive:
        return f"An additive score e of the query q and {all_keys}: their sum through tanh, times a learned vector w."
    bias = ", plus a learned bias B for their offset" if isinstance(part.module, WindowAttention) else ""
    return f"The dot product of the query q with {all_keys}, divided by √d_k{bias}."


def _about_mask(part: PartTrace) -> str:
    if part.cross or part.context is None:
        return ""
    if isinstance(part.module, WindowAttention):
        return "Only patches of the same window are visible; the others are masked (grey)."
    if hasattr(part.module, "window"):
        earlier = "earlier " if part.context.causal else ""
        return f"Only nearby {earlier}positions are visible; the others are masked (grey)."
    return "Later positions are masked (grey)." if part.context.causal else ""
