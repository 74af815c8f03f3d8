"""Is this revision as fast as an older one? Both train the same runs at the same time, each on one core.

    python -m benchmarks.revisions REVISION                     every case, REVISION against the working tree
    python -m benchmarks.revisions REVISION --only pong         one of: nchain, cartpole, lunarlander, pong

A round starts two processes, one of each revision, with one XLA thread and a core each, and swaps the cores in the
next round. The speed is that of a stretch of training after everything is compiled. The ratio is the geometric mean
over rounds, with Student's t interval of its logarithm: what a process does with its memory moves its speed by a few
per cent, so processes, not stretches within one, are the sample.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.equality import ONE_THREAD


@dataclass(frozen=True)
class Case:
    """A run, and the stretch of it that is timed."""

    agent: str
    env: str
    begin: int
    end: int
    options: dict[str, Any]


CASES = {
    "nchain": Case("pqr", "nchain", 10_000, 60_000, {"chunk": 5_000, "record_every": 60_000}),
    "cartpole": Case("pqr", "CartPole-v1", 1_500, 9_000, {"chunk": 500, "record_every": 9_000}),
    "lunarlander": Case(
        "qrdqn", "LunarLander-v3", 400, 2_400, {"chunk": 100, "record_every": 2_400, "start_steps": 200}
    ),
    "pong": Case(
        "qrdqn",
        "atari/Pong",
        300,
        1_100,
        {"chunk": 100, "record_every": 1_100, "start_steps": 200, "memory_size": 5000},
    ),
}


def measure(case: Case) -> float:
    """Steps per second of the timed stretch."""
    import tremble

    at: dict[int, float] = {}
    tremble.train(
        case.agent,
        case.env,
        steps=case.end,
        on_progress=lambda step, row: at.setdefault(step, time.perf_counter()),
        **case.options,
    )
    return (case.end - case.begin) / (at[case.end] - at[case.begin])


def start(source: Path, name: str, core: int) -> subprocess.Popen[str]:
    """Measure with the package in ``source``, in a process of its own on one core."""
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": f"{source}:{Path(__file__).resolve().parents[1]}"}
    command = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.revisions", "--measure", name]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def compare(name: str, before: Path, now: Path, rounds: int) -> dict[str, Any]:
    """Speeds of both revisions round by round, and the interval of their ratio."""
    speeds: list[tuple[float, float]] = []
    for k in range(rounds):
        pair = [start(source, name, (i + k) % 2) for i, source in enumerate((before, now))]
        answers = [process.communicate()[0] for process in pair]
        if any(process.returncode for process in pair):
            sys.exit(f"{name}: a run failed")
        old, new = (float(json.loads(answer.splitlines()[-1])) for answer in answers)
        speeds.append((old, new))
        print(f"{name}, round {k + 1}: {old:,.0f} and {new:,.0f} steps/s", file=sys.stderr, flush=True)
    logs = np.log([new / old for old, new in speeds])
    half = float(stats.t.ppf(0.975, rounds - 1) * logs.std(ddof=1) / np.sqrt(rounds))
    ratio, low, high = (float(np.exp(logs.mean() + x)) for x in (0.0, -half, half))
    return {"case": name, "ratio": ratio, "low": low, "high": high, "speeds": speeds}


def main() -> None:
    """Measure, and print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="a commit, tag or branch")
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--rounds", type=int, default=8, help="pairs of processes per case (8)")
    parser.add_argument("--measure", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(CASES[options.measure])))
        return
    if not options.revision or options.rounds < 2:
        parser.error("give a revision, such as HEAD~10, and at least two rounds")
    root = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", options.revision, "src"], cwd=root, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        for name in [options.only] if options.only else CASES:
            found = compare(name, Path(folder) / "src", root / "src", options.rounds)
            print("{case:12} {ratio:.3f} times as fast [{low:.3f}, {high:.3f}]".format(**found), flush=True)


if __name__ == "__main__":
    main()
