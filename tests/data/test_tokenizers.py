"""Tokenizers: any text comes back unchanged, special ids cannot be written, and BPE is BPE."""

from __future__ import annotations

import itertools
import json
import os
import random
import unicodedata
from collections.abc import Iterator

import pytest

from expect import error_of
from regard.data.samples import english_german
from regard.data.tokenizers import END, PAD, SPECIALS, START, TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import TokenizerSettings

KINDS = ["bpe", "word", "character", "byte"]
SENTENCES = [text for pair in english_german.pairs(600, seed=3) for text in pair]

EDGE_CASES = {
    "nothing": "",
    "one space": " ",
    "spaces only": "     ",
    "spaces around": "  two  spaces  ",
    "a tab": "a\tb",
    "line ends": "a\r\nb\nc\r",
    "a special token": "<end>",
    "special tokens": "<pad><start> <end> <unk>",
    "the name of a byte": "<0x41>",
    "names of bytes": "a<0x0A> <0xFF><0xF0><0x9F>",
    "composed": "é",
    "combining marks": "e\u0301 n\u0303 \u0301 o\u0308\u0304",
    "emoji": "🙂 👩‍👩‍👧‍👦 🇩🇪 ☝🏽",
    "NUL": "a\0b\0",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x85",
    "odd spaces": "a\u00a0b\u3000c\u2009d\u200be",
    "byte order mark": "\ufeffa",
    "replacement character": "\ufffd\ufffd",
    "the last code points": "\uffff\U0010ffff",
    "letters of the byte-level alphabet": "Ġthe Ċ ĉ ł Ń",
    "the mark of sentencepiece": "▁the▁dog",
    "right to left": "שלום עולם مرحبا",
    "no spaces": "敏捷的棕色狐狸跳过了懒狗。",
    "mixed": "It's 3.14€ — „groß“ (naïve)…",
    "long": "long " * 2000 + "word" * 2000,
}


def any_text(draw: random.Random) -> str:
    """A string over all of Unicode, its lower ranges more often; no surrogates, which are no text."""
    letters = []
    for _ in range(draw.randrange(40)):
        code = draw.randrange(draw.choice([0x21, 0x80, 0x100, 0x800, 0x3000, 0x10000, 0x110000]))
        letters.append(" " if 0xD800 <= code < 0xE000 else chr(code))
    return "".join(letters)


FUZZ = [any_text(random.Random(n)) for n in range(3000)]


