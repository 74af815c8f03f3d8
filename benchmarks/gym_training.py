"""Training on Gymnasium environments, by tremble's host loop, sb3-contrib and Tianshou: what runs inside the processes.

Imports are inside the functions: a process loads only the library it measures.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from benchmarks.stepping import by_host_loop, by_sb3
from benchmarks.workers import Contender

START = 1_000
"""Steps before learning starts: enough to fill a batch many times over; what follows does not depend on it."""


def settings(domain: str, **changes: Any) -> Any:
    """The column all libraries are given; plain QR-DQN, which is what the peers have."""
    import dataclasses

    from tremble.hyperparameters import hyperparameter_tables

    plain = {"start_steps": START, "epsilon_start": 0.01, "epsilon_end": 0.01, "settings": {}}
    return dataclasses.replace(hyperparameter_tables()[domain], **(plain | changes))


def tremble_gym(
    env: str, domain: str, seed: int, steps: int, warm_up: int, changes: dict[str, Any], agent_name: str = "qrdqn"
) -> Contender:
    """QR-DQN (or another agent) by the loop behind `tremble.train`; a turn is ``steps`` steps, each with an update."""
    from tremble.envs.gym import open_environment
    from tremble.hyperparameters import register_hyperparameters
    from tremble.presets import make
    from tremble.training.gym_loop import GymLoop

    register_hyperparameters("benchmark", settings(domain, **changes))
    agent = make(agent_name, "benchmark")
    loop = GymLoop(agent, open_environment(env), seed, 10**6)
    begin = time.perf_counter()
    loop.advance(START + warm_up)
    facts = {"warm_up_seconds": time.perf_counter() - begin, "shares": shares_of(loop)}

    facts["peak_mib"] = peak_mib()
    return Contender(lambda _: by_host_loop(loop, steps), facts)


def shares_of(loop: Any) -> dict[str, float]:
    """Milliseconds of each part of a step, done alone and waited for; in training they overlap."""
    import jax
    import numpy as np

    from tremble.training import compiled_calls

    def median(call: Callable[[], Any], n: int = 60) -> float:
        taken = []
        for _ in range(n):
            begin = time.perf_counter()
            jax.block_until_ready(call())
            taken.append(time.perf_counter() - begin)
        return 1e3 * float(np.median(taken))

    seen, t = loop.seen, loop.t
    first, block = loop._act_block(1)
    action = np.zeros(1, np.int64)

    def act() -> Any:
        numbers = np.array([0, t - first, t], np.int32)
        return compiled_calls.act(loop.constants, loop._learner.params, loop._actors, seen.obs, None, block, numbers)[0]

    def step() -> None:
        loop.env.send(action)
        loop.env.receive()

    _, noise, bits = loop._learn_block(t)
    batch, _ = loop.replay.sample_batch(bits[0], loop._importance(t))

    def update() -> Any:
        numbers = np.array([0, t, 1, 1, 0], np.int32)
        loop._learner, _ = compiled_calls.update(loop.constants, loop._learner, batch, noise, numbers)
        return loop._learner

    return {
        "acting": median(act),
        "environment": median(step),
        "sampling": median(lambda: loop.replay.sample_batch(bits[1], loop._importance(t)) and None),
        "updating": median(update),
    }


def sb3_gym(env: str, domain: str, seed: int, steps: int, warm_up: int, changes: dict[str, Any]) -> Contender:
    """sb3-contrib's QRDQN with the same settings."""
    import torch
    from sb3_contrib import QRDQN

    column = settings(domain, **changes)
    model = QRDQN(
        "MlpPolicy",
        env,
        learning_rate=column.learning_rate,
        buffer_size=column.memory_size,
        learning_starts=START,
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

    by_sb3(model, START + warm_up)
    facts = {"threads": torch.get_num_threads(), "peak_mib": peak_mib()}
    return Contender(lambda _: by_sb3(model, steps), facts)


def tianshou_gym(env: str, domain: str, seed: int, steps: int, warm_up: int, changes: dict[str, Any]) -> Contender:
    """Tianshou's QRDQN with the same settings, by its collector and its update in turn, without its logging."""
    import gymnasium
    import torch
    from tianshou.algorithm.modelfree.qrdqn import QRDQN, QRDQNPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.net.common import Net
    from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode

    column = settings(domain, **changes)
    torch.manual_seed(seed)
    envs = DummyVectorEnv([lambda: gymnasium.make(env)])
    envs.seed(seed)
    observations, actions = envs.observation_space[0], envs.action_space[0]
    net = Net(
        state_shape=observations.shape,
        action_shape=actions.n,
        hidden_sizes=list(column.widths),
        num_atoms=column.n_quantiles,
    )
    algorithm = QRDQN(
        policy=QRDQNPolicy(model=net, action_space=actions, eps_training=column.epsilon_end),
        optim=AdamOptimizerFactory(lr=column.learning_rate),
        gamma=column.gamma,
        num_quantiles=column.n_quantiles,
        target_update_freq=column.target_update_interval,
    )
    buffer = VectorReplayBuffer(column.memory_size, 1)
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)

    def run(steps: int) -> int:
        with policy_within_training_step(algorithm.policy), torch_train_mode(algorithm):
            for _ in range(steps):
                collector.collect(n_step=1)
                algorithm.update(buffer=buffer, sample_size=column.batch_size)
        return steps

    collector.reset()
    with policy_within_training_step(algorithm.policy):
        collector.collect(n_step=START)
    run(warm_up)
    return Contender(lambda _: run(steps), {"threads": torch.get_num_threads(), "peak_mib": peak_mib()})


def peak_mib() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
