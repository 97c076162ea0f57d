"""The command line. Thin: each verb reads its options and calls the package; nothing heavy is imported
before a verb runs, so help is quick.
"""

from regard.cli import looking, training, using  # each adds its verbs
from regard.cli.app import main

__all__ = ["looking", "main", "training", "using"]
