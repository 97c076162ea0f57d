"""The translators that the benchmarks measure, and the sentences they are given.

A translator comes from a run, or is trained now for some seconds, or has random weights. All have the shape of Marian
in `transformers` (post-norm, ReLU, sines before cosines), so that one of its models can take the same weights.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard
from regard.data.samples import english_german
from regard.data.tokenizers import END, PAD, START, TextTokenizer, train_tokenizer
from regard.decoding.engines import Engines
from regard.decoding.translate import Translator
from regard.models.seq2seq import Seq2Seq
from regard.run import read_recipe
from regard.settings import BeamSettings, PairModel, PairTokenizerSettings

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TEST = Path("tatoeba-challenge-test", "tatoeba-test-v2021-08-07.deu-eng.txt.gz")
TRAIN = Path("tatoeba-deu-eng", "deu.txt.gz")
TINY = {"layers": 2, "width": 64, "heads": 4, "feedforward": 128}
RANDOM = "random"
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Subject:
    """A translator to measure: its weights and tokenizers."""

    model: Seq2Seq
    source_tokenizer: TextTokenizer
    target_tokenizer: TextTokenizer
    weights: str  # where they come from

    def translator(self, engines: Engines, settings: BeamSettings, max_positions: int = 512) -> Translator:
        """Regard's, on these engines of its weights."""
        return Translator(self.source_tokenizer, self.target_tokenizer, settings, max_positions, engines)


# ---------------------------------------------------------------- where it comes from


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=SHARED, help=f"the folder with {TEST.parent} and {TRAIN.parent}")
    parser.add_argument("--run", help="measure the translator of this run")
    parser.add_argument("--train", type=float, metavar="SECONDS", help="train one first, for this long; else random")
    parser.add_argument("--out", type=Path, help="keep the run that --train makes here")
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--tiny", action="store_true", help="a small model and built-in sentences: seconds on a CPU")


def subject(options: argparse.Namespace, folder: Path, device: torch.device, silent: tuple[int, ...] = ()) -> Subject:
    """What the options ask for, in float32 on the device. `folder` is for what is written on the way."""
    if options.run:
        return from_run(options.run, device)
    if options.train:
        return from_run(trained(options, options.out or folder / "run", folder, device), device)
    texts = [text for pair in pairs_to_learn_from(options) for text in pair]
    tokenizer = train_tokenizer(texts, PairTokenizerSettings(vocabulary=vocabulary_of(options)))
    return with_random_weights(tokenizer, options.tiny, (PAD, START, *silent), device)


def from_run(run: str | Path, device: torch.device) -> Subject:
    task = regard.load(run, device=str(device))
    return Subject(task.model, *task.tokenizers.both, weights=f"the run {run}")


def with_random_weights(tokenizer: TextTokenizer, tiny: bool, silent: tuple[int, ...], device: torch.device) -> Subject:
    """`transformer-base` as it starts, but for biases and norms, which start at 0 and 1; these tokens never come."""
    shape = read_recipe("transformer-base").model.model_dump() | base_shape(tiny) | {"tie_embeddings": "target"}
    torch.manual_seed(1)
    model = Seq2Seq(PairModel(**shape), tokenizer.size, tokenizer.size).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
        # The last norm gives this channel the same number everywhere, against which these tokens stand.
        last: Any = model.decoder[-1]
        last.feedforward_norm.weight[0], last.feedforward_norm.bias[0] = 0.0, 10.0
        model.to_logits.weight[:, 0] = 0.0
        model.to_logits.weight[list(silent), 0] = -4.0
    return Subject(model.to(device), tokenizer, tokenizer, weights=RANDOM)


