"""A worker process that trains runs one after another: `python -m tremble.studies.worker [CORE]`.

It reads tasks as JSON lines from standard input, ``{"id": ..., "spec": {...}, "out": path}``, and answers on standard
output with progress ``{"id": ..., "step": n}``, then ``{"id": ..., "done": true, "seconds": x}`` (of processor time)
or ``{"id": ..., "error": text}``.
Compiled programs are kept, so runs that differ only in seeds and traced settings compile once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tremble.agent import Agent
from tremble.core import RandomStream, stream_key
from tremble.envs.registry import is_jax_env, make_jax_env
from tremble.training import checkpoint
from tremble.training.compilation_cache import enable_compilation_cache
from tremble.training.evaluation import evaluate
from tremble.training.evaluation_env import evaluation_maker, evaluation_settings
from tremble.training.run import run_loop
from tremble.training.spec import RunSpec
from tremble.training.xla_loop import Record, iterate

FINAL_EPISODES = 100
"""Episodes of the evaluation after training; on Atari its length is that of the evaluations during training."""
FINAL_SEED = 1_000_000
"""Offset of the seeds of final evaluations, so that they differ from those during training."""
MAX_MEMORY_MAPPINGS = 30_000
"""Number of memory mappings above which a worker drops its compiled programs."""


def train_inside(spec: RunSpec, agent: Agent, out: Path, show: Callable[[int], None]) -> None:
    """Train inside XLA; stores step log, snapshots and metrics, not parameters. There are no checkpoints."""
    env = make_jax_env(spec.env, spec.env_options)
    record = Record(env)
    for moment in iterate(agent, env, spec.seed, spec.steps, spec.record_every):
        record.add(moment)
        show(moment.t)
    meta = {"spec": dataclasses.asdict(spec), "settings": spec.describe(), "rows": record.rows}
    checkpoint.save(out, record.arrays(), meta)


def train_and_evaluate(spec: RunSpec, agent: Agent, out: Path, show: Callable[[int], None]) -> None:
    """Train in a run directory, with checkpoints to resume from.

    Stores metrics, episodes, evaluations, and a final evaluation on other seeds: of the last parameters and of those of
    the best evaluation (except on Atari, where papers publish the best evaluation itself). Environments with an
    observation table store the step log instead of the final evaluation, as `train_inside` does.
    """
    directory = out.with_suffix("")
    run = run_loop(spec, agent, spec.env, directory, on_progress=lambda step, row: show(step))
    meta = {
        "spec": spec.as_json(),
        "settings": spec.describe(),
        "rows": run.rows,
        "evaluations": run.evaluation_rows,
        "episodes": list(run.episode_rows),
    }
    groups: dict[str, Any]
    if is_jax_env(spec.env) and (world := make_jax_env(spec.env, spec.env_options)).observation_table is not None:
        first = run.agent.distribution(
            np.asarray(world.observe(world.reset(stream_key(spec.seed, RandomStream.RESET))))
        )
        groups = {"log": run.log, "snapshots": {"atoms": np.asarray(first.equal_atoms())[None]}}
    else:
        length = {} if spec.protocol else {"episodes": FINAL_EPISODES, "steps": 0}
        settings = evaluation_settings(spec) | length
        judged = {"final": run.agent}
        if run.best is not None and run.best.counts != run.agent.counts and spec.protocol is None:
            judged["best"] = run.best
        names = ("returns", "discounted", "lengths", "truncated", "predicted")
        groups = {}
        for group, agent_then in judged.items():
            result = evaluate(agent_then, evaluation_maker(spec, spec.env), seed=FINAL_SEED + spec.seed, **settings)
            groups[group] = {name: getattr(result, name) for name in names}
    checkpoint.save(out, groups, meta)
    # The run is finished, and checkpoints with a replay of images are large.
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def forget_programs(more_than: int = MAX_MEMORY_MAPPINGS) -> bool:
    """Drop all compiled programs if they use too many memory mappings; returns whether it did.

    XLA maps memory for every kernel, one to two thousand mappings for a run, and Linux allows a process 65,530, so a
    study of fifty different cells would fail with "Cannot allocate memory". Programs are reloaded from the disk cache.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") <= more_than:
        return False
    jax.clear_caches()
    return True


def choose_runner(spec: RunSpec, agent: Agent) -> Callable[[RunSpec, Agent, Path, Callable[[int], None]], None]:
    """Environments with an observation table store step logs only, unless evaluations are asked for."""
    listed = spec.compiled(agent) and make_jax_env(spec.env, spec.env_options).observation_table is not None
    return train_inside if listed and not spec.evaluate_every else train_and_evaluate


def main() -> None:
    """Serve until standard input ends."""
    # Messages have a file descriptor of their own; anything a library prints goes to standard error.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    enable_compilation_cache()

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    for line in sys.stdin:
        task = json.loads(line)
        try:
            begin = time.process_time()
            spec, out = RunSpec(**task["spec"]), Path(task["out"])
            agent = spec.build_agent()

            def show(step: int, row: Any = None, number: Any = task["id"]) -> None:
                say({"id": number, "step": step})

            forget_programs()
            choose_runner(spec, agent)(spec, agent, out, show)
            say({"id": task["id"], "done": True, "seconds": time.process_time() - begin})
        except Exception as error:  # reported to the parent, which names the run and stops
            say({"id": task["id"], "error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
