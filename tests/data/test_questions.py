"""Questions from files: every form gives the same, and what is wrong is named or left out."""

from __future__ import annotations

import gzip
import json
import lzma

import numpy as np
import pytest

from regard.data.questions import Place, Question, places, question_splits, read_questions
from regard.data.samples import stories
from regard.data.tokenised_questions import FRAME, NONE, NOT_FOUND, text_of, tokenise_questions, tokens_of, windows_of
from regard.data.tokenizers import train_tokenizer
from regard.errors import RegardError, UsageError
from regard.settings import QuestionData, TokenizerSettings

CONTEXT = "Mary went to the kitchen. John went to the garden."
SQUAD = {"question": "Where is Mary?", "answers": [{"text": "kitchen", "answer_start": 17}]}
WITHOUT = {"question": "Where is Anna?", "answers": [], "is_impossible": True}
EXPECTED = [Question("Where is Mary?", CONTEXT, ("kitchen",), (17,)), Question("Where is Anna?", CONTEXT)]


def read(path, text, **settings):
    path.write_text(text, encoding="utf-8")
    return list(read_questions(path, QuestionData(**settings)))


def test_the_official_form_lines_of_paragraphs_and_flat_lines_are_the_same(tmp_path):
    paragraph = {"context": CONTEXT, "qas": [SQUAD, WITHOUT]}
    official = {"version": "1.1", "data": [{"title": "", "paragraphs": [paragraph]}]}
    assert read(tmp_path / "a.json", json.dumps(official)) == EXPECTED
    assert read(tmp_path / "a.jsonl", json.dumps(paragraph) + "\n\n") == EXPECTED
    flat = [
        {"context": CONTEXT, "question": "Where is Mary?", "answers": {"text": ["kitchen"], "answer_start": [17]}},
        {"context": CONTEXT, "question": "Where is Anna?", "answers": {"text": [], "answer_start": []}},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in flat)
    assert read(tmp_path / "b.jsonl", lines) == EXPECTED
    for name, pack in (("b.jsonl.gz", gzip.compress), ("b.jsonl.xz", lzma.compress)):
        (tmp_path / name).write_bytes(pack(lines.encode()))
        assert list(read_questions(tmp_path / name, QuestionData())) == EXPECTED


def test_columns_and_lists_have_no_places(tmp_path):
    expected = [question._replace(starts=(None,) * len(question.answers)) for question in EXPECTED]
    lines = f"Where is Mary?\t{CONTEXT}\tkitchen\nWhere is Anna?\t{CONTEXT}\t\n"
    assert read(tmp_path / "a.tsv", lines) == expected
    turned = f"kitchen\t{CONTEXT}\tWhere is Mary?\n\t{CONTEXT}\tWhere is Anna?\n"
    assert read(tmp_path / "b.tsv", turned, columns=[2, 1, 0]) == expected
    record = {"context": CONTEXT, "qas": [["Where is Mary?", "kitchen"], ["Where is Anna?"]]}
    assert read(tmp_path / "c.jsonl", json.dumps(record)) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('{"question": "Who?"}', "'context'"),
        ('{"context": "Mary went."}', "'question'"),
        ('{"context": "Mary went.", "question": " "}', "empty"),
        ('{"context": "Mary went.", "question": "Who?", "answers": [3]}', "not a text"),
        ('{"context": "M", "question": "W?", "answers": {"text": ["M"], "answer_start": []}}', "not equally many"),
        ('{"context": "\\ud800", "question": "Who?"}', "half a character"),
    ],
)
def test_a_bad_line_is_an_error_that_names_it_or_is_skipped(tmp_path, line, says):
    good = json.dumps({"context": CONTEXT, **SQUAD})
    with pytest.raises(RegardError) as caught:
        read(tmp_path / "a.jsonl", f"{good}\n{line}\n")
    assert "Line 2" in caught.value.what and says in caught.value.why
    assert len(read(tmp_path / "a.jsonl", f"{good}\n{line}\n{good}\n", bad_lines="skip")) == 2


def test_a_missing_column_and_an_unknown_form_are_named(tmp_path):
    with pytest.raises(RegardError, match="2 column"):
        read(tmp_path / "a.tsv", "Who?\tMary went.\n")
    with pytest.raises(UsageError, match="form of"):
        read(tmp_path / "a.csv", "Who?,Mary went.,Mary\n")


def test_questions_of_one_article_or_context_are_held_out_together(tmp_path):
    records = []
    for title in range(40):
        for part in range(3):
            paragraph = {"context": f"Part {part} of {title}.", "qas": [["Which?", str(part)], ["What?", "Part"]]}
            records.append({"title": f"t{title}", **paragraph})
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    sources = question_splits(QuestionData(root=str(tmp_path), train=["all.jsonl"], held_out=0.2))
    titles = {name: {question.title for question in source} for name, source in sources.items()}
    assert all(titles.values())
    assert sum(map(len, titles.values())) == len(set.union(*titles.values())) == 40
    assert sum(len(list(source)) for source in sources.values()) == 240


# ---------------------------------------------------------------- places


def test_a_given_place_is_the_only_one_and_without_it_all_are_taken():
    context = "In Berlin, in the inn, I am in."
    assert places(Question("Where?", context, ("in",), (11,))) == [Place(11, 13)]
    assert places(Question("Where?", context, ("in",), (None,))) == [Place(11, 13), Place(28, 30)]
    assert places(Question("Where?", context, ("in",), (5,))) == [Place(11, 13), Place(28, 30)], "a wrong place"
    assert places(Question("Where?", context, ("erl",), (None,))) == [Place(4, 7)], "within a word"
    assert places(Question("Where?", context, ("IN THE",), (None,))) == [Place(11, 17)], "in other case"
    assert places(Question("Where?", context, ("Paris",), (None,))) == []


