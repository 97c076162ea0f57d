"""A trained language model: what it writes, and how it is scored."""

import itertools
import json
import math

import pytest
import torch
from torch.nn import functional as F

import regard
from regard import registry
from regard.data.batch import DataState
from regard.data.tokenizers import END, PAD, START
from regard.decoding import engines
from regard.errors import RegardError, UsageError
from regard.tasks import language as language_module
from tiny import TINY_TEXT


def test_it_has_learned_to_spell_a_little(language):
    metrics = regard.evaluate(language.folder.path)
    assert metrics["loss"] < 2.3  # 324 entries by chance: 5.8; the letters' frequencies alone: about 2.9
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    assert metrics["bits_per_byte"] == pytest.approx(metrics["loss"] / math.log(2))  # a byte is a token here


def test_the_loss_is_the_mean_over_every_token_but_the_first(language, texts, tmp_path):
    (tmp_path / "new.txt").write_text((texts / "text.txt").read_text()[-1000:])
    loss = language.evaluate([str(tmp_path / "new.txt")]).metrics["loss"]
    ids = torch.tensor(language.tokenizer.encode([(tmp_path / "new.txt").read_text()])[0])
    total = 0.0
    for start in range(0, len(ids) - 1, 64):
        row, labels = ids[start : start + 64], ids[start + 1 : start + 65]
        with torch.inference_mode():
            logits = language.model(row[None, : len(labels)])[0]
        total += F.cross_entropy(logits, labels, reduction="sum").item()
    assert loss == pytest.approx(total / (len(ids) - 1), rel=1e-5)


def test_the_same_seed_writes_the_same_text_and_another_seed_another(language):
    first = language.generate("The ", temperature=1.0, max_tokens=50, seed=3)
    assert language.generate("The ", temperature=1.0, max_tokens=50, seed=3) == first
    assert language.generate("The ", temperature=1.0, max_tokens=50, seed=4) != first


def test_pieces_put_together_are_the_text(language):
    pieces = list(language.generate_pieces(["The "], temperature=1.0, max_tokens=40, top=5))
    assert "".join(piece.text for piece in pieces) == language.generate("The ", temperature=1.0, max_tokens=40)[0]
    for piece in pieces:
        assert len(piece.candidates) == 5
        assert piece.token in [token for token, _ in piece.candidates] or piece.probability < piece.candidates[-1][1]


def test_prompts_of_different_length_are_continued_as_if_alone(language):
    prompts = ["The ", "In the evening they ", "I"]
    together = language.generate(prompts, temperature=0.0, max_tokens=30)
    assert together == [language.generate(prompt, temperature=0.0, max_tokens=30)[0] for prompt in prompts]


def test_more_texts_than_are_written_side_by_side_are_the_same_as_few(language, monkeypatch):
    many = language.generate("The ", samples=5, temperature=1.0, max_tokens=15)
    monkeypatch.setitem(engines.ROWS, "cpu", 2)
    assert language.generate("The ", samples=5, temperature=1.0, max_tokens=15) == many


def test_a_huge_limit_of_tokens_costs_nothing(language):
    free = language.generate("The ", temperature=0.0, max_tokens=60)[0]
    text = language.generate("The ", temperature=0.0, max_tokens=10**18, stop=[free[30:33]])[0]
    assert text and free.startswith(text)


def test_tokens_that_training_never_showed_are_never_written(language, texts):
    assert len(language._never()) > 200  # most bytes stand for no character of these sentences
    text = language.generate("The ", temperature=3.0, max_tokens=300)[0]
    known = set((texts / "text.txt").read_text())
    assert set(text) <= known and len(set(text)) > 20


def test_several_samples_differ_and_the_first_does_not_depend_on_them(language):
    many = language.generate("The ", samples=4, temperature=1.0, max_tokens=40)
    assert len(set(many)) == 4
    assert many[:1] == language.generate("The ", temperature=1.0, max_tokens=40)


def test_writing_stops_before_a_text_to_stop_at(language):
    free = language.generate("The ", temperature=0.0, max_tokens=80)[0]
    stop = free[20:24]
    assert language.generate("The ", temperature=0.0, max_tokens=80, stop=[stop, "§§"])[0] == free[: free.index(stop)]


def test_a_prompt_longer_than_the_context_keeps_its_last_part_and_says_so(language, capsys):
    long = "The man goes home. " * 20
    texts = language.generate(long, temperature=0.0, max_tokens=20)
    assert "only the last 63 are read" in capsys.readouterr().err
    assert texts == language.generate(long[-63:], temperature=0.0, max_tokens=20)


def test_writing_continues_beyond_the_context(language):
    text = language.generate("The ", temperature=0.0, max_tokens=150)[0]
    assert len(text) == 150


