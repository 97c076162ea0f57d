"""What fits where? How much memory a training takes by formula: the table of docs/scale.md.

    python benchmarks/what_fits.py [--check]

    weights, gradients, Adam      16 P bytes; sharded, 16 P / N + 8 (P outside the blocks + 2 P of one block)
    what a token leaves behind    L (26 D + 4 F) bytes in bfloat16, of an encoder or a language model;
                                  12 D more for a block that also looks across
    logits                        2 bytes for each token and word, at most 4 GiB at a time

P parameters · N processes · L layers · D width · F feed-forward width. 26 was fitted to GPT-2 124M, and 12 chosen with
multi30k in view. `--check` compares the formula with all peaks that were measured on an H200 (docs/log.md). The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

GIB = 2**30
LOGITS = 4 * GIB
ADAM, MUON = 16, 12  # bytes of a parameter: with two numbers remembered of it, or with one
DEVICES = {"24 GB": 22, "80 GB": 76, "141 GB": 134}  # GiB that are left for a training, about


@dataclass(frozen=True)
class Model:
    name: str
    layers: int
    width: int
    feedforward: int
    vocabulary: int
    across: int = 0  # layers of a decoder that also looks at an encoder

    @property
    def block(self) -> int:
        return 4 * self.width**2 + 2 * self.width * self.feedforward

    @property
    def parameters(self) -> int:
        across = self.across * (self.block + 4 * self.width**2)
        return self.vocabulary * self.width + self.layers * self.block + across

    def token(self) -> int:
        """Bytes that a token leaves behind in all layers."""
        each = 26 * self.width + 4 * self.feedforward
        return self.layers * each + self.across * (each + 12 * self.width)

    def peak(self, tokens: int, processes: int = 1, of_a_parameter: int = ADAM) -> float:
        """Of one process, when it computes so many tokens at a time."""
        held: float = of_a_parameter * self.parameters
        if processes > 1:
            held = held / processes + 8 * (self.vocabulary * self.width + 2 * self.block)
        return held + tokens * self.token() + min(LOGITS, 2 * tokens * self.vocabulary)

    def tokens_within(self, room: float, processes: int = 1) -> int:
        """The largest multiple of 1,024 tokens that fits; 0 if none does."""
        tokens = 0
        while self.peak(tokens + 1024, processes) <= room and tokens < 1 << 20:
            tokens += 1024
        return tokens


GPT2 = [
    Model("124 M", 12, 768, 3072, 50_257),
    Model("350 M", 24, 1024, 4096, 50_257),
    Model("774 M", 36, 1280, 5120, 50_257),
    Model("1.6 B", 48, 1600, 6400, 50_257),
    Model("7 B", 32, 4096, 16_384, 50_257),
]
# As measured on one H200: the model, tokens of a step, bytes of a parameter, and the peak in bytes.
MEASURED = [
    (GPT2[0], 65_536, ADAM, 28.7 * GIB),
    (Model("shakespeare", 6, 384, 1536, 512), 16_384, MUON, 1.92e9),
    (Model("multi30k (R-Drop)", 4, 256, 512, 10_000, across=4), 16_384, ADAM, 1.88e9),
    (Model("cifar10", 7, 256, 512, 10), 32_768, ADAM, 1.98e9),
]


def table() -> list[list[str]]:
    rows = []
    for model in GPT2:
        row = [model.name]
        for room in DEVICES.values():
            alone = model.tokens_within(room * GIB)
            parts = model.tokens_within(room * GIB, processes=8)
            row += [f"{alone:,}" if alone else "–", f"{parts:,}" if parts else "–"]
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="against what was measured")
    if parser.parse_args().check:
        errors = {}
        for model, tokens, of_a_parameter, measured in MEASURED:
            formula = model.peak(tokens, of_a_parameter=of_a_parameter)
            errors[model.name] = round(formula / measured - 1, 3)
            sizes = f"formula {formula / GIB:6.2f} GiB   measured {measured / GIB:6.2f}"
            print(f"{model.name:<20} {sizes}   {errors[model.name]:+.1%}")
        print(json.dumps(errors))
        return
    print("| parameters | " + " | ".join(f"{name} | {name}, 8 sharded" for name in DEVICES) + " |")
    print("|---" * (1 + 2 * len(DEVICES)) + "|")
    for row in table():
        print("| " + " | ".join(row) + " |")
    print(json.dumps({row[0]: row[1:] for row in table()}))


if __name__ == "__main__":
    main()
