"""Prompt lookup: the text of greedy decoding, in fewer passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

import regard
from regard.decoding.engine import Engine
from regard.decoding.engines import Engines
from regard.decoding.generate import GeneratedToken, generate
from regard.decoding.hypothesis import Request
from regard.decoding.lookup import COMPARED, Lookup
from regard.decoding.sampling import OPEN
from regard.errors import UsageError
from regard.models.causal import Causal
from regard.recipes import resolve
from regard.settings import CausalModel, GenerationSettings
from tiny import TINY_TEXT

WORDS, CONTEXT = 30, 40
SHAPE = {"layers": 1, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0, "norm": "pre"}
FAMILIES = {
    "learned": {"positions": "learned", "max_positions": CONTEXT},  # the table ends where the context does
    "rotary": {"positions": "rotary"},
    "sinusoidal": {"positions": "sinusoidal", "norm": "post"},
    "grouped": {"positions": "rotary", "key_value_heads": 2, "query_key_norm": True, "logit_cap": 15.0},
    "local": {"mixer": "local", "local": {"window": 5}},
}
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]


def random_model(family: str, device: str = "cpu") -> Causal:
    torch.manual_seed(17)
    found = Causal(CausalModel(**SHAPE | FAMILIES[family], tie_embeddings="none"), WORDS).eval()
    with torch.no_grad():  # large weights: it repeats itself, but not at once
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return found.to(device)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request) -> Causal:
    return random_model(request.param)


def random_prompts(count: int, seed: int = 3) -> list[list[int]]:
    """Of 1 to 24 tokens, half of them with a part that comes twice."""
    numbers = torch.Generator().manual_seed(seed)
    prompts = []
    for number in range(count):
        length = int(torch.randint(1, 25, (), generator=numbers))
        prompt = torch.randint(3, WORDS, (length,), generator=numbers).tolist()
        prompts.append(prompt if number % 2 else (prompt[: length // 2] * 3)[:length] or prompt)
    return prompts


def write(
    model: Causal, prompts: Sequence[Sequence[int]], *, context: int = CONTEXT, end: int = -1, top: int = 0, **settings
) -> list[list[GeneratedToken]]:
    rows: list[list[GeneratedToken]] = [[] for _ in prompts]
    options = GenerationSettings(**{"max_tokens": 50} | settings)
    device = next(model.parameters()).device
    for written in generate(model, prompts, options, context=context, end=end, top=top, device=device):
        rows[written.row].append(written)
    return rows


def tokens(rows: list[list[GeneratedToken]]) -> list[list[int]]:
    return [[written.token for written in row] for row in rows]


def passes(row: Sequence[GeneratedToken]) -> int:
    return sum(not written.same_pass for written in row)


# --- The same text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_text_is_that_of_greedy_decoding(family, device):
    model, prompts = random_model(family, device), random_prompts(5)
    expected = write(model, prompts)
    for lookup in (2, 7):
        found = write(model, prompts, lookup=lookup)
        assert tokens(found) == tokens(expected)
        assert sum(map(passes, found)) < 0.9 * sum(map(len, found))
    assert all(not written.same_pass for row in expected for written in row)


def test_a_trained_model_writes_the_same_text_in_fewer_passes(language):
    prompts = ["", "T", "The man ", "The dog sleeps. The dog sleeps. The", "We read a book. She reads a book. They"]
    expected = language.generate(prompts, temperature=0.0, max_tokens=100)
    for lookup in (2, 7):
        pieces = list(language.generate_pieces(prompts, temperature=0.0, max_tokens=100, lookup=lookup))
        texts = ["".join(piece.text for piece in pieces if piece.sample == n) for n in range(len(prompts))]
        assert texts == expected
        assert sum(not piece.same_pass for piece in pieces) < 0.7 * len(pieces)


@pytest.mark.parametrize("context", [2, 7])
def test_a_full_context_may_cut_a_guess(model, context):
    """More is guessed than there are positions left, and the newer half of the text enters again."""
    prompts = random_prompts(6)
    expected = tokens(write(model, prompts, context=context))
    assert tokens(write(model, prompts, context=context, lookup=7)) == expected


def test_the_end_may_lie_inside_a_guess(model):
    (row,) = write(model, [[5, 6, 7]], lookup=7)
    # A token that was guessed, with another after it in the same pass.
    inside = [here.token for here, after in pairwise(row) if here.same_pass and after.same_pass]
    assert inside
    for end in set(inside):
        expected = tokens([row])[0]
        assert tokens(write(model, [[5, 6, 7]], lookup=7, end=end)) == [expected[: expected.index(end) + 1]]


def test_the_most_tokens_may_be_reached_inside_a_guess(model):
    (row,) = write(model, [[5, 6, 7]], lookup=7)
    cut = [count for count in range(1, len(row)) if row[count].same_pass]
    assert cut
    for count in {1, 2, *cut[:6], *cut[-2:]}:
        assert tokens(write(model, [[5, 6, 7]], lookup=7, max_tokens=count)) == [tokens([row])[0][:count]]


def test_whoever_has_enough_inside_a_guess_gets_no_more(model):
    settings = GenerationSettings(max_tokens=50, lookup=7)
    (row,) = write(model, [[5, 6, 7]], lookup=7)
    last = next(place for place, (_, after) in enumerate(pairwise(row)) if after.same_pass)
    seen: list[int] = []

    def enough(row: int) -> bool:
        seen.append(row)
        return len(seen) == last + 1

    found = generate(model, [[5, 6, 7], [8]], settings, context=CONTEXT, end=-1, finished=enough)
    rows = [written.row for written in found]
    assert rows.count(0) == last + 1
    assert rows.count(1) == 50


def test_probabilities_and_candidates_are_those_of_greedy_decoding(model):
    prompts = random_prompts(4)
    for plain, found in zip(write(model, prompts, top=3), write(model, prompts, top=3, lookup=5), strict=True):
        assert [w.token for w in found] == [w.token for w in plain]
        assert [w.probability for w in found] == pytest.approx([w.probability for w in plain], abs=1e-5)
        assert [[t for t, _ in w.candidates] for w in found] == [[t for t, _ in w.candidates] for w in plain]
        for one, other in zip(found, plain, strict=True):
            assert [p for _, p in one.candidates] == pytest.approx([p for _, p in other.candidates], abs=1e-5)


@pytest.mark.parametrize("settings", [{"repetition_penalty": 1.1}, {"int8": True}, {"slots": 1}], ids=str)
def test_other_settings_hold_as_without_it(model, settings):
    engines = Engines(model, int8=settings.get("int8", False))
    texts = []
    for lookup in (0, 6):
        options = GenerationSettings(max_tokens=30, lookup=lookup, **settings)
        found = generate(model, random_prompts(6), options, context=CONTEXT, end=-1, engines=engines, never=[4, 9])
        texts.append([(written.row, written.token) for written in found])
    assert sorted(texts[0], key=lambda pair: pair[0]) == texts[1]
    assert not {4, 9} & {token for _, token in texts[1]}


# --- Fewer passes ----------------------------------------------------------------------------------------


def test_a_pass_is_one_call_of_the_model_and_comes_out_at_once(model):
    calls: list[int] = []
    settings = GenerationSettings(max_tokens=50, lookup=7)
    hook = model.to_logits.register_forward_hook(lambda *_: calls.append(1))
    try:
        stream = generate(model, [[5, 6, 7]], settings, context=CONTEXT, end=-1)
        found = [next(stream)]
        assert len(calls) == 1
        for written in stream:
            found.append(written)
            assert len(calls) == passes(found)
    finally:
        hook.remove()
    assert len(found) == 50


def test_a_pass_with_nobody_in_the_slot_leaves_all_as_it_is(model):
    """On a GPU, passes are run before the first text enters, and after the last has left."""
    engines = Engines(model)
    settings = GenerationSettings(max_tokens=30, lookup=7)
    with torch.inference_mode():
        search = Lookup(CONTEXT + 1, WORDS, settings)
        engine = Engine(engines.rows(1, 1, CONTEXT, CONTEXT, at_once=8), search, 1, engines.device)
        for _ in range(3):
            engine.step()
        assert search.report_BX[0, OPEN] == 0
        assert (search.report_BX[0, 1::2] == -1).all()
        assert search.tokens_N.tolist() == [0] * 8
    request = Request(0, [5, 6], 7, 30)
    found: list[float] = []
    for step in engine.run([request]):
        told = step.report_BX[0, 1::2]
        found += told[told >= 0].tolist()
        if step.done:
            with torch.inference_mode():
                engine.step()
                assert (search.report_BX[0, 1::2] == -1).all()
    assert [found] == tokens(write(model, [[5, 6, 7]], max_tokens=30))


def guessed(text: Sequence[int], lookup: int) -> list[int]:
    """What would be fed after this text, by the definition."""
    for compared in range(min(COMPARED, len(text) - 1), 0, -1):
        for place in range(len(text) - 1, compared - 1, -1):
            if text[place - compared : place] == text[len(text) - compared :]:
                found = list(text)
                for _ in range(lookup):
                    found.append(found[len(found) - (len(text) - place)])
                return found[len(text) - 1 :]
    return [text[-1]] * (1 + lookup)


@pytest.mark.parametrize("words", [2, 3, 8])
def test_what_is_guessed_followed_the_longest_match(words):
    numbers = torch.Generator().manual_seed(words)
    search = Lookup(40, words, GenerationSettings(lookup=5))
    for length in (1, 2, 3, 7, 20, 39):
        for _ in range(10):
            text = torch.randint(0, words, (length,), generator=numbers).tolist()
            search.enter(torch.tensor([0]), [Request(0, text[:-1], text[-1], 5)])
            assert search.tokens_N.tolist() == guessed(text, 5)


# --- Where it does not apply -----------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"temperature": 0.8}, {"slots": 4}, {"lookup": -1}, {"lookup": 257}], ids=str)
def test_settings_that_contradict_it_are_refused(language, other):
    with pytest.raises(UsageError, match="lookup"):
        language.generate("The ", **{"temperature": 0.0, "lookup": 4} | other)


def test_a_mixer_that_cannot_take_back_is_refused(texts, train_once):
    with pytest.raises(UsageError, match=r'model.mixer = "gru" cannot take back .*lookup = 4'):
        resolve("shakespeare-cpu", ["model.mixer=gru", "decoding.lookup=4", "decoding.temperature=0.0"])
    settings = ["data.text=text.txt", "training.steps=2", "training.tokens_per_batch=256", "training.row_length=64"]
    settings += ["training.validate_every=2", "model.mixer=gru"]
    run = train_once("lookup-gru", "shakespeare-cpu", *TINY_TEXT, *settings, data=texts)
    with pytest.raises(UsageError, match="Leave out --lookup"):
        run.generate("The ", temperature=0.0, lookup=4)


def test_a_recipe_may_ask_for_it(texts, tmp_path):
    """Training samples at a temperature of its own, and does not mind."""
    settings = ["data.text=text.txt", "training.steps=2", "training.tokens_per_batch=256", "training.row_length=64"]
    settings += ["training.validate_every=2", "decoding.lookup=3", "decoding.temperature=0.0"]
    run = regard.load(regard.train("shakespeare-cpu", *TINY_TEXT, *settings, out=tmp_path / "run", data=texts))
    pieces = list(run.generate_pieces(["abc abc"], max_tokens=40))
    assert any(piece.same_pass for piece in pieces)
    assert ["".join(piece.text for piece in pieces)] == run.generate("abc abc", max_tokens=40, lookup=0)
