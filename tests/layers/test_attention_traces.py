"""Every attention written out, `trace`, gives what its fast path computed, also where rows have padding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.layers.attention_trace import AttentionTrace
from regard.models.causal import Causal
from regard.models.seq2seq import Seq2Seq
from regard.models.swin import Swin
from regard.settings import CausalModel, ImageModel, TranslationModel

SMALL = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0}
TOKENS = 40
Traces = dict[str, tuple[AttentionTrace, Tensor]]  # the formula written out, and what the model itself computed


@torch.no_grad()
def traced(model: torch.nn.Module, run: Callable[[], Any]) -> Traces:
    """Of each attention that `run` passes, by its name."""
    found: Traces = {}
    for name, module in model.named_modules():
        if hasattr(module, "trace"):

            def note(attention, inputs, output, name=name) -> None:
                found[name] = attention.trace(*inputs), output

            module.register_forward_hook(note)
    run()
    return found


def traced_translator(**options) -> Traces:
    torch.manual_seed(1)
    model = Seq2Seq(TranslationModel(**SMALL, **options), TOKENS, TOKENS).eval()
    source, target = torch.randint(3, TOKENS, (2, 7)), torch.randint(3, TOKENS, (2, 5))
    segments = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    places = torch.arange(7).expand(2, 7)
    return traced(model, lambda: model(source, segments, places, target, torch.ones_like(target), places[:, :5]))


def check(traces: Traces) -> None:
    """What was recomputed equals what the model got, from weights that are probabilities."""
    for each, fast_BTD in traces.values():
        torch.testing.assert_close(each.output_BTD, fast_BTD, atol=1e-5, rtol=0)
        rows = each.weights_BHTS.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows), atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_trace_of_a_translator_equals_its_fast_path(norm):
    traces = traced_translator(norm=norm)
    encoder, decoder = (f"encoder.{n}.mixer" for n in range(2)), (f"decoder.{n}" for n in range(2))
    assert sorted(traces) == sorted([*encoder, *(f"{name}.{part}" for name in decoder for part in ("mixer", "cross"))])
    check(traces)
    for name, (each, _) in traces.items():
        if name.startswith("decoder") and name.endswith("mixer"):
            assert each.weights_BHTS.triu(1).abs().max() == 0
        if name.endswith("cross"):
            assert each.weights_BHTS[1, :, :, 4:].abs().max() == 0, "no padding is looked at"


@pytest.mark.parametrize(
    ("cross", "names"),
    [
        ("additive", ["decoder.0.cross", "decoder.1.cross"]),
        ("bahdanau", ["decoder.0.mixer", "decoder.1.mixer"]),
        ("none", []),
    ],
)
def test_recurrence_has_no_trace_and_additive_attention_has_one_head(cross, names):
    traces = traced_translator(mixer="gru", cross=cross)
    assert list(traces) == names
    assert all(each.weights_BHTS.shape == (2, 1, 5, 7) for each, _ in traces.values())
    assert all(each.across and each.weights_BHTS[1, :, :, 4:].abs().max() == 0 for each, _ in traces.values())
    check(traces)


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "learned"},
        {"positions": "rotary", "key_value_heads": 2, "query_key_norm": True},
        {"mixer": "local", "local": {"window": 3}},
    ],
)
def test_the_trace_of_a_language_model_equals_its_fast_path(options):
    torch.manual_seed(1)
    model = Causal(CausalModel(**SMALL, norm="pre", **options), TOKENS).eval()
    traces = traced(model, lambda: model(torch.randint(0, TOKENS, (2, 12))))
    assert len(traces) == 2
    check(traces)
    above = torch.ones(12, 12, dtype=torch.bool).triu(1)
    assert all((each.weights_BHTS[:, :, above] == 0).all() for each, _ in traces.values())


@pytest.mark.parametrize("size", [(8, 8), (4, 8), (2, 6)])
def test_windows_are_traced_over_the_grid(size):
    torch.manual_seed(3)
    shape = {"stages": [2], "width": 16, "heads": 2, "feedforward": 16, "patch": 1, "window": min(4, *size)}
    model = Swin(ImageModel(**shape, positions="none", query_key_norm=True), *size, 1, 3).eval()
    traces = traced(model, lambda: model(torch.randn(2, 1, *size)))
    assert list(traces) == ["stages.0.blocks.0.mixer", "stages.0.blocks.1.mixer"]
    assert all(each.weights_BHTS.shape == (2, 2, size[0] * size[1], size[0] * size[1]) for each, _ in traces.values())
    check(traces)
