"""Generating: the same text as without any cache, alone or beside others, and every setting does what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from regard.decoding.generate import GeneratedToken, generate
from regard.models.causal import Causal
from regard.settings import CausalModel, GenerationSettings

WORDS, CONTEXT, END = 30, 64, 2
PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14], [15, 16]]


@pytest.fixture(scope="module", params=["learned", "rotary", "local", "gru", "shared"])
def model(request) -> Causal:
    torch.manual_seed(19 if request.param == "shared" else 17)  # with which none goes round in circles
    setting = {"learned": "positions", "rotary": "positions", "shared": "feedback"}.get(request.param, "mixer")
    part = {setting: request.param}
    shape = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.0, "norm": "pre"}
    # Untied, and with large weights: a random model that repeats itself little.
    settings = CausalModel(**shape, **part, max_positions=CONTEXT, tie_embeddings="none")
    found = Causal(settings, WORDS).eval()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return found


def write(
    model: Causal,
    prompts: Sequence[Sequence[int]],
    *,
    context: int = CONTEXT,
    end: int = -1,
    never: Sequence[int] = (),
    seed: int = 1,
    top: int = 0,
    finished: Callable[[int], bool] = lambda row: False,
    **settings,
) -> list[list[GeneratedToken]]:
    """What was written in each row. Without an end token, so that every row is as long as it may be."""
    rows: list[list[GeneratedToken]] = [[] for _ in prompts]
    options = GenerationSettings(**{"max_tokens": 20} | settings)
    for written in generate(
        model, prompts, options, context=context, end=end, never=never, seed=seed, top=top, finished=finished
    ):
        rows[written.row].append(written)
    return rows


def tokens(rows: list[list[GeneratedToken]]) -> list[list[int]]:
    return [[written.token for written in row] for row in rows]


def logits_after(model: Causal, text: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits = model(torch.tensor([list(text)]))[0, -1]
    return logits.clone()


def greedy(model: Causal, prompt: Sequence[int], count: int, context: int = CONTEXT) -> list[int]:
    """By whole passes, without a cache. When the context is full, only its newer half is kept."""
    text, first = list(prompt), max(0, len(prompt) - (context - 1))
    for _ in range(count):
        if len(text) - first > context:
            first = len(text) - context // 2
        text.append(int(logits_after(model, text[first:]).argmax()))
    return text[len(prompt) :]


# --- The likeliest token ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_is_the_argmax_of_whole_passes(model, prompt):
    expected = greedy(model, prompt, 20)
    assert len(set(expected)) > 4
    assert tokens(write(model, [prompt])) == [expected]


def test_the_likeliest_token_has_probability_one_at_temperature_zero(model):
    ((*written,),) = write(model, [[5, 6]], top=2)
    assert all(w.candidates[0] == (w.token, w.probability) for w in written)
    assert all(1.0 > w.probability >= w.candidates[1][1] > 0.0 for w in written)


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-5}])
def test_sampling_from_the_likeliest_alone_is_greedy(model, settings):
    assert tokens(write(model, PROMPTS, **{"temperature": 1.0} | settings)) == tokens(write(model, PROMPTS))


# --- Rows beside each other ------------------------------------------------------------------------------


def test_prompts_of_different_length_are_continued_as_each_alone(model):
    assert tokens(write(model, PROMPTS)) == [greedy(model, prompt, 20) for prompt in PROMPTS]


def test_a_drawn_text_does_not_depend_on_those_beside_it(model):
    """Row n draws from the numbers of (seed, n): only other rows may change, not its place."""
    together = tokens(write(model, PROMPTS, temperature=1.0, seed=5))
    assert tokens(write(model, PROMPTS[:1], temperature=1.0, seed=5))[0] == together[0]
    others = [[20] * 9, *PROMPTS[1:3], [21]]
    mixed = tokens(write(model, others, temperature=1.0, seed=5))
    assert mixed[1:3] == together[1:3]
    assert mixed[0] != together[0]


def test_rows_that_end_early_leave_the_others_as_they_were(model):
    whole = tokens(write(model, PROMPTS, temperature=1.5, seed=3))
    # The end is a token that some rows write sooner than others.
    end = whole[1][4]
    cut = [row[: row.index(end) + 1] if end in row else row for row in whole]
    assert len({len(row) for row in cut}) > 1
    assert tokens(write(model, PROMPTS, temperature=1.5, seed=3, end=end)) == cut


def test_the_rows_of_one_prompt_are_different_texts(model):
    found = tokens(write(model, [[5, 6]] * 6, temperature=1.0))
    assert len({tuple(row) for row in found}) == 6


# --- Chance ----------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_text_again_and_another_seed_another(model):
    runs = [tokens(write(model, PROMPTS, temperature=1.0, seed=seed)) for seed in (1, 2, 3)]
    assert tokens(write(model, PROMPTS, temperature=1.0, seed=2)) == runs[1]
    for row in range(len(PROMPTS)):
        assert len({tuple(run[row]) for run in runs}) == 3


def test_drawn_tokens_follow_the_model(model):
    expected = (logits_after(model, [5, 6, 7]) / 0.8).softmax(-1)
    found = write(model, [[5, 6, 7]] * 2000, temperature=0.8, max_tokens=1)
    counts = torch.tensor([row[0].token for row in found]).bincount(minlength=WORDS) / 2000
    torch.testing.assert_close(counts, expected, atol=0.03, rtol=0)
    for row in found[:50]:
        assert row[0].probability == pytest.approx(expected[row[0].token].item(), abs=1e-5)


def test_top_k_and_never_bound_what_is_written(model):
    text = [5, 6, 7]
    for written in write(model, [text], temperature=2.0, top_k=3)[0]:
        assert written.token in logits_after(model, text).topk(3).indices
        text.append(written.token)
    never = [token for token in range(WORDS) if token not in (4, 9, 17)]
    free, bound = write(model, PROMPTS, temperature=2.0), write(model, PROMPTS, temperature=2.0, never=never)
    assert len({token for row in tokens(free) for token in row}) > 15
    assert {token for row in tokens(bound) for token in row} == {4, 9, 17}


def test_never_also_binds_the_likeliest(model):
    first = greedy(model, PROMPTS[0], 1)
    logits = logits_after(model, PROMPTS[0])
    logits[first] = -torch.inf
    assert tokens(write(model, PROMPTS[:1], never=first, max_tokens=1)) == [[int(logits.argmax())]]


# --- When it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7])
def test_every_row_has_as_many_tokens_as_asked(model, count):
    assert [len(row) for row in write(model, PROMPTS, max_tokens=count)] == [count] * len(PROMPTS)


def test_a_shorter_text_is_the_beginning_of_a_longer_one(model):
    long = tokens(write(model, PROMPTS, temperature=1.0, max_tokens=20))
    assert tokens(write(model, PROMPTS, temperature=1.0, max_tokens=8)) == [row[:8] for row in long]


def test_the_end_token_is_written_and_is_the_last(model):
    expected = greedy(model, PROMPTS[0], 20)
    end = expected[5]
    assert tokens(write(model, PROMPTS[:1], end=end)) == [expected[: expected.index(end) + 1]]


def test_an_end_token_in_the_prompt_does_not_stop(model):
    prompt = [5, END, 6]
    assert (
        tokens(write(model, [prompt, [7]], end=END, never=[END], max_tokens=5))[0]
        == tokens(write(model, [prompt], never=[END], max_tokens=5))[0]
    )


def test_finished_ends_a_row_and_no_other(model):
    seen = [0] * len(PROMPTS)

    def enough(row: int) -> bool:
        seen[row] += 1
        return row == 2 and seen[2] == 4

    found = tokens(write(model, PROMPTS, finished=enough))
    whole = tokens(write(model, PROMPTS))
    assert found == [*whole[:2], whole[2][:4], whole[3]]
    assert seen[2] == 4


def test_tokens_come_as_they_are_written(model):
    settings = GenerationSettings(max_tokens=10)
    stream = generate(model, [[5], [6]], settings, context=CONTEXT, end=-1)
    assert [next(stream).row for _ in range(4)] == [0, 1, 0, 1]


# --- The context -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [2, 7, 8, 16])
def test_a_text_longer_than_the_context_continues_from_its_newer_half(model, context):
    prompt = [5]
    found = tokens(write(model, [prompt], context=context, max_tokens=50))
    assert found == [greedy(model, prompt, 50, context)]
    if context < 16:
        assert found != [greedy(model, prompt, 50)]


@pytest.mark.parametrize("length", [7, 8, 9, 30])
def test_of_a_prompt_as_long_as_the_context_the_last_part_is_read(model, length):
    prompt = [3 + n * 7 % 25 for n in range(length)]
    found = tokens(write(model, [prompt], context=8, max_tokens=12))
    assert found == tokens(write(model, [prompt[-7:]], context=8, max_tokens=12))
    assert found[0][0] == int(logits_after(model, prompt[-7:]).argmax())


def test_the_context_slides_alike_for_prompts_of_different_length(model):
    prompts = [[5], [6, 7, 8, 9, 10], [11, 12, 13]]
    together = tokens(write(model, prompts, context=8, max_tokens=30))
    assert together == [greedy(model, prompt, 30, context=8) for prompt in prompts]


# --- Candidates and repetition ---------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_candidates_are_the_likeliest_tokens_with_their_probabilities(model, temperature):
    text = list(PROMPTS[2])
    for written in write(model, [text], temperature=temperature, top=5)[0]:
        p = (logits_after(model, text) / temperature).softmax(-1)
        values, indices = p.topk(5)
        assert [token for token, _ in written.candidates] == indices.tolist()
        assert [share for _, share in written.candidates] == pytest.approx(values.tolist(), abs=1e-5)
        assert written.probability == pytest.approx(p[written.token].item(), abs=1e-5)
        text.append(written.token)


def test_candidates_are_named_only_when_asked_for(model):
    assert all(written.candidates == [] for written in write(model, [[5]])[0])
    assert all(len(written.candidates) == WORDS for written in write(model, [[5]], top=WORDS)[0])


def test_a_repetition_penalty_weakens_what_stands_in_the_text(model):
    prompt, penalty = [5, 6, 7, 7], 1.7
    logits = logits_after(model, prompt)
    expected = logits.clone()
    for token in {5, 6, 7}:
        expected[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    (written,) = write(model, [prompt], temperature=1.0, repetition_penalty=penalty, top=WORDS, max_tokens=1)[0]
    found = torch.zeros(WORDS)
    for token, share in written.candidates:
        found[token] = share
    torch.testing.assert_close(found, expected.softmax(-1), atol=1e-5, rtol=0)
    plain = logits.softmax(-1)
    ratio = found / plain
    assert max(ratio[[5, 6, 7]]) < min(ratio[[t for t in range(WORDS) if t not in (5, 6, 7)]])


def test_a_repetition_penalty_makes_texts_repeat_less(model):
    plain = [len(set(row)) for row in tokens(write(model, PROMPTS))]
    penalised = [len(set(row)) for row in tokens(write(model, PROMPTS, repetition_penalty=5.0))]
    assert sum(penalised) > sum(plain)
    # Strong enough, it never repeats a token while there are others.
    for prompt, row in zip(PROMPTS, tokens(write(model, PROMPTS, repetition_penalty=1e6, max_tokens=5)), strict=True):
        positive = [token for token in row if token not in prompt]
        assert len(set(positive)) == len(positive)


def test_the_penalty_of_a_row_does_not_depend_on_those_beside_it(model):
    together = tokens(write(model, PROMPTS, repetition_penalty=1.5))
    assert together == [tokens(write(model, [prompt], repetition_penalty=1.5))[0] for prompt in PROMPTS]
