"""Whole networks, made of layers."""
