"""Tokens shown: every byte of the text belongs to one token, and the steps lead to what the tokenizer gives."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from rich.cells import cell_len
from tokenizers import Tokenizer, normalizers

from regard.data.samples import english_german
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError, UsageError
from regard.explain.tokens import (
    LearnStep,
    Step,
    learn_steps,
    merge_steps,
    show_learning,
    show_merges,
    show_tokens,
    spans,
    to_json,
    visible,
)
from regard.settings import TokenizerSettings

KINDS = ["bpe", "word", "character", "byte"]
SENTENCES = [text for pair in english_german.pairs(600, seed=3) for text in pair]

EDGE_CASES = [
    "",
    " ",
    "     ",
    "  two  spaces  ",
    "a\r\nb\tc\n",
    "<pad><end> <0x41><0xFF>",
    "e\u0301 n\u0303 \u0301 o\u0308\u0304",
    "\u0301 first",
    "🙂 👩‍👩‍👧‍👦 🇩🇪 ☝🏽",
    "🙂",
    "a\0b\x1b[0m",
    "\ufeffa\u00a0b\u200be\ufffd\U0010ffff",
    "Ġthe Ċ ▁the",
    "שלום עולם 敏捷的棕色狐狸。",
    "It's 3.14€ — „groß“ (naïve)…",
    "İẞ STRAẞE İstanbul Σίσυφος ǅ",
]


def any_text(draw: random.Random) -> str:
    """A string over all of Unicode, its lower ranges more often; no surrogates, which are no text."""
    letters = []
    for _ in range(draw.randrange(40)):
        code = draw.randrange(draw.choice([0x21, 0x80, 0x100, 0x800, 0x3000, 0x10000, 0x110000]))
        letters.append(" " if 0xD800 <= code < 0xE000 else chr(code))
    return "".join(letters)


FUZZ = [any_text(random.Random(n)) for n in range(100)]
TEXTS = EDGE_CASES + FUZZ[:60] + SENTENCES[:5]


def in_small_letters(tokenizer: TextTokenizer, sentences: bool) -> TextTokenizer:
    library = Tokenizer.from_str(tokenizer.to_json())
    steps = [normalizers.Lowercase(), *([normalizers.Prepend(" ")] if sentences else [])]
    library.normalizer = normalizers.Sequence(steps)
    return TextTokenizer(library)


def train(kind: str, sentences: bool = True, odd: bool = False, vocabulary: int = 600) -> TextTokenizer:
    texts = FUZZ + EDGE_CASES if odd else SENTENCES
    return train_tokenizer(texts, TokenizerSettings(kind=kind, vocabulary=vocabulary), sentences)


@pytest.fixture(
    scope="module",
    params=itertools.product(KINDS, [True, False], [True, False]),
    ids=lambda names: f"{names[0]}-{'sentences' if names[1] else 'text'}-{'odd' if names[2] else 'plain'}",
)
def tokenizer(request) -> TextTokenizer:
    """Every kind; of sentences and of running text; learned from plain and from odd texts."""
    kind, sentences, odd = request.param
    return train(kind, sentences, odd, vocabulary=1000 if odd else 600)


@pytest.fixture(scope="module", params=itertools.product(KINDS, [True, False]), ids=str)
def lowercase(request) -> TextTokenizer:
    kind, sentences = request.param
    return in_small_letters(train(kind, sentences), sentences)


@pytest.fixture(scope="module", params=itertools.product([True, False], [True, False]), ids=str)
def bpe(request) -> TextTokenizer:
    sentences, odd = request.param
    return train("bpe", sentences, odd, vocabulary=1000 if odd else 600)


# --- Spans -----------------------------------------------------------------------------------------------


def test_tokens_are_the_text_byte_for_byte(tokenizer):
    for text in TEXTS:
        tokens = spans(tokenizer, text)
        raw = text.encode()
        assert [token.id for token in tokens] == tokenizer.encode([text])[0]
        assert [token.piece for token in tokens] == tokenizer.pieces(text)
        assert b"".join(token.raw for token in tokens) == raw
        assert all(token.raw == raw[token.start : token.end] for token in tokens)
        ends = [0, *(token.end for token in tokens)]
        assert [token.start for token in tokens] == ends[:-1]
        assert ends[-1] == len(raw)


def test_the_bytes_of_a_span_are_the_bytes_of_its_token(tokenizer):
    lengths = tokenizer.byte_lengths()
    for text in filter(None, TEXTS):
        tokens = spans(tokenizer, text)
        put_before = sum(int(lengths[token.id]) for token in tokens) - len(text.encode())
        assert put_before in (0, 1)
        assert len(tokens[0].raw) == lengths[tokens[0].id] - put_before
        assert all(len(token.raw) == lengths[token.id] for token in tokens[1:])
        assert all(token.raw == token.piece.encode() for token in tokens[1:] if not token.piece.startswith("<0x"))


def test_the_space_put_before_the_first_word_is_no_byte_of_the_text():
    words = spans(train("word"), "The man")
    assert [(token.piece, token.raw, token.start, token.end) for token in words] == [
        (" The", b"The", 0, 3),
        (" man", b" man", 3, 7),
    ]
    unknown = spans(train("word"), "ẞ")
    assert [(token.raw, token.start, token.end) for token in unknown] == [
        (b"", 0, 0),
        (b"\xe1", 0, 1),
        (b"\xba", 1, 2),
        (b"\x9e", 2, 3),
    ]


def test_a_character_of_several_tokens_is_cut_between_its_bytes():
    tokens = spans(train("byte"), "aé🙂")
    assert [token.raw.hex() for token in tokens] == ["61", "c3", "a9", "f0", "9f", "99", "82"]
    assert [(token.start, token.end) for token in tokens] == [(n, n + 1) for n in range(7)]


def test_spans_in_small_letters_are_those_of_the_text_as_written(lowercase):
    for text in TEXTS:
        tokens = spans(lowercase, text)
        assert b"".join(token.raw for token in tokens) == text.encode()
        assert all(token.raw == text.encode()[token.start : token.end] for token in tokens)


def test_spans_in_small_letters_stay_within_the_characters_the_library_names(lowercase):
    library = Tokenizer.from_str(lowercase.to_json())
    for text in TEXTS:
        edges = [0, *itertools.accumulate(len(letter.encode()) for letter in text)]
        for token, (first, last) in zip(spans(lowercase, text), library.encode(text).offsets, strict=True):
            assert edges[first] <= token.start <= token.end <= edges[last]


def test_a_letter_whose_small_form_has_other_bytes_keeps_its_neighbours_in_place():
    tokenizer = in_small_letters(train("byte"), sentences=True)
    tokens = spans(tokenizer, "ẞİx")  # three bytes become two, two become three
    assert [token.piece for token in tokens] == [" ", "<0xC3>", "<0x9F>", "i", "<0xCC>", "<0x87>", "x"]
    assert [(token.start, token.end) for token in tokens] == [(0, 0), (0, 1), (1, 3), (3, 3), (3, 4), (4, 5), (5, 6)]


@pytest.mark.parametrize("show", [lambda text: spans(train("byte"), text), learn_steps])
def test_text_that_is_not_unicode_is_refused(show):
    with pytest.raises(UsageError) as caught:
        show("ab\udcff")
    assert "Character 3" in caught.value.why


# --- Merges of a text ------------------------------------------------------------------------------------


def last_of_each_word(steps: list[Step]) -> list[Step]:
    return [list(group)[-1] for _, group in itertools.groupby(steps, key=lambda step: step.number)]


def test_the_last_pieces_are_those_of_the_tokenizer(bpe):
    for text in TEXTS:
        last = last_of_each_word(merge_steps(bpe, text))
        assert [token for step in last for token in step.ids] == bpe.encode([text])[0]
        assert [piece for step in last for piece in step.pieces] == bpe.pieces(text)


def test_merges_work_on_small_letters(bpe):
    lowercase = in_small_letters(bpe, sentences=True)
    for text in TEXTS:
        last = last_of_each_word(merge_steps(lowercase, text))
        assert [token for step in last for token in step.ids] == lowercase.encode([text])[0]


def test_each_word_starts_from_its_bytes(bpe):
    for text in TEXTS:
        first = [step for step in merge_steps(bpe, text) if step.pair is None]
        assert "".join(step.word for step in first) in (text, " " + text)
        assert [step.number for step in first] == list(range(1, len(first) + 1))
        for step in first:
            assert step.rank is None
            assert len(step.ids) == len(step.word.encode())


def test_each_step_joins_one_pair_by_the_merge_of_its_rank(bpe):
    merges = bpe.merges()
    for text in SENTENCES[:20]:
        for before, after in itertools.pairwise(merge_steps(bpe, text)):
            if after.rank is None:
                continue
            left, right, joined = merges[after.rank - 1]
            assert after.pair == (bpe.piece(left), bpe.piece(right))
            place = next(n for n, pair in enumerate(itertools.pairwise(before.ids)) if pair == (left, right))
            assert after.ids == (*before.ids[:place], joined, *before.ids[place + 2 :])


def test_the_merges_of_the_classic_example():
    tokenizer = train_tokenizer(["aaabdaaabac"], TokenizerSettings(kind="bpe", vocabulary=259 + 3), sentences=False)
    steps = merge_steps(tokenizer, "aaabd")
    assert [(step.pair, step.rank, step.pieces) for step in steps] == [
        (None, None, ("a", "a", "a", "b", "d")),
        (("a", "a"), 1, ("aa", "a", "b", "d")),
        (("a", "b"), 2, ("aa", "ab", "d")),
        (("aa", "ab"), 3, ("aaab", "d")),
    ]


def test_no_text_has_no_steps(bpe):
    assert merge_steps(bpe, "") == []


@pytest.mark.parametrize("kind", ["word", "character", "byte"])
def test_a_tokenizer_without_merges_says_so(kind):
    with pytest.raises(RegardError) as caught:
        merge_steps(train(kind), "The man")
    assert "no merges" in caught.value.what
    assert "bpe" in caught.value.fix


# --- Learning --------------------------------------------------------------------------------------------


def test_the_classic_example_is_learned_as_in_the_lecture():
    assert learn_steps("aaabdaaabac", None) == [
        LearnStep(("a", "a"), 2, "Z", "aa", "ZabdZabac"),
        LearnStep(("a", "b"), 2, "Y", "ab", "ZYdZYac"),
        LearnStep(("Z", "Y"), 2, "X", "aaab", "XdXac"),
    ]


def test_learning_stops_after_the_merges_asked_for():
    assert [step.text for step in learn_steps("aaabdaaabac", 2)] == ["ZabdZabac", "ZYdZYac"]
    assert learn_steps("aaabdaaabac", 0) == []


@pytest.mark.parametrize("text", ["", "a", "ab", "abc", "aaa"])
def test_nothing_is_learned_where_no_pair_occurs_twice(text):
    assert learn_steps(text) == []


def test_the_most_frequent_pair_comes_first():
    assert learn_steps("ab,cd.cd;cd,ab", 1)[0].pair == ("c", "d")


def test_overlapping_pairs_count_once():
    assert learn_steps("aaaaa") == [LearnStep(("a", "a"), 2, "Z", "aa", "ZZa")]


def test_letters_of_the_text_are_no_new_symbols():
    assert [step.symbol for step in learn_steps("ZXabababcdcd", 2)] == ["Y", "W"]


def test_numbers_follow_when_the_letters_have_run_out():
    text = "ABCDEFGHIJKLMNOPQRSTUVWXYZ ⟨2⟩ abab cdcd"
    assert [step.symbol for step in learn_steps(text)] == ["⟨1⟩", "⟨3⟩"]


def test_what_is_learned_spells_the_text():
    for text in [*FUZZ[:50], " ".join(SENTENCES[:20])]:
        steps = learn_steps(text)
        if steps:
            spelled = steps[-1].text
            for step in reversed(steps):
                spelled = spelled.replace(step.symbol, "".join(step.pair))
            assert spelled == text
            assert all(before.count >= after.count for before, after in itertools.pairwise(steps))


# --- Shown -----------------------------------------------------------------------------------------------


def test_a_table_of_tokens():
    tokens = spans(train("word"), "The man\n")
    first, second, third = (token.id for token in tokens)
    assert show_tokens(tokens).splitlines() == [
        "#   id  piece   bytes  raw",
        f"1  {first}  ␣The      0–3  54 68 65",
        f"2  {second}  ␣man      3–7  20 6d 61 6e",
        f"3  {third:>3}  <0x0A>    7–8  0a",
    ]


def test_a_table_of_merges():
    tokenizer = train_tokenizer(["aaabdaaabac"], TokenizerSettings(kind="bpe", vocabulary=259 + 3), sentences=False)
    assert show_merges(merge_steps(tokenizer, "ab aa")).splitlines() == [
        "word  merge  joins  pieces",
        "ab                  a b",
        "          2  a + b  ab",
        "␣aa                 ␣ a a",
        "          1  a + a  ␣ aa",
    ]


def test_a_table_of_what_is_learned():
    assert show_learning("aaabdaaabac", learn_steps("aaabdaaabac")).splitlines() == [
        "step  rule  spells  count  text",
        "   0                       aaabdaaabac",
        "   1  Z=aa  aa          2  ZabdZabac",
        "   2  Y=ab  ab          2  ZYdZYac",
        "   3  X=ZY  aaab        2  XdXac",
    ]


def test_wide_characters_leave_the_columns_aligned():
    tokens = spans(train("character", odd=True), "a狐🙂b")
    lines = show_tokens(tokens).splitlines()
    places = [cell_len(line[: line.index("–")]) for line in lines[1:]]
    assert len(set(places)) == 1


def test_nothing_that_is_shown_is_hidden():
    assert visible("a b\n\tc") == "a␣b⏎⇥c"
    assert visible("\x1b\u200d\u00a0") == "⟨U+001B⟩⟨U+200D⟩⟨U+00A0⟩"
    assert visible("\u0301e") == "◌\u0301e"
    assert visible("e\u0301") == "e\u0301"


def test_tables_of_any_text_hold_one_line_for_each_step(bpe):
    for text in EDGE_CASES:
        for shown, rows in (
            (show_tokens(spans(bpe, text)), len(spans(bpe, text)) + 1),
            (show_merges(merge_steps(bpe, text)), len(merge_steps(bpe, text)) + 1),
            (show_learning(text, learn_steps(text)), len(learn_steps(text)) + 2),
        ):
            lines = shown.split("\n")
            assert len(lines) == rows
            assert all(line.isprintable() for line in lines)


def test_plain_values_for_machines(bpe):
    text = "The café 🙂"
    for shown in (spans(bpe, text), merge_steps(bpe, text), learn_steps(text * 2)):
        plain = to_json(shown)
        assert len(plain) == len(shown)
        assert json.loads(json.dumps(plain)) == plain
    assert bytes.fromhex("".join(token["raw"] for token in to_json(spans(bpe, text)))).decode() == text
