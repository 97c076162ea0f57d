"""Slots: texts at different positions, entering and leaving, are read as each would be alone."""

from __future__ import annotations

import pytest
import torch

from regard.models.causal import Causal
from regard.models.seq2seq import Seq2Seq
from regard.settings import CausalModel, PairModel, TranslationModel

WORDS, LENGTH = 40, 24
SHAPE = {"layers": 2, "width": 48, "heads": 4, "feedforward": 64, "dropout": 0.0, "norm": "pre"}
FAMILIES = [
    pytest.param({"positions": "learned", "max_positions": LENGTH}, id="learned"),
    pytest.param({"positions": "rotary"}, id="rotary"),
    pytest.param({"key_value_heads": 2, "query_key_norm": True}, id="grouped"),
    pytest.param({"mixer": "local", "local": {"window": 5}}, id="local"),
]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]


@pytest.fixture(params=DEVICES)
def device(request) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-4 if found.is_cpu else 5e-3, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_texts_that_enter_at_different_times_read_as_if_alone(family, device):
    model = Causal(CausalModel(**SHAPE | family), WORDS).eval().to(device)
    texts = torch.randint(0, WORDS, (3, LENGTH), device=device)
    whole = model(texts)
    state = model.trunk.start_slots(3, LENGTH)
    at, open_B = [4, 9, 0], torch.tensor([True, True, False], device=device)
    enters = {0: [(0, 4), (1, 9)], 5: [(2, 11)]}
    for step in range(10):
        for slot, length in enters.get(step, []):
            slots_X, lengths_X = torch.tensor([slot], device=device), torch.tensor([length], device=device)
            state.places.enter(slots_X, lengths_X)
            read = torch.nn.functional.pad(texts[slot : slot + 1, :length], (0, 16 - length), value=7)
            model.trunk.enter(read, lengths_X, slots_X, state)
            at[slot], open_B[slot] = length, True
        tokens = torch.stack([texts[slot, at[slot]] for slot in range(3)])
        logits = model.step(tokens, state)
        for slot in range(3):
            if open_B[slot]:
                close(logits[slot], whole[slot, at[slot]])
                at[slot] += 1
        state.places.advance(open_B, None)
        if step == 6:  # the first is done: it stays where it is, and disturbs nobody
            open_B[0] = False


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_positions_fed_at_once_read_as_one_by_one_whatever_was_guessed_before(family, device):
    model = Causal(CausalModel(**SHAPE | family), WORDS).eval().to(device)
    texts = torch.randint(0, WORDS, (2, LENGTH), device=device)
    whole, at_once = model(texts), 4
    state = model.trunk.start_slots(2, LENGTH, at_once)
    at = torch.tensor([3, 9], device=device)
    state.places.enter(torch.tensor([0, 1], device=device), at)
    read = torch.nn.functional.pad(texts[:, :9], (0, 3), value=7)
    model.trunk.enter(read, at, torch.tensor([0, 1], device=device), state)
    for right in [(4, 1), (1, 3), (2, 0), (3, 4), (4, 2), (1, 1), (4, 4), (2, 0)]:
        # So many are the next of the text, the others are wrong; at last there are fewer positions left than are fed.
        fed = torch.randint(0, WORDS, (2, at_once), device=device)
        for slot, count in enumerate(right):
            fed[slot, :count] = texts[slot, at[slot] : at[slot] + count]
        logits = model.step(fed.flatten(), state).view(2, at_once, -1)
        for slot, count in enumerate(right):
            close(logits[slot, :count], whole[slot, at[slot] : at[slot] + count])
        by_B = torch.tensor(right, device=device)
        state.places.advance(by_B, None)
        at += by_B
    assert at.tolist() == [LENGTH, LENGTH]


