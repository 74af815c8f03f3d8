"""Pong and MinAtar training, by tremble and by sb3-contrib: what runs inside the processes.

Imports are inside the functions: a process loads only the library it measures. Dopamine's part is `dopamine_peer.py`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gym_training import peak_mib, shares_of
from benchmarks.machine import matrix_speed
from benchmarks.stepping import by_host_loop, by_sb3, inside_xla
from benchmarks.workers import Contender

BATCH, QUANTILES, INTERVAL, MEMORY, START = 32, 200, 4, 50_000, 1_000
"""Samples of a batch, quantiles, steps between two updates, items in memory, steps before learning starts."""
COMMON: dict[str, Any] = {
    "batch_size": BATCH,
    "n_quantiles": QUANTILES,
    "update_interval": INTERVAL,
    "memory_size": MEMORY,
    "start_steps": START,
    "epsilon_start": 0.01,
    "epsilon_end": 0.01,
}
"""Exploration is at its final rate: a random action saves some libraries the evaluation of their network."""


def tremble_pong(steps: int, protocol: str, async_learning: bool = False) -> Contender:
    """QR-DQN by the loop behind `tremble.train`; a turn is ``steps`` steps of four frames each.

    The protocol decides the network's padding: none for ``dqn_zoo`` and sb3-contrib, "same" for ``dopamine``, whose
    network is 1.7 times the work.
    """
    import tremble
    from tremble.envs.gym import open_environment
    from tremble.training.gym_loop import GymLoop

    agent = tremble.make("qrdqn", "atari", protocol=protocol, async_learning=async_learning, **COMMON)
    loop = GymLoop(agent, open_environment("atari/Pong", options={"protocol": protocol}), 0, 10**6)
    loop.advance(START + 40)
    facts: dict[str, Any] = {}
    if not async_learning:  # there the parts are not done alone
        facts |= {"shares": shares_of(loop), "flops": _flops(agent, loop.env.actions.n)}
        facts["flops_per_second"] = matrix_speed()
    by_host_loop(loop, steps)
    facts["peak_mib"] = peak_mib()
    return Contender(lambda _: by_host_loop(loop, steps), facts)


def _flops(agent: Any, n_actions: int, side: int = 84, channels: int = 4) -> float:
    """Multiplications and additions that an update cannot do without: the network forward for the batch and for what
    follows it, and backward twice as much, except that nobody asks for the gradient of the picture.
    """
    forward = []
    for filters, size, stride in agent.network.layers:
        side = -(-side // stride) if agent.network.padding == "same" else (side - size) // stride + 1
        forward.append(2 * side * side * filters * size * size * channels)
        channels = filters
    n = side * side * channels
    for width in (*agent.network.widths, n_actions * QUANTILES):
        forward.append(2 * n * width)
        n = width
    return float(BATCH * (4 * sum(forward) - forward[0]))


def sb3_pong(steps: int) -> Contender:
    """sb3-contrib's QRDQN with its own Atari wrappers."""
    import ale_py
    import gymnasium
    import torch
    from sb3_contrib import QRDQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    plain = {"frameskip": 1, "repeat_action_probability": 0.0}  # the wrapper skips frames itself
    env = VecFrameStack(make_atari_env("ALE/Pong-v5", env_kwargs=plain), 4)
    model = QRDQN(
        "CnnPolicy",
        env,
        learning_rate=5e-5,
        buffer_size=MEMORY,
        learning_starts=START,
        batch_size=BATCH,
        train_freq=INTERVAL,
        gradient_steps=1,
        target_update_interval=10_000,
        exploration_initial_eps=0.01,
        exploration_final_eps=0.01,
        policy_kwargs={"n_quantiles": QUANTILES},
        seed=0,
        device="cpu",
    )

    by_sb3(model, START + 40)
    by_sb3(model, steps)
    facts = {"threads": torch.get_num_threads(), "peak_mib": peak_mib()}
    return Contender(lambda _: by_sb3(model, steps), facts)


def tremble_minatar(inside: bool, steps: int) -> Contender:
    """QR-DQN on MinAtar's Breakout with its column: inside XLA, or stepped from outside by the host loop."""
    import tremble
    from tremble.envs.gym import open_environment
    from tremble.envs.jax_gym import JaxGymEnv
    from tremble.training.gym_loop import GymLoop
    from tremble.training.xla_loop import iterate
    from tremble.worlds.minatar import minatar

    agent, game = tremble.make("qrdqn", "minatar", start_steps=START, memory_size=MEMORY), minatar("breakout")
    if inside:
        moments = iterate(agent, game, 0, 10**6, 10**6, (steps,))
        inside_xla(moments, START + steps)
        inside_xla(moments, steps)
        return Contender(lambda _: inside_xla(moments, steps))
    loop = GymLoop(agent, open_environment(JaxGymEnv(game, 0)), 0, 10**6)
    loop.advance(START + steps)
    return Contender(lambda _: by_host_loop(loop, steps))
