"""How quickly does a translator train on sentences of real lengths? Regard beside `transformers`, or nn.Transformer.

    python benchmarks/translation_training.py --data DIR                # Transformer base and Marian, on Tatoeba
    python benchmarks/translation_training.py --size demo --device cpu  # the demo's model and plain nn.Transformer
    python benchmarks/translation_training.py --tiny                    # seconds on a CPU; built-in sentences

Speed is in target tokens per second, padding not counted. Regard's is what `regard train` logs: its own batches, packed
rows, loss, norm and update. The peer gets the same sentences sorted by length and padded to the longest of a batch, as
many target tokens in a batch as Regard has, the same loss, optimizer and precision, and its batches ready in memory;
eager, and compiled for any shape (on a GPU). First, with the same weights, the loss of the same sentences must be the
same. The first steps of each training are not counted. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from measured import best, device_named, exact_float32, left_out, machine, ratio, show, shown
from peers import Plain, marian
from regard.data.batch import DataState
from regard.data.cache import cache_folder
from regard.data.pair_batches import PairBatch, PairStream, Rectangle
from regard.data.pairs import pair_splits
from regard.data.tokenised import TokenisedPairs, tokenise_pairs
from regard.data.tokenizers import END, PAD, START
from translators import SHARED, TRAIN, base_shape, training_data, vocabulary_of

WARM = 4  # of ten parts of a training, the first that are not counted


# ---------------------------------------------------------------- Regard


def ours(recipe: str, overrides: list[str], out: Path, data: Path) -> tuple[float, int]:
    """Target tokens per second of a training, as it logs them, and its peak memory in bytes."""
    run = regard.train(recipe, *overrides, out=out, data=data)
    records = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
    speeds = [value for record in records for key, value in record.items() if key.endswith("_per_second")]
    memory = json.loads(Path(run, "summary.json").read_text())["peak_memory_bytes"]
    free()
    return statistics.median(speeds[len(speeds) * WARM // 10 :]), memory


def overrides(options: argparse.Namespace, steps: int, folder: Path, device: torch.device) -> list[str]:
    changes = [f"training.steps={steps}", f"training.log_every={max(1, steps // 10)}", f"system.device={device.type}"]
    changes += [f"training.validate_every={steps}", f"training.save_every={steps}", "training.validate_bleu=false"]
    changes += ["decoding.beam=1", f"system.compile={options.compile}", f"system.threads={options.threads}"]
    if options.size == "base":
        changes += [*training_data(options.tiny, folder), f"training.warmup={min(4000, steps)}"]
        changes += [f"model.{name}={value}" for name, value in base_shape(options.tiny).items()]
        changes += [f"tokenizer.vocabulary={vocabulary_of(options)}", "training.average_checkpoints=0"]
    else:
        changes += ["data.sample=", *training_data(True, folder)] if options.tiny else []
        changes.append(f"training.warmup={min(60, steps)}")
    return [*changes, "training.tokens_per_batch=512"] if options.tiny else changes


# ---------------------------------------------------------------- the peer


@dataclass(frozen=True)
class Padded:
    """One sentence a row, as wide as the longest of each side."""

    source_BS: Tensor
    target_BT: Tensor  # <start> and the sentence
    labels_BT: Tensor  # the sentence and <end>

    @classmethod
    def of(cls, pairs: list[tuple[list[int], list[int]]]) -> Padded:
        rows = (
            [[*source, END] for source, _ in pairs],
            [[START, *target] for _, target in pairs],
            [[*target, END] for _, target in pairs],
        )
        return cls(*(nn.utils.rnn.pad_sequence([torch.tensor(row) for row in side], True, PAD) for side in rows))

    @property
    def targets(self) -> int:
        return int((self.labels_BT != PAD).sum())

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.source_BS, self.target_BT, self.labels_BT

    def to(self, device: torch.device) -> Padded:
        return Padded(*(each.to(device, non_blocking=True) for each in self.tensors()))

    def pinned(self) -> Padded:
        return Padded(*(each.pin_memory() for each in self.tensors()))


def sorted_batches(pairs: TokenisedPairs, targets: int, most: int, longest: int) -> list[Padded]:
    """Batches of sentences of like length with about this many target tokens each, in random order, `most` of them."""
    lengths = np.stack([pairs.source.lengths, pairs.target.lengths])
    usable = np.flatnonzero((lengths < longest).all(0))
    order = usable[np.lexsort((lengths[0][usable], lengths[1][usable]))]
    ends = np.cumsum(lengths[1][order] + 1)
    cuts = np.searchsorted(ends, np.arange(targets, ends[-1], targets))
    groups = [group for group in np.split(order, np.unique(cuts)) if len(group)][:-1] or [order]
    chosen = np.random.default_rng(1).permutation(len(groups))[:most]
    return [
        Padded.of([(pairs.source[int(i)].tolist(), pairs.target[int(i)].tolist()) for i in groups[number]])
        for number in chosen
    ]


@dataclass
class Peer:
    """Another library's model of the same shape, and how it is trained."""

    model: nn.Module
    logits: Callable[[nn.Module, Tensor, Tensor], Tensor]
    settings: Any
    device: torch.device
    compiled: bool = False

    def __post_init__(self) -> None:
        training = self.settings.training
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[training.optimizer]
        betas = (training.beta1, training.beta2)
        how: Any = {"lr": 1e-5, "betas": betas, "eps": training.epsilon, "weight_decay": training.weight_decay}
        self.optimizer = kind(self.model.parameters(), fused=True, **how)
        self.loss_of: Any = torch.compile(self.loss, dynamic=True) if self.compiled else self.loss

    def loss(self, source_BS: Tensor, target_BT: Tensor, labels_BT: Tensor) -> Tensor:
        """Summed over the targets."""
        logits_BTW, smoothing = self.logits(self.model, source_BS, target_BT), self.settings.training.label_smoothing
        return F.cross_entropy(
            logits_BTW.flatten(0, 1), labels_BT.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
        )

    def train(self, batches: list[Padded], steps: int) -> int:
        """So many steps; the number of target tokens in them."""
        self.model.train()
        half = self.device.type == "cuda"
        done = 0
        for step in range(steps):
            batch = batches[step % len(batches)]
            targets = batch.targets  # counted on the CPU: the GPU is not waited for
            with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                loss = self.loss_of(*batch.to(self.device).tensors()) / targets
            loss.backward()
            if clip := self.settings.training.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            done += targets
        return done


