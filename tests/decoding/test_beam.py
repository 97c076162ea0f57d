"""Beam search against an exhaustive search, and greedy against a plain loop."""

import itertools

import pytest
import torch

from regard.decoding.beam import Beams, penalty
from regard.decoding.engine import Engine
from regard.decoding.hypothesis import Request
from regard.decoding.text_search import _searched

START, END, WORDS = 1, 2, 6


class Table:
    """A tiny language model: the logits of the next token depend on the last two tokens."""

    def __init__(self, seed: int, end: float = 0.0):
        self.logits = torch.randn(WORDS, WORDS, WORDS, generator=torch.Generator().manual_seed(seed)) * 2
        self.logits[:, :, END] += end

    def step(self, tokens_N, state):
        logits = self.logits[state.before, tokens_N]
        state.before = tokens_N
        return logits


class Before:
    """The state: the last token but one of each row."""

    def __init__(self, rows: int):
        self.before = torch.zeros(rows, dtype=torch.long)


class TableRows:
    """Rows that may be entered at any time, as the engine wants them."""

    waves = False

    def __init__(self, model: Table, slots: int, beams: int):
        self.model, self.slots, self.beams, self.state = model, slots, beams, Before(slots * beams)

    def together(self, request):
        return 0, 1

    def enter(self, slots, requests):
        self.state.before.view(self.slots, self.beams)[slots] = 0
        return requests

    def step(self, tokens_N):
        return self.model.step(tokens_N.clone(), self.state)  # they are changed in place

    def advance(self, open_B, from_BK):
        if from_BK is not None:
            self.state.before = self.state.before.view(self.slots, self.beams).gather(1, from_BK).flatten()

    def before_step(self, texts):
        pass


def search(model, beams, sentences=1, longest=4, alpha=0.6, prefixes=None, slots=0):
    slots = slots or sentences
    prefixes = prefixes or [[]] * sentences
    lengths = longest if isinstance(longest, list) else [longest] * sentences
    asked = [Request(n, [], START, lengths[n], prefixes[n]) for n in range(sentences)]
    beamed = Beams(slots, beams, max(lengths), end=END, never=(0, START), forces=any(prefixes))
    engine = Engine(TableRows(model, slots, beams), beamed, slots, torch.device("cpu"))
    found = dict(_searched(engine, asked, alpha, 0, lambda count: None))
    return [found[number] for number in range(sentences)]


def log_probability(model, tokens):
    state, total, last = Before(1), 0.0, START
    for token in tokens:
        total += model.step(torch.tensor([last]), state).log_softmax(-1)[0, token].item()
        last = token
    return total


def everything(model, longest, alpha):
    """Every sequence that ends, or is as long as allowed, with its score."""
    found = []
    for length in range(1, longest + 1):
        for tokens in itertools.product(range(3, WORDS), repeat=length - 1):
            for last in [END] if length < longest else range(2, WORDS):
                sequence = [*tokens, last]
                found.append((log_probability(model, sequence) / penalty(length, alpha), sequence))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(8))
def test_a_wide_beam_finds_the_best_of_all_sequences(seed):
    model = Table(seed)
    best_score, best = everything(model, 4, 0.6)[0]
    found = search(model, beams=200)[0][0]
    assert found.tokens == [token for token in best if token != END]
    assert found.score == pytest.approx(best_score, abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_beam_one_is_greedy(seed):
    model = Table(seed)
    state, last, greedy = Before(1), START, []
    for _ in range(12):
        logits = model.step(torch.tensor([last]), state)[0]
        logits[[0, START]] = -torch.inf
        last = int(logits.argmax())
        if last == END:
            break
        greedy.append(last)
    assert search(model, beams=1, longest=12)[0][0].tokens == greedy


def test_scores_are_log_probabilities_after_the_papers_length_penalty():
    model = Table(3)
    for hypothesis in search(model, beams=4, longest=6)[0]:
        ended = [*hypothesis.tokens, END] if len(hypothesis.tokens) < 6 else hypothesis.tokens
        assert hypothesis.log_probability == pytest.approx(log_probability(model, ended), abs=1e-4)
        assert hypothesis.score == pytest.approx(hypothesis.log_probability / ((5 + len(ended)) / 6) ** 0.6, abs=1e-5)


def test_hypotheses_are_distinct_and_sorted():
    found = search(Table(5), beams=4, longest=6)[0]
    assert len(found) == 4
    assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 4
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_a_prefix_is_kept_and_the_rest_is_searched():
    model = Table(6, end=-1.0)
    free, forced = search(model, beams=3, sentences=2, longest=6, prefixes=[[], [5, 3]])
    assert forced[0].tokens[:2] == [5, 3]
    assert len({tuple(h.tokens) for h in forced}) == len(forced)
    assert free[0].tokens == search(model, beams=3, longest=6)[0][0].tokens


def test_special_tokens_are_never_written():
    for seed in range(10):
        for hypothesis in search(Table(seed, end=-5), beams=3, longest=8)[0]:
            assert all(token >= 3 for token in hypothesis.tokens)
