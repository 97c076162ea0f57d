"""What every mixer promises: those in the registry with their defaults, some in other shapes, and a new one."""

import itertools

import pytest
import torch
from torch import nn

from regard import registry
from regard.layers.block import Block, make_mixer
from regard.layers.context import Context, Memory
from regard.layers.mixer import Mixer
from regard.settings import TranslationModel

B, T, D = 3, 11, 12


class RunningMean(Mixer):
    """A mixer with nothing but `forward`, as a plug-in may bring it."""

    def __init__(self, settings, causal, decoder=False):
        super().__init__(settings, causal, decoder)
        self.to_out = nn.Linear(settings.width, settings.width)

    def forward(self, x_BTD, context):
        length = x_BTD.shape[1]
        seen = torch.ones(length, length, dtype=x_BTD.dtype)
        seen = (seen.tril() if context.causal else seen).expand(len(x_BTD), -1, -1)
        if context.segments_BT is not None:
            seen = seen * (context.segments_BT != 0)[:, None]
        return self.to_out(seen @ x_BTD / seen.sum(-1, keepdim=True))


MIXERS = {name: {"mixer": name} for name in registry.names("mixers")} | {
    "only forward": {"mixer": "running-mean"},
    "attention, shared keys": {"mixer": "attention", "key_value_heads": 1, "query_key_norm": True},
    "attention, rotary": {"mixer": "attention", "positions": "rotary", "key_width": 6, "value_width": 5},
    "local, narrow": {"mixer": "local", "local": {"window": 4}},
    "hyena, paper": {"mixer": "hyena", "hyena": {"recurrence": "paper"}},
    "hyena, order 3": {"mixer": "hyena", "hyena": {"order": 3}},
    "hyena, past the length of its filters": {"mixer": "hyena", "hyena": {"filter_length": 5}},
}
every_mixer = pytest.mark.parametrize("options", MIXERS.values(), ids=MIXERS.keys())
both_orders = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both directions"])


@pytest.fixture(autouse=True)
def a_new_mixer(monkeypatch):
    monkeypatch.setitem(registry.MIXERS, "running-mean", RunningMean)


def settings(options) -> TranslationModel:
    basis = {"width": D, "heads": 3, "feedforward": 16, "positions": "none", "dropout": 0.0}
    return TranslationModel(**basis | options).for_length(T)


def make(options, causal: bool, seed: int = 1):
    torch.manual_seed(seed)
    return make_mixer(settings(options), causal).eval()


def whole(causal: bool, length: int = T) -> Context:
    return Context.build(None, torch.arange(length)[None], causal)


@every_mixer
def test_steps_equal_forward(options):
    mixer = make(options, causal=True)
    x = torch.randn(B, 70, D)  # more than one block of the tiled convolution
    state = mixer.start(B, 70, x)
    with torch.no_grad():
        steps = torch.stack([mixer.step(x[:, t], state) for t in range(70)], dim=1)
        torch.testing.assert_close(steps, mixer(x, whole(True, 70)), atol=1e-4, rtol=0)


@every_mixer
@pytest.mark.parametrize("first", [1, 2, 9, 40])
def test_steps_after_a_prefill_equal_forward(options, first):
    mixer = make(options, causal=True)
    x = torch.randn(B, 110, D)
    state = mixer.start(B, 110, x)
    with torch.no_grad():
        begun = mixer.prefill(x[:, :first], whole(True, first), state)
        steps = torch.stack([mixer.step(x[:, t], state) for t in range(first, 110)], dim=1)
        torch.testing.assert_close(torch.cat([begun, steps], 1), mixer(x, whole(True, 110)), atol=1e-4, rtol=0)


