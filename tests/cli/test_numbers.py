"""Numbers on the command line: every verb refuses those below what makes sense, in the same words."""

from __future__ import annotations

import types
import typing

import pytest

import regard.cli  # noqa: F401  all verbs
from command import regard as command
from expect import error_of
from regard.cli.app import app

VERBS = {verb.name or verb.callback.__name__: verb.callback for verb in app.registered_commands if verb.callback}
NUMBERS = {
    f"{verb} {name}": kind.__metadata__[0]
    for verb, callback in VERBS.items()
    for name, kind in typing.get_type_hints(callback, include_extras=True).items()
    if hasattr(kind, "__metadata__") and kind.__origin__ in (int, int | None)
}


def test_there_are_such_options():
    assert {"translate beam", "caption best", "generate samples", "bench batch", "markov rows"} <= set(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_whole_number_is_checked_at_its_option(name):
    option = types.SimpleNamespace(opts=["-x", "--example"])
    check = NUMBERS[name].callback
    assert error_of(check, option, -3).what == "--example cannot be -3."
    assert [check(option, value) for value in (2, None)] == [2, None]


@pytest.mark.parametrize("verb", [name.split()[0] for name in NUMBERS if name.endswith(" beam")])
@pytest.mark.parametrize("beam", ["-3", "0"])
def test_a_beam_keeps_one_hypothesis_or_more(verb, beam):
    assert command(verb, "nowhere", "--beam", beam, code=2).error == [
        f"Error: --beam cannot be {beam}.",
        "It is 1 or more.",
        "Correct it: --beam 1",
    ]
