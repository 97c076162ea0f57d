"""The sentences of a line, found by rules.

A sentence ends with . ! ? or … and what closes quotes and brackets after them, where white space follows and then
something that can begin a sentence: a capital, a digit, or a letter of a script without capitals. The wide marks of
Chinese and Japanese need no white space. A full stop after an abbreviation, an initial or a short number ends nothing.

In doubt a line is not cut: two sentences translated together lose less than halves of one translated alone.
"""

from __future__ import annotations

import itertools
import re

QUOTES = "\"'“”„‟‘’‚‛«»‹›"  # which of them open and which close depends on the language
OPENING, CLOSING = QUOTES + "([{¿¡-–—", QUOTES + ")]}"
WIDE_OPENING, WIDE_CLOSING = "「『（【《〈“‘", "」』）】》〉”’"
MARKS = ".!?…؟۔।॥։።"
WIDE_MARKS = "。！？｡"

# Nothing is gone back over (++) and marks are taken from the first of a row: a line of marks alone takes no longer.
END = re.compile(
    rf"[{WIDE_MARKS}][{WIDE_MARKS}!?…]*+(?P<quoted>[{WIDE_CLOSING}]*+)\s*+"
    rf"|(?<![{MARKS}])(?P<marks>[{MARKS}]++)(?:[{re.escape(CLOSING)}]|\s»(?=\s))*+\s++"  # « As in French. »
)
NEAR = 40  # letters looked at before and after a mark


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# After these a full stop never ends a sentence; titles come before a name.
ABBREVIATIONS = _words(
    "mr mrs ms messrs dr drs prof rev fr gen col maj capt lt sgt cpl sen rep gov hon pres st mt vs cf approx "
    "hr hrn frl dipl ing bzw ca evtl ggf inkl exkl sog vgl zzgl mme mlle mgr sr sra srta dra sig dott"
)
# After these, if a number follows.
BEFORE_NUMBERS = _words(
    "no nos nr p pp vol fig figs sec ch art abb bd kap tel jan feb mar apr jun jul aug sep sept oct nov dec"
)
INITIALS = re.compile(r"(\w\.)*[^\W\d_]|\d{1,2}|[IVX]+")  # J · U.S · z.B · 3 · XIV, before their last full stop


def split_sentences(line: str) -> list[str]:
    """The sentences of a line in order, without the white space around them; none of a blank line."""
    ends = [0, *_ends(line), len(line)]
    sentences = [line[start:end].strip() for start, end in itertools.pairwise(ends)]
    return [sentence for sentence in sentences if sentence]


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Where the sentence, or the sentences, with these characters begin and end; a line end ends one, too."""
    ends = [0, *_ends(text), *(match.end() for match in re.finditer(r"\n", text)), len(text)]
    return max(at for at in ends if at <= start), min(at for at in ends if at >= end)


def _ends(line: str) -> list[int]:
    """Where a sentence ends and another begins."""
    return [end.end() for end in END.finditer(line) if _is_boundary(line, end)]


def _is_boundary(line: str, end: re.Match[str]) -> bool:
    after = line[end.end() : end.end() + NEAR]
    if end["marks"] is None:
        # A sentence may go on after a quotation.
        return not end["quoted"] or end[0][-1].isspace() or after.startswith(tuple(WIDE_OPENING))
    first = after.lstrip(OPENING + " ")[:1]
    if not first.isalnum() or first.islower():
        return False
    words = line[max(0, end.start() - NEAR) : end.start()].split()
    return end["marks"] != "." or not words or not _is_abbreviated(words[-1].lstrip(OPENING), first)


def _is_abbreviated(word: str, next_letter: str) -> bool:
    """Whether the full stop after a word belongs to the word."""
    known = ABBREVIATIONS | BEFORE_NUMBERS if next_letter.isdigit() else ABBREVIATIONS
    return word.lower() in known or INITIALS.fullmatch(word) is not None