@every_mixer
@pytest.mark.parametrize("prefilled", [0, 5])
def test_a_selected_state_continues_as_the_row_it_was_copied_from(options, prefilled):
    mixer = make(options, causal=True)
    x = torch.randn(4, T, D)
    state = mixer.start(4, T, x)
    with torch.no_grad():
        if prefilled:
            mixer.prefill(x[:, :prefilled], whole(True, prefilled), state)
        for t in range(prefilled, 6):
            mixer.step(x[:, t], state)
        for rows in ([2, 2, 0, 1], [3, 1]):  # reorder, then drop rows
            state.select(torch.tensor(rows))
            x = x[rows]
        steps = torch.stack([mixer.step(x[:, t], state) for t in range(6, T)], dim=1)
        torch.testing.assert_close(steps, mixer(x, whole(True))[:, 6:], atol=1e-5, rtol=0)


@every_mixer
def test_every_way_to_decode_comes_near_forward(options):
    mixer = make(options, causal=True)
    x = torch.randn(B, T, D)
    with torch.no_grad():
        expected = mixer(x, whole(True))
        for way in mixer.decodings(T):
            state = way.start(B, T, x)
            steps = torch.stack([mixer.step(x[:, t], state) for t in range(T)], dim=1)
            assert (steps - expected).norm() < 0.1 * expected.norm(), way.name


@every_mixer
def test_the_future_never_changes_the_past(options):
    mixer = make(options, causal=True)
    x = torch.randn(B, T, D)
    changed = x.clone()
    changed[:, 6:] = torch.randn(B, T - 6, D)
    with torch.no_grad():
        before, after = mixer(x, whole(True)), mixer(changed, whole(True))
    # An FFT sums in another order, so its last bits may differ.
    torch.testing.assert_close(before[:, :6], after[:, :6], atol=1e-6, rtol=0)
    assert (before[:, 6:] - after[:, 6:]).abs().max() > 1e-3


@every_mixer
def test_in_both_directions_the_end_changes_the_beginning(options):
    mixer = make(options, causal=False)
    x = torch.randn(B, T, D)
    changed = x.clone()
    changed[:, 3] += 1.0
    with torch.no_grad():
        difference = (mixer(x, whole(False)) - mixer(changed, whole(False))).abs().amax((0, 2))
    assert difference[2] > 1e-5 and difference[4] > 1e-5


def rows(lengths_of_rows: list[list[int]]) -> torch.Tensor:
    """Segments: one after the other in each row, then padding."""
    numbered = [[n for n, length in enumerate(lengths, 1) for _ in range(length)] for lengths in lengths_of_rows]
    return torch.tensor([row + [0] * (T - len(row)) for row in numbered])


@every_mixer
@both_orders
def test_padding_changes_nothing_nor_does_a_neighbour_where_rows_are_shared(options, causal):
    mixer = make(options, causal)
    lengths_of_rows = [[5, 6], [3, 1, 4], [1]] if mixer.shares_rows else [[11], [7], [1]]
    segments = rows(lengths_of_rows)
    x = torch.randn(B, T, D)
    context = Context.build(segments, torch.arange(T).expand(B, T), causal, masked=mixer.needs_mask)
    with torch.no_grad():
        together = mixer(x, context)
        for row, lengths in enumerate(lengths_of_rows):
            for length, end in zip(lengths, itertools.accumulate(lengths), strict=True):
                alone = mixer(x[row : row + 1, end - length : end], whole(causal, length))
                torch.testing.assert_close(together[row, end - length : end], alone[0], atol=1e-5, rtol=0)
    assert together.isfinite().all()


@every_mixer
@both_orders
def test_gradients_are_those_of_finite_differences(options, causal):
    mixer = make(options | {"hyena": {"filter_width": 8} | options.get("hyena", {})}, causal).double()
    x = torch.randn(2, 4, D, dtype=torch.float64, requires_grad=True)
    segments = torch.tensor([[1] * 4, [1] * 3 + [0]])
    real = (segments != 0)[..., None]
    context = Context.build(segments, torch.arange(4).expand(2, 4), causal)
    names, weights = zip(*mixer.named_parameters(), strict=True)

    def run(x, *weights):
        return torch.func.functional_call(mixer, dict(zip(names, weights, strict=True)), (x, context)) * real

    assert torch.autograd.gradcheck(run, (x, *weights), atol=1e-6, fast_mode=True)
    assert torch.autograd.gradcheck(lambda x: run(x, *weights), (x,), atol=1e-6)


