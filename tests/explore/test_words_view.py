"""Words: neighbours, the plane, merges and positions on the page are the model's."""

import numpy as np
import pytest
import torch
from asking import ask

from regard.data.tokenizers import BYTES, SPECIALS
from regard.errors import UsageError
from tiny import TINY_TEXT

SENTENCE = "The old farmer helps the child."


def cosines(task, token: int) -> np.ndarray:
    table = task.model.source_embedding.table.weight.detach()
    return torch.cosine_similarity(table, table[token], dim=1).numpy()


def test_neighbours_and_positions_are_the_models(trained, opened):
    trace = trained.trace(SENTENCE)
    ids = trace.subject.tokens[0]
    words = [trained.tokenizers.source.piece(token) for token in range(trained.tokenizers.source.size)]
    with opened(trained, text=SENTENCE) as at:
        panel = at.view("Words")
        panel.locator(".vectors").get_by_role("button", name="farmer", exact=True).click()
        at.ready("Words")
        names = panel.locator(".neighbours .bar-name").all_inner_texts()
        values = [float(text.replace("−", "-")) for text in panel.locator(".neighbours .bar-value").all_inner_texts()]
        of_all = cosines(trained, ids[2])
        bare = {*SPECIALS, *BYTES}
        rows = [row for row in np.argsort(-of_all, kind="stable") if row != ids[2] and words[row] not in bare][:12]
        assert names == [words[row].strip() for row in rows]
        np.testing.assert_allclose(values, of_all[rows], atol=1e-3)

        assert panel.locator(".plane circle").count() > len(set(ids))
        assert "% of the variance" in panel.locator(".plane .axis-name").first.text_content()
        field = panel.get_by_role("application", name="Positional encodings, encoder")
        field.focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            field.press(key)
        shown = float(at.page.locator("#live").inner_text().rpartition(": ")[2].replace("−", "-"))
        assert abs(shown - np.cos(1.0)) < 1e-3  # PE(1, 1)

        panel.get_by_label("Another token").fill("child")
        panel.get_by_label("Another token").press("Enter")
        panel.get_by_role("group", name="Matches").get_by_role("button").first.click()
        panel.get_by_role("heading", name="Nearest to child (cosine)").wait_for()


def test_the_projection_is_on_principal_components(trained):
    projection = ask(trained, "projection", {"text": SENTENCE}, stack="encoder")
    table = trained.model.source_embedding.table.weight.detach().double()
    unit = torch.nn.functional.normalize(table[projection["tokens"]], dim=1)
    centred = unit - unit.mean(0)
    variance, directions = torch.linalg.eigh(centred.T @ centred)
    along = centred @ directions[:, [-1, -2]]
    np.testing.assert_allclose(np.abs(projection["values"]), along.abs().numpy(), atol=1e-5)
    np.testing.assert_allclose(projection["shares"], (variance / variance.sum())[[-1, -2]].numpy(), atol=1e-6)
    assert projection["groups"].count("input") == len(set(trained.trace(SENTENCE).subject.tokens[0]))


def test_merges_end_in_the_tokens_of_the_input(texts, train_once, opened):
    small = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16", "tokenizer.kind=bpe"]
    quick = ["tokenizer.vocabulary=320", "training.steps=2", "training.tokens_per_batch=256", "training.row_length=32"]
    quick += ["training.validate_every=2", "data.text=text.txt"]
    run = train_once("pairs-of-bytes", "shakespeare-cpu", *small, *quick, data=texts)
    with opened(run, text="The child", fragment="#view=words") as at:
        panel = at.ready("Words")
        last = [
            word.locator("li").last.locator(".token").all_inner_texts() for word in panel.locator(".merged ol").all()
        ]
        pieces = run.trace("The child").subject.stacks[0].pieces
        assert [piece.replace("␣", " ").strip() for word in last for piece in word] == [
            piece.strip() for piece in pieces
        ]
        assert "rotary" in panel.locator(".positions h2").inner_text()
    cut = ask(run, "merges", {"text": "The child"})["layers"]
    assert bytes.fromhex("".join(token["raw"] for token in cut["tokens"])) == b"The child"


def test_rotations_are_those_of_the_attention(language):
    cosines = np.array(ask(language, "rotations", {"text": "The old"}, stack="layers")["values"])
    width = language.model.trunk.blocks[0].mixer.key_width
    angles = np.arange(7)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    np.testing.assert_allclose(cosines, np.cos(angles), atol=1e-5)


def test_missing_words(trained, image_classifier):
    first = {"text": SENTENCE}
    assert ask(trained, "rotations", first, stack="encoder") is None
    assert ask(image_classifier, "merges", {}) == {}
    assert ask(trained, "words_like", first, text="xyzzyx")["tokens"] == []
    with pytest.raises(UsageError, match="There is no token"):
        ask(trained, "neighbours", first, stack="encoder", token=10**6)
    with pytest.raises(UsageError, match="There is no stack"):
        ask(trained, "projection", first, stack="nowhere")


def test_the_file_has_the_words_of_its_input(page_on_disk, from_disk):
    with from_disk(page_on_disk, fragment="#view=words") as at:
        panel = at.ready("Words")
        panel.locator(".vectors").get_by_role("button", name="old", exact=True).click()
        at.ready("Words")
        assert panel.get_by_role("heading", name="Nearest to old (cosine)").count() == 1
        assert panel.locator(".problem").count() == 0


@pytest.fixture(scope="module")
def masked_pairs(texts, train_once):
    """A masked model over byte pairs, hardly trained."""
    settings = ["data.text=documents.jsonl", "tokenizer.kind=bpe", "tokenizer.vocabulary=400", "data.held_out=0.1"]
    settings += ["training.steps=2", "training.validate_every=2", "training.tokens_per_batch=512"]
    return train_once("masked-pairs", "bert-small", *TINY_TEXT, *settings, "training.row_length=64", data=texts)


@pytest.mark.parametrize("text", ["The [MASK] sleeps.", "The [MASK], [MASK].", "[MASK] sees (the) child", "The[MASK]!"])
def test_tokens_around_a_mask_are_those_that_the_model_reads(masked_pairs, text):
    merges = ask(masked_pairs, "merges", {"text": text})["layers"]
    stack = ask(masked_pairs, "overview", {"text": text})["stacks"][0]
    special = {"<start>", "<end>", "[MASK]"}
    read = [token for token, piece in zip(stack["tokens"], stack["pieces"], strict=True) if piece not in special]
    assert [token["id"] for token in merges["tokens"]] == read
    words: list[list[int]] = []  # as they are after their last merge
    for step in merges["steps"]:
        words = [*words, step["ids"]] if step["pair"] is None else [*words[:-1], step["ids"]]
    assert [token for word in words for token in word] == read
