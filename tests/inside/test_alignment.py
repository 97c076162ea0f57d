"""Word alignment by cross-attention: pieces to words by hand, and a translator with a known alignment."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import regard as command
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError, UsageError
from regard.inside import alignment, alignment_choice
from regard.inside.alignment import Way, Words, links_of
from regard.inside.alignment_choice import align_pairs, choose
from regard.settings import TokenizerSettings

SOURCE = ["ka", "lo", "mi", "nu", "pe", "ri", "so", "tu", "va", "wo", "xi", "za"]
TARGET = ["bab", "ceb", "dib", "fob", "gub", "hab", "jeb", "kib", "lob", "mub", "nab", "peb"]


@pytest.fixture(scope="module")
def word_for_word(train_once, tmp_path_factory) -> Any:
    """A translator that writes one word for each, in their order."""
    folder, choice = tmp_path_factory.mktemp("word-for-word"), random.Random(1)
    for name, count in {"train": 3000, "valid": 40, "test": 40}.items():
        sentences = [choice.sample(range(len(SOURCE)), choice.randint(2, 6)) for _ in range(count)]
        lines = (" ".join(SOURCE[n] for n in s) + "\t" + " ".join(TARGET[n] for n in s) + "\n" for s in sentences)
        (folder / f"{name}.tsv").write_text("".join(lines))
    settings = ["data.sample=", *(f'data.{name}=["{name}.tsv"]' for name in ("train", "valid", "test"))]
    settings += ["tokenizer.kind=word", "tokenizer.vocabulary=300", "model.layers=1", "model.width=32"]
    settings += ["model.heads=2", "model.feedforward=64", "model.dropout=0.0", "training.label_smoothing=0.0"]
    settings += ["training.optimizer=muon", "training.learning_rate=0.01", "training.warmup=10", "training.steps=150"]
    settings += ["training.tokens_per_batch=512", "training.row_length=32", "training.validate_every=150"]
    settings += ["training.validate_bleu=false", "decoding.beam=1"]
    return train_once("word-for-word", "demo", *settings, data=folder)


def pairs_of(run) -> list[tuple[str, str]]:
    return list(run.held_out(None, "test"))


@pytest.fixture
def links(word_for_word, tmp_path) -> Path:
    file = tmp_path / "links"
    lengths = [len(source.split()) for source, _ in pairs_of(word_for_word)]
    file.write_text("".join(" ".join(f"{n}-{n}" for n in range(1, length + 1)) + "\n" for length in lengths))
    return file


@pytest.mark.parametrize("kind", ["bpe", "character", "byte", "word"])
def test_every_piece_belongs_to_its_word(kind):
    texts = ["Ein grüner Hund , und", "das  Haus."]
    tokenizer: TextTokenizer = train_tokenizer(texts, TokenizerSettings(kind=kind, vocabulary=280))
    for text in [*texts, "neu", " Rand "]:
        ids = tokenizer.encode([text])[0]
        words = Words.of(tokenizer, text, ids)
        assert words.names == text.split()
        spelled = ["" for _ in words.names]
        raw = [b"" for _ in words.names]
        for token, word in zip(ids, words.of_piece, strict=True):
            if word >= 0:
                raw[word] += bytes_of(tokenizer, token)
        spelled = [each.decode().strip() for each in raw]
        assert spelled == words.names


def bytes_of(tokenizer, token) -> bytes:
    piece = tokenizer.piece(token)
    if piece.startswith("<0x"):
        return bytes(int(each, 16) for each in piece.replace("<0x", "").split(">")[:-1])
    return piece.encode()


def test_weights_of_pieces_become_weights_of_words():
    """Two source words of two pieces and one, then <end>; the target has words of one piece and of two."""
    source, target = Words(["ab", "c"], [0, 0, 1, -1]), Words(["x", "yz"], [0, 1, 1])
    weights_TS = np.array([[0.1, 0.2, 0.6, 0.1], [0.4, 0.3, 0.2, 0.1], [0.0, 0.1, 0.1, 0.8], [0.2, 0.2, 0.5, 0.1]])
    ways = [Way(0, "writes"), Way(0, "reads")]
    writes_JX, reads_JX = dict(alignment.to_words(weights_TS[None, None], source, target, ways)).values()
    assert writes_JX == pytest.approx(np.array([[0.3, 0.6, 0.1], [0.4, 0.15, 0.45]]))
    assert reads_JX == pytest.approx(np.array([[0.7, 0.2, 0.1], [0.25, 0.3, 0.45]]))
    assert links_of(writes_JX) == {(1, 0)}  # the second word looked at <end>
    assert links_of(reads_JX) == {(0, 0)}


def test_a_word_for_word_translator_is_aligned_correctly(word_for_word, links):
    result = word_for_word.evaluate_alignment(links)
    assert result.metrics["aer"] < 10
    assert result.details["best"]["reading"] == result.details["chosen"]["reading"] == "writes"
    assert result.details["best"]["aer"] <= result.details["chosen"]["aer"] == result.metrics["aer"]
    assert result.details["ibm2"]["pairs"] == 3000
    assert result.details["ibm2"]["aer"] < 1
    reads = next(way for way in result.details["ways"] if way["reading"] == "reads" and way["head"] is None)
    assert reads["aer"] > 60
    assert len(result.details["ways"]) == 2 * 3
    table = result.notes[1].splitlines()
    assert [line.split()[:2] for line in table] == [["layer", "step"], ["1", "writes"], ["1", "reads"]]
    assert [line.endswith("chosen") for line in table] == [False, True, False]
    assert f"scored             {way_of(result)} (closest to" in "\n".join(result.notes)


def way_of(result) -> Way:
    chosen = result.details["chosen"]
    return Way(chosen["layer"], chosen["reading"], chosen["head"])


def test_pairs_are_sampled_from_all_over_a_sorted_corpus(word_for_word, monkeypatch):
    everything = alignment_choice._sampled(word_for_word, "train", 5000)
    drawn = alignment_choice._sampled(word_for_word, "train", 100)
    indices = sorted(everything.index(pair) for pair in drawn)
    assert len(drawn) == 100 and len(everything) == 3000
    assert indices[0] < 300 and 1200 < np.mean(indices) < 1800 and indices[-1] > 2700
    assert drawn == alignment_choice._sampled(word_for_word, "train", 100)
    monkeypatch.setattr(alignment_choice, "MOST_PAIRS", 50)
    assert alignment_choice._sampled(word_for_word, "train", 100) == everything[:50]


def test_what_is_not_given_is_chosen_among_the_ways_that_match():
    scores = {Way(0, "writes"): 3.0, Way(0, "reads", 1): 1.0, Way(1, "writes", 0): 2.0}
    choice = alignment.Choice(Way(0, "reads", 1), "", scores)
    assert choice.among(None, None, None) == Way(0, "reads", 1)
    assert choice.among(1, None, None) == Way(1, "writes", 0)
    assert choice.among(None, "writes", None) == Way(1, "writes", 0)
    assert choice.among(None, None, 0) == Way(1, "writes", 0)
    assert alignment.Choice(Way(2, "reads"), "", {}).among(None, "writes", 3) == Way(2, "writes", 3)


def test_pairs_in_a_batch_are_aligned_as_if_alone(word_for_word, monkeypatch):
    pairs = pairs_of(word_for_word)[:12]
    together = align_pairs(word_for_word, pairs)
    for (source, target), aligned in zip(pairs, together, strict=True):
        trace = word_for_word.trace(source, target)
        for way, links in aligned.links.items():
            alone = trace.alignment(way.layer, way.reading, way.head)
            assert frozenset(map(tuple, alone.notes["links"])) == links
            assert alone.labels == (target.split(), source.split())
    monkeypatch.setattr(alignment_choice, "POSITIONS", 1)
    assert [each.links for each in align_pairs(word_for_word, pairs)] == [each.links for each in together]


def test_an_alignment_names_layer_and_reading_and_how_they_were_chosen(word_for_word):
    word_for_word.alignment_choice = None
    source = " ".join(SOURCE[:4])
    aligned = word_for_word.trace(source).alignment()
    assert aligned.notes["links"] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert (aligned.notes["layer"], aligned.notes["reading"]) == (0, "writes")
    assert "IBM Model 2 of 3,000 training pairs" in aligned.notes["criterion"]
    assert choose(word_for_word) is word_for_word.alignment_choice
    whole = aligned.values.sum(1) + np.array(aligned.notes["end"])
    assert whole == pytest.approx(np.ones(4), abs=1e-5)


def test_without_training_data_it_is_chosen_by_entropy(word_for_word, monkeypatch):
    monkeypatch.setattr(alignment_choice, "train_ibm2", lambda task: None)
    monkeypatch.setattr(word_for_word, "alignment_choice", None)
    pairs = pairs_of(word_for_word)[:6]
    choice = choose(word_for_word, pairs)
    assert "lowest entropy" in choice.criterion
    assert choice.scores[choice.way] == min(choice.scores.values())
    aligned = align_pairs(word_for_word, pairs)
    assert choice.scores[choice.way] == pytest.approx(np.mean([each.entropy[choice.way] for each in aligned]))


def test_additive_attention_is_aligned_too(make):
    subject = make("translator-bahdanau")
    weights_LBHTS = alignment_choice._cross_weights(subject.model, [[5, 9, 2], [5, 2]], [[7], [7, 8, 9]])
    assert weights_LBHTS.shape == (2, 2, 1, 4, 3)
    assert weights_LBHTS[0, 1, 0, :, :2].sum(-1) == pytest.approx(np.ones(4), abs=1e-5)


def test_invalid_arguments_are_refused(word_for_word, language, make):
    with pytest.raises(UsageError, match="no words to align"):
        language.trace("Some text").alignment()
    traced = word_for_word.trace(" ".join(SOURCE[:2]))
    with pytest.raises(UsageError, match="no layer 8 to align by"):
        traced.alignment(layer=7, reading="reads")
    with pytest.raises(UsageError, match="no head 9 to align by"):
        traced.alignment(layer=0, reading="reads", head=8)
    with pytest.raises(UsageError, match=r"(?s)no reading 'foo'.*writes or reads"):
        traced.alignment(reading="foo")
    with pytest.raises(RegardError, match="no cross-attention"):
        alignment_choice._cross_weights(make("translator", mixer="gru", cross="none").model, [[5, 2]], [[7]])


def test_the_command_scores_an_alignment(word_for_word, links):
    run = word_for_word.folder.path
    content = json.loads(command("evaluate", run, "--alignment", links, "--json").stdout)
    assert content["metrics"]["aer"] == word_for_word.evaluate_alignment(links).metrics["aer"]
    assert {"ways", "best", "chosen", "ibm2"} <= content.keys()
    assert "--alignment" in command("evaluate", run, "--alignment", links, "--beam", "2", code=2).error[0]
