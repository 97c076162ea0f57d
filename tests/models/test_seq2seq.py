"""The whole encoder–decoder: packing, caching, causality, tying, presets."""

import pytest
import torch
from torch import nn

from regard import registry
from regard.data.pair_batches import PairBatch, Rectangle
from regard.data.ragged import Ragged
from regard.data.tokenised import TokenisedPairs
from regard.data.tokenizers import START
from regard.models.seq2seq import Seq2Seq
from regard.recipes import resolve
from regard.settings import PairModel, TranslationModel
from regard.training.loss import cross_entropy

WORDS, MANY = 50, 1000
POSITIONS = [name for name in registry.names("positions") if not list(TranslationModel(positions=name).check_parts())]


def make(**changes) -> Seq2Seq:
    torch.manual_seed(1)
    base = {"layers": 2, "width": 16, "heads": 2, "feedforward": 32, "dropout": 0.0, "max_positions": 64}
    return Seq2Seq(PairModel(**base | changes), WORDS, WORDS).eval()


def some_pairs(count: int) -> TokenisedPairs:
    generator = torch.Generator().manual_seed(3)

    def sentence() -> list[int]:
        length = int(torch.randint(2, 9, (), generator=generator))
        return torch.randint(3, WORDS, (length,), generator=generator).tolist()

    return TokenisedPairs(*(Ragged.from_lists([sentence() for _ in range(count)]) for _ in range(2)))


def alone(pairs: TokenisedPairs, pair: int) -> PairBatch:
    """A batch of one pair, without padding."""
    return Rectangle(1, len(pairs.source[pair]) + 1, len(pairs.target[pair]) + 1).fill([(pairs, [[pair]])])


