"""The engine: the same answer in any company and any number of slots, and less memory where there is not enough."""

from __future__ import annotations

import random

import pytest
import torch

from regard.data.pairs import pair_splits
from regard.decoding import engines as engines_module
from regard.decoding.beam import largest
from regard.decoding.engines import Engines
from regard.errors import RegardError


def found(run, sentences, **decoding):
    """Texts with the bits of their scores, by sentence."""
    translated = run.translator(**decoding).translate(sentences)
    return {s: [(h.text, h.log_probability.hex()) for h in each] for s, each in zip(sentences, translated, strict=True)}


@pytest.fixture(scope="module")
def sentences(trained) -> list[str]:
    chosen = dict.fromkeys(source for source, _ in pair_splits(trained.settings.data)["test"])
    return list(chosen)[:40]


@pytest.mark.parametrize("decoding", [{"beam": 3}, {"beam": 1}])
def test_a_translation_is_the_same_to_the_bit_in_any_company(trained, sentences, decoding):
    expected = found(trained, sentences, slots=4, **decoding)
    shuffled = list(sentences)
    for seed in range(4):
        random.Random(seed).shuffle(shuffled)
        some = shuffled[: 40 - 9 * seed]
        assert found(trained, some, slots=4, **decoding) == {s: expected[s] for s in some}
    assert found(trained, sentences[:1], slots=4, **decoding) == {sentences[0]: expected[sentences[0]]}


@pytest.mark.parametrize("slots", [1, 2, 16])
def test_the_number_of_slots_does_not_change_a_translation(trained, sentences, slots):
    expected = trained.translate(sentences, beam=3)
    assert trained.translate(sentences, beam=3, slots=slots) == expected


def test_what_does_not_fit_into_memory_is_tried_with_fewer_slots(trained, sentences, monkeypatch):
    expected, tried = trained.translate(sentences, beam=2, slots=2), []
    rows = Engines.rows

    def scarce(self, slots, *rest):
        tried.append(slots)
        if slots > 2:
            raise torch.OutOfMemoryError("no more")
        return rows(self, slots, *rest)

    monkeypatch.setattr(Engines, "rows", scarce)
    trained.engines().forget()
    assert trained.translate(sentences, beam=2, slots=8) == expected
    assert tried == [8, 4, 2]
    monkeypatch.setattr(Engines, "rows", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("none")))
    trained.engines().forget()
    with pytest.raises(RegardError, match="Out of memory"):
        trained.translate(sentences, slots=8)


def test_a_wide_beam_has_fewer_slots(trained, monkeypatch):
    for kind in ("cpu", "cuda"):
        monkeypatch.setitem(engines_module.ROWS, kind, 32)
    assert [trained.engines().slots(1000, beams, 64, 32) for beams in (1, 4, 5, 100)] == [32, 8, 4, 1]
    assert [trained.engines().slots(texts, 1, 64, 32) for texts in (1, 3, 30)] == [1, 4, 32]


@pytest.mark.parametrize("words", [5, 3000, 20_001])
def test_the_largest_are_those_of_topk(words):
    x = torch.randn(7, words, generator=torch.Generator().manual_seed(words))
    x[3, : words // 2] = -torch.inf
    for count in (1, 4):
        values, places = largest(x, count)
        expected = x.topk(count, dim=1)
        assert torch.equal(values, expected.values)
        assert torch.equal(x.gather(1, places), values)
