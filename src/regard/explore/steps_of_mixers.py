"""The steps of mixers other than plain attention: Hyena, recurrence, and Bahdanau's decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regard.explore.step import Figure, Step
from regard.inside.parts import PartTrace, StackTrace
from regard.layers.hyena import Hyena
from regard.layers.recurrent import Lstm, Recurrent, Rnn

CELLS = {
    "RNN": "h_t = tanh(W x_t + U h_t−1 + b)",
    "GRU": "h_t = (1 − z) · n + z · h_t−1",
    "LSTM": "c_t = f · c_t−1 + i · g    h_t = o · tanh(c_t)",
}


def mixer_steps(stack: StackTrace, part: PartTrace, group: str) -> Iterator[Step]:
    if isinstance(part.module, Hyena):
        yield from _hyena(part, group, stack.name)
    elif isinstance(part.module, Recurrent):
        yield from _recurrence(part, group, stack.name)
    else:
        figures = [_strip(part, "read", "read", "", stack.name), _strip(part, "wrote", "written", "→", stack.name)]
        about = "This layer mixes positions without attention, in its own way."
        yield Step(f"{_key(part)}.wrote", group, part.title, about, "written = mixer(x)", figures)


def _hyena(part: PartTrace, group: str, rows: str) -> Iterator[Step]:
    hyena: Hyena = part.module
    key, gates = _key(part), hyena.order
    names = "; ".join(["v", *(f"x_{n}" for n in range(1, gates + 1))])

    def strip(quantity: str, label: str, sign: str = "") -> Figure:
        return _strip(part, quantity, label, sign, rows)

    about = f"One product gives {gates + 1} streams: the values v, and {_counted(gates, 'gate')} x."
    figures = [strip("read", "x"), strip("projected", names, "→")]
    yield Step(f"{key}.projected", group, "Streams", about, f"[{names}] = x · W_in + b", figures)
    about = "Each channel is convolved with its own filter over neighbouring positions."
    figures = [strip("projected", names), strip("streams", "streams", "→")]
    yield Step(f"{key}.streams", group, "Short convolution", about, "c_t = Σ_s w_s c_t+s + b", figures)
    before = strip("streams", "streams")
    for number in range(1, gates + 1):
        last = number == gates
        gated = strip("mixed" if last else f"gated{number}", "y" if last else "gated", "→")
        gate = Step(
            f"{key}.gate{number}",
            group,
            f"Gate {number}",
            f"Gate x_{number} multiplies the result so far element by element.",
            f"z = x_{number} ⊙ z",
            [before, gated],
        )
        long = strip(f"convolved{number}", "convolved", "→")
        skipped = hyena.skips is not None
        convolution = Step(
            f"{key}.convolved{number}",
            group,
            f"Long convolution {number}",
            "Each channel is convolved with a filter as long as the text, whose weights depend only on the distance.",
            "z_t = Σ_s h_t−s z_s" + (" + D z_t" if skipped else ""),
            [before, long, Figure(long.matrix, "map", "convolved, all positions", rows=rows)],
        )
        if skipped:  # the gate comes first, and no convolution follows the last one
            yield gate
            if not last:
                figures = [strip(f"gated{number}", "gated"), *convolution.figures[1:]]
                yield replace(convolution, figures=figures)
            before = strip(f"convolved{number}", "convolved")
        else:
            yield convolution
            figures = [strip(f"convolved{number}", "convolved"), gated]
            yield replace(gate, figures=figures)
            before = strip(f"gated{number}", "gated")
    yield _product(part, "mixed", "y", rows, group)


def _recurrence(part: PartTrace, group: str, rows: str) -> Iterator[Step]:
    module: Recurrent = part.module
    about = "A state is carried from position to position"
    about += "" if isinstance(module, Rnn) else ", and gates decide what it keeps"
    about += "; a second one runs from right to left." if module.backwards is not None else "."
    if module.from_memory is not None and part.context is not None and part.context.memory is not None:
        about += " The initial state is computed from the end of the source."
    figures = [_strip(part, "read", "x", "", rows)]
    if isinstance(module, Lstm):
        figures.append(_strip(part, "memories", "memory c", "→", rows))
    figures.append(_strip(part, "states", "state h", "→", rows))
    figures.append(Figure(f"{part.name}.states", "map", "states of all positions", rows=rows))
    yield Step(f"{_key(part)}.states", group, "Recurrence", about, CELLS[part.title], figures)
    yield _product(part, "states", "h", rows, group)


def search_steps(part: PartTrace, group: str, read: Figure, wrote: Figure) -> Iterator[Step]:
    """The steps of Bahdanau's decoder after its attention."""
    rows, key = read.rows, _key(part)
    weighted = Figure(f"{part.name}.heads", "strip", "z", "", True, rows)
    states = _strip(part, "states", "state s", "→", rows)
    about = "The recurrent cell reads the token and the weighted sum, and computes its next state."
    yield Step(f"{key}.states", group, "Recurrence", about, "s_t = cell([x; z], s_t−1)", [read, weighted, states])
    about = "State, token and weighted sum are mapped to pairs of numbers; the larger of each pair is kept."
    figures = [states, _strip(part, "pairs", "pairs", "", rows), _strip(part, "mixed", "t", "→", rows)]
    yield Step(f"{key}.mixed", group, "Maxout", about, "t = maxout([s; x; z] · W + b)", figures)
    yield _product(part, "mixed", "t", rows, group)


def _product(part: PartTrace, quantity: str, symbol: str, rows: str, group: str) -> Step:
    bias = " + b" if part.module.to_out.bias is not None else ""
    scaled = " · layer scale" if part.scale_D is not None else ""
    figures = [_strip(part, quantity, symbol, "", rows), _strip(part, "wrote", "written", "→", rows)]
    about = "W_out maps it to the output of the part."
    return Step(
        f"{_key(part)}.wrote", group, "Product with W_out", about, f"written = {symbol} · W_out{bias}{scaled}", figures
    )


def _strip(part: PartTrace, quantity: str, label: str, sign: str, rows: str) -> Figure:
    return Figure(f"{part.name}.{quantity}", "strip", label, sign, rows=rows)


def _key(part: PartTrace) -> str:
    return part.name.rpartition(".")[2]


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
