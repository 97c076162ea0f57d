"""A name, an aside, and the question for the name: what a model must keep in mind, for as long as the aside is.

    Martin   paper so today lecture …   who      →  Martin
    name     aside of d words           blank

The words of an aside are drawn at random and say nothing about the name. A model is trained as a classifier of texts
that reads from left to right and answers at the end. Asides are short more often than long (log-uniform lengths):
where all are long, recurrent models do not learn anything in the time there is.

The learning rate matters, and was chosen after a trial with one seed. At 0.003 the same 300 steps leave a GRU that has
88 % of the names right without an aside, 28 % after 20 words and chance after 60; at 0.01, as used here, it
knows all of them after 100. So what these claims find about gates is what they can learn, not what they always do.

Shapes: B texts · T tokens · C names
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from regard.claims.frame.claim import Budget
from regard.claims.frame.trainings import made_once, trained_model
from regard.data.tokenizers import END, START

NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gil", "Hal")
WORDS = (
    "today",
    "we",
    "read",
    "a",
    "paper",
    "of",
    "new",
    "models",
    "that",
    "do",
    "well",
    "in",
    "class",
    "and",
    "so",
    "on",
)
BLANK = "who"


def longest_aside(budget: Budget) -> int:
    return budget.choose(tiny=12, normal=100, full=400)


def who_was_it(budget: Budget, mixer: str, seed: int, longest: int | None = None) -> Any:
    """A model of one block that has learned to answer after asides of up to `longest` words."""
    longest = longest or longest_aside(budget)
    steps, width, rows = budget.choose(tiny=(60, 16, 16), normal=(300, 32, 32), full=(3000, 64, 64))
    folder = made_once(budget, f"asides-{longest}", lambda: _files(longest)).resolve()
    return trained_model(
        budget,
        "starter-classify",
        *(f'data.{split}=["{folder / split}.tsv"]' for split in ("train", "valid", "test")),
        'tokenizer.kind="word"',
        "tokenizer.vocabulary=300",
        f"data.max_length={longest + 4}",
        f"training.row_length={longest + 4}",
        f"training.tokens_per_batch={rows * (longest + 4)}",
        'training.packing="no"',
        f'model.mixer="{mixer}"',
        "model.causal=true",
        'model.pooling="last"',
        'model.positions="none"',
        'model.initialisation="paper"',
        "model.scale_embeddings=true",
        "model.layers=1",
        f"model.width={width}",
        "model.heads=2",
        f"model.feedforward={2 * width}",
        "model.dropout=0.0",
        f"training.steps={steps}",
        f"training.validate_every={steps}",
        "training.warmup=20",
        "training.learning_rate=0.01",
        "training.label_smoothing=0.0",
        seed=seed,
    )


@torch.inference_mode()
def share_known(model: Any, aside: int, texts: int = 64) -> float:
    """The share of names that the model still knows after asides of this many words."""
    rng = random.Random(aside)
    names = rng.choices(range(len(NAMES)), k=texts)
    ids = model.tokenizer.encode([_text(rng, NAMES[name], aside) for name in names])
    tokens_BT = torch.tensor([[START, *text, END] for text in ids])
    positions_BT = torch.arange(tokens_BT.shape[1]).expand_as(tokens_BT)
    device = model.hardware.device
    inputs: tuple[Tensor, ...] = (tokens_BT, torch.ones_like(tokens_BT), positions_BT)
    logits_BC = model.model.eval()(*(each.to(device) for each in inputs))[:, -1]
    guessed = [model.classes[number] for number in logits_BC.argmax(-1).tolist()]
    return sum(guess == NAMES[name] for guess, name in zip(guessed, names, strict=True)) / texts


def _files(longest: int) -> dict[str, str]:
    rng = random.Random(1)
    texts = {"train": 4000, "valid": 50, "test": 50}
    return {f"{split}.tsv": "".join(_line(rng, longest) for _ in range(count)) for split, count in texts.items()}


def _line(rng: random.Random, longest: int) -> str:
    name, aside = rng.choice(NAMES), round(longest ** rng.random())
    return f"{name}\t{_text(rng, name, aside)}\n"


def _text(rng: random.Random, name: str, aside: int) -> str:
    return " ".join([name, *rng.choices(WORDS, k=aside), BLANK])
