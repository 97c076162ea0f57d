"""The Feedback Transformer: its formulas written out slowly; steps, segments, gradients, and what is refused."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from regard.layers.feedback import FeedbackAttention
from regard.models.causal import Causal
from regard.recipes import resolve
from regard.settings import CausalModel
from regard.training.optimizer import no_decay

WORDS, LENGTH = 40, 12
both = pytest.mark.parametrize("feedback", ["shared", "separate"])


def make(feedback: str, **changes) -> Causal:
    torch.manual_seed(1)
    base = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0, "positions": "none"}
    base |= {"feedback_span": 5, "max_positions": 32, "tie_embeddings": "none"}
    model = Causal(CausalModel(feedback=feedback, **base | changes), WORDS).eval()
    with torch.no_grad():  # what starts at zero would hide mistakes
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def tokens(rows: int = 3, length: int = LENGTH) -> Tensor:
    return torch.randint(0, WORDS, (rows, length), generator=torch.Generator().manual_seed(2))


OPTIONS = {
    "as published": {},
    "one block": {"layers": 1},
    "pre-norm": {"norm": "pre", "norm_kind": "rms"},
    "grouped heads": {"key_value_heads": 2},
    "one key head": {"key_value_heads": 1, "key_width": 6, "value_width": 10},
    "query-key norm": {"query_key_norm": True},
    "learned positions besides": {"positions": "learned"},
    "no feed-forward, no bias": {"feedforward": 0, "bias": False},
    "swiglu, scaled": {"activation": "silu", "gated": True, "layer_scale": 0.5, "logit_cap": 3.0},
    "a span beyond the text": {"feedback_span": 50},
    "a span of one": {"feedback_span": 1},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


# ---------------------------------------------------------------- the formulas


def slowly(model: Causal, words: list[int], heads: int, span: int, shared: bool) -> Tensor:
    """Logits of one text: one memory, one head, one distance at a time."""
    weights = dict(model.named_parameters())

    def linear(name: str, x: Tensor) -> Tensor:
        y = weights[f"trunk.{name}.weight"] @ x
        return y + weights[f"trunk.{name}.bias"] if f"trunk.{name}.bias" in weights else y

    def norm(name: str, x: Tensor) -> Tensor:
        scaled = (x - x.mean()) / torch.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
        return scaled * weights[f"trunk.{name}.weight"] + weights[f"trunk.{name}.bias"]

    layers, width = len(model.trunk.blocks), weights["to_logits.weight"].shape[1]
    size = width // heads
    mix = weights["trunk.memory.of_layers"]
    share = torch.stack([each.exp() / sum(other.exp() for other in mix) for each in mix])
    memories: list[Tensor] = []
    logits = []
    for word in words:
        x = weights["trunk.embedding.table.weight"][word] * math.sqrt(width)
        seen = [x]
        past = ([torch.zeros(width)] * span + memories)[-span:]
        for layer in range(layers):
            block = f"blocks.{layer}"
            q = linear(f"{block}.mixer.to_queries", x)
            projection = weights[f"trunk.memory.to_keys_values.{0 if shared else layer}.weight"]
            gathered = []
            for head in range(heads):
                rows = projection[head * 2 * size : (head + 1) * 2 * size]
                q_head = q[head * size : (head + 1) * size]
                scores, values = [], []
                for distance in range(1, span + 1):
                    memory = past[-distance]
                    position = weights[f"trunk.{block}.mixer.distances_SK"][-distance]
                    scores.append(q_head @ (rows[:size] @ memory + position) / math.sqrt(size))
                    values.append(rows[size:] @ memory)
                exponentials = [score.exp() for score in scores]
                weighted = [each * value for each, value in zip(exponentials, values, strict=True)]
                gathered.append(sum(weighted) / sum(exponentials))
            x = norm(f"{block}.mixer_norm", x + linear(f"{block}.mixer.to_out", torch.cat(gathered)))
            inner = linear(f"{block}.feedforward.expand", x).clamp(min=0)
            x = norm(f"{block}.feedforward_norm", x + linear(f"{block}.feedforward.contract", inner))
            seen.append(x)
        memories.append(sum(each * vector for each, vector in zip(share, seen, strict=True)))
        logits.append(weights["to_logits.weight"] @ x)
    return torch.stack(logits)


@both
def test_it_is_what_the_formulas_say(feedback):
    model = make(feedback, layers=3)
    with torch.no_grad():
        expected = torch.stack([slowly(model, row, 4, 5, feedback == "shared") for row in tokens(2).tolist()])
        torch.testing.assert_close(model(tokens(2)), expected, atol=1e-5, rtol=1e-5)


def test_keys_and_values_are_made_by_one_matrix_or_by_one_for_each_block():
    sizes = {kind: sum(p.numel() for p in make(kind, layers=3).parameters()) for kind in ("shared", "separate")}
    assert sizes["separate"] - sizes["shared"] == 2 * (2 * 32 * 32)


# ---------------------------------------------------------------- one position at a time


@both
@every_option
def test_steps_and_prefill_equal_the_whole_pass(feedback, options):
    model = make(feedback, **options)
    with torch.inference_mode():
        whole = model(tokens())
        state = model.start(3, LENGTH)
        stepped = torch.stack([model.step(tokens()[:, t], state) for t in range(LENGTH)], 1)
        torch.testing.assert_close(stepped, whole, atol=1e-5, rtol=0)
        state = model.start(3, LENGTH)
        torch.testing.assert_close(model.prefill(tokens()[:, :7], state), whole[:, 6], atol=1e-5, rtol=0)
        torch.testing.assert_close(model.step(tokens()[:, 7], state), whole[:, 7], atol=1e-5, rtol=0)


@both
def test_the_state_stays_as_large_as_it_is(feedback):
    model = make(feedback)
    state = model.start(3, LENGTH)
    sizes = set()
    with torch.inference_mode():
        for t in range(LENGTH):
            model.step(tokens()[:, t], state)
            sizes.add(tuple(window.keys_NGSK.shape for window in state.windows))
    assert sizes == {((3, 4, 5, 8),) * (1 if feedback == "shared" else 2)}


@both
def test_rows_of_a_state_can_be_chosen_again(feedback):
    model, rows = make(feedback), torch.tensor([2, 0, 2])
    with torch.inference_mode():
        state = model.start(3, LENGTH)
        model.prefill(tokens()[:, :6], state)
        state.select(rows)
        chosen = model.step(tokens()[rows, 6], state)
        torch.testing.assert_close(chosen, model(tokens()[rows, :7])[:, -1], atol=1e-5, rtol=0)


# ---------------------------------------------------------------- who sees whom


@both
@every_option
def test_the_future_never_changes_the_past(feedback, options):
    model = make(feedback, **options)
    changed = tokens().clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % WORDS
    torch.testing.assert_close(model(tokens())[:, :6], model(changed)[:, :6], atol=1e-6, rtol=0)


def test_memories_hand_on_what_is_beyond_their_span():
    """A memory is made of memories before it, so all of the past is reached, unlike with a window of attention."""
    model = make("shared", feedback_span=2, layers=1)
    changed = tokens(1).clone()
    changed[0, 0] = (changed[0, 0] + 1) % WORDS
    differs = (model(tokens(1)) - model(changed)).abs().amax(-1)[0] > 1e-7
    assert differs.all()


@both
def test_documents_in_one_row_do_not_see_each_other_and_padding_changes_nothing(feedback):
    model = make(feedback, positions="learned")
    first, second = tokens(2)[:, :5], tokens(2)[:, 5:]
    row = torch.cat([first, second, torch.zeros(2, 3, dtype=torch.long)], 1)
    segments = torch.tensor([[1] * 5 + [2] * 7 + [0] * 3] * 2)
    positions = torch.tensor([[*range(5), *range(7), *range(3)]] * 2)
    together = model(row, segments, positions)
    torch.testing.assert_close(together[:, :5], model(first), atol=1e-5, rtol=0)
    torch.testing.assert_close(together[:, 5:12], model(second), atol=1e-5, rtol=0)


# ---------------------------------------------------------------- gradients


@both
def test_the_gradient_flows_through_memories(feedback):
    """The last position's loss reaches every block of earlier positions: as finite differences say."""
    model = make(feedback, layers=1, width=8, heads=2, feedforward=8, feedback_span=2).double()
    embedded = torch.randn(1, 4, 8, dtype=torch.float64, requires_grad=True)
    context = model.trunk._context(tokens(1, 4), None, None)
    assert torch.autograd.gradcheck(lambda x: model.trunk.read(x, context)[:, -1], embedded)
    grad_1TD = torch.autograd.grad(model.trunk.read(embedded, context)[:, -1].sum(), embedded)[0]
    assert (grad_1TD.abs().amax(-1) > 0).all()


