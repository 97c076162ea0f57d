"""How quickly does Transformer base translate? Regard beside Marian in `transformers`, and CTranslate2 on a CPU.

    python benchmarks/translation_decoding.py --data DIR --train 120    # trains one for two minutes, then measures it
    python benchmarks/translation_decoding.py --data DIR --run RUN      # of that shape: see benchmarks/translators.py
    python benchmarks/translation_decoding.py --fixed 50 --vocabulary 1775 --threads 2      # random weights, 50 tokens
    python benchmarks/translation_decoding.py --tiny                    # seconds on a CPU

All have the same weights, tokenizers, beam and longest lengths; no length penalty; a sentence is done when as many
hypotheses have ended as the beam is wide. Tokenising and the way back to text are counted. Before that, logits and
translations are compared in float32. Sentences are translated all together (`transformers` and CTranslate2 sorted by
length, in batches of several sizes, of which the best counts) and one at a time. With --fixed nothing ends by itself,
and all write this many tokens, greedily and with the beam, in batches of 1 and 32. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from measured import best, device_named, exact_float32, in_turn, left_out, machine, ratio, show, shown
from peers import ctranslate2_of, marian
from regard.data.tokenizers import END, PAD, START
from regard.decoding.engines import Engines
from regard.decoding.translate import Translator
from regard.evaluation.metrics import bleu
from regard.settings import BeamSettings
from translators import (
    RANDOM,
    Subject,
    add_options,
    made_up,
    pairs_to_translate,
    source_ids,
    subject,
    with_random_weights,
)

FIXED_WORDS = 9  # of a made-up sentence; with <end> ten tokens
COMPARED = 200  # sentences translated by all in float32 before anything is measured


# ---------------------------------------------------------------- the contenders


def ours(translator: Translator, sentences: Sequence[str], batch: int = 0) -> list[str]:
    """Regard's best translations: of all sentences at once, or of so many at a time."""
    found: list[str] = []
    for some in chunks(sentences, batch or len(sentences)):
        found += [best[0].text if best else "" for best in translator.translate(some, best=1)]
    return found


def theirs(peer: Any, subject: Subject, sentences: Sequence[str], batch: int, settings: BeamSettings) -> list[str]:
    """Those of `transformers`."""
    how: dict[str, Any] = {"num_beams": settings.beam, "do_sample": False}
    if settings.beam > 1:
        how |= {"early_stopping": True, "length_penalty": 0.0}
    sources = source_ids(subject, list(sentences))
    found: list[list[int]] = [[] for _ in sources]
    for some in chunks(longest_first(sources), batch):
        longest = len(sources[some[0]])
        rows = [[*sources[place], *[PAD] * (longest - len(sources[place]))] for place in some]
        ids_BS = torch.tensor(rows, device=peer.device)
        most = limit(settings, longest)
        out_BT = peer.generate(ids_BS, attention_mask=(ids_BS != PAD).long(), max_new_tokens=most, **how)
        for place, tokens in zip(some, out_BT[:, 1:].tolist(), strict=True):
            found[place] = tokens[: tokens.index(END)] if END in tokens else tokens
    return subject.target_tokenizer.decode(found)


def ctranslate2s(
    engine: Any, subject: Subject, sentences: Sequence[str], batch: int, settings: BeamSettings
) -> list[str]:
    """Those of CTranslate2, which sorts and batches by itself."""
    sources = source_ids(subject, list(sentences))
    results = engine.translate_batch(
        [[str(token) for token in source] for source in sources],
        max_batch_size=batch,
        beam_size=settings.beam,
        num_hypotheses=settings.beam,  # with fewer it would stop earlier than the others
        length_penalty=0.0,
        max_decoding_length=limit(settings, max(map(len, sources))),
        min_decoding_length=0,  # as the others, it may translate into nothing
        max_input_length=0,
    )
    return subject.target_tokenizer.decode([[int(token) for token in result.hypotheses[0]] for result in results])


def limit(settings: BeamSettings, source: int) -> int:
    """The most tokens of a translation, as Regard has it."""
    return int(settings.max_ratio * source) + 20


def longest_first(sources: Sequence[Sequence[int]]) -> list[int]:
    return sorted(range(len(sources)), key=lambda place: -len(sources[place]))


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


# ---------------------------------------------------------------- measuring


