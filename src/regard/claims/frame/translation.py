"""A small translator for claims about translation: the demo's grammar, fewer sentences, a model of seconds.

With all of the demo's 31,000 pairs every variant ends near 99 BLEU, and nothing could be told apart; with some
thousands it has to generalise, and differences show.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.claims.frame.claim import Budget
from regard.claims.frame.trainings import made_once
from regard.data.samples.english_german import corpus
from regard.data.samples.grammar import Pair

RECIPE = "demo"


def translator(budget: Budget) -> list[str]:
    """The settings of the translator that these claims vary."""
    train, test, steps, width = budget.choose(
        tiny=(300, 20, 20, 16), normal=(4000, 300, 400, 64), full=(31_000, 1000, 2000, 128)
    )
    folder = made_once(budget, f"pairs-{train}", lambda: _files(train, test))
    return [
        'data.sample=""',
        *(f'data.{split}=["{folder.resolve() / split}.tsv"]' for split in ("train", "valid", "test")),
        f"model.width={width}",
        f"model.feedforward={2 * width}",
        f"training.steps={steps}",
        f"training.warmup={steps // 10}",
        f"training.validate_every={steps}",
        "training.tokens_per_batch=1024",
        "decoding.beam=1",
    ]


def _files(train: int, test: int) -> dict[str, str]:
    made = corpus(1, train, test, test)
    splits = {"train": made.train, "valid": made.valid, "test": made.test}
    return {f"{split}.tsv": _tsv(pairs) for split, pairs in splits.items()}


def _tsv(pairs: Sequence[Pair]) -> str:
    return "".join(f"{english}\t{german}\n" for english, german in pairs)
