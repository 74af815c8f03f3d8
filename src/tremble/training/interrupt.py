"""Ctrl-C and SIGTERM take effect between steps, so that nothing computed is lost.

Python runs signal handlers between two bytecodes, so not while XLA computes or compiles. The handler in C writes the
signal's number into a pipe at once (`signal.set_wakeup_fd`), and a thread that reads the pipe acknowledges it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ACKNOWLEDGED = {
    signal.SIGINT: "interrupted: the run ends after the step or compiled call under way, and is saved; "
    "Ctrl-C once more ends it now",
    signal.SIGTERM: "terminated: the run ends after the step or compiled call under way, and is saved",
}
end_now: Callable[[signal.Signals], None] | None = None
"""What a second signal does at once, in a thread. A program that owns its process sets it and ends the process, which
leaves a run as SIGKILL does; None raises in the main thread as soon as XLA returns."""


@contextmanager
def deferred_signals(notify: Callable[[str], None]) -> Iterator[Callable[[], signal.Signals | None]]:
    """Defer the first signal: the yielded function returns it once it came, and ``notify`` is told in a thread.

    At the end of the block it takes effect: KeyboardInterrupt, or an exit (`stopped_by`). Signals that the program
    ignores stay ignored.

    A second signal ends the program (`end_now`) or raises, wherever the program is. What was made since the last
    checkpoint is then not saved, because the state may be in the middle of a step; the run continues from there.
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
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    listener = threading.Thread(target=_listen, args=(reader, notify), name="tremble-signals", daemon=True)
    listener.start()
    heard = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, note) for number in heard}
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield lambda: asked
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writer)  # the listener reads the end of the pipe
        listener.join()
    if asked is not None:
        raise stopped_by(asked)


def _listen(reader: int, notify: Callable[[str], None]) -> None:
    """Acknowledge the first signal in the pipe, and end the process at the second if it is to end at once."""
    seen = 0
    with open(reader, "rb", buffering=0) as pipe:
        while numbers := pipe.read(64):
            for number in numbers:
                if number not in SIGNALS:
                    continue
                seen += 1
                if seen == 1:
                    notify(ACKNOWLEDGED[signal.Signals(number)])
                elif end_now is not None:
                    end_now(signal.Signals(number))


def stopped_by(number: signal.Signals) -> BaseException:
    """What to raise for a signal: KeyboardInterrupt, or an exit with code 128 + its number, as shells expect."""
    return KeyboardInterrupt() if number is signal.SIGINT else SystemExit(128 + number)
