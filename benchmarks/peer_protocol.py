"""What a contender in an environment of its own says: one line of JSON for every line it reads.

First facts, once it is warm; then for each line the steps, start, end and processor time of a turn (`Elsewhere`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def serve(build: Callable[..., tuple[Callable[[], int], dict[str, Any]]]) -> None:
    """Build from the options on the command line, say the facts, then make a turn for every line.

    ``build`` returns what makes a turn and counts its steps, and the facts.
    """
    options = json.loads(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever the library prints is not an answer
    run, facts = build(**options)

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    answer(facts)
    for _ in sys.stdin:
        start, cpu = time.monotonic(), time.process_time()
        units = run()
        answer([units, start, time.monotonic(), time.process_time() - cpu])


def require_learning(run: Callable[[], int], parameters: Callable[[], list[np.ndarray]]) -> None:
    """Make a turn, and fail if it leaves an array of parameters as it was."""
    before = [np.array(x) for x in parameters()]
    run()
    if any(np.array_equal(a, b) for a, b in zip(before, parameters(), strict=True)):
        raise RuntimeError("updates left parameters as they were")
