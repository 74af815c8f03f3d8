"""Saying what goes on: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counting(console: Console, title: str, rounds: int) -> Iterator[Callable[[], None]]:
    """Count rounds; the block gets the function to call after each."""
    done = 0
    if console.is_terminal:
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(title, total=rounds)
            yield lambda: progress.advance(task)
        return

    def tick() -> None:
        nonlocal done
        done += 1
        if done == rounds or done % max(rounds // 4, 1) == 0:
            console.print(f"  {title}: {done} of {rounds} rounds")

    yield tick


@contextmanager
def waiting(console: Console, what: str) -> Iterator[None]:
    """Say what is being waited for."""
    if console.is_terminal:
        with console.status(f"  {what}"):
            yield
    else:
        console.print(f"  {what}")
        yield
