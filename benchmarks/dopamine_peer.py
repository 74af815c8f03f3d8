"""Dopamine's JAX QR-DQN on Pong. Run by the interpreter of an environment of its own, because it wants an older JAX.

Speaks one line of JSON per line it reads: first facts, then after each line the steps, start, end and processor time of
a turn.
"""

from __future__ import annotations

import json
import sys
import time
import types
from typing import Any


def main() -> None:
    """Warm up, then make a turn for every line."""
    options = json.loads(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever the library prints is not an answer
    # Dopamine asks for OpenAI's baselines, which its package does not declare, for the pictures of its PPO alone.
    for name in ("baselines", "baselines.common", "baselines.common.atari_wrappers"):
        sys.modules[name] = types.ModuleType(name)
    import gin
    import jax
    from dopamine.discrete_domains import atari_lib
    from dopamine.jax.agents.quantile.quantile_agent import JaxQuantileAgent

    gin.parse_config(
        [
            f"ReplayBuffer.max_capacity = {options['memory']}",
            f"ReplayBuffer.batch_size = {options['batch']}",
            f"PrioritizedSamplingDistribution.max_capacity = {options['memory']}",  # it has one, with equal priorities
            "create_optimizer.learning_rate = 5e-5",
        ]
    )
    env = atari_lib.create_atari_environment("Pong", sticky_actions=True)
    agent = JaxQuantileAgent(
        num_actions=env.action_space.n,
        num_atoms=options["quantiles"],
        min_replay_history=options["start"],
        update_period=options["interval"],
        target_update_period=10_000,
        epsilon_train=0.01,
        epsilon_decay_period=1,
        replay_scheme="uniform",
        seed=0,
    )
    action = agent.begin_episode(env.reset())

    def run(steps: int) -> None:
        nonlocal action
        for _ in range(steps):
            observation, reward, done, _ = env.step(action)
            reward = max(-1.0, min(1.0, reward))  # as its runner does
            if done or env.game_over:
                agent.end_episode(reward, done)
                action = agent.begin_episode(env.reset())
            else:
                action = agent.step(reward, observation)
        jax.block_until_ready(agent.online_params)

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    run(options["start"] + 40)
    run(options["steps"])
    answer({"jax": jax.__version__})
    for _ in sys.stdin:
        start, cpu = time.monotonic(), time.process_time()
        run(options["steps"])
        answer([options["steps"], start, time.monotonic(), time.process_time() - cpu])


if __name__ == "__main__":
    main()
