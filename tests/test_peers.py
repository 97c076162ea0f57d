"""The benchmarks compare like with like: a peer that has taken a model's weights computes the same numbers."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import peers
from company import Tally
from measured import best, in_turn, ratio
from regard.data.batch import DataState
from regard.data.pair_batches import PairStream, Rectangle
from regard.data.ragged import Ragged
from regard.data.tokenised import TokenisedPairs
from regard.data.tokenizers import END, PAD, START
from regard.decoding.engines import Engines
from regard.models.causal import Causal
from regard.models.seq2seq import Seq2Seq
from regard.settings import BeamSettings, CausalModel, TranslationModel
from translation_decoding import ctranslate2s, ours
from translation_training import Padded, sentences_of, sorted_batches
from translators import Subject, made_up, with_random_weights

CPU = torch.device("cpu")
WORDS = 60


@torch.no_grad()
def stirred(model):
    """Every weight moved a little: biases and norms too, which start at 0 and 1."""
    torch.manual_seed(3)
    for weight in model.parameters():
        weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


def gpt2_shaped(**changes) -> Causal:
    shape = {"layers": 2, "width": 32, "heads": 4, "feedforward": 128, "activation": "gelu-tanh", "norm": "pre"}
    shape |= {"positions": "learned", "max_positions": 32, "scale_embeddings": False, "initialisation": "gpt2"}
    return stirred(Causal(CausalModel(**shape | changes), WORDS))


def translator(**changes) -> Seq2Seq:
    shape = {"layers": 2, "decoder_layers": 3, "width": 32, "heads": 4, "feedforward": 64, "norm": "post"}
    shape |= {"positions": "sinusoidal-halves", "dropout": 0.0}
    return stirred(Seq2Seq(TranslationModel(**shape | changes), WORDS, WORDS))


def padded() -> Padded:
    return Padded.of([([7, 8, 9, 10, 11], [12, 13]), ([20, 21], [22, 23, 24, 25]), ([30], [])])


def logits_of(model: Seq2Seq, batch: Padded) -> torch.Tensor:
    arguments = []
    for tokens in (batch.source_BS, batch.target_BT):
        arguments += [tokens, (tokens != PAD).long(), torch.arange(tokens.shape[1]).expand_as(tokens)]
    return model(*arguments)


def test_gpt2_of_transformers_with_our_weights_has_our_logits():
    pytest.importorskip("transformers", reason="transformers is not installed")
    model = gpt2_shaped()
    tokens = torch.randint(0, WORDS, (2, 20))
    torch.testing.assert_close(peers.gpt2(model)(tokens).logits, model(tokens), atol=1e-4, rtol=0)


@pytest.mark.parametrize("tied", ["all", "target"])
def test_marian_of_transformers_with_our_weights_has_our_logits(tied):
    pytest.importorskip("transformers", reason="transformers is not installed")
    model, batch = translator(tie_embeddings=tied), padded()
    theirs = peers.marian(model)
    found = theirs(
        input_ids=batch.source_BS, attention_mask=(batch.source_BS != PAD).long(), decoder_input_ids=batch.target_BT
    ).logits
    real = batch.target_BT != PAD
    torch.testing.assert_close(found[real], logits_of(model, batch)[real], atol=1e-4, rtol=0)
    assert sum(p.numel() for p in theirs.parameters() if p.requires_grad) == sum(p.numel() for p in model.parameters())


def test_nn_transformer_with_our_weights_has_our_logits():
    model, batch = translator(norm="pre", positions="sinusoidal"), padded()
    real = batch.target_BT != PAD
    found = peers.Plain(model).eval()(batch.source_BS, batch.target_BT)
    torch.testing.assert_close(found[real], logits_of(model, batch)[real], atol=1e-4, rtol=0)


def test_ctranslate2_with_our_weights_translates_as_we_do_and_leaves_the_weights_alone(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    tokenizer, sentences = made_up(300, 5, 6)
    subject = with_random_weights(tokenizer, True, (PAD, START, END), CPU)
    settings = BeamSettings(beam=3, length_penalty=0.0, max_ratio=0.1)
    engines = Engines(subject.model, CPU)
    expected = ours(subject.translator(engines, settings), sentences)
    for kind in ("float32", "int8"):
        folder = peers.ctranslate2_of(subject.model, tmp_path / kind, kind)
        engine = ctranslate2.Translator(str(folder), device="cpu", compute_type=kind)
        found = ctranslate2s(engine, subject, sentences, 4, settings)
        assert kind != "float32" or found == expected
    assert ours(subject.translator(engines, settings), sentences) == expected


@pytest.mark.parametrize("changes", [{"norm": "pre"}, {"positions": "sinusoidal"}, {"activation": "gelu"}])
def test_a_translator_of_another_shape_is_no_marian(changes):
    with pytest.raises(SystemExit, match="needs"):
        peers.marian(translator(**changes))


def test_random_weights_never_say_what_is_to_be_silent():
    tokenizer, sentences = made_up(300, 9, 4)
    assert {len(ids) for ids in tokenizer.encode(sentences)} == {9}
    subject: Subject = with_random_weights(tokenizer, True, (PAD, START, END), CPU)
    found = logits_of(subject.model, padded())
    assert found[..., [PAD, START, END]].max() < found[..., END + 1 :].amin() - 10


def test_one_batch_packed_and_padded_has_the_same_sentences():
    chance = np.random.default_rng(1)
    sides = [[chance.integers(3, WORDS, chance.integers(1, 9)).tolist() for _ in range(200)] for _ in range(2)]
    pairs = TokenisedPairs(*(Ragged.from_lists(side) for side in sides))
    rectangle = Rectangle(rows=4, source_length=40, target_length=40)
    batch, _ = next(PairStream(pairs, rectangle, 1, 20).batches(DataState()))
    found = list(sentences_of(batch))
    assert len(found) > 10
    assert all(pair in list(zip(*sides, strict=True)) for pair in found)
    assert Padded.of(found).targets == batch.targets


def test_sorted_batches_hold_the_targets_asked_for_and_like_lengths():
    chance = np.random.default_rng(2)
    sides = [[chance.integers(3, WORDS, chance.integers(1, 30)).tolist() for _ in range(400)] for _ in range(2)]
    batches = sorted_batches(TokenisedPairs(*(Ragged.from_lists(side) for side in sides)), 500, 100, 25)
    assert len(batches) > 5
    assert all(abs(batch.targets - 500) < 30 for batch in batches)
    assert max(batch.source_BS.shape[1] for batch in batches) <= 25
    lengths = sorted(sorted((batch.labels_BT != PAD).sum(1).tolist()) for batch in batches)
    assert all(before[-1] <= after[0] for before, after in itertools.pairwise(lengths))


def test_a_contender_that_fails_is_left_out_and_said(capsys):
    ran = []

    def fails() -> None:
        raise ValueError("no such kernel")

    def works() -> int:
        ran.append(1)
        return len(ran)

    seconds, given = in_turn({"good": works, "bad": fails}, rounds=3, device=CPU)
    assert list(seconds) == ["good"] and len(seconds["good"]) == 3 and given == {"good": 4}
    assert "bad is left out: ValueError: no such kernel" in capsys.readouterr().out
    assert best(seconds, ["bad"]) is None


def test_a_ratio_is_of_the_same_round():
    assert ratio([1.0, 2.0, 4.0], [2.0, 4.0, 20.0]) == {"median": 2.0, "lowest": 2.0, "highest": 5.0}
    assert best({"a": [3.0, 9.0, 9.0], "b": [5.0, 5.0, 5.0]}, ["a", "b"]) == "b"


def test_company_counts_texts_and_bits():
    first = (("ein Satz", (0.1).hex()), ("zwei", (0.2).hex()))
    bits = (("ein Satz", np.nextafter(0.1, 1.0).item().hex()), first[1])
    second = (first[0], ("drei", first[1][1]))
    tally = Tally("counted")
    tally.add([first, first, first, first], [first, bits, second, (("Ein Satz", first[0][1]), first[1])])
    assert (tally.asked, tally.text, tally.score, tally.anything) == (4, 1, 2, 3)
