"""Ctrl-C in a command: an exception while it runs, and the end of the process where that would take too long."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tremble.cli.console import console
from tremble.training import interrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, also where a library turned it into another exception on its way.

    A command that defers signals (training) is ended at once by a second one, without unwinding: an exception in the
    middle of XLA's work may crash the interpreter, and what is on disk is complete at every moment.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before, interrupt.end_now = signal.signal(signal.SIGINT, note), _leave
    try:
        yield
    except Exception as error:
        if pressed:  # an import of a compiled module, for example, reports the exception as its own
            raise KeyboardInterrupt from error
        raise
    finally:
        interrupt.end_now = None
        signal.signal(signal.SIGINT, before)


def _leave(number: signal.Signals) -> None:
    """End the process: its children too, the cursor shown, the exit code that shells expect."""
    console.show_cursor(True)
    console.print("\n[yellow]ended at once.[/] Repeat the command to continue from the last checkpoint.")
    sys.stdout.flush()
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(128 + number)
