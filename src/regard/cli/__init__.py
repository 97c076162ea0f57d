"""The command line. Thin: each verb reads its options and calls the package; nothing heavy is imported
before a verb runs, so help is quick.
"""

# Each module adds its verbs; help lists them in this order.
from regard.cli import training  # isort: split

from regard.cli import using  # isort: split

from regard.cli import looking  # isort: split

from regard.cli import measuring  # isort: split

from regard.cli.app import main

__all__ = ["looking", "main", "measuring", "training", "using"]
