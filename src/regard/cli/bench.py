"""`regard bench`: what mixers cost on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.app import DeviceOption, JsonOption, app, number_option, show
from regard.errors import UsageError, did_you_mean

BENCHES = ("mixers",)
LENGTHS = "256,512,1024,2048,4096,8192,16384,32768,65536"


@app.command()
def bench(
    what: Annotated[str, typer.Argument(help="What to measure: mixers.", show_default=False)],
    lengths: Annotated[str, typer.Option(help="Lengths of the sequence.", show_default="256,512 … 65536")] = LENGTHS,
    mixers: Annotated[
        str, typer.Option(help="Which: attention,hyena … or unfused.", show_default="all, and unfused attention")
    ] = "",
    width: Annotated[
        int | None, number_option("Size of the vectors.", default="768 on a GPU, 128 on a CPU", least=2)
    ] = None,
    heads: Annotated[int | None, number_option("Heads of attention.", default="width / 64")] = None,
    batch: Annotated[int, number_option("Sequences at a time.")] = 1,
    window: Annotated[int, number_option("How far local attention sees.")] = 128,
    decode: Annotated[bool, typer.Option(help="Decode token by token, too.")] = True,
    compile_layers: Annotated[bool, typer.Option("--compile/--no-compile", help="On a GPU: torch.compile.")] = True,
    rounds: Annotated[int, number_option("Measurements of each; the median counts.")] = 5,
    seconds: Annotated[
        float, typer.Option(min=0.001, help="For each measurement; a mixer stops where one pass would take longer.")
    ] = 2.0,
    out: Annotated[Path, typer.Option(help="Where to put the result.")] = Path("runs/bench-mixers"),
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure what mixers cost, against the length.

    Time and memory of forward + backward, and of decoding a token, for one layer of every mixer on this machine; how
    each grows with the length; and a picture.

    regard bench mixers --lengths 256,1024,4096 --mixers attention,hyena
    """
    if what not in BENCHES:
        raise UsageError(f"'{what}' cannot be measured.", "There is no such benchmark.", did_you_mean(what, BENCHES))
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise UsageError(f"There is no device '{device}'.", "Nothing can run on it.", "Use auto, cpu, cuda or cuda:1.")
    asked = _lengths(lengths)
    from regard.evaluation import bench as benchmark
    from regard.explain.costs import draw_costs

    request = benchmark.Request(
        mixers=_mixers(mixers, benchmark.known_mixers()),
        lengths=asked,
        out=out,
        width=width,
        heads=heads,
        batch=batch,
        own={"local": {"window": window}},
        rounds=rounds,
        seconds=seconds,
        decode=decode,
        compile=compile_layers,
        device=device,
    )
    content, shown = benchmark.run(request, draw_costs)
    show(content, as_json, lambda _: shown)


def _lengths(text: str) -> list[int]:
    """The lengths in order, each once."""
    numbers = set()
    for word in text.split(","):
        if not word.strip().isdecimal() or int(word) < 2:
            raise UsageError(
                f"'{word.strip()}' is not the length of a sequence.",
                "--lengths takes whole numbers from 2 on, with commas between.",
                "Use --lengths 256,512,1024, say.",
            )
        numbers.add(int(word))
    return sorted(numbers)


def _mixers(text: str, known: list[str]) -> list[str]:
    """The mixers in the order asked for; all of them if none is named."""
    names = [word.strip() for word in text.split(",")] if text.strip() else known
    for name in names:
        if name not in known:
            raise UsageError(f"There is no mixer '{name}'.", "It cannot be measured.", did_you_mean(name, known))
    return list(dict.fromkeys(names))
