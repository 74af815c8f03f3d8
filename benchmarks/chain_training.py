"""N-Chain training at the paper's settings, by tremble and by sb3-contrib: what runs inside the processes.

Imports are inside the functions: a process loads only the library it measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.stepping import by_sb3, inside_xla
from benchmarks.workers import Contender

DOMAIN = "nchain"
RECORD_EVERY = 500
"""Steps between two looks inside the learner, the default of `tremble.train`."""


def tremble_training(seeds: list[int], steps: int, listed: bool = True) -> Contender:
    """QR-DQN by the loop behind `tremble.train` (one seed) and `tremble.train_many` (several, by vmap).

    A turn is ``steps`` steps of every seed, what a run records included. With ``listed`` false the environment does not
    list its observations, so the network is evaluated for every sample of a batch instead of once per state.
    """
    from tremble.presets import make

    agent, env = make("qrdqn", DOMAIN), _chain(listed)
    start = time.perf_counter()
    moments = _moments(agent, env, seeds, RECORD_EVERY, RECORD_EVERY)
    inside_xla(moments, agent.learning.start_steps + RECORD_EVERY)
    cold = time.perf_counter() - start
    start = time.perf_counter()
    inside_xla(moments, RECORD_EVERY)
    warm = time.perf_counter() - start
    # Two programs were compiled on the way, one for the steps before learning starts and one for those after.
    facts = {"compile_seconds": cold - warm}
    return Contender(lambda _: inside_xla(moments, steps) * len(seeds), facts)


def agents_training(names: list[str], chunk: int, listed: bool = True) -> Contender:
    """Several agents in one process, each with a run of its own; a turn is one compiled chunk of the named one."""
    from tremble.presets import make

    runs: dict[str, Iterator[Any]] = {}
    for name in names:
        agent = make(name, DOMAIN)
        runs[name] = _moments(agent, _chain(listed), [0], agent.memory_size, chunk)
        inside_xla(runs[name], 3 * chunk)  # past the start of learning and past compilation
    return Contender(lambda name: inside_xla(runs[name], chunk))


def _moments(agent: Any, env: Any, seeds: list[int], record_every: int, chunk: int) -> Iterator[Any]:
    """A run that is as long as its memory, so that the memory has the paper's size."""
    import jax
    import jax.numpy as jnp

    from tremble.training.xla_loop import iterate

    if len(seeds) == 1:
        return iterate(agent, env, seeds[0], agent.memory_size, record_every, (chunk,))
    stack = jax.tree.map(lambda x: jnp.full(len(seeds), x, jnp.float32), (agent, env))
    return iterate(*stack, seeds, agent.memory_size, record_every, (chunk,))


def _chain(listed: bool) -> Any:
    from tremble.worlds.nchain import NChain

    if listed:
        return NChain()

    class UnlistedNChain(NChain):
        """The same chain, which keeps to itself that it has only five states."""

        @property
        def observation_table(self) -> None:
            return None

        def observe(self, state: Any) -> Any:
            return NChain().observation_table[state.position]

    return UnlistedNChain()


def sb3_training(seed: int, steps: int, warm_up: int) -> Contender:
    """sb3-contrib's QRDQN on `tremble/NChain-v0`, with the same settings; a turn is ``steps`` steps after the start.

    Exploration starts at its final rate: a random action saves QRDQN the evaluation of its network, and a run spends
    all but its first 2,500 steps at that rate.
    """
    import gymnasium
    import torch
    from sb3_contrib import QRDQN

    import tremble.envs  # noqa: F401, registers the environment
    from tremble.hyperparameters import hyperparameter_tables

    column = hyperparameter_tables()[DOMAIN]
    model = QRDQN(
        "MlpPolicy",
        "tremble/NChain-v0",
        learning_rate=column.learning_rate,
        buffer_size=column.memory_size,
        learning_starts=column.start_steps,
        batch_size=column.batch_size,
        gamma=column.gamma,
        train_freq=column.update_interval,
        gradient_steps=1,
        target_update_interval=column.target_update_interval,
        exploration_initial_eps=column.epsilon_end,
        exploration_final_eps=column.epsilon_end,
        policy_kwargs={"n_quantiles": column.n_quantiles, "net_arch": list(column.widths)},
        seed=seed,
        device="cpu",
    )

    by_sb3(model, column.start_steps + warm_up)
    alone = _random_walk(gymnasium.make("tremble/NChain-v0"))
    facts = {"threads": torch.get_num_threads(), "env_steps_per_second": alone}
    return Contender(lambda _: by_sb3(model, steps), facts)


def _random_walk(env: Any, steps: int = 2_000) -> float:
    """Steps per second of the environment alone."""
    env.reset(seed=0)
    env.action_space.seed(0)
    start = time.perf_counter()
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    return steps / (time.perf_counter() - start)