def test_an_empty_prompt_starts_a_line(language):
    assert language.generate("", temperature=0.0, max_tokens=20) == language.generate(
        "\n", temperature=0.0, max_tokens=20
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"repetition_penalty": 0.5}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"samples": 0}, "samples"),
        ({"seed": -1}, "seed"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_bad_options_are_refused(language, options, says):
    with pytest.raises(UsageError) as caught:
        language.generate("The ", **options)
    assert says in str(caught.value)


def test_characters_of_several_tokens_come_out_whole(language):
    """Unknown characters are spelled in bytes: nothing is shown before the last of them."""
    writer = language_module.TextWriter(language.tokenizer, [])
    tokens = language.tokenizer.encode(["a🙂b"])[0]
    assert len(tokens) == 6
    assert [writer.add(token) for token in tokens] == ["a", "", "", "", "🙂", "b"]


# ---------------------------------------------------------------- documents apart

# Those that can keep the documents of a row apart; the others refuse to.
MIXERS = [name for name in registry.names("mixers") if registry.load("mixers", name).shares_rows]
DOCUMENTS = ["The dog sleeps.", "A cat.", "We read a book."]  # all in one row


@pytest.fixture
def apart(texts, train_once):
    """A function that gives a model of documents that are kept apart, hardly trained."""
    settings = ["data.text=documents.jsonl", "data.documents=apart", "training.steps=5", "training.row_length=64"]
    settings += ["training.tokens_per_batch=256", "training.validate_every=5", "model.positions=learned"]

    def give(mixer="attention"):
        own = [f"model.mixer={mixer}", *(["model.local.window=8"] if mixer == "local" else [])]
        return train_once(f"apart-{mixer}", "shakespeare-cpu", *TINY_TEXT, *settings, *own, data=texts)

    return give


def documents_file(folder):
    path = folder / "new.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    return path


def nats(run, tokens, labels):
    with torch.inference_mode():
        return F.cross_entropy(run.model(torch.tensor([tokens]))[0], torch.tensor(labels), reduction="sum").item()


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_document_that_shares_a_row_costs_what_it_costs_alone_from_its_first_token_on(mixer, apart, tmp_path):
    run = apart(mixer)
    metrics = run.evaluate([str(documents_file(tmp_path))]).metrics
    alone = [run.tokenizer.encode([text])[0] for text in DOCUMENTS]
    total = sum(nats(run, [START, *ids], [*ids, END]) for ids in alone)
    targets, size = sum(len(ids) + 1 for ids in alone), sum(len(text.encode()) for text in DOCUMENTS)
    assert metrics["loss"] == pytest.approx(total / targets, rel=1e-5)
    assert metrics["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-5)


def test_training_shows_every_document_with_its_own_start_and_asks_for_none(apart):
    run = apart()
    run.prepare()
    seen = 0
    for batch, _ in itertools.islice(run.stream.batches(DataState()), 20):
        tokens, labels = batch.tokens_BT, batch.labels
        ends = (tokens[:, :-1] == END).nonzero()
        assert bool((tokens[ends[:, 0], ends[:, 1] + 1] == START).all())
        assert bool((labels[ends[:, 0], ends[:, 1]] == PAD).all())
        assert not bool((labels == START).any())
        begun = tokens[:, :-1] == START
        assert torch.equal(labels[:, :-1][begun], tokens[:, 1:][begun])
        seen += len(ends)
    assert seen > 20


def test_an_empty_prompt_is_the_start_of_a_document_and_any_other_its_beginning(apart):
    run = apart()
    assert run.encode("") == [START]
    assert run.encode("The") == [START, *run.tokenizer.encode(["The"])[0]]
    [piece] = run.generate_pieces([""], max_tokens=1, temperature=1.0, top=5)
    with torch.inference_mode():
        logits = run.model(torch.tensor([[START]]))[0, -1]
        logits[list(run._never())] = -torch.inf
    expected = logits.softmax(-1).topk(5).values.tolist()
    assert [p for _, p in piece.candidates] == pytest.approx(expected, abs=1e-5)


def test_a_run_of_an_earlier_version_goes_on_as_it_was_trained(apart, tmp_path):
    """There was no <start>: <end> began the next document, whose first token saw the one before."""
    run = apart()
    config = run.folder.read_json("config.json")
    del config["start_id"]
    run.folder.write_json("config.json", config)
    assert run.encode("") == [END]
    assert run.encode("The") == run.tokenizer.encode(["The"])[0]
    assert run.architecture() == {key: value for key, value in config.items() if key != "model"}
    ids = [token for text in DOCUMENTS for token in (*run.tokenizer.encode([text])[0], END)]
    total = 0.0
    for first, last in itertools.pairwise([-1, *(at for at, token in enumerate(ids) if token == END)]):
        tokens, labels = ids[first + 1 : last + 1], ids[first + 2 : last + 2]
        total += nats(run, tokens[: len(labels)], labels)
    loss = run.evaluate([str(documents_file(tmp_path))]).metrics["loss"]
    assert loss == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    run.prepare()
    assert START not in run.ids.train


@pytest.mark.parametrize("content", ["", "Too short."])
def test_too_little_text_is_refused_and_leaves_nothing(tmp_path, content):
    (tmp_path / "input.txt").write_text(content)
    with pytest.raises(RegardError) as caught:
        regard.train("shakespeare-cpu", out=tmp_path / "run", data=tmp_path)
    assert "text" in caught.value.what
    assert not (tmp_path / "run").exists()