def train(kind: str, texts: list[str] = SENTENCES, vocabulary: int = 600) -> TextTokenizer:
    return train_tokenizer(texts, TokenizerSettings(kind=kind, vocabulary=vocabulary))


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, TextTokenizer]:
    return {kind: train(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def of_odd_text() -> dict[str, TextTokenizer]:
    """Learned from anything but sentences, so that the vocabulary holds odd pieces."""
    return {kind: train(kind, FUZZ[:1000] + list(EDGE_CASES.values()), 3000) for kind in KINDS}


# --- There and back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", EDGE_CASES.values(), ids=EDGE_CASES)
def test_odd_texts_come_back_unchanged(tokenizers, of_odd_text, kind, text):
    for tokenizer in (tokenizers[kind], of_odd_text[kind]):
        assert tokenizer.decode(tokenizer.encode([text])) == [text]


@pytest.mark.parametrize("kind", KINDS)
def test_any_text_comes_back_unchanged(tokenizers, of_odd_text, kind):
    for tokenizer in (tokenizers[kind], of_odd_text[kind]):
        assert tokenizer.decode(tokenizer.encode(FUZZ)) == FUZZ


@pytest.mark.parametrize("kind", KINDS)
def test_every_single_character_comes_back(tokenizers, kind):
    plane = [chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000]
    assert tokenizers[kind].decode(tokenizers[kind].encode(plane)) == plane


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_never_come_out_of_text(tokenizers, of_odd_text, kind):
    for tokenizer in (tokenizers[kind], of_odd_text[kind]):
        for ids in tokenizer.encode([*FUZZ, *EDGE_CASES.values(), *SPECIALS, " ".join(SPECIALS)]):
            assert all(len(SPECIALS) <= token < tokenizer.size for token in ids)


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_are_left_out_of_the_text(tokenizers, kind):
    ids = tokenizers[kind].encode(["A dog."])[0]
    assert tokenizers[kind].decode([[START, *ids, END, PAD, PAD]]) == ["A dog."]
    assert tokenizers[kind].decode([[START, END], []]) == ["", ""]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_gives_what_each_text_gives_alone(tokenizers, kind):
    tokenizer = tokenizers[kind]
    assert tokenizer.encode(SENTENCES[:50]) == [tokenizer.encode([text])[0] for text in SENTENCES[:50]]
    assert tokenizer.encode([]) == []


def test_rows_that_are_no_text_decode_without_failing(tokenizers):
    draw = random.Random(1)
    for tokenizer in tokenizers.values():
        rows = [[draw.randrange(tokenizer.size) for _ in range(20)] for _ in range(200)]
        assert all(isinstance(text, str) for text in tokenizer.decode(rows))


# --- On disk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_gives_the_same_ids(of_odd_text, tmp_path, kind):
    before = of_odd_text[kind]
    (tmp_path / "tokenizer.json").write_text(before.to_json(), encoding="utf-8")
    after = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert after.size == before.size
    assert after.encode(FUZZ + SENTENCES) == before.encode(FUZZ + SENTENCES)
    assert after.decode(before.encode(FUZZ)) == FUZZ
    assert after.to_json() == before.to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_gives_the_same_tokenizer(tokenizers, kind):
    assert train(kind).to_json() == tokenizers[kind].to_json()


@pytest.mark.parametrize("content", [None, b"", b"{}", b"not json", b'{"version": "1.0"}', b"\xff\xfe"])
def test_a_tokenizer_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RegardError) as caught:
        TextTokenizer.load(path)
    assert str(path) in caught.value.what
    assert caught.value.why.strip()


# --- The vocabulary --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
@pytest.mark.parametrize("vocabulary", [259, 260, 300])
def test_the_vocabulary_is_never_larger_than_asked(kind, vocabulary):
    tokenizer = train(kind, vocabulary=vocabulary)
    assert tokenizer.size == vocabulary
    assert tokenizer.decode(tokenizer.encode(FUZZ[:100])) == FUZZ[:100]


def test_a_vocabulary_is_no_larger_than_the_text_gives():
    assert train("character", ["abc"], 1000).size == 259 + 3
    assert train("word", ["a b a"], 1000).size == 259 + 2
    assert train("bpe", ["ab"], 1000).size == 259 + 2


def test_bytes_need_no_vocabulary():
    assert train("byte", [], 1).size == 259


def test_bytes_are_as_many_ids_as_the_text_has_bytes(tokenizers):
    assert [len(ids) for ids in tokenizers["byte"].encode(FUZZ)] == [len(text.encode()) for text in FUZZ]


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_a_vocabulary_too_small_for_the_bytes_is_refused(kind):
    with pytest.raises(RegardError) as caught:
        train(kind, vocabulary=258)
    assert "258" in caught.value.what
    assert "259" in caught.value.fix


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_gives_a_tokenizer_of_bytes(kind):
    tokenizer = train(kind, [])
    assert tokenizer.size == 259
    assert tokenizer.decode(tokenizer.encode(FUZZ[:100])) == FUZZ[:100]


def test_the_most_frequent_words_and_characters_are_kept():
    words = train("word", ["b b b a a c"], 259 + 2)
    assert words.pieces("a b c") == [" a", " b", "<0x20>", "<0x63>"]
    characters = train("character", ["bbbaac"], 259 + 2)
    assert characters.pieces("abc") == ["a", "b", "<0x63>"]


def test_a_word_is_the_same_token_wherever_it_stands(tokenizers):
    for kind in ("bpe", "word"):
        first, last = (tokenizers[kind].encode([text])[0] for text in ("The", "dog The"))
        assert first == last[-len(first) :]


def test_a_word_never_holds_the_mark_after_it(tokenizers):
    assert tokenizers["word"].pieces("The dog, the man.") == [" The", " dog", ",", " the", " man", "."]


# --- Reading pieces --------------------------------------------------------------------------------------


def test_pieces_read_as_a_person_would_write_them(tokenizers):
    assert [tokenizers["bpe"].piece(token) for token in (PAD, START, END)] == ["<pad>", "<start>", "<end>"]
    assert "".join(tokenizers["bpe"].pieces("Das Mädchen öffnet die Tür.")) == " Das Mädchen öffnet die Tür."
    assert tokenizers["word"].pieces("The woman") == [" The", " woman"]
    assert tokenizers["character"].pieces("Tür") == ["T", "ü", "r"]
    assert tokenizers["byte"].pieces("a ü\n") == ["a", " ", "<0xC3>", "<0xBC>", "\n"]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_known_text_put_together_are_the_text(tokenizers, kind):
    text = "The man, the woman."
    assert "".join(tokenizers[kind].pieces(text)).removeprefix(" ") == text


@pytest.mark.parametrize("kind", KINDS)
def test_every_id_has_a_piece(tokenizers, kind):
    pieces = [tokenizers[kind].piece(token) for token in range(tokenizers[kind].size)]
    assert all(pieces)
    assert len(set(pieces)) == len(pieces)


def test_spelled_out_counts_the_bytes_of_unknown_words(tokenizers):
    def spelled_out(kind: str, text: str) -> int:
        return tokenizers[kind].spelled_out(tokenizers[kind].encode([text])[0])

    assert spelled_out("word", "The man") == 0
    assert spelled_out("word", "The xyz man") == len(" xyz")
    assert spelled_out("word", "The Öl man") == len(" Öl".encode())
    assert spelled_out("character", "The man") == 0
    assert spelled_out("character", "The 句") == 3
    assert spelled_out("bpe", "The xyz 句 man") == spelled_out("byte", "The xyz 句 man") == 0


# --- Byte-pair encoding ----------------------------------------------------------------------------------


def merges_in_words(tokenizer: TextTokenizer) -> list[tuple[str, str, str]]:
    return [tuple(map(tokenizer.piece, merge)) for merge in tokenizer.merges()]


def test_merges_of_the_classic_example():
    """aaabdaaabac: first aa, then ab, then aa + ab, as Gage (1994) is always told."""
    merges = merges_in_words(train("bpe", ["aaabdaaabac"], 259 + 3))
    assert merges == [("a", "a", "aa"), ("a", "b", "ab"), ("aa", "ab", "aaab")]


def test_the_first_merge_is_the_most_frequent_pair():
    assert merges_in_words(train("bpe", ["xy xy xy zw"], 300))[0] == ("x", "y", "xy")


def test_merges_join_what_they_say(tokenizers):
    merges = merges_in_words(tokenizers["bpe"])
    readable = [merge for merge in merges if not any("<0x" in piece for piece in merge)]
    assert len(readable) > 300
    assert all(left + right == joined for left, right, joined in readable)


def test_no_merge_crosses_from_one_word_into_the_next(tokenizers):
    assert not any(" " in joined[1:] for _, _, joined in merges_in_words(tokenizers["bpe"]))


def test_only_bpe_has_merges(tokenizers):
    assert [len(tokenizers[kind].merges()) for kind in KINDS] == [600 - 259, 0, 0, 0]


def kind_of(letter: str) -> str:
    if letter.isspace():
        return "space"
    return "word" if unicodedata.category(letter)[0] in "LMN" else "mark"


def naive_words(text: str) -> Iterator[str]:
    """A word or a run of marks, each with one space before it; what spaces are left stand alone."""
    start = 0
    while start < len(text):
        first = start + (text[start] == " ")
        end = first
        if first < len(text) and kind_of(text[first]) != "space":
            while end < len(text) and kind_of(text[end]) == kind_of(text[first]):
                end += 1
        else:
            end = start
            while end < len(text) and kind_of(text[end]) == "space":
                end += 1
            if end < len(text) and end - start > 1:
                end -= 1
        yield text[start:end]
        start = end


def naive_bpe(tokenizer: TextTokenizer, text: str) -> list[int]:
    """Byte-pair encoding by its definition: join the pair learned first, leftmost first, until none is left."""
    id_of = {tokenizer.piece(token): token for token in range(len(SPECIALS), 259)}
    ranks = {(left, right): (rank, joined) for rank, (left, right, joined) in enumerate(tokenizer.merges())}
    ids = []
    for word in naive_words(" " + text) if text else []:
        pieces = [id_of[chr(byte) if byte < 0x80 else f"<0x{byte:02X}>"] for byte in word.encode()]
        while candidates := [
            (*ranks[pair], place) for place, pair in enumerate(itertools.pairwise(pieces)) if pair in ranks
        ]:
            _, joined, place = min(candidates)
            pieces[place : place + 2] = [joined]
        ids += pieces
    return ids


def test_bpe_ids_equal_a_naive_application_of_the_merges(tokenizers):
    sentences = (
        SENTENCES[:150] + [any_sentence(random.Random(n)) for n in range(100)] + ["", "  ", "a  b\t\tc\n", " x "]
    )
    assert tokenizers["bpe"].encode(sentences) == [naive_bpe(tokenizers["bpe"], text) for text in sentences]


def any_sentence(draw: random.Random) -> str:
    """Words of the corpus in new shapes: glued, cut, with marks, numbers and spaces between."""
    words = [word for text in draw.sample(SENTENCES, 2) for word in text.split()]
    return "".join(
        draw.choice(words)[: draw.randrange(1, 12)]
        + draw.choice([" ", "", "-", "  ", ", ", "\t", " 12", "ß", "é", "\n"])
        for _ in range(10)
    )


# --- Lower case ------------------------------------------------------------------------------------------

CAPITALS = ["The Dog sees the DOG.", "Größe ÜBER Äpfel", "the dog"] * 3


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_lowercase_makes_capitals_and_small_letters_the_same(kind, sentences):
    tokenizer = train_tokenizer(CAPITALS, TokenizerSettings(kind=kind, vocabulary=320, lowercase=True), sentences)
    for content in [*CAPITALS, "UNSEEN Words 句 ÉTÉ", "ALL <END>"]:
        ids = tokenizer.encode([content])[0]
        assert ids == tokenizer.encode([content.lower()])[0]
        assert tokenizer.decode([ids]) == [content.lower()]
        assert list(tokenizer.encode_bytes(content.encode())) == ids


@pytest.mark.parametrize("kind", KINDS)
def test_without_lowercase_capitals_are_kept(kind):
    tokenizer = train_tokenizer(CAPITALS, TokenizerSettings(kind=kind, vocabulary=320))
    assert tokenizer.decode(tokenizer.encode(CAPITALS)) == CAPITALS
    assert tokenizer.encode(["Dog"]) != tokenizer.encode(["dog"])


@pytest.mark.parametrize("kind", KINDS)
def test_lowercase_is_saved_with_the_tokenizer(kind, tmp_path):
    tokenizer = train_tokenizer(CAPITALS, TokenizerSettings(kind=kind, vocabulary=320, lowercase=True))
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    again = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert again.encode(CAPITALS) == tokenizer.encode(CAPITALS)
    assert again.decode(again.encode(["DOG"])) == ["dog"]


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_a_vocabulary_in_lowercase_has_no_capitals(kind):
    tokenizer = train_tokenizer(CAPITALS, TokenizerSettings(kind=kind, vocabulary=320, lowercase=True))
    learned = [tokenizer.piece(token) for token in range(259, tokenizer.size)]
    assert any("dog" in piece or piece == "d" for piece in learned)
    # Part of a character shows as its bytes.
    assert all(piece == piece.lower() for piece in learned if "<0x" not in piece)


def test_a_word_seen_only_in_capitals_is_one_token():
    tokenizer = train_tokenizer(["NATO"], TokenizerSettings(kind="word", vocabulary=300, lowercase=True))
    assert tokenizer.pieces("Nato") == [" nato"]


# --- Files that are no tokenizers -------------------------------------------------------------------------


def with_vocabulary(change) -> str:
    tree = json.loads(train_tokenizer(["a text"], TokenizerSettings(kind="byte")).to_json())
    tree["model"]["vocab"] = change(tree["model"]["vocab"])
    return json.dumps(tree)


NO_TOKENIZERS = {
    "a gap in the ids": lambda: with_vocabulary(lambda words: words | {"zz": 10**9}),
    "few entries": lambda: with_vocabulary(lambda words: dict(list(words.items())[:10])),
    "other special tokens": lambda: with_vocabulary(
        lambda words: {f"x{word}" if index < 3 else word: index for word, index in words.items()}
    ),
    "a list": lambda: "[]",
    "nested": lambda: "[" * 20_000 + "]" * 20_000,
}


@pytest.mark.parametrize("content", NO_TOKENIZERS.values(), ids=NO_TOKENIZERS)
def test_a_file_that_is_no_tokenizer_of_regard_is_an_error(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content(), encoding="utf-8")
    assert "Cannot read the tokenizer" in error_of(TextTokenizer.load, tmp_path / "tokenizer.json").what


def test_a_pipe_is_no_tokenizer(tmp_path):
    os.mkfifo(tmp_path / "tokenizer.json")
    assert "not a file" in error_of(TextTokenizer.load, tmp_path / "tokenizer.json").why


def test_merges_are_learned_from_words_that_are_words():
    """The time they take grows with the square of a word: this would take minutes."""
    texts = [*["the cat sat"] * 50, "x" * 900_000]
    tokenizer = train_tokenizer(texts, TokenizerSettings(vocabulary=300))
    plain = train_tokenizer(texts[:-1], TokenizerSettings(vocabulary=300))
    assert tokenizer.to_json() == plain.to_json()
    assert tokenizer.decode(tokenizer.encode(["x" * 2000])) == ["x" * 2000]
