"""A short measurement of one run: `python -m tremble.sweeps.measure`, with its settings on standard input.

The run is trained until it has learned for some seconds. Its speed is that of the steps with learning, after compiling;
its memory is what the process takes, and what replay will still take when it is full.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tremble.settings import override
from tremble.training.open_loop import open_loop
from tremble.training.run_directory import RunFiles
from tremble.training.spec import RunSpec

CHUNK = 100
"""Steps between two looks at the clock."""
MOST_WARM_UP_STEPS = 1_000
"""Learning starts at this step at the latest: the measurement does not wait for a large replay."""


@dataclass(frozen=True)
class Measurement:
    """What one run costs."""

    steps_per_second: float
    compile_seconds: float
    """Until the first steps with learning were made."""
    memory_bytes: int
    disk_bytes: int
    """Of its directory at its end, at most: two checkpoints, each with a full replay."""
    columns: list[str]
    """Of its metrics."""


def measure(spec: RunSpec, seconds: float) -> Measurement:
    """Train for some seconds and look."""
    agent = spec.build_agent()
    start = min(agent.learning.start_steps, MOST_WARM_UP_STEPS)
    agent = override(agent, {"learning.start_steps": start})
    spec = dataclasses.replace(spec, steps=max(spec.steps, 1000 * CHUNK))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, closing(open_loop(spec, agent, spec.env)) as loop:
        while loop.t <= start + CHUNK:
            loop.advance((loop.t // CHUNK + 1) * CHUNK)
        row, compiled, first = loop.record(), time.monotonic(), loop.t
        while (now := time.monotonic()) - compiled < seconds and loop.t < spec.steps:
            loop.advance((loop.t // CHUNK + 1) * CHUNK)
        speed = (loop.t - first) / max(now - compiled, 1e-9) if loop.t > first else CHUNK / (now - begun)
        files = RunFiles(Path(folder) / "run")
        files.save(loop, {})
        written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return Measurement(
            float(speed), compiled - begun, memory + loop.replay_bytes, 2 * (written + loop.replay_bytes), list(row)
        )


def main() -> None:
    """Read the settings of a run, answer with the measurement."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    sys.path.append(str(Path.cwd()))
    task: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps(dataclasses.asdict(measure(RunSpec(**task["spec"]), task["seconds"]))), file=channel, flush=True)


if __name__ == "__main__":
    main()