@every_mixer
@both_orders
def test_a_trace_shows_what_forward_computed(options, causal):
    mixer = make(options, causal)
    if not hasattr(mixer, "trace"):
        assert not mixer.needs_mask, "what reads the mask of all pairs weighs them, and can show how"
        return
    segments = rows([[5, 6], [3, 1, 4], [11]])
    x, real = torch.randn(B, T, D), segments != 0
    for context in (
        whole(causal),
        Context.build(segments, torch.arange(T).expand(B, T), causal, masked=mixer.needs_mask),
    ):
        with torch.no_grad():
            trace, output = mixer.trace(x, context), mixer(x, context)
        packed = context.segments_BT is not None
        here = real if packed else torch.ones_like(real)
        torch.testing.assert_close(trace.output_BTD[here], output[here], atol=1e-5, rtol=0)
        weights = trace.weights_BHTS.transpose(1, 2)[here]  # [positions, H, S]
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-5, rtol=0)
        allowed = torch.ones(B, T, T, dtype=torch.bool)
        allowed &= segments[:, :, None] == segments[:, None] if packed else True
        allowed &= torch.ones(T, T, dtype=torch.bool).tril() if causal else True
        assert (weights.transpose(1, 2)[~allowed[here]] == 0).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("cross", ["multihead", "additive", "bahdanau", "none"])
@pytest.mark.parametrize("mixer", [*registry.names("mixers"), "running-mean"])
def test_a_decoder_block_steps_as_it_reads(mixer, cross, norm):
    model = settings({"mixer": mixer, "cross": cross, "norm": norm})
    if cross == "none" and not model.part("mixer").starts_from_memory:
        assert ["nothing of the source" in problem.reason for problem in model.check_parts()] == [True]
        return
    if cross == "bahdanau" and model.part("mixer").cell_of_one is None:
        assert ["feeds a recurrence" in problem.reason for problem in model.check_parts()] == [True]
        return
    assert list(model.check_parts()) == []
    torch.manual_seed(2)
    block = Block(model, causal=True, decoder=True).eval()
    x, source = torch.randn(B, T, D), torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] * 4 + [0]])
    memory = Memory(torch.randn(B, 5, D), source.bool()[:, None, None].expand(B, 1, T, 5), torch.randn(B, D))
    beams = 2
    x_beams = torch.stack([x, torch.randn(B, T, D)], dim=1).flatten(0, 1)
    with torch.no_grad():
        state = block.start(B * beams, T, x, memory, source)
        steps = torch.stack([block.step(x_beams[:, t], state) for t in range(T)], dim=1)
        expected = block(x, Context.build(None, torch.arange(T)[None], True, memory))
    torch.testing.assert_close(steps[::beams], expected, atol=1e-5, rtol=0)


@every_mixer
def test_what_is_not_decayed_and_what_starts_in_its_own_way_belongs_to_the_mixer(options):
    mixer = make(options, causal=False)
    parameters, modules = {id(p) for p in mixer.parameters()}, {id(m) for m in mixer.modules()}
    assert {id(weight) for weight in mixer.no_decay()} <= parameters
    assert {id(part) for part in mixer.initialise()} <= modules
    assert all(weight.isfinite().all() for weight in mixer.parameters())


def test_without_a_feedforward_a_block_has_none():
    block = Block(settings({"mixer": "gru", "feedforward": 0}), causal=True)
    assert not any("feedforward" in name for name, _ in block.named_parameters())
    assert block(torch.randn(B, T, D), whole(True)).shape == (B, T, D)
