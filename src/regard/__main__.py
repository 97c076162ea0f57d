"""The command: `regard`, or `python -m regard`."""

import signal


def command() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in the middle of an import: no traceback
    from regard.cli import script

    script()


if __name__ == "__main__":
    command()
