"""Do two revisions train the same runs? Compares parameters, actions and rewards bit for bit.

    python -m benchmarks.equality REVISION                  every case, REVISION against the working tree
    python -m benchmarks.equality REVISION --only pqr       cases whose name contains "pqr"

Both revisions run in processes of their own, with equal XLA flags and one thread: thread count and flags change bits.
Parameters are compared leaf by leaf in order, so fields may be renamed between the revisions, but not reordered.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
AGENTS = (
    "dqn",
    "c51",
    "qrdqn",
    "iqn",
    "fqf",
    "mmd",
    "rainbow",
    "quota",
    "bootstrapped_dqn",
    "ndqfn",
    "dltv",
    "p_dltv",
    "pqr",
)
START, UPDATES = 100, 300
ATARI = ("qrdqn", "rainbow", "pqr")
ATARI_START, ATARI_STEPS = 200, 600
CASES = [f"{agent}/{env}" for env in ("nchain", "cartpole", "minatar") for agent in AGENTS] + [
    f"{agent}/atari" for agent in ATARI
]
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    **{name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")},
}


def train(case: str) -> dict[str, np.ndarray]:
    """One run: every parameter, and the action and reward of every step."""
    import gymnasium
    import jax

    import tremble

    agent, env = case.split("/")
    steps: list[tuple[int, float]] = []

    class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            outcome = self.env.step(action)
            steps.append((int(action), float(outcome[1])))
            return outcome

    options: dict[str, Any] = {"steps": START + UPDATES, "start_steps": START}
    where: Any = {"nchain": "nchain", "minatar": "minatar/breakout"}.get(env)
    if env == "cartpole":
        where = lambda: Recorded(gymnasium.make("CartPole-v1"))  # noqa: E731
    elif env == "atari":
        where = "atari/Pong"
        options = {"steps": ATARI_STEPS, "start_steps": ATARI_START, "memory_size": 1000}
        emulate = _patch_emulator(steps)
    run = tremble.train(agent, where, **options)
    if env == "atari":
        emulate()
    if not steps and "action" in run.log:
        steps = list(zip(run.log["action"].tolist(), run.log["reward"].tolist(), strict=True))
    if not steps:  # MinAtar beside the loop keeps no log of steps: its episodes and metrics stand for them
        episodes = run.episode_rows if hasattr(run, "episode_rows") else run.episodes  # as older revisions call them
        steps = [(int(e["step"]), float(e["return"])) for e in episodes]
    leaves = [np.asarray(x) for x in jax.tree.leaves(run.agent.params)]
    return {f"leaf-{i:03d}": x for i, x in enumerate(leaves)} | {"steps": np.asarray(steps, np.float64).reshape(-1, 2)}


def _patch_emulator(steps: list[tuple[int, float]]) -> Any:
    """Write down what the emulator is told and what it answers, whatever stands around it."""
    import ale_py

    act = ale_py.ALEInterface.act

    def recorded(self: Any, action: Any, *rest: Any) -> Any:
        reward = act(self, action, *rest)
        steps.append((int(getattr(action, "value", action)), float(reward)))
        return reward

    ale_py.ALEInterface.act = recorded

    def undo() -> None:
        ale_py.ALEInterface.act = act

    return undo


def run_all(out: Path, only: str) -> None:
    """Train every case and write one file each; cases already there are left alone."""
    out.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        path = out / f"{case.replace('/', '-')}.npz"
        if only in case and not path.exists():
            begin = time.monotonic()
            np.savez(path, **train(case))
            print(f"{case}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def unpack(revision: str, folder: Path) -> Path:
    """The package as it was, put into a folder; what is to be on the path."""
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


def start(source: Path, out: Path, only: str) -> subprocess.Popen[bytes]:
    """Train with the package in ``source``, in a process of its own."""
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--train", str(out), "--only", only]
    return subprocess.Popen(command, env=environment)


def differences(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """What is not equal, bit for bit."""
    found = [] if a.keys() == b.keys() else [f"{len(a)} and {len(b)} arrays"]
    for name in a.keys() & b.keys():
        if a[name].shape != b[name].shape or a[name].dtype != b[name].dtype:
            found.append(f"{name} is {a[name].dtype}{a[name].shape} and {b[name].dtype}{b[name].shape}")
        elif a[name].tobytes() != b[name].tobytes():
            largest = np.abs(a[name].astype(np.float64) - b[name].astype(np.float64)).max()
            found.append(f"{name} differs by up to {largest:.3g}")
    return sorted(found)


def main() -> None:
    """Compare, print a line per case, and exit with 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="a commit, tag or branch")
    parser.add_argument("--only", default="", help="only cases whose name contains this, such as pqr or /nchain")
    parser.add_argument("--keep", type=Path, help="keep the runs of REVISION here, to compare with them again")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return run_all(options.train, options.only)
    if not options.revision:
        parser.error("which revision? For example: python -m benchmarks.equality HEAD~10")
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder)
        before = unpack(options.revision, temporary / "before")
        kept = options.keep or temporary / "runs-before"
        now = temporary / "runs-now"
        children = [
            start(before, kept, options.only),
            start(ROOT / "src", now, options.only),
        ]
        if any([child.wait() for child in children]):
            sys.exit("a run failed")
        unequal = 0
        for case in CASES:
            if options.only not in case:
                continue
            name = f"{case.replace('/', '-')}.npz"
            found = differences(*({**np.load(path / name)} for path in (kept, now)))
            unequal += bool(found)
            print(f"{case:28} {'equal' if not found else 'DIFFERENT: ' + '; '.join(found[:4])}", flush=True)
    sys.exit(1 if unequal else 0)


if __name__ == "__main__":
    main()