@dataclass
class Arena:
    """The same translator in every form, and what was measured of it."""

    subject: Subject
    device: torch.device
    rounds: int
    precision: torch.dtype
    folder: Path
    threads: int
    own: Any = None  # Regard's engines, in this precision
    own_int8: Any = None  # on a CPU
    peer: Any = None  # that of `transformers`; None if it is missing
    engines: dict[str, Any] = field(default_factory=dict)  # those of CTranslate2
    speeds: dict[str, Any] = field(default_factory=dict)
    ratios: dict[str, Any] = field(default_factory=dict)

    @exact_float32()
    def prepare(self, sentences: list[str], settings: BeamSettings) -> dict[str, Any]:
        """Make every form of the translator; how far their results in float32 are apart."""
        model, apart = self.subject.model, {}
        self.own = Engines(model, self.device)
        expected = ours(self.translator(settings), sentences)
        try:
            self.peer = marian(model)
            found = theirs(self.peer, self.subject, sentences, 32, settings)
            apart["transformers"] = {"identical": same(expected, found), "of": len(sentences)}
            apart["logits"] = logits_apart(self.subject, self.peer, sentences[:8], expected[:8])
            print(f"logits in float32: at most {apart['logits']:.2g} apart")
            self.peer = self.peer.to(self.precision)
        except ImportError as error:
            left_out("transformers", error)
        if self.device.type == "cpu":
            self._make_engines()
            for name, engine in self.engines.items():
                self.before()
                found = ctranslate2s(engine, self.subject, sentences, 32, settings)
                apart[name] = {"identical": same(expected, found), "of": len(sentences)}
        for name, counts in apart.items():
            if name != "logits":
                print(f"{name}: {counts['identical']} of {counts['of']} best translations are those of Regard")
        self.own = Engines(model, self.device, self.precision)
        self.own_int8 = Engines(model, self.device, int8=True) if self.device.type == "cpu" else None
        show("what", "who", "speed", "Regard is quicker by", "best translations as Regard's", "BLEU")
        return apart

    def _make_engines(self) -> None:
        try:
            from ctranslate2 import Translator as Engine
        except ImportError as error:
            left_out("CTranslate2", error)
            return
        for kind in ("float32", "int8"):
            path = ctranslate2_of(self.subject.model, self.folder / f"ctranslate2-{kind}", kind)
            for inter, intra in sorted({(1, self.threads), (self.threads, 1)}):
                name = f"CTranslate2 {kind}, {inter} × {intra} threads"
                how = {"inter_threads": inter, "intra_threads": intra}
                self.engines[name] = Engine(str(path), device="cpu", compute_type=kind, **how)

    def before(self) -> None:
        """The number of threads again, which CTranslate2 changes; and time for its own to stop waiting for work."""
        if self.engines:
            torch.set_num_threads(self.threads)
            time.sleep(0.3)

    def translator(self, settings: BeamSettings) -> Translator:
        return self.subject.translator(self.own, settings)

    def measure(
        self,
        title: str,
        sentences: list[str],
        references: list[str],
        settings: BeamSettings,
        own_batch: int,
        batches: Sequence[int],
        tokens: int = 0,
    ) -> None:
        """All contenders on these sentences. `tokens`: how many each writes, where that is fixed."""
        contenders: dict[str, Callable[[], list[str]]] = {
            "Regard": partial(ours, self.translator(settings), sentences, own_batch)
        }
        if self.device.type == "cpu":
            in_int8 = self.subject.translator(self.own_int8, settings)
            contenders["Regard int8"] = partial(ours, in_int8, sentences, own_batch)
        for batch in batches:
            if self.peer is not None:
                name = f"transformers, batch {batch}"
                contenders[name] = partial(theirs, self.peer, self.subject, sentences, batch, settings)
            # One at a time is how long a user waits: nothing runs beside it.
            alone = "one at a time" in title
            for engine_name, engine in self.engines.items():
                if alone and engine.num_translators > 1:
                    continue
                name = f"{engine_name}, batch {batch}"
                contenders[name] = partial(ctranslate2s, engine, self.subject, sentences, batch, settings)
        seconds, given = in_turn(contenders, self.rounds, self.device, before=self.before)
        expected = given["Regard"]
        unit = tokens or 1
        for name, of_rounds in seconds.items():
            found = given[name]
            speed = unit * len(sentences) / statistics.median(of_rounds)
            quicker = ratio(seconds["Regard"], of_rounds)
            score = round(bleu(found, references), 2) if references else "-"
            agreed = f"{same(expected, found)} of {len(found)}"
            show(title, name, shown(speed), quicker["median"], agreed, score)
            self.speeds[f"{title}: {name}"] = {
                "tokens_per_second" if tokens else "sentences_per_second": round(speed, 2),
                "identical": same(expected, found),
                "bleu": score,
                "ratio": quicker,
            }
        for peer in ("transformers", "CTranslate2 float32", "CTranslate2 int8"):
            quickest = best(seconds, [name for name in contenders if name.startswith(peer)])
            if quickest:
                self.ratios[f"{title}, {peer}"] = {"peer": quickest, **ratio(seconds["Regard"], seconds[quickest])}


