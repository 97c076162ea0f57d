"""The one error a user should ever see: what happened, why, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


# Exit codes of one of several processes, for its launcher, which knows more of what became of another:
LOST = 3  # that one has ended
UNANSWERED = 4  # it was waited for in vain
NOTICED = (LOST, UNANSWERED)


class RegardError(Exception):
    """A mistake that the user can correct. Printed as three short lines, without a traceback."""

    exit_code = 1
    same_for_all = False  # of several processes, all make it
    told_elsewhere = False  # by the first of them

    def __init__(self, what: str, why: str, fix: str):
        super().__init__(f"{what}\n{why}\n{fix}")
        self.what, self.why, self.fix = what, why, fix


class UsageError(RegardError):
    """A mistake in the command or in a recipe, found before any work is done."""

    exit_code = 2
    same_for_all = True


class Diverged(RegardError):
    """A training whose numbers are no longer finite."""


class Interrupted(Exception):
    """Work was asked to stop, and has saved its state; says how to continue."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest valid name, or lists all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"Did you mean '{near[0]}'?"
    return f"Valid names: {', '.join(known)}."


def first_problem(error: ValidationError) -> str:
    """A sentence on the first thing that is wrong with a file's content, and where in it."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}." if place else f"{first['msg']}."