@both
def test_every_weight_has_a_gradient(feedback):
    model = make(feedback).train()
    model(tokens()).logsumexp(-1).sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_in_half_precision_it_is_nearly_the_same(norm):
    model = make("separate", norm=norm)
    segments = torch.tensor([[1] * 5 + [2] * 7] * 3)
    whole = model(tokens(), segments).log_softmax(-1)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(tokens(), segments).float().log_softmax(-1)
        half.sum().backward()
    assert 0 < (half - whole).abs().max() < 0.2
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_distances_are_not_decayed():
    model = make("shared")
    free = {id(weight) for weight in no_decay(model)}
    mixers = [module for module in model.modules() if isinstance(module, FeedbackAttention)]
    assert len(mixers) == 2
    assert all(id(mixer.distances_SK) in free for mixer in mixers)


def test_a_mean_of_layers_starts_even():
    model = Causal(CausalModel(layers=3, width=32, heads=4, feedback="shared", positions="none"), WORDS)
    assert model.trunk.memory.of_layers.tolist() == [0.0] * 4


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mixer": "local"}, "is a kind of attention"),
        ({"mixer": "hyena"}, "is a kind of attention"),
        ({"mixer": "gru"}, "is a kind of attention"),
        ({"positions": "rotary"}, "relative positions of its own"),
        ({"feedback_span": 0}, "feedback_span"),
        ({"feedback": "yes"}, "feedback"),
    ],
)
def test_what_does_not_go_with_feedback_is_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        CausalModel(**({"feedback": "shared"} | changes))


def test_without_feedback_all_of_it_is_possible():
    assert CausalModel(mixer="local", positions="rotary").feedback == "none"


def test_blocks_that_run_in_order_are_neither_compiled_nor_fused():
    plain = resolve("shakespeare", ["model.positions=learned"])
    fed_back = resolve("shakespeare", ["model.positions=learned", "model.feedback=shared"])
    assert plain.model.fused and not fed_back.model.fused
    assert resolve("permutations").saved_by_compiling == 0
    assert resolve("permutations", ["model.feedback=none", "system.precision=float32"]).saved_by_compiling > 0
