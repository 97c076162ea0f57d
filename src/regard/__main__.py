"""`python -m regard`."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in the middle of an import: no traceback

from regard.cli import script  # noqa: E402

script()
