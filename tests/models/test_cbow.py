"""CBOW: the loss is the formula, the update is word2vec's, and words of one kind come together."""

import numpy as np
import torch

from regard.data.batch import DataState
from regard.data.cbow_batches import Lexicon, WordBatch, WordStream
from regard.data.tokenizers import train_tokenizer
from regard.data.word_vectors import WordVectors
from regard.models.cbow import Cbow, negative_sampling_loss
from regard.settings import EmbeddingSettings, TokenizerSettings

WORDS, WIDTH, WINDOW, NEGATIVES = 12, 6, 2, 3


def model_of(seed: int = 0) -> Cbow:
    generator = torch.Generator().manual_seed(seed)
    model = Cbow(WORDS, WIDTH, WINDOW)
    with torch.no_grad():
        model.input.copy_(torch.randn(WORDS, WIDTH, generator=generator))
        model.output.copy_(torch.randn(WORDS, WIDTH, generator=generator))
    return model


def batch_of(rows: int = 3, length: int = 5, wrong: int = 4, seed: int = 0) -> WordBatch:
    generator = np.random.default_rng(seed)
    words = generator.integers(1, WORDS, (rows, length + 2 * WINDOW))
    left, right = generator.integers(0, WINDOW + 1, (2, rows, length))
    labels = np.where(left + right > 0, words[:, WINDOW:-WINDOW], 0)
    fields = (labels, words, left, right, generator.integers(1, WORDS, (rows, wrong)))
    return WordBatch(*(torch.from_numpy(field.astype(np.int32)) for field in fields))


def loss_of(model: Cbow, batch: WordBatch, negatives: int = NEGATIVES) -> torch.Tensor:
    logits = model(batch.words_BS, batch.left_BT, batch.right_BT, batch.labels, batch.wrong_BK)
    return negative_sampling_loss(logits, batch.labels, batch.wrong_BK, negatives)


def slow(model: Cbow, batch: WordBatch) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss, and word2vec's change of both tables, word by word in double precision."""
    v, u = model.input.detach().double().numpy(), model.output.detach().double().numpy()
    loss, change_v, change_u = 0.0, np.zeros_like(v), np.zeros_like(u)
    labels, words, left, right, wrong = (tensor.numpy() for tensor in batch.tensors())
    for row in range(len(labels)):
        for place, word in enumerate(labels[row]):
            if word == 0:
                continue
            middle = place + WINDOW
            around = range(middle - left[row, place], middle + right[row, place] + 1)
            context = [words[row, other] for other in around if other != middle]
            h = np.mean([v[other] for other in context], axis=0)
            guesses = [(word, 1.0, 1.0)]
            guesses += [(other, 0.0, NEGATIVES / wrong.shape[1]) for other in wrong[row] if other != word]
            error = np.zeros(WIDTH)
            for other, truth, weight in guesses:
                probability = 1 / (1 + np.exp(-u[other] @ h))
                loss -= weight * np.log(probability if truth else 1 - probability)
                change_u[other] += weight * (probability - truth) * h
                error += weight * (probability - truth) * u[other]
            for other in context:
                change_v[other] += error  # whole, not divided by the size of the context
    return loss, change_v, change_u


def test_the_loss_and_the_update_are_those_of_word2vec_computed_word_by_word():
    model, batch = model_of(), batch_of()
    assert (batch.labels == 0).any()
    loss = loss_of(model, batch)
    loss.backward()
    expected, change_v, change_u = slow(model, batch)
    assert abs(loss.item() - expected) < 1e-4 * expected
    np.testing.assert_allclose(model.input.grad, change_v, atol=1e-4)
    np.testing.assert_allclose(model.output.grad, change_u, atol=1e-4)


def test_gradients_add_up_over_pieces_of_a_batch():
    whole, pieces, batch = model_of(), model_of(), batch_of(rows=4)
    loss_of(whole, batch).backward()
    for piece in batch.split(3):
        loss_of(pieces, piece).backward()
    torch.testing.assert_close(whole.input.grad, pieces.input.grad)
    torch.testing.assert_close(whole.output.grad, pieces.output.grad)


def test_the_gradient_of_the_output_table_is_exact():
    model, batch = model_of(), batch_of()
    loss_of(model, batch).backward()
    step = 1e-2
    for word, channel in [(1, 0), (5, 3), (11, 5)]:
        losses = []
        for sign in (1, -1):
            moved = model_of()
            with torch.no_grad():
                moved.output[word, channel] += sign * step
            losses.append(loss_of(moved, batch).item())
        assert abs((losses[0] - losses[1]) / (2 * step) - model.output.grad[word, channel].item()) < 5e-3


def test_a_new_model_knows_nothing():
    model = Cbow(WORDS, WIDTH, WINDOW)
    assert model.input.abs().max() <= 0.5 / WIDTH
    assert not model.output.any()
    batch = batch_of(wrong=3)
    right = int((batch.wrong_BK[:, None] == batch.labels[..., None]).sum())
    # Every guess is even: log 2 for the right word and for each wrong one.
    assert abs(loss_of(model, batch).item() - np.log(2) * (batch.targets * 4 - right)) < 1e-4


def test_words_of_one_family_become_neighbours():
    animals, tools = ["cat", "dog", "cow", "horse"], ["saw", "drill", "hammer", "chisel"]
    generator = np.random.default_rng(0)
    lines = []
    for _ in range(1500):
        family, verbs = [(animals, ["eats", "sleeps", "runs"]), (tools, ["cuts", "breaks", "bends"])][
            generator.integers(2)
        ]
        lines.append(f"the {generator.choice(family)} {generator.choice(verbs)} by the {generator.choice(family)}")
    text = "\n".join(lines)
    tokenizer = train_tokenizer([text], TokenizerSettings(kind="word", vocabulary=400))
    ids = np.array(tokenizer.encode([text])[0])
    lexicon = Lexicon.from_text(ids, tokenizer, minimum_count=5)
    stream = WordStream(ids, lexicon, EmbeddingSettings(words_per_batch=256, subsample=0.0), seed=1)
    torch.manual_seed(1)
    model = Cbow(len(lexicon), 16, window=5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _, (batch, _) in zip(range(300), stream.batches(DataState()), strict=False):
        (loss_of(model, batch, negatives=5) / batch.targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    vectors = WordVectors(lexicon.words[1:], model.input.detach().numpy()[1:])
    for family in (animals, tools):
        for word in family:
            assert {near for near, _ in vectors.nearest(word, 3)} == set(family) - {word}