TEXTS = ["Mary went  home.", " two\n lines\t", "Straße in İstanbul, ΟΔΟΣ 東京 🙂!", "a", "ǅ İİ x"]


@pytest.mark.parametrize("kind", ["bpe", "word", "character", "byte"])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("sentences", [False, True])
def test_tokens_map_back_to_the_characters_that_they_were_made_of(kind, lowercase, sentences):
    settings = TokenizerSettings(kind=kind, vocabulary=300, lowercase=lowercase)
    tokenizer = train_tokenizer(["Mary went home in İstanbul. two lines 東京"] * 3, settings, sentences)
    for text in TEXTS:
        ids = tokenizer.encode([text])[0]
        places_T2 = tokenizer.places(text, ids)
        owned = [set(range(start, end)) for start, end in places_T2.tolist()]
        assert set.union(*owned) == set(range(len(text)))
        assert (np.diff(places_T2, axis=0) >= 0).all()
        if text.isascii():  # in other texts the library may give each part of a character, or none
            library = tokenizer._tokenizer.encode(text).offsets
            assert all(own == set(range(*other)) for own, other in zip(owned, library, strict=True) if len(own) > 1)
        for start in range(len(text)):
            for end in range(start + 1, len(text) + 1):
                first, last = tokens_of(Place(start, end), places_T2)
                found = text_of(text, places_T2, first, last)
                covered = set.union(*owned[first : last + 1])
                assert set(range(start, end)) <= covered
                assert set(range(*found)) <= covered and text[found.start : found.end].strip() == text[slice(*found)]


def test_windows_cover_every_context_and_mark_only_whole_answers(tmp_path):
    asked = list(stories.some(30, seed=4))
    lines = [f"{each.question}\t{each.story}\t{each.answer}\n" for each in asked]
    (tmp_path / "a.tsv").write_text("".join([*lines, "Who is it?\tNobody is here.\tMary\n"]))
    data = QuestionData(root=str(tmp_path), train=["a.tsv"], valid=["a.tsv"], test=["a.tsv"])
    source = question_splits(data)["train"]
    tokenizer = train_tokenizer((each.story for each in asked), TokenizerSettings(kind="word", vocabulary=400))
    tokenised = tokenise_questions(source, tokenizer, tmp_path)
    texts = list(source)
    assert tokenised.states[-1] == NOT_FOUND and (tokenised.states == NONE).any()
    windows = windows_of(tokenised, max_length=24, stride=5)
    assert (windows.lengths <= 24).all() and (windows.length > 0).all()
    window, first, last = windows.spans()
    answers_found = set()
    for number, (question, start) in enumerate(zip(windows.question.tolist(), windows.first.tolist(), strict=True)):
        ids = tokenised.contexts[tokenised.context_of[question]]
        places_T2 = tokenizer.places(texts[question].context, ids)
        for at in np.flatnonzero(window == number):
            span = text_of(texts[question].context, places_T2, start + first[at], start + last[at])
            assert texts[question].context[span.start : span.end] == texts[question].answers[0]
            answers_found.add(question)
    assert answers_found == set(np.flatnonzero(tokenised.states == 1).tolist())
    for question in range(len(texts)):
        mine = windows.question == question
        covered = {t for a, n in zip(windows.first[mine], windows.length[mine], strict=True) for t in range(a, a + n)}
        assert covered == set(range(len(tokenised.contexts[tokenised.context_of[question]])))
    assert int(windows.lengths.max()) - FRAME > 0
    assert len(windows_of(tokenised, 24, 5, skip=(NOT_FOUND,))) < len(windows)


# ---------------------------------------------------------------- the sample


def test_stories_are_a_function_of_the_seed_and_no_story_is_in_two_splits():
    one, again, other = (stories.stories(seed, train=300, valid=40, test=40) for seed in (1, 1, 2))
    assert one == again and one != other
    told = [{asked.story for asked in part} for part in (one.train, one.valid, one.test)]
    assert [len(part) for part in told] == [300, 40, 40]
    assert len(set.union(*told)) == 380


def told(story: str) -> dict[str, str]:
    """What holds at the end of a story, read from its sentences alone."""
    facts: dict[str, str] = {}
    for sentence in story.rstrip(".").split(". "):
        words = sentence.split()
        person = words[0]
        if words[1] in {move.split()[0] for move in stories.MOVES}:
            facts[f"Where is {person}?"] = words[-1]
        elif "in" in words:
            thing = words[words.index("the") + 1]
            facts[f"Where is the {thing}?"] = words[-1]
            facts.pop(f"Who has the {thing}?", None)
        else:
            facts[f"Who has the {words[-1]}?"] = person
            facts.pop(f"Where is the {words[-1]}?", None)
    return facts


def test_the_answers_are_true_and_stand_where_they_are_said_to():
    asked = list(stories.some(400, seed=3))
    for each in asked:
        assert told(each.story).get(each.question, "") == each.answer
        assert not each.answer or each.story[each.start :].startswith(each.answer)
    assert {bool(each.answer) for each in asked} == {True, False}
    assert len({each.question.split()[0] + each.question.split()[2][:3] for each in asked}) > 5
