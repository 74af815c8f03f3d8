"""Many processes claim many directories at once: none may be held by two at the same time."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

from tremble.training.lock import Claims, LockedError

HELD = "held-by"
"""File that exists while somebody is in the critical section."""


def contend(root: Path, directories: int, claims: int, seed: int, results: Any) -> None:
    """Claim random directories until so many claims succeeded; report how many, and who else was there meanwhile."""
    rng, mine, refused, twice = random.Random(seed), 0, 0, 0
    watching = Claims(lease=30.0)
    while mine < claims:
        directory = root / str(rng.randrange(directories))
        lock = watching.take(directory)
        if lock is None:
            refused += 1
            continue
        try:
            twice += not _alone(directory, lock)
        finally:
            lock.release()
        mine += 1
    results.put((mine, refused, twice))


def _alone(directory: Path, lock: Any) -> bool:
    """Enter and leave the critical section; whether nobody else was in it."""
    mark = directory / HELD
    try:
        file = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(file, str(os.getpid()).encode())
    os.close(file)
    time.sleep(random.random() * 1e-3)
    try:
        lock.check()
        alone = mark.read_text() == str(os.getpid())
    except (LockedError, OSError):
        alone = False
    mark.unlink(missing_ok=True)
    return alone


def race(root: Path, claims: int, processes: int = 8, directories: int = 64) -> dict[str, int]:
    """``claims`` successful ones in all: how many there were, how many were refused, and held by two at a time."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    each = -(-claims // processes)
    workers = [
        context.Process(target=contend, args=(root, directories, each, seed, results)) for seed in range(processes)
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    taken, refused, twice = (sum(numbers) for numbers in zip(*found, strict=True))
    return {"processes": processes, "directories": directories, "taken": taken, "refused": refused, "twice": twice}