@pytest.mark.parametrize("family", [*FAMILIES, pytest.param({"copy": True}, id="copying")])
@torch.inference_mode()
def test_beams_that_take_over_others_read_their_own_lineage(family, device):
    model = Seq2Seq(PairModel(**SHAPE | family), WORDS, WORDS).eval().to(device)
    sources = torch.randint(3, WORDS, (2, 7), device=device)
    lengths = torch.tensor([7, 4], device=device)
    state = model.start_slots(2, 3, LENGTH, 8)
    slots_X = torch.tensor([1, 0], device=device)  # the first sentence is in the second slot
    state.places.enter(slots_X, torch.zeros_like(slots_X))
    model.enter(sources, lengths, slots_X, state)
    texts = [[[] for _ in range(3)] for _ in range(2)]
    open_B = torch.ones(2, dtype=torch.bool, device=device)
    for _ in range(8):
        tokens = torch.randint(3, WORDS, (2, 3), device=device)
        for slot in range(2):
            texts[slot] = [[*text, int(token)] for text, token in zip(texts[slot], tokens[slot], strict=True)]
        found = model.step(tokens.flatten(), state).view(2, 3, -1)
        for slot in range(2):
            source = sources[1 - slot : 2 - slot, : lengths[1 - slot]].expand(3, -1)
            target = torch.tensor(texts[slot], device=device)
            places = [torch.arange(x.shape[1], device=device).expand_as(x) for x in (source, target)]
            whole = model(source, torch.ones_like(source), places[0], target, torch.ones_like(target), places[1])
            close(found[slot], whole[:, -1])
        from_BK = torch.randint(0, 3, (2, 3), device=device)
        state.places.advance(open_B, from_BK)
        texts = [[texts[slot][int(k)] for k in from_BK[slot]] for slot in range(2)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("beams", [1, 3])
@torch.inference_mode()
def test_the_kernels_are_the_formula(beams, monkeypatch):
    from regard.layers import slots
    from regard.layers.attention import Attention

    attention = Attention(TranslationModel(**SHAPE), causal=True).cuda()
    places = [slots.Places(4, beams, 300, torch.device("cuda")) for _ in range(2)]
    own = [slots.KeySlots(attention, each, 300, torch.zeros(1, device="cuda")) for each in places]
    across = [slots.MemorySlots(attention, each, 16, torch.zeros(1, device="cuda")) for each in places]
    k, v = torch.randn(2, 4, 4, 16, 12, device="cuda")
    for memory in across:
        memory.enter(torch.arange(4, device="cuda"), k, v, torch.tensor([1, 5, 16, 9], device="cuda"))
    for _ in range(290):
        q, k, v = torch.randn(3, 4 * beams, 4, 1, 12, device="cuda")
        fast = own[0].attend(q, k, v), across[0].attend(q)
        with monkeypatch.context() as patched:
            patched.setattr(slots, "slot_kernel", lambda like: None)
            plain = own[1].attend(q, k, v), across[1].attend(q)
        for found, expected in zip(fast, plain, strict=True):
            torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
        from_BK = torch.randint(0, beams, (4, beams), device="cuda")
        for each in places:
            each.advance(torch.tensor([True, False, True, True], device="cuda"), from_BK if beams > 1 else None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", [300, 37])
@pytest.mark.parametrize("groups", [2, 4])
@torch.inference_mode()
def test_the_kernels_are_the_formula_for_positions_fed_at_once(groups, window, monkeypatch):
    from regard.layers import slots
    from regard.layers.attention import Attention

    attention = Attention(TranslationModel(**SHAPE, key_value_heads=groups), causal=True).cuda()
    places = [slots.Places(3, 1, 300, torch.device("cuda"), at_once=5) for _ in range(2)]
    fast, plain = (slots.KeySlots(attention, each, window, torch.zeros(1, device="cuda")) for each in places)
    for _ in range(80):
        q = torch.randn(15, 4, 1, 12, device="cuda")
        k, v = torch.randn(2, 15, groups, 1, 12, device="cuda")
        found = fast.attend(q, k, v)
        with monkeypatch.context() as patched:
            patched.setattr(slots, "slot_kernel", lambda like: None)
            expected = plain.attend(q, k, v)
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
        assert torch.equal(fast.keys_BGEK, plain.keys_BGEK) and torch.equal(fast.values_BGEV, plain.values_BGEV)
        by_B = torch.randint(0, 6, (3,), device="cuda").clamp(max=int(295 - places[0].positions_N.max()))
        for each in places:
            each.advance(by_B, None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize(
    "part",
    [
        {"norm": "pre", "activation": "gelu-tanh"},
        {"norm": "post", "activation": "relu"},
        {"norm": "pre", "norm_kind": "rms", "activation": "relu2", "bias": False, "feedforward_bias": False},
        {"norm": "post", "norm_kind": "rms", "activation": "silu", "gated": True},
        {"norm": "pre", "activation": "gelu", "positions": "rotary", "query_key_norm": True, "key_value_heads": 2},
    ],
)
@torch.inference_mode()
def test_a_quick_step_is_the_step_of_the_block(part, rows, monkeypatch):
    """Beside the same in float32, it is not further off than the block's own in half precision."""
    from regard.layers.block import Block

    settings = TranslationModel(**SHAPE | {"width": 96, "feedforward": 200} | part)
    model = Seq2Seq(settings, WORDS, WORDS).eval().cuda()
    for weight in model.parameters():
        weight.add_(torch.randn_like(weight) * 0.1)
    half = Seq2Seq(settings, WORDS, WORDS).eval().cuda()
    half.load_state_dict(model.state_dict())
    half = half.bfloat16()
    sources = torch.randint(3, WORDS, (rows, 7), device="cuda")
    places = torch.arange(rows, device="cuda")
    results = []
    for chosen, quick in ((model, False), (half, False), (half, True)):
        state = chosen.start_slots(rows, 1, LENGTH, 8)
        with monkeypatch.context() as patched:
            if not quick:
                patched.setattr(Block, "_quick_step", lambda *_: None)
            state.places.enter(places, torch.zeros_like(places))
            chosen.enter(sources, torch.full((rows,), 7, device="cuda"), places, state)
            found = []
            for token in range(6):
                found.append(chosen.step(sources[:, token], state).float())
                state.places.advance(torch.ones(rows, dtype=torch.bool, device="cuda"), None)
        results.append(torch.stack(found))
    exact, own, quick = results
    assert (quick - exact).norm() <= 1.3 * (own - exact).norm()
    assert (quick - exact).norm() < 0.05 * exact.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_likeliest_word_is_that_of_argmax():
    from regard.decoding.likeliest import likeliest

    for words in (7, 4096, 50257):
        logits = torch.randn(5, words, device="cuda") * 3
        logits[2, : words // 2] = -torch.inf
        p, word = likeliest(logits)
        assert torch.equal(word, logits.argmax(-1))
        torch.testing.assert_close(p, logits.softmax(-1).amax(-1))
