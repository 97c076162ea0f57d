"""Are the word vectors as good as gensim's, and how fast are they made?

    pip install --target DIR gensim
    PYTHONPATH=DIR python benchmarks/cbow.py --reviews imdb/train.jsonl.gz

Both learn from the same text with the same settings (width 100, window 5, 5 negatives, subsample 1e-3, words seen 5
times, two threads), in turn. Speed counts the words of the text that get a vector, those left out by
subsampling too, over the time of training alone. Quality is the share of gensim's 10 nearest words that are
also among the 10 nearest here, for the words of rank 100 to 1,100 (three letters or more); beside it, the same
between two runs of gensim and two of Regard. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import json
import re
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

import regard
from regard import console
from regard.data.batch import DataState
from regard.data.word_vectors import WordVectors
from regard.hardware import Hardware
from regard.recipes import resolve
from regard.recipes.writing import to_toml
from regard.tasks.embeddings import Embeddings, EmbeddingsTaskSettings
from regard.training.folder import RunFolder

NEIGHBOURS = 10


def prepare(reviews: Path, path: Path, share: float) -> int:
    """One review a line, words in small letters. How many words."""
    with gzip.open(reviews, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"].replace("<br />", " ").lower() for line in file]
    # Spread over the whole file, which is sorted by label.
    chosen = texts[:: max(1, round(1 / share))]
    lines = [re.findall(r"[^\W_]+", text) for text in chosen]
    path.write_text("".join(" ".join(words) + "\n" for words in lines), encoding="utf-8")
    return sum(map(len, lines))


def train_gensim(text: Path, epochs: int, seed: int) -> tuple[WordVectors, float, float]:
    """Vectors, words per second, seconds."""
    from gensim.models import Word2Vec

    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    model = Word2Vec(
        vector_size=100, window=5, negative=5, sample=1e-3, min_count=5, sg=0, cbow_mean=1, workers=2, seed=seed
    )
    model.build_vocab(sentences)
    words = sum(model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key)
    started = time.perf_counter()
    model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
    seconds = time.perf_counter() - started
    return WordVectors(list(model.wv.index_to_key), np.asarray(model.wv.vectors)), words * epochs / seconds, seconds


def train_regard(text: Path, epochs: int, seed: int, overrides: list[str]) -> tuple[WordVectors, float, float]:
    """Vectors, words per second, seconds."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"data.root={json.dumps(str(text.parent))}", f"data.cache={json.dumps(folder)}", f"seed={seed}"]
        settings += ["tokenizer.vocabulary=60000", *overrides]
        words, guesses, steps = one_epoch(resolve("words", settings), Path(folder, "look"))
        steps *= epochs
        once = [f"training.{name}={steps}" for name in ("steps", "validate_every", "log_every")]
        run = RunFolder(regard.train("words", *settings, *once, out=Path(folder, "trained")))
        # Of the updates alone, with the making of their batches, without validating and saving.
        speed = run.read_metrics()[0]["words_per_second"]
        seconds = guesses * epochs / speed
        return WordVectors.read(run.path / "vectors.txt"), words * epochs / seconds, seconds


def one_epoch(settings: EmbeddingsTaskSettings, path: Path) -> tuple[int, int, int]:
    """The words of the text, how many of them are guessed in an epoch, and the updates that takes."""
    task = Embeddings(settings, RunFolder.create(path, to_toml(settings)), Hardware.choose(settings.system))
    task.prepare()
    epoch = itertools.takewhile(lambda item: not item[1].epoch, task.stream.batches(DataState()))
    guesses = [batch.targets for batch, _ in epoch]
    return int(task.lexicon.counts.sum()), sum(guesses), len(guesses)


def overlap(one: WordVectors, other: WordVectors, words: list[str]) -> float:
    """The share of the nearest words of `one` that are also the nearest in `other`."""
    shared = [
        len({near for near, _ in one.nearest(word, NEIGHBOURS)} & {near for near, _ in other.nearest(word, NEIGHBOURS)})
        for word in words
    ]
    return sum(shared) / (NEIGHBOURS * len(words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviews", type=Path, required=True, help="a .jsonl.gz with a field 'text'")
    parser.add_argument("--share", type=float, default=1.0, help="of the reviews")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", help="changes of the recipe, such as embeddings.words_per_batch=4096")
    options = parser.parse_args()
    if importlib.util.find_spec("gensim") is None:
        raise SystemExit(
            "gensim is not installed: pip install gensim (into a folder of its own: --target DIR, PYTHONPATH=DIR)"
        )
    console.be_quiet(True)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        print(f"{prepare(options.reviews, text, options.share):,} words, {options.epochs} epochs")
        found: dict[str, list[tuple[WordVectors, float, float]]] = {"gensim": [], "regard": []}
        print(f"{'round':>5}  {'gensim words/s':>15}  {'regard words/s':>15}")
        for turn in range(options.rounds):
            found["gensim"].append(train_gensim(text, options.epochs, seed=turn + 1))
            found["regard"].append(train_regard(text, options.epochs, turn + 1, options.overrides))
            print(f"{turn + 1:>5}  {found['gensim'][-1][1]:>15,.0f}  {found['regard'][-1][1]:>15,.0f}", flush=True)
    gensim, ours = ([vectors for vectors, _, _ in found[name]] for name in ("gensim", "regard"))
    words = [word for word in gensim[0].words[100:1100] if len(word) >= 3 and all(word in other for other in ours)]
    overlaps = {"gensim and regard": float(np.mean([overlap(*pair, words) for pair in zip(gensim, ours, strict=True)]))}
    if options.rounds > 1:
        overlaps["gensim and gensim"] = overlap(gensim[0], gensim[1], words)
        overlaps["regard and regard"] = overlap(ours[0], ours[1], words)
    for name, share in overlaps.items():
        print(f"{name:<20} {share:.1%} of the {NEIGHBOURS} nearest words of {len(words):,} words")
    speeds = {name: median(speed for _, speed, _ in rounds) for name, rounds in found.items()}
    print(json.dumps({"words_per_second": speeds, "ratio": speeds["regard"] / speeds["gensim"], "overlap": overlaps}))


if __name__ == "__main__":
    main()
