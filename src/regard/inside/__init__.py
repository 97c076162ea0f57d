"""Interpretability in numbers: what a model computed, part by part, and what changes when a part is changed.

Nothing here draws; `regard explain` and `regard explore` do.
"""
