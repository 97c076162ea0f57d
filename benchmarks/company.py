"""Does a sentence's translation depend on those it is translated with? Or a text on those that are written beside it?

    python benchmarks/company.py --data DIR --train 120         # trains a translator for two minutes, then asks
    python benchmarks/company.py --data DIR --run RUN           # of the shape in benchmarks/translators.py
    python benchmarks/company.py --tiny                         # seconds on a CPU

1,000 sentences are translated, with the beam and greedily; then again in 20 shuffles, in pieces, one at a time, and
among longer and shorter ones. It counts the sentences of which a text, or a bit of a score, is not that of the first
time. The same with prompts that a language model continues: greedily in shuffles; drawn at random in pieces, each under
its own number. Always with the same number of slots (--slots), however few are asked for: that is what is promised.
Ends with 1 if anything differs. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard
from measured import device_named, machine, show
from regard.data.tokenizers import END, PAD, START
from regard.decoding.engines import Engines
from regard.decoding.generate import generate
from regard.decoding.translate import Translator
from regard.models.causal import Causal
from regard.settings import BeamSettings, CausalModel, GenerationSettings
from translators import RANDOM, add_options, pairs_to_translate, subject

Answer = tuple[tuple[str, str], ...]  # texts, best first, each with the bits of its score
PIECES = (1, 7, 64)
CONTEXT = 96


def translated(translator: Translator, sentences: Sequence[str]) -> list[Answer]:
    """All hypotheses of each sentence, with their scores to the last bit."""
    found = translator.translate(sentences)
    return [tuple((each.text, each.score.hex()) for each in hypotheses) for hypotheses in found]


def continued(
    engines: Engines, prompts: Sequence[list[int]], settings: GenerationSettings, first: int = 0
) -> list[Answer]:
    """The tokens written after each prompt, with their probabilities to the last bit."""
    written: list[list[tuple[str, str]]] = [[] for _ in prompts]
    how: dict[str, Any] = {"context": CONTEXT, "end": END, "never": (PAD, START)}
    numbers = range(first, first + len(prompts))
    for each in generate(engines.source, prompts, settings, numbers=numbers, engines=engines, **how):
        written[each.row].append((str(each.token), each.probability.hex()))
    return [((" ".join(token for token, _ in text), " ".join(bits for _, bits in text)),) for text in written]


@dataclass
class Tally:
    """How many answers of a pass differ from those of the first: in their best text, in its score, in any other."""

    what: str
    asked: int = 0
    text: int = 0
    score: int = 0
    anything: int = 0
    seconds: float = 0.0

    def add(self, first: Sequence[Answer], again: Sequence[Answer]) -> None:
        for before, after in zip(first, again, strict=True):
            self.asked += 1
            self.text += texts(before[:1]) != texts(after[:1])
            self.score += before[:1] != after[:1]
            self.anything += before != after

    @property
    def row(self) -> list[Any]:
        return [self.what, self.asked, self.text, self.score, self.anything, f"{self.seconds:.1f}"]


def texts(answer: Answer) -> list[str]:
    return [text for text, _ in answer]


def shuffles(count: int, times: int) -> Iterator[list[int]]:
    for number in range(times):
        order = list(range(count))
        random.Random(number).shuffle(order)
        yield order


def ask(
    what: str, first: Sequence[Answer], passes: Iterator[list[int]], answer: Callable[[list[int]], list[Answer]]
) -> Tally:
    """Ask again for the items of every pass, in its order."""
    tally, started = Tally(what), time.perf_counter()
    for places in passes:
        tally.add([first[place] for place in places], answer(places))
    tally.seconds = time.perf_counter() - started
    show(*tally.row)
    return tally


def of_translator(name: str, translator: Translator, sentences: list[str], options: argparse.Namespace) -> list[Tally]:
    first = translated(translator, sentences)
    count, alone = len(sentences), min(options.alone, len(sentences))

    def answer(places: list[int]) -> list[Answer]:
        return translated(translator, [sentences[place] for place in places])

    found = [ask(f"{name}, {options.shuffles} shuffles", first, shuffles(count, options.shuffles), answer)]
    for size in PIECES:
        most = alone if size == 1 else count
        pieces = (list(range(start, min(start + size, most))) for start in range(0, most, size))
        found.append(ask(f"{name}, {'one at a time' if size == 1 else f'{size} at a time'}", first, pieces, answer))
    by_length = sorted(range(count), key=lambda place: len(sentences[place]))
    among = iter(
        [[place, *by_length[-20:], *by_length[:20]] for place in range(0, count, -(-count // options.shuffles))]
    )
    return [*found, ask(f"{name}, among the longest and shortest", first, among, answer)]


def of_language_model(engines: Engines, options: argparse.Namespace) -> list[Tally]:
    chance, words = random.Random(1), engines.source.to_logits.out_features
    prompts = [[chance.randrange(3, words) for _ in range(chance.randint(1, 40))] for _ in range(options.prompts)]
    greedy = GenerationSettings(max_tokens=options.tokens, temperature=0.0, slots=options.slots)
    drawn = GenerationSettings(max_tokens=options.tokens, temperature=1.0, top_k=40, slots=options.slots)
    first = continued(engines, prompts, greedy)

    def answer(places: list[int]) -> list[Answer]:
        return continued(engines, [prompts[place] for place in places], greedy)

    found = [ask(f"greedy texts, {options.shuffles} shuffles", first, shuffles(len(prompts), options.shuffles), answer)]
    sampled = continued(engines, prompts, drawn)

    def piece(places: list[int]) -> list[Answer]:
        return continued(engines, [prompts[place] for place in places], drawn, first=places[0])

    for size in PIECES:
        pieces = (list(range(start, min(start + size, len(prompts)))) for start in range(0, len(prompts), size))
        found.append(ask(f"drawn texts, {size} at a time", sampled, pieces, piece))
    return found


def random_language_model(tiny: bool) -> Causal:
    torch.manual_seed(2)
    size = {"layers": 2, "width": 64, "heads": 4} if tiny else {"layers": 6, "width": 384, "heads": 6}
    settings = CausalModel(
        **size, feedforward=4 * size["width"], positions="learned", max_positions=CONTEXT, norm="pre"
    )
    return Causal(settings, 503 if tiny else 8_000).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", help="auto: bfloat16 on a GPU, else float32")
    parser.add_argument("--language", help="the run of a language model, instead of random weights")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--shuffles", type=int, default=20)
    parser.add_argument("--slots", type=int, default=32, help="texts decoded side by side")
    parser.add_argument("--alone", type=int, default=20, help="sentences also translated one at a time")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32, help="written after each prompt")
    parser.add_argument("--beam", type=int, default=4)
    options = parser.parse_args()
    if options.tiny:
        options.sentences, options.shuffles, options.alone, options.prompts, options.tokens = 24, 2, 5, 10, 8
    device = device_named(options.device)
    half = options.dtype == "bfloat16" or (options.dtype == "auto" and device.type == "cuda")
    precision = torch.bfloat16 if half else torch.float32
    with tempfile.TemporaryDirectory() as temporary:
        measured = subject(options, Path(temporary), device)
        engines = Engines(measured.model, device, precision)
    sentences = [source for source, _ in pairs_to_translate(options, options.sentences)]
    tallies = []
    show("what", "asked again", "other texts", "other scores", "other in any hypothesis", "seconds")
    for beam in (options.beam, 1):
        # Random weights do not end: their translations are kept short.
        limit = {"max_ratio": 0.25} if measured.weights == RANDOM else {}
        translator = measured.translator(engines, BeamSettings(beam=beam, slots=options.slots, **limit))
        tallies += of_translator(f"beam {beam}" if beam > 1 else "greedy", translator, sentences, options)
    loaded = regard.load(options.language, device=str(device)).model if options.language else None
    language = (loaded or random_language_model(options.tiny)).to(device)
    tallies += of_language_model(Engines(language, device, precision), options)
    differ = sum(tally.anything for tally in tallies)
    counts = {tally.what: [tally.asked, tally.text, tally.score, tally.anything] for tally in tallies}
    result = {"precision": str(precision), "weights": measured.weights, "asked": sum(t.asked for t in tallies)}
    print(json.dumps({"question": "company", **machine(device), **result, "differ": differ, "counts": counts}))
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
