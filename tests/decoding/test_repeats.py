"""No phrase twice: against brute force over every text, a plain loop, and what a real translator writes."""

from __future__ import annotations

import itertools

import pytest
import torch
from test_beam import END, START, WORDS, Table, TableRows, log_probability

from regard.decoding.beam import Beams, penalty
from regard.decoding.engine import Engine
from regard.decoding.hypothesis import Request
from regard.decoding.repeats import Repeats
from regard.decoding.sampling import TOKEN, Draws
from regard.decoding.text_search import _searched
from regard.settings import BeamSettings

OTHERS = [token for token in range(WORDS) if token not in (0, START, END)]


def repeats(text: list[int], size: int) -> bool:
    """Whether any run of so many tokens comes twice."""
    runs = [tuple(text[at : at + size]) for at in range(len(text) - size + 1)]
    return len(set(runs)) < len(runs)


def search(model: Table, beams: int, size: int, longest: int, prefixes=((),), slots: int = 2):
    asked = [Request(n, [], START, longest, list(prefix)) for n, prefix in enumerate(prefixes)]
    beamed = Beams(slots, beams, longest, end=END, never=(0, START), forces=any(prefixes), no_repeat=size)
    engine = Engine(TableRows(model, slots, beams), beamed, slots, torch.device("cpu"))
    found = dict(_searched(engine, asked, 0.6, 0, lambda count: None))
    return [found[number] for number in range(len(asked))]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_words_that_would_repeat_a_run_are_forbidden_and_no_other(size):
    rows, words, length = 40, 5, 12
    generator = torch.Generator().manual_seed(size)
    tokens = torch.randint(words, (length, rows), generator=generator)
    table = Repeats(rows, length, size)
    steps = torch.zeros(rows, dtype=torch.long)
    lengths = torch.randint(length + 1, (rows,), generator=generator)
    table.text_NL.random_(words, generator=generator)  # what an earlier text has left behind
    for step in range(length):
        logits = torch.randn(rows, words, generator=generator)
        found = logits.clone()
        table.forbid(found, steps)
        for row in range(rows):
            text = tokens[: int(steps[row]), row].tolist()
            for word in range(words):
                # The text may repeat itself already: only runs that this word ends count.
                ends = tuple([*text, word][-size:])
                runs = [tuple(text[at : at + size]) for at in range(len(text) - size + 1)]
                expected = -torch.inf if len(ends) == size and ends in runs else float(logits[row, word])
                assert float(found[row, word]) == expected
        table.write(tokens[step], steps)
        steps += steps < lengths


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_search_finds_the_best_text_without_a_repetition(seed, size):
    model, longest = Table(seed, end=-3.0), 5
    texts = [list(text) for length in range(longest + 1) for text in itertools.product(OTHERS, repeat=length)]
    allowed = [text for text in texts if not repeats(text, size)]
    assert len(allowed) < len(texts)

    def score(text: list[int]) -> float:
        ended = text if len(text) == longest else [*text, END]
        return log_probability(model, ended) / penalty(len(ended), 0.6)

    [best] = search(model, 300, size, longest, slots=1)
    assert best[0].tokens == max(allowed, key=score)
    assert best[0].score == pytest.approx(score(best[0].tokens), rel=1e-5)
    assert not any(repeats(hypothesis.tokens, size) for hypothesis in best)


def test_greedy_search_takes_the_likeliest_word_that_repeats_nothing():
    for seed in range(6):
        model = Table(seed, end=-9.0)
        [[found]] = search(model, 1, 2, longest=8)
        text, before, last = [], 0, START
        while len(text) < 8:
            logits = model.logits[before, last].clone()
            banned = [word for word in range(WORDS) if word in (0, START) or repeats([*text, word], 2)]
            logits[banned] = -torch.inf
            before, last = last, int(logits.argmax())
            if last == END:
                break
            text.append(last)
        assert found.tokens == text
        [[free]] = search(model, 1, 0, longest=8)
        assert repeats(free.tokens, 2)


def test_texts_that_enter_a_slot_later_begin_anew():
    model = Table(3, end=-2.0)
    alone = [search(model, 3, 2, 7, [prefix])[0] for prefix in ([3], [4], [5], [3, 4])]
    together = search(model, 3, 2, 7, [[3], [4], [5], [3, 4]], slots=2)
    assert [[h.tokens for h in each] for each in together] == [[h.tokens for h in each] for each in alone]


def test_what_is_forced_may_repeat():
    [best] = search(Table(1), 2, 2, 8, [[3, 3, 3, 4]])
    assert all(hypothesis.tokens[:4] == [3, 3, 3, 4] for hypothesis in best)
    assert all((3, 3) not in itertools.pairwise(hypothesis.tokens[3:]) for hypothesis in best)


@pytest.mark.parametrize("size", [0, 2])
def test_a_sample_repeats_nothing_either(size):
    slots, longest = 16, 10
    settings = BeamSettings(temperature=1.0, no_repeat=size)
    draws = Draws(slots, longest, WORDS, settings, end=END, never=(0, START))
    engine = Engine(TableRows(Table(5, end=-4.0), slots, 1), draws, slots, torch.device("cpu"))
    generator = torch.Generator().manual_seed(7)
    asked = [
        Request(n, [], START, longest, uniform=torch.rand(longest, generator=generator).numpy()) for n in range(64)
    ]
    texts: list[list[int]] = [[] for _ in asked]
    for step in engine.run(asked):
        for slot, text in enumerate(step.texts):
            if text is not None:
                texts[text.number].append(int(step.report_BX[slot, TOKEN]))
    assert any(repeats(text, 2) for text in texts) == (size == 0)
    assert len({tuple(text) for text in texts}) > 20
