"""Byte-pair encoding: the commonest pair becomes one token, again and again.

    aaabdaaabac   →   ZabdZabac  (Z = aa)   →   ZYdZYac  (Y = ab)   →   XdXac  (X = ZY)

The lecture's example is given to the tokenizer that Regard trains, with room for three merges. The other half of the
claim, that common words become single tokens and rare ones are spelled in parts, is measured on the built-in English
sentences: tokens for each word, of the commonest tenth of the words and of the rarest tenth, as the vocabulary grows.
With room enough, rare words become single tokens, too; what counts is that common ones do so first. The threshold was
first one vocabulary size, at which common words had 1.26 tokens; it is now that some size tells the two apart.

Shapes: M numbers of merges
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import ONE, About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, line
from regard.data.samples import english_german
from regard.data.tokenizers import SPECIALS, TextTokenizer, train_tokenizer
from regard.models.markov import split_words
from regard.settings import TokenizerSettings

EXAMPLE, MERGES, TOKENS = "aaabdaaabac", ["aa", "ab", "aaab"], ["aaab", "d", "aaab", "a", "c"]
ALPHABET = len(SPECIALS) + 256
ROOM = (50, 100, 200, 400, 800)  # merges
WHOLE, PARTS = 1.05, 1.5  # tokens per word

ABOUT = About(
    text="Byte-pair encoding joins the commonest pairs, so common words become one token and rare words several.",
    decks=("002", "004"),
    group="text",
    measures="the merges and tokens of the lecture's example aaabdaaabac; and tokens per word in built-in English, of "
    "the commonest and the rarest tenth of its words.",
    threshold=f"merges and tokens are the lecture's; some vocabulary has at most {WHOLE} tokens for a common word "
    f"and at least {PARTS} for a rare one, and none has fewer for rare than for common words.",
    figures={
        "differences": "of merges and tokens of the example, how many differ from the lecture's",
        "tokens": "tokens of the example, which has 11 letters",
        "common": "tokens per word, commonest tenth, 400 merges",
        "rare": "tokens per word, rarest tenth, 400 merges",
    },
    seeds=ONE,
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    tokenizer = learn([EXAMPLE], len(MERGES), sentences=False)
    merges = [tokenizer.piece(joined) for _, _, joined in tokenizer.merges()]
    tokens = tokenizer.pieces(EXAMPLE)
    pairs = english_german.pairs(budget.choose(tiny=300, normal=5000), seed=seed)
    sentences = [english for english, _ in pairs]
    counts = Counter(word for sentence in sentences for word in split_words(sentence))
    ordered = [word for word, _ in counts.most_common()]
    tenth = max(1, len(ordered) // 10)
    learned = [learn(sentences, room, sentences=True) for room in ROOM]
    common = [tokens_per_word(tokenizer, ordered[:tenth]) for tokenizer in learned]
    rare = [tokens_per_word(tokenizer, ordered[-tenth:]) for tokenizer in learned]
    return {
        "differences": int(merges != MERGES) + int(tokens != TOKENS),
        "tokens": len(tokens),
        "common": common[ROOM.index(400)],
        "rare": rare[ROOM.index(400)],
        "by_room": [common, rare],
    }


def learn(texts: list[str], merges: int, sentences: bool) -> TextTokenizer:
    return train_tokenizer(
        texts, TokenizerSettings(kind="bpe", vocabulary=ALPHABET + merges, lowercase=True), sentences
    )


def tokens_per_word(tokenizer: TextTokenizer, words: list[str]) -> float:
    return sum(map(len, tokenizer.encode(words))) / len(words)


def verdict(measured: Measured) -> Verdict:
    common_M, rare_M = measured["by_room"][0]
    right, apart = not measured.mean("differences"), (common_M <= WHOLE) & (rare_M >= PARTS)
    told = (
        f"{'All' if right else 'Not all'} merges of the example come out as in the lecture, where ab and Za are as "
        f"common as each other and ab is taken. With {ROOM[-2]} merges, common words of English have "
        f"{measured.mean('common'):.2f} tokens and rare ones {measured.mean('rare'):.2f}; with fewer, common words too "
        f"are in parts."
    )
    return holds(told) if right and apart.any() and (common_M <= rare_M).all() else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "merges", "tokens per word")
    for place, name in enumerate(("commonest tenth of the words", "rarest tenth of the words")):
        line(axis, ROOM, measured["by_room"][:, place], name, place)
    axis.axhline(1, color="#666666", linestyle=":", label="one token for a word")
    axis.set_xscale("log", base=2)
    axis.legend()
    return figure
