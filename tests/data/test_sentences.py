"""Sentences are found by rules that would rather leave two together than cut one in two."""

from __future__ import annotations

import random
import re

import pytest

from regard.data.sentences import split_sentences


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize(
    "sentences",
    [
        ["The dog sleeps.", "The cat is awake."],
        ["Is it late?", "Yes!", "Go home."],
        ["What?!", "He left..."],
        ["Wait...", "Who is there?"],
        ["She waited…", "Nobody came."],
        ["“It is late.”", "She left."],
        ["He said: „Es ist spät.“", "Dann ging er."],
        ["(It rained.)", "We stayed."],
        ["It cost 3.14 euros.", "That is cheap."],
        ["It was 1999.", "Then came 2000."],
        ["Er kam um acht.", "Ärger gab es nicht."],
        ["¿Qué hora es?", "¡Es tarde!", "¿Y tú?"],
        ["It is late.", "- Go home."],
        ["Il dit : « Bonjour. »", "Puis il part."],
        ["Er ging.", "»Komm!«", "Sie lief."],
        ["Он спит.", "Она читает."],
        ["هل هو هنا؟", "نعم."],
        ["वह सोता है।", "वह पढ़ती है।"],
        ["你好。", "Hello there.", "再见。"],
    ],
)
def test_sentences_are_told_apart(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences", [["今日は晴れです。", "明日は雨です！", "本当？"], ["他走了。", "“你好。”", "「好」。"]]
)
def test_wide_marks_need_no_white_space(sentences):
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Dr. Smith met Mrs. Jones in St. Ives.",
        "J. S. Bach lived in Leipzig.",
        "The U.S. Senate has voted.",
        "Das gilt z.B. Hunden, bzw. Katzen, d.h. Tieren.",
        "Am 3. Oktober regnet es.",
        "Ludwig XIV. König von Frankreich schlief.",
        "See Fig. 3 and No. 12 on p. 7.",
        "It costs 3.50 or 1.000.000 at www.example.com today.",
        "“Stop!” she cried.",
        "Well... maybe not.",
        "He asked why? and left.",
        "Er hat 5. Sie hat 6.",  # a short number may be an ordinal: in doubt it is one
        "He came at 8 p.m. yesterday.",
        "「今日は。」と言った。",
        "他说：“你好。”然后走了。",
        "no full stop at all",
        "…",
        ". . .",
    ],
)
def test_one_sentence_stays_one(sentence):
    assert split_sentences(sentence) == [sentence]


def test_white_space_around_sentences_is_not_theirs_and_a_blank_line_has_none():
    assert split_sentences("  One.\t\tTwo.   ") == ["One.", "Two."]
    assert split_sentences("今日は。 明日は。") == ["今日は。", "明日は。"]
    assert split_sentences("") == split_sentences(" \t ") == []


def test_nothing_is_lost_whatever_the_text():
    letters = "aB1 .!?…。！？\"'“”«»()[]「」-—,;\t  éÖß字ア Dr. Nr. 3. …"
    draw = random.Random(3)
    found = 0
    for _ in range(3000):
        text = "".join(draw.choice(letters) for _ in range(draw.randrange(60)))
        sentences = split_sentences(text)
        assert squeezed("".join(sentences)) == squeezed(text)
        assert all(sentence and sentence == sentence.strip() for sentence in sentences)
        found += len(sentences) > 1
    assert found > 1000


@pytest.mark.parametrize("unit", [".", "...”", ". ", "A. ", "Aa. ", "。", "「", "x! 'A "])
def test_a_line_of_a_megabyte_takes_one_pass(unit):
    """A rule that looked back over the whole line would not end here."""
    line = unit * (1_000_000 // len(unit))
    assert squeezed("".join(split_sentences(line))) == squeezed(line)
