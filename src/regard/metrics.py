"""Metrics by name: which way they are better, and how their names are written."""

from __future__ import annotations

ACRONYMS = {"bleu": "BLEU", "bleu4": "BLEU-4", "chrf": "chrF", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2"}
ACRONYMS |= {"rougel": "ROUGE-L", "ap": "AP", "ap50": "AP50", "miou": "mIoU", "f1": "F1"}


def lower_is_better(metric: str) -> bool:
    """Whether a metric measures an error: a loss, a perplexity, bits per anything. All others are scores."""
    return metric in ("loss", "perplexity") or metric.startswith("bits_")


def display_name(metric: str) -> str:
    """The name of a metric in a title: "bits_per_byte" is bits per byte, "bleu_lowercase" is BLEU lowercase."""
    return " ".join(ACRONYMS.get(word, word) for word in metric.split("_"))
