"""A process that trains one run after another: `python -m tremble.training.worker`.

It reads tasks as JSON lines from standard input, ``{"id": ..., "spec": {...}, "out": path}``, and answers on standard
output with progress ``{"id": ..., "step": n}``, then ``{"id": ..., "done": true}`` or ``{"id": ..., "error": text}``.
Compiled programs are kept, so runs that differ in seeds and traced settings compile once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax

from tremble.training import checkpoint
from tremble.training.chunks import Record, iterate
from tremble.training.spec import RunSpec


def save_result(path: Path, spec: RunSpec, record: Record) -> None:
    """A finished run's log, snapshots and table, without its parameters."""
    meta = {"spec": dataclasses.asdict(spec), "settings": spec.describe(), "rows": record.rows}
    checkpoint.save(path, record.arrays(), meta)


def main() -> None:
    """Serve until standard input ends."""
    # The protocol has a descriptor of its own; anything a library prints goes to standard error.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    if cache := os.environ.get("TREMBLE_COMPILE_CACHE"):
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    for line in sys.stdin:
        task = json.loads(line)
        try:
            spec = RunSpec(**task["spec"])
            agent, env = spec.build()
            record = Record()
            for moment in iterate(agent, env, spec.seed, spec.steps, spec.record_every):
                record.add(moment)
                say({"id": task["id"], "step": moment.t})
            save_result(Path(task["out"]), spec, record)
            say({"id": task["id"], "done": True})
        except Exception as error:  # reported to the parent, which names the run and stops
            say({"id": task["id"], "error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