def of_marian(model: nn.Module, source_BS: Tensor, target_BT: Tensor) -> Tensor:
    mask_BS = (source_BS != PAD).long()
    return model(input_ids=source_BS, attention_mask=mask_BS, decoder_input_ids=target_BT, use_cache=False).logits


def of_plain(model: nn.Module, source_BS: Tensor, target_BT: Tensor) -> Tensor:
    return model(source_BS, target_BT)


# ---------------------------------------------------------------- the same loss


def sentences_of(batch: PairBatch) -> Iterator[tuple[list[int], list[int]]]:
    """The pairs of a packed batch."""
    for row in range(len(batch.labels)):
        source, source_segment = batch.source_BS[row], batch.source_segments_BS[row]
        label, segment = batch.labels[row], batch.target_segments_BT[row]
        for number in range(1, int(segment.max()) + 1):
            # Without <end>, which is put back where it belongs.
            yield source[source_segment == number][:-1].tolist(), label[segment == number][:-1].tolist()


@exact_float32()
@torch.no_grad()
def losses(task: Any, peer: Peer, batch: PairBatch, device: torch.device) -> tuple[float, float]:
    """Per target: Regard's of the packed batch, and the peer's of the same sentences padded."""
    task.model.eval()
    peer.model.eval()
    mine = float(task.loss(batch.to(device))) / batch.targets
    padded = Padded.of(list(sentences_of(batch)))
    assert padded.targets == batch.targets
    return mine, float(peer.loss(*padded.to(device).tensors())) / padded.targets


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Material:
    """A trained run, and its training data in both forms."""

    task: Any
    packed: PairBatch  # a batch of Regard's
    padded: list[Padded]  # the peer's
    targets: int  # in a batch, on average

    @classmethod
    def of(cls, task: Any, steps: int) -> Material:
        settings = task.settings
        training, longest = settings.training, settings.data.max_length
        source, cache = pair_splits(settings.data)["train"], cache_folder(settings.data.cache)
        pairs = tokenise_pairs(source, task.tokenizers.both, cache)
        rectangle = Rectangle.fitting(pairs, training.tokens_per_batch, training.row_length, longest)
        stream = PairStream(pairs, rectangle, settings.seed, longest).batches(DataState())
        packed = [next(stream)[0] for _ in range(5)]
        targets = round(statistics.fmean(batch.targets for batch in packed))
        return cls(task, packed[0], sorted_batches(pairs, targets, max(steps, 20), longest), targets)

    @property
    def padding(self) -> float:
        """The share of the peer's target positions that holds nothing."""
        return 1 - sum(b.targets for b in self.padded) / sum(b.labels_BT.numel() for b in self.padded)


