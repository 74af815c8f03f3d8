"""A process that trains one run after another: `python -m tremble.studies.worker`.

It reads tasks as JSON lines from standard input, ``{"id": ..., "spec": {...}, "out": path}``, and answers on standard
output with progress ``{"id": ..., "step": n}``, then ``{"id": ..., "done": true, "seconds": x}`` (of processor time)
or ``{"id": ..., "error": text}``.
Compiled programs are kept, so runs that differ in seeds and traced settings compile once, until there are too many.
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
from tremble.training.evaluation import evaluate
from tremble.training.run import evaluation_maker, evaluation_settings, run_loop
from tremble.training.spec import RunSpec
from tremble.training.xla_loop import Record, iterate

FINAL_EPISODES = 100
"""After training; on Atari, where a game may take half an hour of play, as many as in every evaluation before."""
FINAL_SEED = 1_000_000
"""Final evaluations have seeds apart from those of the evaluations during training."""
MAX_MEMORY_MAPPINGS = 30_000
"""Beyond these a worker drops its compiled programs."""


def train_inside(spec: RunSpec, agent: Agent, out: Path, show: Callable[[int], None]) -> None:
    """A run inside XLA; keeps its log, snapshots and table, not its parameters. An interrupted one begins again."""
    record = Record()
    for moment in iterate(agent, make_jax_env(spec.env, spec.env_options), spec.seed, spec.steps, spec.record_every):
        record.add(moment)
        show(moment.t)
    meta = {"spec": dataclasses.asdict(spec), "settings": spec.describe(), "rows": record.rows}
    checkpoint.save(out, record.arrays(), meta)


def train_and_evaluate(spec: RunSpec, agent: Agent, out: Path, show: Callable[[int], None]) -> None:
    """A run in a directory of its own, from which it goes on if interrupted.

    Keeps its table, its episodes, its evaluations, and a final one on other seeds than those: of the agent at the end,
    and of the one at its best evaluation (on Atari that evaluation itself is what is published). A world that lists
    its states is judged by what was done in each: of it every step is kept instead, as by a run inside XLA.
    """
    directory = out.with_suffix("")
    run = run_loop(spec, agent, spec.env, directory, on_progress=lambda step, row: show(step))
    meta = {
        "spec": spec.as_json(),
        "settings": spec.describe(),
        "rows": run.rows,
        "evaluations": run.evaluations,
        "episodes": run.episodes or episodes_in(run.log),
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
    # There is nothing left to go on to, and with pictures in replay a state is large.
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def episodes_in(log: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """What a run beside a Gymnasium environment says about its episodes, from the log of one inside XLA."""
    last = np.flatnonzero(log["done"])
    total = np.concatenate([[0.0], np.cumsum(log["reward"], dtype=np.float64)[last]])
    begin = np.concatenate([[-1], last])
    return [
        {"step": int(t) + 1, "return": float(r), "length": int(n)}
        for t, r, n in zip(last, np.diff(total), np.diff(begin), strict=True)
    ]


def forget_programs(more_than: int = MAX_MEMORY_MAPPINGS) -> bool:
    """Drop all compiled programs if they have taken too many memory mappings; says whether it did.

    XLA maps memory for every kernel, a run takes one to two thousand mappings, and Linux grants a process 65,530: a
    study of fifty different cells would end in "Cannot allocate memory". Programs come back from the cache on disk.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") <= more_than:
        return False
    jax.clear_caches()
    return True


def choose_runner(spec: RunSpec, agent: Agent) -> Callable[[RunSpec, Agent, Path, Callable[[int], None]], None]:
    """Small worlds that list their states are judged by what was done in each; all others by what was gained."""
    listed = spec.compiled(agent) and make_jax_env(spec.env, spec.env_options).observation_table is not None
    return train_inside if listed else train_and_evaluate


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
