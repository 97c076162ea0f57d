"""Small corpora of numbered samples, and a way to read them back from batches."""

from __future__ import annotations

import numpy as np
import torch

from regard.data.batch import Batch
from regard.data.image_cache import Images
from regard.data.labelled_batches import LabelledBatch
from regard.data.pair_batches import PairBatch
from regard.data.ragged import Ragged
from regard.data.tokenised import TokenisedPairs, TokenisedTexts
from regard.data.tokenizers import END, START

Sentence = tuple[int, ...]
Pairs = list[tuple[Sentence, Sentence]]
Labelled = list[tuple[Sentence, int]]


def equal(left: Batch, right: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.tensors(), right.tensors(), strict=True))


def ragged(rows: list[Sentence] | list[list[int]]) -> Ragged:
    return Ragged(np.array([token for row in rows for token in row], np.uint16), np.cumsum([0, *map(len, rows)]))


def random_pairs(count: int, seed: int = 1, longest: int = 31) -> Pairs:
    """Pairs of random ids. The first two tokens of both sides are the pair's number, so no two are alike."""
    generator = np.random.default_rng(seed)
    pairs = []
    for number in range(count):
        sides = (generator.integers(3, 500, generator.integers(0, longest - 1)).tolist() for _ in range(2))
        pairs.append(tuple((10 + number // 100, 10 + number % 100, *side) for side in sides))
    return pairs


def tokenised_pairs(pairs: Pairs) -> TokenisedPairs:
    return TokenisedPairs(ragged([source for source, _ in pairs]), ragged([target for _, target in pairs]))


def unpack_pairs(batch: PairBatch) -> Pairs:
    """The pairs of a batch, row by row, segment by segment, read from the segments alone."""
    pairs = []
    for row in range(len(batch.source_BS)):
        segments = int(batch.source_segments_BS[row].max())
        assert segments == int(batch.target_segments_BT[row].max())
        for segment in range(1, segments + 1):
            source = batch.source_BS[row][batch.source_segments_BS[row] == segment].tolist()
            target = batch.labels[row][batch.target_segments_BT[row] == segment].tolist()
            assert source[-1] == target[-1] == END
            pairs.append((tuple(source[:-1]), tuple(target[:-1])))
    return pairs


def random_texts(count: int, seed: int = 1, longest: int = 14) -> Labelled:
    """Texts of random ids and classes, numbered in the same way."""
    generator = np.random.default_rng(seed)
    return [
        (
            (10 + number // 100, 10 + number % 100, *generator.integers(3, 500, generator.integers(0, longest - 1))),
            int(generator.integers(7)),
        )
        for number in range(count)
    ]


def tokenised_texts(texts: Labelled) -> TokenisedTexts:
    return TokenisedTexts(ragged([text for text, _ in texts]), np.array([label for _, label in texts], np.int64))


def unpack_texts(batch: LabelledBatch) -> Labelled:
    """The texts of a batch with their classes, each of which stands at the first or the last of its positions."""
    texts = []
    for tokens, segments, labels in zip(batch.tokens_BT, batch.segments_BT, batch.labels, strict=True):
        for segment in range(1, int(segments.max()) + 1):
            framed, classes = tokens[segments == segment].tolist(), labels[segments == segment].tolist()
            assert (framed[0], framed[-1]) == (START, END)
            [label] = [label for label in classes if label != batch.nothing]
            texts.append((tuple(framed[1:-1]), label))
    return texts


def numbered_images(count: int, height: int = 2, width: int = 3) -> Images:
    """Image n has the label n, and all its pixels are n, but the first, which is 255."""
    pixels = np.broadcast_to(np.arange(count)[:, None, None, None], (count, height, width, 1)).astype(np.uint8)
    pixels[:, 0, 0] = 255
    return Images(pixels, np.arange(count), [str(number) for number in range(count)])


def zipf_text(lines: int = 400, length: int = 25, words: int = 200, seed: int = 0) -> str:
    """Lines of words whose frequencies fall as in a language."""
    generator = np.random.default_rng(seed)
    shares = 1 / np.arange(1, words + 1)
    drawn = generator.choice(words, (lines, length), p=shares / shares.sum())
    return "\n".join(" ".join(f"w{word}" for word in line) for line in drawn)