def ready_peers(
    material: Material, options: argparse.Namespace, device: torch.device
) -> tuple[dict[str, Peer], dict[str, int], float | None]:
    """The peers after their first steps, with the peak memory of each, and how far its loss is from Regard's."""
    task, settings = material.task, material.task.settings
    kinds: dict[str, Callable[[], Peer]] = {
        "nn.Transformer": lambda: Peer(Plain(task.model), of_plain, settings, device)
    }
    if options.size == "base":

        def make(compiled: bool) -> Peer:
            return Peer(marian(task.model, settings.model.dropout), of_marian, settings, device, compiled)

        kinds = {"Marian, eager": lambda: make(False)}
        if device.type == "cuda" and not options.eager:
            kinds["Marian, compiled"] = lambda: make(True)
    print(f"{material.targets:,} target tokens a batch; the peer's targets are padded by {material.padding:.1%}")
    if device.type == "cuda":
        material.padded[:] = [batch.pinned() for batch in material.padded]
    peers, memories, apart = {}, {}, None
    for name, make_peer in kinds.items():
        free()
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        try:
            peer = make_peer()
            mine, other = losses(task, peer, material.packed.first(8), device)
            apart = abs(mine - other)
            print(f"loss of the same sentences in float32: {mine:.6f}, {name} {other:.6f}", flush=True)
            if apart > 1e-3:
                sys.exit("The losses differ: it would be no comparison.")
            peer.train(material.padded, warm_up(options))
            peers[name] = peer
        except Exception as error:
            left_out(name, error)
            continue
        if device.type == "cuda":
            memories[name] = torch.cuda.max_memory_allocated(device) - before
    return peers, memories, apart


def warm_up(options: argparse.Namespace) -> int:
    return max(2, options.steps * WARM // 10)


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help=f"the folder with {TRAIN.parent}")
    parser.add_argument("--size", choices=["base", "demo"], default="base")
    parser.add_argument("--vocabulary", type=int, default=16_000, help="of the base size")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--compile", choices=["auto", "yes", "no"], default="yes", help="system.compile of Regard")
    parser.add_argument("--eager", action="store_true", help="without the compiled peer, ready after minutes")
    parser.add_argument("--steps", type=int, default=200, help="of each training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="few and small steps")
    options = parser.parse_args()
    device = device_named(options.device)
    if device.type == "cpu":
        options.compile = "no" if options.compile == "yes" else options.compile
        torch.set_num_threads(options.threads)
    else:
        options.threads = 0
    if options.tiny:
        options.steps, options.rounds = 10, 2
    recipe = "transformer-base" if options.size == "base" else "demo"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print("the first training is not counted: it learns the vocabulary", flush=True)
        _, memory = ours(recipe, overrides(options, 10, folder, device), folder / "first", options.data)
        changes = overrides(options, options.steps, folder, device)
        material = Material.of(regard.load(folder / "first", device=str(device)), options.steps)
        peers, memories, apart = ready_peers(material, options, device)
        memories = {"Regard": memory, **memories}
        speeds: dict[str, list[float]] = {name: [] for name in ("Regard", *peers)}
        for number in range(options.rounds):
            speeds["Regard"].append(ours(recipe, changes, folder / f"run-{number}", options.data)[0])
            for name, peer in peers.items():
                speeds[name].append(peer_speed(peer, material.padded, options.steps - warm_up(options), device))
    seconds = {name: [1 / speed for speed in of_rounds] for name, of_rounds in speeds.items()}
    show("who", "target tokens/s", "Regard is quicker by", "peak memory, GiB")
    for name, of_rounds in speeds.items():
        gib = f"{memories[name] / 2**30:.2f}" if name in memories else "-"
        quicker = ratio(seconds["Regard"], seconds[name])["median"]
        show(name, shown(statistics.median(of_rounds)), quicker, gib)
    quickest = best(seconds, [name for name in seconds if name != "Regard"])
    ratios = {name: ratio(seconds["Regard"], seconds[name]) for name in seconds if name != "Regard"}
    result = {"size": options.size, "targets_a_batch": material.targets, "loss_apart": apart}
    result |= {"peer_padding": round(material.padding, 4), "memory": memories}
    result |= {"speeds": {name: [round(speed) for speed in each] for name, each in speeds.items()}}
    result |= {"best_peer": quickest, "ratios": ratios}
    print(json.dumps({"question": "translation_training", **machine(device), **result}))


def peer_speed(peer: Peer, batches: list[Padded], steps: int, device: torch.device) -> float:
    """Target tokens per second."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    done = peer.train(batches, steps)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return done / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
