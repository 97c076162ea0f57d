"""The command line. Thin: each verb reads its options and calls the package; nothing heavy is imported
before a verb runs, so help is quick.
"""

# Each module adds its verb; help lists them in this order.
from regard.cli import demo  # isort: split

from regard.cli import train  # isort: split

from regard.cli import compare  # isort: split

from regard.cli import doctor  # isort: split

from regard.cli import evaluate  # isort: split

from regard.cli import translate  # isort: split

from regard.cli import generate  # isort: split

from regard.cli import fill  # isort: split

from regard.cli import classify  # isort: split

from regard.cli import explain  # isort: split

from regard.cli import probe  # isort: split

from regard.cli import embeddings  # isort: split

from regard.cli import tokenize  # isort: split

from regard.cli import markov  # isort: split

from regard.cli import bench  # isort: split

from regard.cli.app import main

__all__ = [
    "bench",
    "classify",
    "compare",
    "demo",
    "doctor",
    "embeddings",
    "evaluate",
    "explain",
    "fill",
    "generate",
    "main",
    "markov",
    "probe",
    "tokenize",
    "train",
    "translate",
]
