"""A million steps: do memory, open files and threads stay flat?

    python -m tests.soak --out docs/results/soak      both runs, a figure and a table; half an hour on one core
    python -m tests.soak --steps 20000                a short look

Two runs with rows, episodes, evaluations and checkpoints as usual: one beside Gymnasium and one inside XLA. Each is
sampled a few hundred times. Replay is full after a twentieth of the run, so what grows after that is a leak, or what a
run keeps on purpose: its episodes and rows, and inside XLA a log of every step of N-Chain (`Run.log`).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SMALL = {"n_quantiles": 16, "widths": [32], "batch_size": 16, "start_steps": 500}


@dataclass(frozen=True)
class Case:
    """A run of the soak."""

    agent: str
    env: str
    options: dict[str, Any]


CASES = {
    "gymnasium": Case("pqr", "CartPole-v1", {"update_interval": 4, "prioritised": True, "n_step": 3, "n_envs": 2}),
    "xla": Case("pqr", "nchain", {}),
}


def sample() -> dict[str, int]:
    """Resident memory in bytes, open file descriptors and threads of this process, as Linux counts them."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    tasks = len(os.listdir("/proc/self/task"))
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "handles": len(os.listdir("/proc/self/fd")),
        "threads": tasks,
        "python_threads": threading.active_count(),
    }


def soak(case: Case, steps: int) -> None:
    """Train, and print a JSON line per sample."""
    import tremble

    chunk = max(steps // 400, 1)
    begin = time.monotonic()

    def show(step: int, row: dict[str, Any]) -> None:
        if step % chunk == 0:
            seconds = round(time.monotonic() - begin, 1)
            print(json.dumps({"step": step, "seconds": seconds, **sample()}), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        tremble.train(
            case.agent,
            case.env,
            steps=steps,
            hyperparameters="control",
            out=folder,
            chunk=chunk,
            record_every=max(steps // 500, 1),
            checkpoint_every=max(steps // 50, 1),
            evaluate_every=max(steps // 50, 1),
            evaluate_episodes=2,
            memory_size=max(steps // 20, 100),
            on_progress=show,
            **SMALL,
            **case.options,
        )


def run_apart(name: str, steps: int) -> list[dict[str, float]]:
    """A case in a process of its own with one thread."""
    environment = {**os.environ, "NPROC": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.soak", "--child", name, "--steps", str(steps)]
    process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


def slope(rows: list[dict[str, float]], name: str) -> float:
    """Growth per million steps, by least squares over the last four fifths of a run."""
    later = rows[len(rows) // 5 :]
    x = np.array([row["step"] for row in later]) / 1e6
    y = np.array([row[name] for row in later])
    return float(np.polyfit(x, y, 1)[0])


def report(found: dict[str, list[dict[str, float]]], steps: int, out: Path) -> str:
    """Write figure and data; the table in markdown."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    panels = (("memory", "resident memory, MiB", 2**20), ("handles", "open files", 1), ("threads", "threads", 1))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), constrained_layout=True)
    for axis, (name, label, unit) in zip(axes, panels, strict=True):
        for case, rows in found.items():
            axis.plot([r["step"] / 1e6 for r in rows], [r[name] / unit for r in rows], label=_title(case), lw=1.2)
        axis.set(xlabel="million steps", ylabel=label, ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(out / "soak.png", dpi=150)
    with open(out / "soak.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["run", *next(iter(found.values()))[0]])
        for case, rows in found.items():
            table.writerows([case, *row.values()] for row in rows)
    lines = [
        f"# {steps:,} steps: memory, open files, threads\n",
        f"Written by `python -m tests.soak --steps {steps} --out {out}`. Growth is a least-squares slope over the last "
        "four fifths of a run.\n",
        "![memory, open files and threads](soak.png)\n",
        "| run | memory at a fifth, MiB | at the end, MiB | growth per million steps, MiB | open files | threads |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for case, rows in found.items():
        fifth, last = rows[len(rows) // 5], rows[-1]
        several = [f"{min(r[n] for r in rows):.0f} to {max(r[n] for r in rows):.0f}" for n in ("handles", "threads")]
        cells = [f"{x / 2**20:,.0f}" for x in (fifth["memory"], last["memory"], slope(rows, "memory"))]
        lines.append(f"| {_title(case)} | {' | '.join([*cells, *several])} |")
    return "\n".join(lines) + "\n"


def _title(name: str) -> str:
    case = CASES[name]
    extra = ", ".join(f"{k}={v}" for k, v in case.options.items())
    return f"{case.agent} on {case.env}" + (f" ({extra})" if extra else "")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--only", choices=CASES, help="one of the runs")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--child", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        soak(CASES[options.child], options.steps)
        return
    names = [options.only] if options.only else list(CASES)
    text = report({name: run_apart(name, options.steps) for name in names}, options.steps, options.out)
    (options.out / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
