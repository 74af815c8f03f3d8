"""Ctrl-C and SIGTERM take effect between steps, so that nothing computed is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_signals() -> Iterator[Callable[[], signal.Signals | None]]:
    """Defer the first signal: the yielded function returns it once it came.

    A second signal raises at once, wherever the program is. What was made since the last checkpoint is then not saved,
    because the state may be in the middle of a step; the run continues from that checkpoint.
    """
    asked: signal.Signals | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked is not None:
            raise stopped_by(signal.Signals(number))
        asked = signal.Signals(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # signals belong to the main thread
        return
    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped_by(number: signal.Signals) -> BaseException:
    """What to raise for a signal: KeyboardInterrupt, or an exit with code 128 + its number, as shells expect."""
    return KeyboardInterrupt() if number is signal.SIGINT else SystemExit(128 + number)
