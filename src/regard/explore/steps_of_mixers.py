"""The steps of mixers that are no plain attention: Hyena, recurrence, and Bahdanau's decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regard.explore.step import Show, Step
from regard.inside.parts import PartTrace, StackTrace
from regard.layers.hyena import Hyena
from regard.layers.recurrent import Lstm, Recurrent, Rnn

CELLS = {
    "RNN": "h_t = tanh(W x_t + U h_t−1 + b)",
    "GRU": "h_t = (1 − z) · n + z · h_t−1",
    "LSTM": "c_t = f · c_t−1 + i · g    h_t = o · tanh(c_t)",
}


def mixer_steps(traced: StackTrace, part: PartTrace, group: str) -> Iterator[Step]:
    if isinstance(part.module, Hyena):
        yield from _hyena(part, group, traced.name)
    elif isinstance(part.module, Recurrent):
        yield from _recurrence(part, group, traced.name)
    else:
        shows = [_strip(part, "read", "read", "", traced.name), _strip(part, "wrote", "written", "→", traced.name)]
        about = "This layer mixes positions without attention, by a method of its own."
        yield Step(f"{_key(part)}.wrote", group, part.title, about, "written = mixer(x)", shows)


def _hyena(part: PartTrace, group: str, rows: str) -> Iterator[Step]:
    hyena: Hyena = part.module
    key, gates = _key(part), hyena.order
    names = "; ".join(["v", *(f"x_{n}" for n in range(1, gates + 1))])

    def strip(what: str, label: str, sign: str = "") -> Show:
        return _strip(part, what, label, sign, rows)

    about = f"One product gives {gates + 1} streams: the values v, and {_counted(gates, 'gate')} x."
    shows = [strip("read", "x"), strip("projected", names, "→")]
    yield Step(f"{key}.projected", group, "Streams", about, f"[{names}] = x · W_in + b", shows)
    about = "Every number is mixed with the same number of its neighbours, by weights of its own."
    shows = [strip("projected", names), strip("streams", "streams", "→")]
    yield Step(f"{key}.streams", group, "Short convolution", about, "c_t = Σ_s w_s c_t+s + b", shows)
    before = strip("streams", "streams")
    for number in range(1, gates + 1):
        last = number == gates
        gated = strip("mixed" if last else f"gated{number}", "y" if last else "gated", "→")
        gate = Step(
            f"{key}.gate{number}",
            group,
            f"Gate {number}",
            f"Gate x_{number} multiplies number by number what has come so far.",
            f"z = x_{number} ⊙ z",
            [before, gated],
        )
        long = strip(f"convolved{number}", "convolved", "→")
        skipped = hyena.skips is not None
        convolution = Step(
            f"{key}.convolved{number}",
            group,
            f"Long convolution {number}",
            "Every number is summed over all positions it may see, by a filter that depends on the distance alone.",
            "z_t = Σ_s h_t−s z_s" + (" + D z_t" if skipped else ""),
            [before, long, Show(long.matrix, "map", "convolved, all positions", rows=rows)],
        )
        if skipped:  # gates come first, and nothing is convolved after the last
            yield gate
            if not last:
                shows = [strip(f"gated{number}", "gated"), *convolution.shows[1:]]
                yield replace(convolution, shows=shows)
            before = strip(f"convolved{number}", "convolved")
        else:
            yield convolution
            shows = [strip(f"convolved{number}", "convolved"), gated]
            yield replace(gate, shows=shows)
            before = strip(f"gated{number}", "gated")
    yield _product(part, "mixed", "y", rows, group)


def _recurrence(part: PartTrace, group: str, rows: str) -> Iterator[Step]:
    module: Recurrent = part.module
    both = module.backwards is not None
    about = "A state is carried from position to position"
    about += "" if isinstance(module, Rnn) else ", and gates decide what it keeps"
    about += "; a second one comes from the right." if both else "."
    if module.from_memory is not None and part.context is not None and part.context.memory is not None:
        about += " The first state is made from the end of the source."
    shows = [_strip(part, "read", "x", "", rows)]
    if isinstance(module, Lstm):
        shows.append(_strip(part, "memories", "memory c", "→", rows))
    shows.append(_strip(part, "states", "state h", "→", rows))
    shows.append(Show(f"{part.name}.states", "map", "states of all positions", rows=rows))
    yield Step(f"{_key(part)}.states", group, "Recurrence", about, CELLS[part.title], shows)
    yield _product(part, "states", "h", rows, group)


def search_steps(part: PartTrace, group: str, read: Show, wrote: Show) -> Iterator[Step]:
    """Bahdanau's decoder, after it has looked at the source."""
    rows, key = read.rows, _key(part)
    found = Show(f"{part.name}.heads", "strip", "z", "", True, rows)
    states = _strip(part, "states", "state s", "→", rows)
    about = "The weighted sum enters the recurrent cell beside the token: its next state."
    yield Step(f"{key}.states", group, "Recurrence", about, "s_t = cell([x; z], s_t−1)", [read, found, states])
    about = "State, token and weighted sum are mapped to pairs of numbers, and the larger of each two is kept."
    shows = [
        _strip(part, what, label, sign, rows) for what, label, sign in (("pairs", "pairs", ""), ("mixed", "t", "→"))
    ]
    yield Step(f"{key}.mixed", group, "Maxout", about, "t = maxout([s; x; z] · W + b)", [states, *shows])
    yield _product(part, "mixed", "t", rows, group)


def _product(part: PartTrace, what: str, symbol: str, rows: str, group: str) -> Step:
    bias = " + b" if part.module.to_out.bias is not None else ""
    scaled = " · layer scale" if part.scale_D is not None else ""
    shows = [_strip(part, what, symbol, "", rows), _strip(part, "wrote", "written", "→", rows)]
    about = "A matrix maps it to what is written."
    return Step(
        f"{_key(part)}.wrote", group, "Product with W_out", about, f"written = {symbol} · W_out{bias}{scaled}", shows
    )


def _strip(part: PartTrace, what: str, label: str, sign: str, rows: str) -> Show:
    return Show(f"{part.name}.{what}", "strip", label, sign, rows=rows)


def _key(part: PartTrace) -> str:
    return part.name.rpartition(".")[2]


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
