"""Metrics by name: which way they are better."""

from __future__ import annotations


def lower_is_better(metric: str) -> bool:
    """Whether a metric measures an error: a loss, a perplexity, bits per anything. All others are scores."""
    return metric in ("loss", "perplexity") or metric.startswith("bits_")
