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