@torch.inference_mode()
def logits_apart(subject: Subject, peer: Any, sentences: list[str], targets: list[str]) -> float:
    """The largest difference of any logit, given sentences and their translations."""
    model, device = subject.model, peer.device
    rows = source_ids(subject, sentences), [[START, *ids] for ids in subject.target_tokenizer.encode(targets)]
    source_BS, target_BT = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in side], True, PAD).to(device) for side in rows
    )
    segments_BS, segments_BT = (source_BS != PAD).long(), (target_BT != PAD).long()
    places_BS, places_BT = (
        torch.arange(side.shape[1], device=device).expand_as(side) for side in (source_BS, target_BT)
    )
    mine = model(source_BS, segments_BS, places_BS, target_BT, segments_BT, places_BT)
    other = peer(input_ids=source_BS, attention_mask=segments_BS, decoder_input_ids=target_BT).logits
    return float((mine - other)[segments_BT.bool()].abs().max())


def same(left: Sequence[str], right: Sequence[str]) -> int:
    return sum(a == b for a, b in zip(left, right, strict=True))


# ---------------------------------------------------------------- the two questions


def sentences_that_end(arena: Arena, options: argparse.Namespace) -> dict[str, Any]:
    pairs = pairs_to_translate(options, options.sentences)
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    tokens = statistics.fmean(map(len, source_ids(arena.subject, sources)))
    print(f"speed in sentences per second; weights: {arena.subject.weights}")
    print(f"{len(pairs):,} sentences of {tokens:.1f} tokens, <end> counted")
    settings = BeamSettings(beam=options.beam, length_penalty=0.0)
    if arena.subject.weights == RANDOM:  # nothing ends by itself, and a batch of the peer has one longest length
        settings = BeamSettings(beam=options.beam, length_penalty=0.0, max_ratio=0.001)
        print(f"random weights do not end: all translations have {limit(settings, 1)} tokens")
    apart = arena.prepare(sources[: min(COMPARED, len(sources))], settings)
    batches = [int(size) for size in options.batches.split(",")]
    arena.measure(f"beam {options.beam}, all", sources, references, settings, 0, batches)
    few = slice(0, options.singles)
    arena.measure(f"beam {options.beam}, one at a time", sources[few], references[few], settings, 1, [1])
    return apart


def a_fixed_length(arena: Arena, sentences: list[str], options: argparse.Namespace) -> dict[str, Any]:
    print(f"speed in tokens per second; random weights, vocabulary {arena.subject.target_tokenizer.size:,}")
    print(f"{options.fixed} tokens written for {FIXED_WORDS + 1} read, <end> counted")
    ratio_of_lengths = (options.fixed - 20) / (FIXED_WORDS + 1)
    beams = {
        beam: BeamSettings(beam=beam, length_penalty=0.0, max_ratio=ratio_of_lengths) for beam in (1, options.beam)
    }
    apart = arena.prepare(sentences[:8], beams[options.beam])
    for beam, settings in beams.items():
        for batch, count in ((1, len(sentences) // 8), (32, len(sentences))):
            some = sentences[:count]
            title = f"{'greedy' if beam == 1 else f'beam {beam}'}, batch {batch}"
            arena.measure(title, some, [], settings, batch, [batch], tokens=options.fixed)
    return apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", help="auto: bfloat16 on a GPU, else float32")
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batches", default="64,256,1024", help="of the peers; Regard chooses its own")
    parser.add_argument("--sentences", type=int, default=2350)
    parser.add_argument("--singles", type=int, default=50, help="sentences translated one at a time")
    parser.add_argument("--fixed", type=int, default=0, metavar="TOKENS", help="write so many tokens, random weights")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.tiny:
        options.sentences, options.singles, options.batches, options.rounds = 24, 3, "4,16", 2
    device = device_named(options.device)
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    half = options.dtype == "bfloat16" or (options.dtype == "auto" and device.type == "cuda")
    precision = torch.bfloat16 if half else torch.float32
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.fixed:
            size, count = (400, 16) if options.tiny else (options.vocabulary, 64)
            tokenizer, sentences = made_up(size, FIXED_WORDS, count)
            measured = with_random_weights(tokenizer, options.tiny, (PAD, START, END), device)
        else:
            measured = subject(options, folder, device)
        arena = Arena(measured, device, options.rounds, precision, folder, options.threads)
        apart = a_fixed_length(arena, sentences, options) if options.fixed else sentences_that_end(arena, options)
    result = {"precision": str(precision), "weights": measured.weights, "in_float32": apart}
    result |= {"speeds": arena.speeds, "ratios": arena.ratios}
    print(json.dumps({"question": "translation_decoding", **machine(device), "threads": options.threads, **result}))


if __name__ == "__main__":
    main()
