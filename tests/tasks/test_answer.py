"""A model that answers: what it learns, what it says, and what it does with data that is not right."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.data.batch import DataState
from regard.data.questions import Question, question_splits
from regard.data.samples import stories
from regard.data.tokenised_questions import NOT_FOUND, asked, tokenise_questions
from regard.decoding.spans import WindowGuess, answers_of, best_spans
from regard.errors import RegardError, UsageError
from regard.hardware import Hardware
from regard.models.reader import NEVER
from regard.run import open_run
from regard.training.span_loss import span_loss

# A story of one sentence with one question is learned in seconds.
SETTINGS = ["model.layers=2", "model.width=32", "model.heads=2", "model.feedforward=64", "model.dropout=0.0"]
SETTINGS += ["data.max_length=32", "data.stride=8", "tokenizer.kind=word", "tokenizer.vocabulary=400"]
SETTINGS += ["training.row_length=32", "training.tokens_per_batch=512", "training.learning_rate=0.01"]
SETTINGS += ["training.steps=60", "training.validate_every=60", "training.warmup=5", "data.held_out=0.1"]


def one_sentence(count: int) -> list[dict[str, object]]:
    """Who went where: the place is asked for; or somebody else is, of whom nothing is said."""
    records = []
    for person, place, _ in itertools.islice(itertools.product(stories.PEOPLE, stories.PLACES, range(9)), count):
        context = f"{person} went to the {place}."
        records.append({"question": f"Where is {person}?", "context": context, "answer": place})
    return records


@pytest.fixture(scope="session")
def answering(train_once, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    (folder / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in one_sentence(576)))
    return train_once("answering", "starter-answer", *SETTINGS, data=folder)


def test_it_has_learned_where_people_are(answering):
    assert answering.evaluate(baselines=False).metrics["exact_match"] > 95


def test_an_answer_is_the_text_itself_with_its_place_and_probability(answering):
    context = "Clara  went to the garden.\n"
    found = answering.answer("Where is Clara?", context)
    assert (found.text, context[found.start : found.end]) == ("garden", "garden")
    assert 0.0 < found.probability <= 1.0
    several = answering.answers("Where is Clara?", context, top=4)
    assert several[0] == found
    assert len({answer.text for answer in several}) == 4
    assert [answer.probability for answer in several] == sorted((a.probability for a in several), reverse=True)


def test_a_long_context_is_read_in_windows_and_the_answer_found_in_any_of_them(answering):
    nothing = "It was a day like any other and so they all sat there. " * 8
    for before, after in ((0, 1), (1, 1), (1, 0)):
        context = nothing * before + "Mary went to the attic. " + nothing * after
        windows = answering._windows(asked(answering.tokenizer, "Where is Mary?", context))
        assert len(windows) > 5
        covered = {
            token
            for first, length in zip(windows.first, windows.length, strict=True)
            for token in range(first, first + length)
        }
        assert covered == set(range(len(answering.tokenizer.encode([context])[0])))
        found = answering.answers("Where is Mary?", context, top=20)
        places = {answer.text: answer for answer in found}
        start = context.index("attic")
        assert (places["attic"].start, places["attic"].end) == (start, start + 5)


def test_a_question_is_answered_alike_alone_and_among_others(answering):
    texts = [
        Question(f"Where is {p}?", f"{p} went to the {q}.") for p in stories.PEOPLE[:4] for q in stories.PLACES[:3]
    ]
    source = question_splits(answering.settings.data)["valid"]
    together, _ = answering._answers(
        tokenise_questions(source, answering.tokenizer, answering.folder.path), list(source)
    )
    assert len(together) > 3
    for question, answers in zip(source, together, strict=True):
        alone = answering.answer(question.question, question.context)
        assert alone.text == answers[0].text
        assert alone.probability == pytest.approx(answers[0].probability, abs=1e-5)
    assert all(answering.answer(text.question, text.context).text in text.context for text in texts)


@pytest.mark.parametrize(("question", "context"), [("", "Mary went."), ("Where?", " \n"), ("Where?", "\ud800")])
def test_what_cannot_be_answered_is_an_error_in_words(answering, question, context):
    with pytest.raises(UsageError) as caught:
        answering.answer(question, context)
    assert "question" in caught.value.what or "context" in caught.value.what


def test_an_answer_that_is_not_in_its_context_is_named_and_left_out_of_training_only(questions, tmp_path, capsys):
    lines = (questions / "train.jsonl").read_text().splitlines()[:60]
    bad = {"question": "Where is the moon?", "context": "Mary went to the kitchen.", "answer": "sky"}
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join([json.dumps(bad), *lines]) + "\n")
    files = [f'data.{name}=["{name}.jsonl"]' for name in ("train", "valid", "test")]
    short = [*SETTINGS, "training.steps=2", "training.validate_every=2"]
    run = regard.train("starter-answer", *short, *files, out=tmp_path / "run", data=tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    assert "1 of 61 training questions are left out" in said and "'Where is the moon?' → 'sky'" in said
    task = open_run(run)
    task.hardware = Hardware.choose(task.settings.system)
    task.prepare()
    assert task.questions["train"].states.tolist().count(NOT_FOUND) == 1
    assert 0 not in task.stream.samples.question
    evaluation = regard.load(run).evaluate(baselines=False)
    assert (evaluation.count, evaluation.details["not_in_context"]) == (61, 1)
    assert math.isfinite(json.loads((run / "summary.json").read_text())["metrics"]["loss"])


def test_without_no_answer_one_is_always_given(questions, tmp_path):
    short = [*SETTINGS, "training.steps=2", "training.validate_every=2", "data.no_answer=false"]
    files = ['data.train=["train.jsonl"]', 'data.test=["test.tsv"]']
    run = regard.load(regard.train("starter-answer", *short, *files, out=tmp_path / "run", data=questions))
    assert all(run.evaluate(baselines=False).outputs)
    assert all(answer.text for answer in run.answers("Who?", "Mary went to the kitchen.", top=50))


def test_it_starts_from_a_masked_run_with_its_tokenizer(masked, questions, tmp_path):
    own = [setting for setting in SETTINGS if not setting.startswith(("model.", "tokenizer."))]
    own += ["training.steps=2", "training.validate_every=2", 'data.train=["train.jsonl"]']
    out = regard.train("starter-answer", *own, out=tmp_path / "run", data=questions, start_from=masked.folder.path)
    tuned = regard.load(out)
    assert tuned.tokenizer.to_json() == masked.tokenizer.to_json()
    assert tuned.settings.model.width == masked.settings.model.width
    found = tuned.answers("Who reads?", "The old farmer reads.", top=9)
    assert all(answer.text == "The old farmer reads."[answer.start : answer.end] for answer in found if answer.text)


def test_the_picture_shows_that_the_person_matters(answering, tmp_path):
    context = "Felix went to the cellar."
    shown = answering.explain("Where is Felix?", context)
    assert (shown.what, shown.output_text) == ("attribution", "cellar")
    shown.save(tmp_path / "words.png")
    [effects] = shown.arrays
    assert effects.labels[0] == ["Where", "is", "Felix?", "Felix", "went", "to", "the", "cellar."]
    assert effects.notes["part"] == ["question"] * 3 + ["context"] * 5
    assert np.isnan(effects.values[-1])  # the answer itself is not taken away
    assert "random order" in shown.faithfulness
    assert np.asarray(Image.open(tmp_path / "words.png").convert("L")).std() > 5
    # The same by hand: the context with a word less.
    ids = {name: answering.tokenizer.encode([text])[0] for name, text in (("q", "Where is Felix?"), ("c", context))}
    del ids["c"][1]  # "went"
    row = torch.tensor([[1, *ids["q"], 2, *ids["c"], 2]])
    readable = torch.zeros_like(row, dtype=torch.bool)
    readable[0, 0] = readable[0, len(ids["q"]) + 2 : -1] = True
    ones, positions = torch.ones_like(row), torch.arange(row.shape[1])[None]
    with torch.inference_mode():
        start, end = answering.model(row, ones, positions, readable)[:, 0, -3]
    [full] = [a for a in answering.answers("Where is Felix?", context, top=9) if a.text == "cellar"]
    assert effects.values[4] == pytest.approx(math.log(full.probability) - float(start + end), abs=1e-3)


# ---------------------------------------------------------------- probabilities and loss


def test_probabilities_of_each_sample_sum_to_one_and_the_loss_is_summed_over_its_places(answering, questions):
    """Against a loop over samples, places and positions."""
    task = open_run(answering.folder.path)
    task.settings = task.settings.with_section("data", root=str(questions), test=["test.tsv"], train=["test.tsv"])
    task.settings = task.settings.with_section("data", max_length=64)
    task.settings = task.settings.with_section("training", row_length=96, tokens_per_batch=96 * 24)
    task.hardware, task.model = Hardware.choose(task.settings.system), answering.model.eval()
    task.restore()
    tokenised = task._tokenised(question_splits(task.settings.data)["test"])
    from regard.data.question_batches import QuestionStream

    stream = QuestionStream(task._windows(tokenised), task._shape, 1)
    batch, _ = next(stream.batches(DataState()))
    with torch.no_grad():
        log_p_2BT = task.log_probabilities(batch)
        losses = {(e, c): float(span_loss(task.log_probabilities, batch, e, c)) for e in (0.0, 0.2) for c in (0.0, 3.0)}
    plain = smoothed = 0.0
    several = 0
    for row in range(len(batch.labels)):
        for segment in range(1, int(batch.segments_BT[row].max()) + 1):
            inside = (batch.segments_BT[row] == segment) & batch.readable_BT[row]
            p_2C = log_p_2BT[:, row, inside].double().exp()
            torch.testing.assert_close(p_2C.sum(1), torch.ones(2, dtype=torch.double), atol=1e-5, rtol=0)
            begins = [t for t in range(96) if inside[t] and batch.ends_BT[row, t] >= 0]
            several += len(begins) > 1
            likely = sum(math.exp(log_p_2BT[0, row, t] + log_p_2BT[1, row, batch.ends_BT[row, t]]) for t in begins)
            mean = float(log_p_2BT[:, row, inside].sum(0).mean())
            plain -= math.log(likely)
            smoothed -= 0.8 * math.log(likely) + 0.2 * mean
    assert several, "some answers stand in several places"
    assert (log_p_2BT[:, ~batch.readable_BT] == NEVER).all()
    assert losses[0.0, 0.0] == pytest.approx(plain, rel=1e-4)
    assert losses[0.2, 0.0] == pytest.approx(smoothed, rel=1e-4)
    assert losses[0.0, 3.0] == pytest.approx(plain, rel=1e-4), "without dropout two passes do not differ"


def test_the_best_spans_are_those_of_trying_all():
    rng = np.random.default_rng(1)
    for length, longest in ((1, 3), (7, 3), (12, 30), (30, 5)):
        start, end = rng.normal(size=(2, length)).astype(np.float32)
        every = [
            (first, last, float(start[first] + end[last]))
            for first in range(length)
            for last in range(first, min(length, first + longest))
        ]
        expected = sorted(every, key=lambda span: -span[2])[:6]
        found = best_spans(start, end, longest, 6)
        assert [span[:2] for span in found] == [span[:2] for span in expected]


def test_a_text_has_the_probability_of_all_its_places_and_windows_are_not_added():
    context = "a b a"
    places = np.array([[0, 1], [1, 3], [3, 5]])
    log = np.log(np.array([0.4, 0.2, 0.3], np.float32))
    never = np.log(np.array([1.0, 1e-9, 1.0], np.float32))
    guess = WindowGuess(0, log, never, math.log(0.1))
    found = {answer.text: answer for answer in answers_of([guess, guess], context, places, 1, no_answer=True)}
    assert found["a"].probability == pytest.approx(0.7)
    assert (found["a"].start, found["a"].end) == (0, 1)
    assert found[""].probability == pytest.approx(0.1)
    assert "" not in {answer.text for answer in answers_of([guess], context, places, 1, no_answer=False)}


def test_a_run_without_an_answer_has_nothing_to_explain(answering, monkeypatch):
    from regard.decoding.spans import Answer

    monkeypatch.setattr(answering, "answer", lambda question, context: Answer("", 0.9))
    with pytest.raises(RegardError, match="no answer to explain"):
        answering.explain("Where is Felix?", "Anna went to the attic.")
