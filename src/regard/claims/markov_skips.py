"""Second order with skips, and selective masking: what attention is, in counts.

    votes(next) = Σ over earlier words w of P(next | w … latest)          mask: only the w that tell something

After "check the program log and find out whether it ran", what follows depends on a word eight places back. A chain of
that order would need a table of vocabulary⁹ rows. With skips, every earlier word votes together with the latest; the
uninformative ones vote half and half. The deck says that crossing those out leaves just (battery, ran) and (program,
ran), and that this is attention.

Shapes: W words
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import ONE, About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import bars, chart
from regard.explain.markov import EXAMPLES
from regard.models.markov import Markov, split_words

LATEST, INFORMATIVE = "ran", {"battery", "program"}
RIGHT = {"program": "please", "battery": "down"}

ABOUT = About(
    text="Second-order features with skips see as far back as they must, and masking the uninformative ones makes the "
    "prediction certain: that is attention.",
    decks=("003",),
    group="before",
    measures="the probability of the right word after 'ran' in the deck's two sentences: from the latest word, from "
    "all votes, from the votes that are left after masking; and which votes are left.",
    threshold="only 'battery' and 'program' are left, the right word then has probability 1, with all votes more than "
    "half, and the votes are the product query · K ∘ present · transitions.",
    figures={
        "masked": "probability of the right word, masked votes",
        "votes": "probability of the right word, all votes",
        "latest": "probability of the right word, from the latest word alone",
        "wrongly_left": "votes left or crossed out against the deck",
        "product": "largest difference between the votes and the product of matrices",
    },
    seeds=ONE,
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    text = [split_words(sentence) for sentence in EXAMPLES[3]]
    skips, first = Markov.fit(text, "skip"), Markov.fit(text, "1")
    latest, votes, masked, wrongly, product = [], [], [], 0, 0.0
    for sentence in text:
        so_far = sentence[: sentence.index(LATEST) + 1]
        right = next(word for about, word in RIGHT.items() if about in so_far)
        latest.append(first.distribution(so_far)[right])
        votes.append(skips.distribution(so_far)[right])
        by_mask = skips.distribution(so_far, mask=True)
        masked.append(by_mask[right])
        written = skips.vote_table(so_far, mask=True)
        left = {word for word, vote in zip(written.words, written.attended_W, strict=True) if vote}
        wrongly += len(left ^ (INFORMATIVE & set(so_far)))
        shares_N = written.votes_N / written.votes_N.sum()
        expected_N = [by_mask.get(word, 0.0) for word in written.candidates]
        product = max(product, float(np.abs(shares_N - expected_N).max()))
    return {
        "masked": np.mean(masked),
        "votes": np.mean(votes),
        "latest": np.mean(latest),
        "wrongly_left": wrongly,
        "product": product,
    }


def verdict(measured: Measured) -> Verdict:
    masked, votes, latest, wrongly, product = (measured.mean(name) for name in ABOUT.figures)
    told = (
        f"The right word has {latest:.2f} from the latest word alone, {votes:.3f} from all votes (one informative vote "
        f"among eight or nine), and {masked:.2f} once the others are crossed out."
    )
    fits = wrongly == 0 and product < 1e-12
    return holds(told) if masked == 1 and latest < votes < 1 and fits else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, y="probability of the right word after 'ran'")
    names = ["latest word", "all votes", "masked votes"]
    bars(axis, names, [measured[name] for name in ("latest", "votes", "masked")])
    axis.set_ylim(0, 1.1)
    return figure
