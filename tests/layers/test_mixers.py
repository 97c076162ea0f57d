"""What every mixer promises, whichever word stands in the settings."""

import pytest
import torch

from regard.settings import ModelSettings
from regard.layers.block import Block, make_mixer
from regard.layers.context import Context, Memory

B, T, D = 3, 11, 12
MIXERS = {
    "attention": {"mixer": "attention"},
    "local": {"mixer": "local", "window": 4},
    "local, wider than the text": {"mixer": "local", "window": 64},
    "hyena": {"mixer": "hyena"},
    "hyena, paper": {"mixer": "hyena", "hyena_recurrence": "paper", "hyena_order": 2},
    "hyena, order 3": {"mixer": "hyena", "hyena_order": 3},
    "hyena, past the length of its filters": {"mixer": "hyena", "hyena_filter_length": 5},
    "rnn": {"mixer": "rnn"},
    "lstm": {"mixer": "lstm"},
    "gru": {"mixer": "gru"},
}
every_mixer = pytest.mark.parametrize("options", MIXERS.values(), ids=MIXERS.keys())
both_orders = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both directions"])


def settings(options) -> ModelSettings:
    basis = {"width": D, "heads": 3, "feedforward": 16, "positions": "none", "dropout": 0.0, "hyena_filter_length": T}
    return ModelSettings(**basis | {"hyena_filter_width": 8} | options)


def make(options, causal: bool, seed: int = 1):
    torch.manual_seed(seed)
    return make_mixer(settings(options), causal).eval()


def whole(causal: bool, length: int = T) -> Context:
    return Context.of(None, torch.arange(length)[None], causal)


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
def test_the_future_never_changes_the_past(options):
    mixer = make(options, causal=True)
    x = torch.randn(B, T, D)
    changed = x.clone()
    changed[:, 6:] = torch.randn(B, T - 6, D)
    with torch.no_grad():
        before, after = mixer(x, whole(True)), mixer(changed, whole(True))
    # An FFT sums in another order, so its last bits may differ.
    exact = options["mixer"] != "hyena"
    torch.testing.assert_close(before[:, :6], after[:, :6], atol=0 if exact else 1e-6, rtol=0)
    assert (before[:, 6:] - after[:, 6:]).abs().max() > 1e-3


@every_mixer
@both_orders
def test_padding_changes_nothing(options, causal):
    mixer = make(options, causal)
    lengths = [11, 7, 1]
    segments = torch.tensor([[1] * length + [0] * (T - length) for length in lengths])
    x = torch.randn(B, T, D)
    context = Context.of(segments, torch.arange(T).expand(B, T), causal)
    with torch.no_grad():
        together = mixer(x, context)
        for row, length in enumerate(lengths):
            alone = mixer(x[row : row + 1, :length], whole(causal, length))
            torch.testing.assert_close(together[row, :length], alone[0], atol=1e-5, rtol=0)
    assert together.isfinite().all()


@every_mixer
@both_orders
def test_gradients_are_those_of_finite_differences(options, causal):
    mixer = make(options, causal).double()
    x = torch.randn(2, 6, D, dtype=torch.float64, requires_grad=True)
    segments = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    real = (segments != 0)[..., None]
    context = Context.of(segments, torch.arange(6).expand(2, 6), causal)
    names, weights = zip(*mixer.named_parameters(), strict=True)

    def run(x, *weights):
        return torch.func.functional_call(mixer, dict(zip(names, weights, strict=True)), (x, context)) * real

    assert torch.autograd.gradcheck(run, (x, *weights), atol=1e-6, fast_mode=True)
    assert torch.autograd.gradcheck(lambda x: run(x, *weights), (x,), atol=1e-6)


@every_mixer
def test_a_selected_state_goes_on_as_the_row_it_was_copied_from(options):
    mixer = make(options, causal=True)
    x = torch.randn(4, T, D)
    state = mixer.start(4, T, x)
    with torch.no_grad():
        for t in range(5):
            mixer.step(x[:, t], state)
        for rows in ([2, 2, 0, 1], [3, 1]):  # reorder, then drop rows
            state.select(torch.tensor(rows))
            x = x[rows]
        steps = torch.stack([mixer.step(x[:, t], state) for t in range(5, T)], dim=1)
        torch.testing.assert_close(steps, mixer(x, whole(True))[:, 5:], atol=1e-5, rtol=0)


@every_mixer
def test_in_both_directions_the_end_changes_the_beginning(options):
    mixer = make(options, causal=False)
    x = torch.randn(B, T, D)
    changed = x.clone()
    changed[:, 3] += 1.0
    with torch.no_grad():
        difference = (mixer(x, whole(False)) - mixer(changed, whole(False))).abs().amax((0, 2))
    assert difference[2] > 1e-5 and difference[4] > 1e-5


@pytest.mark.parametrize("cross", ["multihead", "additive", "none"])
@pytest.mark.parametrize("mixer", ["rnn", "lstm", "gru", "attention", "hyena", "local"])
def test_a_decoder_block_steps_as_it_reads(mixer, cross):
    if cross == "none" and mixer in ("attention", "hyena", "local"):
        with pytest.raises(ValueError, match="nothing of the source"):
            settings({"mixer": mixer, "cross": cross})
        return
    torch.manual_seed(2)
    block = Block(settings({"mixer": mixer, "cross": cross}), causal=True, decoder=True).eval()
    x, source = torch.randn(B, T, D), torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] * 4 + [0]])
    memory = Memory(torch.randn(B, 5, D), source.bool()[:, None, None].expand(B, 1, T, 5), torch.randn(B, D))
    beams = 2
    x_beams = torch.stack([x, torch.randn(B, T, D)], dim=1).flatten(0, 1)
    with torch.no_grad():
        state = block.start(B * beams, T, x, memory, source)
        steps = torch.stack([block.step(x_beams[:, t], state) for t in range(T)], dim=1)
        expected = block(x, Context.of(None, torch.arange(T)[None], True, memory))
    torch.testing.assert_close(steps[::beams], expected, atol=1e-5, rtol=0)


def test_without_a_feedforward_a_block_has_none():
    block = Block(settings({"mixer": "gru", "feedforward": 0}), causal=True)
    assert not any("feedforward" in name for name, _ in block.named_parameters())
    assert block(torch.randn(B, T, D), whole(True)).shape == (B, T, D)
