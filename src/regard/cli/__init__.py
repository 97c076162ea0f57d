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

from regard.cli import summarize  # isort: split

from regard.cli import generate  # isort: split

from regard.cli import chat  # isort: split

from regard.cli import fill  # isort: split

from regard.cli import classify  # isort: split

from regard.cli import play  # isort: split

from regard.cli import answer  # isort: split

from regard.cli import caption  # isort: split

from regard.cli import detect  # isort: split

from regard.cli import segment  # isort: split

from regard.cli import explain  # isort: split

from regard.cli import explore  # isort: split

from regard.cli import probe  # isort: split

from regard.cli import embeddings  # isort: split

from regard.cli import tokenize  # isort: split

from regard.cli import markov  # isort: split

from regard.cli import bench  # isort: split

from regard.cli import reproduce  # isort: split

from regard.cli.app import main, script

__all__ = [
    "answer",
    "bench",
    "caption",
    "chat",
    "classify",
    "compare",
    "demo",
    "detect",
    "doctor",
    "embeddings",
    "evaluate",
    "explain",
    "explore",
    "fill",
    "generate",
    "main",
    "markov",
    "play",
    "probe",
    "reproduce",
    "script",
    "segment",
    "summarize",
    "tokenize",
    "train",
    "translate",
]
