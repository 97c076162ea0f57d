"""What cannot be looked into is refused before anything is computed."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from regard.errors import UsageError
from regard.tasks.task import Task


class OfImages:
    def subject(self, image: "Path | str") -> None: ...


class OfTexts:
    def subject(self, text: "str", more: "int" = 0) -> None: ...


@pytest.mark.parametrize(
    ("of", "given", "what", "fix"),
    [
        (OfImages, np.zeros((8, 8)), "The image must be the path of a file, not ndarray.", "with a path as the image"),
        (OfImages, b"dog.png", "The image must be the path of a file, not bytes.", "run.trace(image)"),
        (OfImages, None, "The image must be the path of a file, not None.", "run.trace(image)"),
        (OfTexts, 5, "The text must be a string, not int.", "with a string as the text"),
        (OfTexts, Path("text.txt"), f"The text must be a string, not {type(Path()).__name__}.", "run.trace(text)"),
    ],
)
def test_an_input_of_the_wrong_type_is_refused_with_the_right_one(of, given, what, fix):
    with pytest.raises(UsageError) as refused:
        Task.trace(SimpleNamespace(subject=of().subject), given)  # type: ignore[arg-type]
    assert refused.value.what == what and fix in refused.value.fix


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(
        UsageError, match=r"do not fit this run\.\nMissing a required argument: 'text'\.\nUse run.trace"
    ):
        Task.trace(SimpleNamespace(subject=OfTexts().subject))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nonsense", "words"),
    [
        (lambda run, trace: run.explain("The dog sleeps.", head_="a"), "Unknown option 'head_'"),
        (lambda run, trace: run.explain("The dog sleeps.", answer=1.5), "answer = 1.5 cannot be used"),
        (lambda run, trace: run.explain("The dog sleeps.", what="lens", answer=99), "counted from 1"),
        (lambda run, trace: run.explain("The dog sleeps.", stack="decodr"), "no stack 'decodr'"),
        (lambda run, trace: trace["encoder"].layers[0].part("feedforward").attention(), "has no attention weights"),
        (lambda run, trace: trace["encoder"].layers[0].part("mixr"), "no part 'mixr'"),
        (lambda run, trace: trace.attribute(steps=2.5), "cannot have 2.5 steps"),
        (lambda run, trace: trace.attribute(steps=10**6), "1 to 2,048"),
        (lambda run, trace: trace.patch(trace, tokens=(1,)), "not two tokens"),
        (lambda run, trace: trace.patch(trace, tokens="ab"), "not two tokens"),
        (lambda run, trace: trace.heads(["induction"], period=-4), "period -4 is too short"),
        (lambda run, trace: trace.contributions(0, "no such token"), "no token 'no such token'"),
    ],
)
def test_nonsense_is_refused_in_words(trained, nonsense, words):
    with pytest.raises(UsageError) as refused:
        nonsense(trained, trained.trace("The dog sleeps."))
    assert words in str(refused.value)


def test_two_tokens_to_compare_are_given_by_name_or_id(trained):
    one, other = trained.trace("The dog sleeps."), trained.trace("The cat sleeps.")
    names = ("Hund", "Katze")
    ids = tuple(one.token_id(name) for name in names)
    by_name, by_id = (one.patch(other, answer=0, tokens=tokens) for tokens in (names, ids))
    np.testing.assert_array_equal(by_name.values, by_id.values)
    assert [token.strip() for token in by_name.notes["tokens"]] == list(names)


def test_a_token_may_be_named_as_pictures_show_it(trained):
    trace = trained.trace("The dog sleeps.")
    names = [trace.subject.name_of(token) for token in range(trace.logits_AW.shape[-1])]
    spaced = next(name for name in names if name.startswith(" ") and name.strip().isalpha())
    assert trace.token_id(spaced.replace(" ", "␣")) == names.index(spaced)


def test_an_input_that_was_cut_is_told_on_its_picture(language):
    explanation = language.explain("the old farmer " * 60, what="candidates")
    assert "are read" in explanation.remarks[0] and "context" in explanation.remarks[0]
