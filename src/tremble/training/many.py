"""Many runs in one compiled program, stacked along seeds and traced hyperparameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tremble.settings import SettingsError
from tremble.training.loop import DEFAULT_CHUNK
from tremble.training.run import Run
from tremble.training.spec import RunSpec
from tremble.training.trained import Counts, TrainedAgent
from tremble.training.xla_loop import Record, encoder_of, iterate


def train_many(
    agent: str,
    env: str,
    *,
    steps: int,
    seeds: Sequence[int],
    sweep: dict[str, Sequence[float]] | None = None,
    hyperparameters: str | None = None,
    env_options: dict[str, Any] | None = None,
    record_every: int = 500,
    chunk: int = DEFAULT_CHUNK,
    **agent_options: Any,
) -> list[Run]:
    """Train every seed with every combination of the swept settings, in one vectorised program.

    Only settings that are array leaves can be swept (``delta_0``, ``c``, ``beta``, ``learning_rate``, ``gamma``).
    Settings that change shapes or control flow need a run each.
    """
    names, grids = list(sweep or {}), list((sweep or {}).values())
    specs = [
        RunSpec(
            agent,
            env,
            steps,
            seed,
            hyperparameters,
            agent_options | dict(zip(names, values, strict=True)),
            env_options or {},
            record_every,
        )
        for values in itertools.product(*grids)
        for seed in seeds
    ]
    if not specs:
        raise SettingsError("nothing to run: give at least one seed, and at least one value for each swept setting")
    built = [spec.build() for spec in specs]
    if not specs[0].compiled(built[0][0]):
        raise SettingsError(
            f"{agent} cannot train inside XLA, as train_many does: n-step or prioritised replay, rollouts, "
            "async_learning and several updates per round need the Gymnasium loop; train one run at a time"
        )
    structures = {jax.tree.structure(pair) for pair in built}
    if len(structures) > 1:
        raise SettingsError(f"{', '.join(names)}: at least one of these is fixed at compile time and cannot be swept")
    agents, envs = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x, jnp.float32) for x in leaves]), *built)
    records = [Record(world) for _, world in built]
    state = None
    for result in iterate(agents, envs, [s.seed for s in specs], steps, record_every, (chunk,)):
        state = result.state
        for run, record in enumerate(records):
            record.add(result, run)
    assert state is not None
    runs = []
    for i, (spec, (single, world), record) in enumerate(zip(specs, built, records, strict=True)):
        params = jax.tree.map(lambda x, i=i: x[i], state.learner.params)
        counts = Counts(steps, int(record.rows[-1]["updates"]), int(record.rows[-1]["episodes"]), steps)
        trained = TrainedAgent(single, params, encoder_of(world), world.n_actions, 0, counts, spec)
        episodes = [episode.row() for episode in record.episodes.finished]
        runs.append(Run(spec, trained, record.rows, [], record.step_log(), record.snapshots(), episodes))
    return runs
