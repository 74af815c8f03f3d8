"""Progress of a run: a bar on a terminal, plain lines in files and pipes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tremble import escape
from tremble.cli.console import console

SECONDS = 10.0
"""Between two plain lines."""
NUMBERS = ("reward_per_episode", "return", "evaluation", "loss", "delta", "coefficient", "epsilon")
"""Of a row of metrics, those that are shown."""
Show = Callable[[int, dict[str, Any]], None]


class Speed:
    """Steps per second since the first call, which comes after the first compilation."""

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self._begin: tuple[float, int] | None = None

    def __call__(self, step: int) -> float | None:
        """The speed at a step; None where nothing can be said yet."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = (now, step)
        seconds, steps = now - self._begin[0], step - self._begin[1]
        return steps / seconds if steps and seconds else None


def describe(row: dict[str, Any], speed: float | None) -> str:
    """Speed and numbers of a row, those that exist: ``3,100 steps/s  return 21.5  loss 0.12``."""
    parts = [] if speed is None else [f"{speed:,.0f} steps/s"]
    names = NUMBERS if console.width >= 100 or not console.is_terminal else NUMBERS[:3]
    return "  ".join(parts + [f"{name} {row[name]:.3g}" for name in names if row.get(name)])


@contextmanager
def shown_progress(title: str, steps: int) -> Iterator[Show]:
    """Show progress on the console; the function that is yielded takes the step and the newest row of metrics."""
    speed = Speed()
    if not console.is_terminal:
        yield _lines(steps, speed)
        return
    columns = (
        TextColumn(escape.console(title)),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("train", total=steps, note="compiling")
        moved = False

        def show(step: int, row: dict[str, Any]) -> None:
            nonlocal moved
            moved = True
            progress.update(bar, completed=step, note=describe(row, speed(step)))

        try:
            yield show
        except BaseException:
            progress.live.transient = not moved  # a bar that never moved would only hide the message
            raise


def _lines(steps: int, speed: Speed) -> Show:
    """A line for the first row, one every few seconds, and one at the end."""
    newest = float("-inf")

    def show(step: int, row: dict[str, Any]) -> None:
        nonlocal newest
        rate, now = speed(step), time.monotonic()
        if now - newest < SECONDS and step < steps:
            return
        newest = now
        left = f"  {timedelta(seconds=round((steps - step) / rate))} left" if rate and step < steps else ""
        line = f"step {step:,} of {steps:,} ({step / steps:.0%})  {describe(row, rate)}{left}"
        console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)

    return show
