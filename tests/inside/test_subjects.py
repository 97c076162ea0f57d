"""Subjects: tokens that cannot be generated, texts, and which answers are given."""

import pytest
import torch

from regard.errors import UsageError
from regard.inside import subjects
from regard.inside.ablation import Off
from regard.inside.regeneration import regenerate
from regard.inside.trace import trace
from regard.models.causal import Causal
from regard.settings import CausalModel
from small_models import SMALL, VOCABULARY, spoilt


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    return spoilt(Causal(CausalModel(**SMALL, norm="pre"), VOCABULARY)).eval()


IDS = [5, 9, 30, 9, 12, 7]


@pytest.fixture
def barred(model):
    """A language model whose likeliest tokens are never generated, with further exclusions at the third answer."""
    best_A = subjects.causal(model, IDS, str).logits()[0].topk(2).indices
    never = sorted(set(best_A[:, 0].tolist()) - set(IDS))
    assert never
    at = [[], [], [int(best_A[2, 1])], [], [], []]
    return trace(subjects.causal(model, IDS, str, never, never_at=at))


def test_tokens_that_cannot_be_generated_appear_nowhere(barred):
    subject = barred.subject
    for answer in range(len(subject.answers)):
        never = set(subject.never) | set(subject.never_at[answer])
        logits_W = barred.logits_AW[answer].clone()
        logits_W[sorted(never)] = -torch.inf
        expected_W = logits_W.softmax(-1)
        torch.testing.assert_close(barred.p_AW[answer], expected_W, atol=1e-6, rtol=0)
        assert float(barred.p_AW[answer].sum()) == pytest.approx(1, abs=1e-5)
        lens, candidates = barred.lens(), barred.candidates(VOCABULARY)
        assert lens.likeliest.notes["words"][-1][answer] == str(int(expected_W.argmax()))
        assert not never & {int(words[answer]) for words in lens.likeliest.notes["words"]}
        assert not never & {int(word) for word in candidates.logits.notes["words"][answer] if word}
        assert int(barred.ablate(heads="layers.0.mixer.1").words[answer]) not in never
        assert barred.candidates(1).probabilities.values[answer, 0] == pytest.approx(float(expected_W.max()), abs=1e-5)
        for token in never:
            with pytest.raises(UsageError):
                barred.token(token, answer)
    counts = VOCABULARY - len(subject.never)
    assert barred.candidates().probabilities.notes["over"].startswith(f"the {counts - 1} to {counts} tokens")
    assert not set(subject.never) & set(regenerate(subject, Off(heads=("layers.0.mixer.1",)), most=4))


def test_a_given_token_has_a_probability_even_if_it_cannot_be_generated(model):
    traced = trace(subjects.causal(model, IDS, str, never=[30]))
    assert 0 < traced.p_AW[1, 30] < 1 and traced.p_AW[0, 30] == 0
    assert torch.isfinite(torch.from_numpy(traced.ablate(parts="layers.0.mixer").change.values)).all()


def test_other_tokens_have_their_own_text_and_no_generated_output(make):
    again = make("language").with_tokens([[7, 8, 9]])
    assert (again.input_text, again.output_text) == ("7 8 9", "")
    assert [answer.given for answer in again.answers] == [True, True, False]
    own = make("language").with_tokens([[7, 8, 9]], 2)
    assert (own.input_text, own.output_text) == ("7", "8 9")
    assert [answer.given for answer in own.answers] == [False, False, False]
    pair = make("translator").with_tokens([[5, 12, 2], [1, 8, 9]])
    assert (pair.input_text, pair.output_text) == ("5 12", "8 9")
    assert all(answer.given for answer in pair.answers)
    assert make("masked").with_tokens([[1, 9, 39, 8, 12, 2]]).input_text == "9 39 8 12"
    assert make("text_classifier").with_tokens([[1, 9, 2]]).input_text == "9"


def test_tokens_without_spaces_are_joined_by_spaces(model):
    assert subjects.causal(model, IDS, str).with_tokens([[7, 8]]).input_text == "7 8"
    assert subjects.causal(model, IDS, lambda token: f" {token}").with_tokens([[7, 8]]).input_text == "7 8"
    assert subjects.causal(model, IDS, lambda token: " abc"[token % 4]).with_tokens([[7, 8, 9]]).input_text == "c a"


def test_boxes_are_read_from_queries_beside_the_patches(make):
    traced = trace(make("detector", head="set", registers=1))
    assert traced.last.stack.pieces[:5] == ["register 1", "query 1", "query 2", "query 3", "1, 1"]
    assert traced.attribute("rollout").notes["read_from"].startswith("query")


def test_the_answer_of_a_reader_is_its_likeliest_valid_span(make):
    subject = make("reader")
    log_p_2T = trace(subject).p_AW.log()
    readable = [0, 4, 5, 6]
    best = max(
        ((i, j) for i in readable for j in readable if i <= j), key=lambda s: log_p_2T[0, s[0]] + log_p_2T[1, s[1]]
    )
    assert tuple(answer.token for answer in subject.answers) == best
    torch.testing.assert_close(trace(subject).p_AW[:, readable].sum(-1), torch.ones(2))


def test_an_answer_is_explained_from_where_it_begins(make):
    traced = trace(make("reader"))
    begins, ends = traced.subject.answers
    assert traced.first_answer == 0
    assert begins.label.startswith("begins at ") and ends.label.startswith("ends at ")
    assert traced.attribute().answer == 0
    assert traced.contributions().notes["token"] == traced.subject.name_of(begins.token)


def test_the_first_position_of_a_question_means_that_there_is_no_answer(make):
    subject = make("reader")
    assert subject.name_of(0) == "no answer" and subject.last.pieces[0] != "no answer"
    words = trace(subject).candidates(4).probabilities.notes["words"]
    assert all(row.count("no answer") == 1 for row in words)
    nothing = subjects.reader(subject.model, subject.tokens[0], [True, *[False] * 7], str)
    assert [answer.label for answer in nothing.answers] == ["no answer", "no answer"]


def test_the_scores_of_a_reader_are_those_of_its_own_forward(make):
    subject = make("reader").with_tokens([[1, 9, 30, 2, 9, 12, 8, 2]])
    tokens_1T = torch.tensor(subject.tokens)
    readable_1T = torch.ones_like(tokens_1T, dtype=torch.bool)
    readable_1T[0, list(subject.never_at[0])] = False
    places_1T = torch.arange(8)[None]
    log_p_21T = subject.model.eval()(tokens_1T, torch.ones_like(tokens_1T), places_1T, readable_1T)
    found_AT = trace(subject).p_AW
    torch.testing.assert_close(found_AT[:, readable_1T[0]], log_p_21T[:, 0, readable_1T[0]].exp(), atol=1e-6, rtol=0)
    assert not found_AT[:, ~readable_1T[0]].any()


def test_the_class_of_a_cell_is_read_by_its_own_rows(make):
    """Where a patch has several cells, the lens of a dense detector ends at the scores of the surest one."""
    for cells in (1, 2):
        traced = trace(make("detector", cells=cells))
        torch.testing.assert_close(traced.subject.readout(traced.last.layers[-1].after_TD[None])[0], traced.logits_AW)
