"""The steps of mixers other than plain attention: Hyena, recurrence, and Bahdanau's decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regard.explore.notation import about_scale, learned, legend, output_formula, with_bias
from regard.explore.step import Figure, Step
from regard.inside.parts import PartTrace, StackTrace
from regard.layers.hyena import Hyena
from regard.layers.recurrent import Lstm, Recurrent, Rnn

CELLS = {
    "RNN": "h_t = tanh(W {x}_t + U h_t−1 + b)",
    "GRU": "h_t = (1 − u) ⊙ n + u ⊙ h_t−1",
    "LSTM": "c_t = f ⊙ c_t−1 + i ⊙ g    h_t = o ⊙ tanh(c_t)",
}
GATES = {
    "RNN": "W, U: learned matrices · b: a learned bias · t: positions",
    "GRU": "n: the new state proposed · u: the update gate, between 0 and 1 · ⊙: component by component · t: positions",
    "LSTM": "f, i, o: gates between 0 and 1 (forget, input, output) · g: the new content proposed · c: the memory · "
    "⊙: component by component · t: positions",
}


def mixer_steps(stack: StackTrace, part: PartTrace, group: str, x: str) -> Iterator[Step]:
    """`x`: the letter of what the part reads."""
    if isinstance(part.module, Hyena):
        yield from _hyena(part, group, stack.name, x)
    elif isinstance(part.module, Recurrent):
        yield from _recurrence(part, group, stack.name, x)
    else:
        figures = [_strip(part, "read", x, "", stack.name), _strip(part, "wrote", "o", "→", stack.name)]
        about = "This layer mixes positions without attention, in its own way."
        yield Step(f"{_key(part)}.wrote", group, part.title, about, f"o = mixer({x})", figures)


def _hyena(part: PartTrace, group: str, rows: str, x: str) -> Iterator[Step]:
    hyena: Hyena = part.module
    key, gates = _key(part), hyena.order
    names = f"[{'; '.join(['v', *(f'g_{n}' for n in range(1, gates + 1))])}]"

    def strip(quantity: str, label: str, sign: str = "") -> Figure:
        return _strip(part, quantity, label, sign, rows)

    about = f"One product gives {gates + 1} streams: the values v, and {_counted(gates, 'gate')} g."
    figures = [strip("read", x), strip("projected", names, "→")]
    bias = with_bias(hyena.to_streams, "b_in")
    about_product = learned(hyena.to_streams, "W_in", "b_in")
    yield Step(f"{key}.projected", group, "Streams", about, f"{names} = {x} W_in{bias}", figures, about_product)
    about = "Each channel c of the streams is convolved with its own filter w over neighbouring positions t + s."
    figures = [strip("projected", names), strip("streams", f"{names}, convolved", "→")]
    yield Step(
        f"{key}.streams", group, "Short convolution", about, "c_t ← Σ_s w_s c_t+s + b", figures, "b: a learned bias"
    )
    before, u = strip("streams", names), "v"
    for number in range(1, gates + 1):
        last = number == gates
        gated = strip("mixed" if last else f"gated{number}", "y" if last else "u, gated", "→")
        skipped = hyena.skips is not None
        convolved = u if number == 1 and not skipped else "u"  # the first operation reads v
        becomes = "y =" if last else "u ←" if u == "u" or not skipped else "u ="
        multiplied = u if skipped else "u"
        gate = Step(
            f"{key}.gate{number}",
            group,
            f"Gate {number}",
            f"Gate g_{number} multiplies {'the values v' if multiplied == 'v' else 'u, the result so far'}.",
            f"{becomes} g_{number} ⊙ {multiplied}",
            [before, gated],
            "⊙: component by component · v: the first of the streams"
            if multiplied == "v"
            else "⊙: component by component",
        )
        long = strip(f"convolved{number}", "u, convolved", "→")
        convolution = Step(
            f"{key}.convolved{number}",
            group,
            f"Long convolution {number}",
            "Each channel is convolved with a filter w as long as the text, whose weights depend only on the distance.",
            f"u_t {'←' if convolved == 'u' else '='} Σ_s w_t−s {convolved}_s" + (" + d u_t" if skipped else ""),
            [before, long, Figure(long.matrix, "map", "u, convolved, all positions", rows=rows)],
            legend("s, t: positions", "d: a learned factor of each channel" if skipped else ""),
        )
        if skipped:  # the gate comes first, and no convolution follows the last one
            yield gate
            if not last:
                figures = [strip(f"gated{number}", "u"), *convolution.figures[1:]]
                yield replace(convolution, figures=figures)
            before = strip(f"convolved{number}", "u")
        else:
            yield convolution
            figures = [strip(f"convolved{number}", "u"), gated]
            yield replace(gate, figures=figures)
            before = strip(f"gated{number}", "u")
        u = "u"
    yield _product(part, "mixed", "y", rows, group)


def _recurrence(part: PartTrace, group: str, rows: str, x: str) -> Iterator[Step]:
    module: Recurrent = part.module
    about = "A state h is carried from position to position"
    about += "" if isinstance(module, Rnn) else ", and gates decide what it keeps"
    about += "; a second one runs from right to left." if module.backwards is not None else "."
    if module.from_memory is not None and part.context is not None and part.context.memory is not None:
        about += " The initial state is computed from the end of the source."
    figures = [_strip(part, "read", x, "", rows)]
    if isinstance(module, Lstm):
        figures.append(_strip(part, "memories", "memory c", "→", rows))
    figures.append(_strip(part, "states", "state h", "→", rows))
    figures.append(Figure(f"{part.name}.states", "map", "states of all positions", rows=rows))
    yield Step(
        f"{_key(part)}.states", group, "Recurrence", about, CELLS[part.title].format(x=x), figures, GATES[part.title]
    )
    yield _product(part, "states", "h", rows, group)


def search_steps(part: PartTrace, group: str, read: Figure) -> Iterator[Step]:
    """The steps of Bahdanau's decoder after its attention."""
    rows, key, x = read.rows, _key(part), read.label
    weighted = Figure(f"{part.name}.heads", "strip", "z", "", True, rows)
    states = _strip(part, "states", "state s", "→", rows)
    about = f"The recurrent cell reads {x}, the token, and z, the weighted sum, and computes its next state s."
    formula = f"s_t = cell([{x}_t; z_t], s_t−1)"
    yield Step(f"{key}.states", group, "Recurrence", about, formula, [read, weighted, states], "t: this position")
    about = "State, token and weighted sum are mapped to pairs of numbers; the larger of each pair is kept."
    figures = [
        replace(states, sign=""),
        _strip(part, "pairs", "pairs", "", rows),
        _strip(part, "mixed", "y", "→", rows),
    ]
    yield Step(
        f"{key}.mixed",
        group,
        "Maxout",
        about,
        f"y = maxout([s_t; {x}_t; z_t] W + b)",
        figures,
        "W: a learned matrix · b: a learned bias",
    )
    yield _product(part, "mixed", "y", rows, group)


def _product(part: PartTrace, quantity: str, symbol: str, rows: str, group: str) -> Step:
    figures = [_strip(part, quantity, symbol, "", rows), _strip(part, "wrote", "o", "→", rows)]
    formula = output_formula(part, symbol)
    about = f"A last matrix W_O projects {symbol} to the output o."
    return Step(f"{_key(part)}.wrote", group, "Output projection", about, formula, figures, _about_output(part))


def _about_output(part: PartTrace) -> str:
    return legend(learned(part.module.to_out, "W_O", "b_O"), about_scale(part))


def _strip(part: PartTrace, quantity: str, label: str, sign: str, rows: str) -> Figure:
    return Figure(f"{part.name}.{quantity}", "strip", label, sign, rows=rows)


def _key(part: PartTrace) -> str:
    return part.name.rpartition(".")[2]


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
