"""Entry point of the command `tremble`: a module of its own, so that Ctrl-C during the imports ends it quietly."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the library and run the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback from the middle of an import
    from tremble.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