def trained(options: argparse.Namespace, out: Path, folder: Path, device: torch.device) -> Path:
    """A run of about this many seconds of training; the first few steps tell how many steps that is."""
    overrides = training_overrides(options, folder, device)
    probe = regard.train("transformer-base", *overrides, *length(12), out=folder / "probe", data=options.data)
    records = [json.loads(line) for line in Path(probe, "metrics.jsonl").read_text().splitlines()]
    logged = [(record["step"], record["seconds"]) for record in records if "learning_rate" in record]
    (first, started), (last, ended) = logged[len(logged) // 2], logged[-1]
    steps = max(12, int(options.train * (last - first) / (ended - started)))
    print(f"training for {steps:,} steps", flush=True)
    return regard.train("transformer-base", *overrides, *length(steps), out=out, data=options.data)


def length(steps: int) -> list[str]:
    every = max(1, steps // 12)
    return [
        f"training.steps={steps}",
        f"training.warmup={max(1, min(400, steps // 5))}",
        f"training.validate_every={steps}",
        f"training.save_every={steps}",
        f"training.log_every={every}",
    ]


def base_shape(tiny: bool) -> dict[str, Any]:
    return {"positions": "sinusoidal-halves", **(TINY if tiny else {})}


def vocabulary_of(options: argparse.Namespace) -> int:
    return 600 if options.tiny else options.vocabulary


def training_data(tiny: bool, folder: Path) -> list[str]:
    """Settings: Tatoeba's pairs, or a few built-in ones, written to this folder; some are held out."""
    if not tiny:
        files, held_out = [str(TRAIN)], 0.0005
    else:
        files, held_out = [str(folder.resolve() / "pairs.tsv")], 0.02
        lines = [f"{source}\t{target}\n" for source, target in english_german.pairs(1_000, seed=1)]
        Path(files[0]).write_text("".join(lines), encoding="utf-8")
    return [f"data.train={json.dumps(files)}", "data.valid=[]", "data.test=[]", f"data.held_out={held_out}"]


def training_overrides(options: argparse.Namespace, folder: Path, device: torch.device) -> list[str]:
    """Changes to `transformer-base`: Marian's shape, these pairs, a short schedule."""
    changes = [*training_data(options.tiny, folder), f"tokenizer.vocabulary={vocabulary_of(options)}"]
    changes += [f"model.{name}={value}" for name, value in base_shape(options.tiny).items()]
    changes += ["training.schedule=cosine", "training.learning_rate=0.0007", "training.average_checkpoints=0"]
    changes += ["training.validate_bleu=false", f"system.device={device.type}"]
    if options.tiny:
        changes += ["training.tokens_per_batch=512", "training.row_length=64", "data.max_length=48"]
    return changes


# ---------------------------------------------------------------- sentences


def pairs_to_learn_from(options: argparse.Namespace) -> Pairs:
    """English and German: Tatoeba's pairs, or built-in ones."""
    if options.tiny:
        return english_german.pairs(500, seed=1)
    return [(line[0], line[1]) for line in _columns(_there(options.data / TRAIN))]


def pairs_to_translate(options: argparse.Namespace, count: int) -> Pairs:
    """This many of the test's pairs, English and German, evenly spread over the file."""
    if options.tiny:
        return english_german.pairs(count, seed=2)
    pairs = [(line[3], line[2]) for line in _columns(_there(options.data / TEST))]
    return [pairs[place * len(pairs) // count] for place in range(min(count, len(pairs)))]


def made_up(vocabulary: int, words: int, count: int) -> tuple[TextTokenizer, list[str]]:
    """A tokenizer of whole words with this many entries, and sentences of so many of its words."""
    known = [f"{first}{second}{third}" for first in LETTERS for second in LETTERS for third in LETTERS]
    tokenizer = train_tokenizer([" ".join(known)], PairTokenizerSettings(kind="word", vocabulary=vocabulary))
    chance = random.Random(1)
    inside = [word for word in known if len(tokenizer.encode([word])[0]) == 1]
    return tokenizer, [" ".join(chance.choices(inside, k=words)) for _ in range(count)]


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _columns(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def _there(path: Path) -> Path:
    if not path.is_file():
        sys.exit(f"'{path}' is not there. Name the folder of the data with --data, or use --tiny.")
    return path


def source_ids(subject: Subject, sentences: list[str]) -> list[list[int]]:
    """As the translator reads them: with <end>."""
    return [[*ids, END] for ids in subject.source_tokenizer.encode(sentences)]
