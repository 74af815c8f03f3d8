"""Many runs by one call: every seed with every combination of some settings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp

from tremble.agent import Agent
from tremble.core import JaxEnv
from tremble.envs.encoding import Actions
from tremble.envs.registry import is_jax_env
from tremble.records import finite
from tremble.settings import SettingsError
from tremble.training.loop import DEFAULT_CHUNK
from tremble.training.result import Run
from tremble.training.run import train
from tremble.training.spec import RunSpec
from tremble.training.trained import Counts, TrainedAgent
from tremble.training.xla_loop import Record, encoder_of, iterate


def train_many(
    agent: str,
    env: Any,
    *,
    steps: int,
    seeds: Sequence[int],
    sweep: dict[str, Sequence[Any]] | None = None,
    hyperparameters: str | None = None,
    env_options: dict[str, Any] | None = None,
    record_every: int = 500,
    n_envs: int = 1,
    evaluate_every: int = 0,
    evaluate_episodes: int = 10,
    chunk: int = DEFAULT_CHUNK,
    **agent_options: Any,
) -> list[Run]:
    """Train every seed with every combination of the swept settings: the runs in that order, seeds fastest.

    Runs that can be trained inside XLA and differ only in seeds and traced settings (``delta_0``, ``c``, ``beta``,
    ``learning_rate``, ``gamma``) are one vectorised program, which takes less time; their numbers differ from those of
    single runs in the last digits. All others are trained one after the other. Nothing is written: runs that are to
    have directories, and to use all cores, are a sweep (`tremble.run_sweep`).
    """
    names, grids = list(sweep or {}), list((sweep or {}).values())
    combinations = [dict(zip(names, values, strict=True)) for values in itertools.product(*grids)]
    if not combinations or not seeds:
        raise SettingsError("nothing to run: give at least one seed, and at least one value for each swept setting")
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        raise SettingsError("every run needs an environment of its own: give an id or a function, not an environment")
    if isinstance(env, str) and is_jax_env(env) and n_envs == 1 and not evaluate_every:
        specs = [
            RunSpec(agent, env, steps, seed, hyperparameters, agent_options | swept, env_options or {}, record_every)
            for swept in combinations
            for seed in seeds
        ]
        built = [spec.build() for spec in specs]
        if specs[0].compiled(built[0][0]) and len({jax.tree.structure(pair) for pair in built}) == 1:
            return _train_stacked(specs, built, chunk)
    return [
        train(
            agent,
            env,
            steps=steps,
            seed=seed,
            hyperparameters=hyperparameters,
            env_options=env_options,
            record_every=record_every,
            n_envs=n_envs,
            evaluate_every=evaluate_every,
            evaluate_episodes=evaluate_episodes,
            chunk=chunk,
            **agent_options | swept,
        )
        for swept in combinations
        for seed in seeds
    ]


def _train_stacked(specs: list[RunSpec], built: list[tuple[Agent, JaxEnv]], chunk: int) -> list[Run]:
    """Runs whose agents and environments have one structure, as one program."""
    steps, record_every = specs[0].steps, specs[0].record_every
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
        trained = TrainedAgent(single, params, encoder_of(world), Actions.numbered(world.n_actions), counts, spec)
        rows, episodes = ([finite(row) for row in found] for found in (record.rows, _episodes(record)))
        runs.append(Run(spec, trained, rows, [], record.step_log(), record.snapshots(), episodes))
    return runs


def _episodes(record: Record) -> list[dict[str, Any]]:
    return [episode.row() for episode in record.episodes.finished]