def logits_of(model: Seq2Seq, batch: PairBatch) -> torch.Tensor:
    b = batch
    return model(
        b.source_BS,
        b.source_segments_BS,
        b.source_positions_BS,
        b.target_BT,
        b.target_segments_BT,
        b.target_positions_BT,
    )


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(("norm", "copy"), [("pre", True), ("post", False)])
def test_a_packed_batch_equals_one_sentence_at_a_time(positions, norm, copy):
    model = make(positions=positions, norm=norm, copy=copy)
    pairs = some_pairs(7)
    packed = Rectangle(4, 40, 40).fill([(pairs, [[0, 1, 2], [3, 4], [5, 6]])])
    together = logits_of(model, packed)
    for row, chosen in enumerate([[0, 1, 2], [3, 4], [5, 6]]):
        for segment, pair in enumerate(chosen, start=1):
            mine = together[row][packed.target_segments_BT[row] == segment]
            torch.testing.assert_close(mine, logits_of(model, alone(pairs, pair))[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_cached_steps_equal_the_whole_pass(positions, norm):
    model = make(positions=positions, norm=norm, decoder_layers=3)
    source = torch.randint(3, WORDS, (2, 6))
    segments = torch.ones_like(source)
    segments[1, 4:] = 0
    target = torch.randint(3, WORDS, (2, 5))
    state = model.start(source, segments, beams=1, max_length=5)
    steps = torch.stack([model.step(target[:, t], state) for t in range(5)], dim=1)
    places = torch.arange(6).expand(2, 6)
    whole = model(source, segments, places, target, torch.ones_like(target), places[:, :5])
    torch.testing.assert_close(steps, whole, atol=1e-5, rtol=0)


FAMILIES = {
    "plain RNN": {"mixer": "rnn", "cross": "none"},
    "LSTM": {"mixer": "lstm", "cross": "none"},
    "additive": {"mixer": "gru", "cross": "additive"},
    "Bahdanau": {"mixer": "gru", "cross": "bahdanau", "feedforward": 0},
    "Bahdanau, LSTM": {"mixer": "lstm", "cross": "bahdanau"},
    "GRU": {"mixer": "gru", "cross": "multihead", "feedforward": 0},
    "Hyena": {"mixer": "hyena", "hyena": {"filter_length": 12}},
    "local": {"mixer": "local", "local": {"window": 3}},
    "copying": {"copy": True},
    "Bahdanau, copying": {"mixer": "gru", "cross": "bahdanau", "copy": True},
}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


@every_family
def test_rows_of_one_pair_equal_each_pair_alone(family):
    model = make(**family)
    pairs = some_pairs(6)
    batch = Rectangle(8, 16, 16, apart=True).fill([(pairs, [[pair] for pair in range(6)])])
    together = logits_of(model, batch)
    assert together.isfinite().all()  # also in the two empty rows
    for pair in range(6):
        mine = together[pair][batch.target_segments_BT[pair] == 1]
        torch.testing.assert_close(mine, logits_of(model, alone(pairs, pair))[0], atol=1e-5, rtol=0)


@every_family
def test_steps_of_every_family_equal_the_whole_pass(family):
    model = make(**family, decoder_layers=3)
    source, target = torch.randint(3, WORDS, (3, 6)), torch.randint(3, WORDS, (3, 5))
    segments = torch.ones_like(source)
    segments[1, 4:] = 0
    state = model.start(source, segments, beams=2, max_length=5)
    steps = torch.stack([model.step(target[:, t].repeat_interleave(2), state) for t in range(5)], dim=1)
    places = torch.arange(6).expand(3, 6)
    whole = model(source, segments, places, target, torch.ones_like(target), places[:, :5])
    torch.testing.assert_close(steps[::2], whole, atol=1e-4, rtol=0)
    torch.testing.assert_close(steps[1::2], whole, atol=1e-4, rtol=0)


@every_family
def test_the_source_reaches_every_target_position(family):
    model = make(**family)
    source, target = torch.randint(3, WORDS, (1, 6)), torch.randint(3, WORDS, (1, 5))
    ones, places = torch.ones_like, torch.arange(6)[None]
    before = model(source, ones(source), places, target, ones(target), places[:, :5])
    changed = source.clone()
    changed[0, 2] = (changed[0, 2] + 1 - 3) % (WORDS - 3) + 3
    after = model(changed, ones(source), places, target, ones(target), places[:, :5])
    assert ((before - after).abs().amax(-1) > 1e-7).all()


def test_a_model_that_copies_has_two_matrices_more_and_ends_by_itself():
    plain, copying = make(), make(copy=True)
    added = {name: weight for name, weight in copying.named_parameters() if name.startswith("copying.")}
    assert {tuple(weight.shape) for weight in added.values()} == {(16, 16)} and len(added) == 2
    assert [name for name, _ in plain.named_parameters()] == [
        name for name, _ in copying.named_parameters() if name not in added
    ]
    batch = Rectangle(1, 12, 12).fill([(some_pairs(1), [[0]])])
    hidden = copying.hidden(*batch.tensors()[4:], *batch.tensors()[1:4])
    words = torch.zeros(WORDS, dtype=torch.bool)
    words[batch.source_BS[0][batch.source_BS[0] > 2]] = True
    changed = (logits_of(copying, batch) != copying.to_logits(hidden))[0].any(0)
    assert torch.equal(changed, words)


def puzzles(count: int, lowest: int, highest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random words, and the fourth of them: [B, S] and [B]."""
    source = torch.randint(lowest, highest, (count, 5))
    return source, source[:, 3]


def share_solved(copy: bool) -> float:
    """Of puzzles with words that never occurred in training."""
    torch.manual_seed(4)
    shape = {"layers": 1, "width": 32, "heads": 2, "feedforward": 32, "norm": "pre", "dropout": 0.0}
    model = Seq2Seq(PairModel(**shape, initialisation="zero-out", copy=copy), MANY, MANY)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def logits(source: torch.Tensor) -> torch.Tensor:
        target, places = torch.full((len(source), 1), START), torch.arange(5).expand_as(source)
        ones = torch.ones_like
        return model(source, ones(source), places, target, ones(target), torch.zeros_like(target))[:, 0]

    for _ in range(50):
        source, answer = puzzles(32, 3, MANY // 2)
        cross_entropy(logits(source), answer).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        source, answer = puzzles(500, MANY // 2, MANY)
        return float((logits(source).argmax(-1) == answer).float().mean())


def test_a_word_that_was_never_written_can_only_be_copied():
    assert share_solved(copy=False) < 0.1
    assert share_solved(copy=True) > 0.9


def test_a_later_target_token_never_changes_an_earlier_logit():
    model = make()
    batch = Rectangle(1, 12, 12).fill([(some_pairs(1), [[0]])])
    changed = PairBatch(*(tensor.clone() for tensor in batch.tensors()))
    last = int((batch.target_segments_BT[0] == 1).sum()) - 1
    changed.target_BT[0, last] = 7 if batch.target_BT[0, last] != 7 else 8
    before, after = logits_of(model, batch)[0], logits_of(model, changed)[0]
    assert torch.equal(before[:last], after[:last])
    assert not torch.equal(before[last], after[last])


@pytest.mark.parametrize(("tie", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_tying_shares_the_tables(tie, tables):
    model = make(tie_embeddings=tie)
    shared = {p.data_ptr() for p in (model.source_embedding.table.weight, model.target_embedding.table.weight)}
    assert len(shared | {model.to_logits.weight.data_ptr()}) == tables


def test_initialisation_is_the_papers():
    model = make(width=64, heads=4)
    assert model.target_embedding.table.weight.std().item() == pytest.approx(64**-0.5, rel=0.1)
    expand = model.encoder[0].feedforward.expand
    assert expand.weight.abs().max().item() <= (6 / (64 + 32)) ** 0.5
    assert expand.bias.abs().max() == 0


@pytest.mark.parametrize(("recipe", "millions"), [("transformer-base", 63), ("transformer-big", 214)])
def test_the_presets_have_the_papers_size(recipe, millions):
    """65 M and 213 M in the paper, with 37,000 shared tokens."""
    settings = resolve(recipe).model
    with torch.device("meta"):
        model = Seq2Seq(settings, 37_000, 37_000)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e6 == pytest.approx(millions, abs=1.5)
    assert len(model.encoder) == len(model.decoder) == 6


def test_the_whole_model_equals_torch_transformer():
    """Post-norm, as in the paper, with every weight copied into torch.nn.Transformer."""
    model = make(norm="post", positions="none", scale_embeddings=False)
    other = nn.Transformer(16, 2, 2, 2, 32, 0.0, batch_first=True).eval()
    # torch adds a last norm that the paper does not have.
    other.encoder.norm = other.decoder.norm = None
    with torch.no_grad():
        for ours, theirs in zip(model.encoder, other.encoder.layers, strict=True):
            _copy(ours.mixer, theirs.self_attn)
            theirs.linear1.load_state_dict(ours.feedforward.expand.state_dict())
            theirs.linear2.load_state_dict(ours.feedforward.contract.state_dict())
        for ours, theirs in zip(model.decoder, other.decoder.layers, strict=True):
            _copy(ours.mixer, theirs.self_attn)
            _copy(ours.cross, theirs.multihead_attn)
            theirs.linear1.load_state_dict(ours.feedforward.expand.state_dict())
            theirs.linear2.load_state_dict(ours.feedforward.contract.state_dict())
        source, target = torch.randint(3, WORDS, (2, 6)), torch.randint(3, WORDS, (2, 5))
        table = model.target_embedding.table
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        expected = other(table(source), table(target), tgt_mask=mask) @ table.weight.T
        places = torch.arange(6).expand(2, 6)
        actual = model(source, torch.ones_like(source), places, target, torch.ones_like(target), places[:, :5])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def _copy(ours, theirs) -> None:
    theirs.in_proj_weight.copy_(ours.to_qkv.weight)
    theirs.in_proj_bias.copy_(ours.to_qkv.bias)
    theirs.out_proj.load_state_dict(ours.to_out.state_dict())
