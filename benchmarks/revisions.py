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
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.equality import ONE_THREAD, ROOT, unpack


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


def measure(case: Case) -> dict[str, float]:
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
    return {"speed": (case.end - case.begin) / (at[case.end] - at[case.begin])}


@dataclass(frozen=True)
class Pairs:
    """What a program times in pairs of processes, one of each revision."""

    module: str
    """The program, which measures one case when it is called with ``--measure CASE``."""
    cases: Mapping[str, Any]
    measure: Callable[[Any], dict[str, float]]
    """``speed``, and whatever else is worth knowing."""
    unit: str

    def start(self, source: Path, name: str, core: int) -> subprocess.Popen[str]:
        """Measure with the package in ``source``, in a process of its own on one core."""
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": f"{source}:{ROOT}"}
        command = ["taskset", "-c", str(core), sys.executable, "-m", self.module, "--measure", name]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def compare(self, name: str, before: Path, now: Path, rounds: int) -> dict[str, Any]:
        """Answers of both revisions round by round, and the interval of the ratio of their speeds."""
        answers: list[tuple[dict[str, float], dict[str, float]]] = []
        for k in range(rounds):
            pair = [self.start(source, name, (i + k) % 2) for i, source in enumerate((before, now))]
            said = [process.communicate()[0] for process in pair]
            if any(process.returncode for process in pair):
                sys.exit(f"{name}: a run failed")
            old, new = (json.loads(text.splitlines()[-1]) for text in said)
            answers.append((old, new))
            speeds = f"{old['speed']:,.0f} and {new['speed']:,.0f} {self.unit}"
            print(f"{name}, round {k + 1}: {speeds}", file=sys.stderr, flush=True)
        logs = np.log([new["speed"] / old["speed"] for old, new in answers])
        half = float(stats.t.ppf(0.975, rounds - 1) * logs.std(ddof=1) / np.sqrt(rounds))
        ratio, low, high = (float(np.exp(logs.mean() + x)) for x in (0.0, -half, half))
        return {"case": name, "ratio": ratio, "low": low, "high": high, "answers": answers}

    def main(self, about: str | None, more: Callable[[dict[str, Any]], str] = lambda found: "") -> None:
        """The command line: measure, and print a line per case, which ends with ``more`` about what was found."""
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("revision", nargs="?", help="a commit, tag or branch")
        parser.add_argument("--only", choices=self.cases, help="one case")
        parser.add_argument("--rounds", type=int, default=8, help="pairs of processes per case (8)")
        parser.add_argument("--measure", choices=self.cases, help=argparse.SUPPRESS)
        options = parser.parse_args()
        if options.measure:
            print(json.dumps(self.measure(self.cases[options.measure])))
            return
        if not options.revision or options.rounds < 2:
            parser.error("give a revision, such as HEAD~10, and at least two rounds")
        width = max(map(len, self.cases)) + 1
        with tempfile.TemporaryDirectory() as folder:
            before = unpack(options.revision, Path(folder))
            for name in [options.only] if options.only else self.cases:
                found = self.compare(name, before, ROOT / "src", options.rounds)
                ratio = "{ratio:.3f} times as fast [{low:.3f}, {high:.3f}]".format(**found)
                print(f"{name:{width}} {ratio}{more(found)}", flush=True)


if __name__ == "__main__":
    Pairs("benchmarks.revisions", CASES, measure, "steps/s").main(__doc__)
