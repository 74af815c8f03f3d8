"""Every preset as a contender, and the agents that the peers have: what runs inside the processes.

Imports are inside the functions: a process loads only the library it measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gym_training import START, settings
from benchmarks.stepping import by_host_loop, by_sb3, inside_xla
from benchmarks.workers import Contender

ENV = "CartPole-v1"
COMMON: dict[str, Any] = {
    "batch_size": 64,
    "widths": (64, 64),
    "target_update_interval": 100,
    "n_quantiles": 32,
    "memory_size": 50_000,
    "support": (0.0, 100.0),
}
"""A column for all: an update every step, 32 quantiles."""
SIZES = {"n_online": 8, "n_target": 8, "n_choose": 32, "n_fractions": 32, "n_particles": 32, "n_atoms": 51}
"""The same atoms in all libraries."""
TURN_SECONDS = 0.3


def preset_names() -> list[str]:
    """Every preset there is."""
    from tremble.presets import PRESETS

    return list(PRESETS)


def preset(name: str, domain: str = "control") -> Any:
    """A preset with the common column and sizes."""
    from tremble.hyperparameters import register_hyperparameters
    from tremble.presets import make
    from tremble.settings import describe, override

    register_hyperparameters("benchmark", settings(domain, **COMMON))
    agent = make(name, "benchmark")
    known = {path.rsplit(".", 1)[-1] for path in describe(agent)}
    return override(agent, {key: value for key, value in SIZES.items() if key in known})


def tremble_family(names: list[str], where: str) -> Contender:
    """Presets in one process, each with a run of its own; a turn is some steps of the named one.

    ``where`` is ``gym`` (CartPole, host loop) or ``nchain`` (inside XLA where the agent's replay permits).
    """
    runs, facts = {}, {}
    for name in names:
        advance, inside = _on_cartpole(name) if where == "gym" else _on_nchain(name)
        begin = time.perf_counter()
        advance(200)  # compiled now
        cold = time.perf_counter() - begin
        begin = time.perf_counter()
        done = advance(100)
        speed = done / (time.perf_counter() - begin)
        length = int(min(max(TURN_SECONDS * speed, 20), 2_000))
        runs[name] = (advance, length)
        facts[name] = {"inside_xla": inside, "first_steps_seconds": cold}
    return Contender(lambda name: runs[name][0](runs[name][1]), facts)


def _on_cartpole(name: str) -> tuple[Callable[[int], int], bool]:
    from tremble.envs.gym import open_environment

    return _on_host_loop(preset(name), open_environment(ENV)), False


def _on_nchain(name: str) -> tuple[Callable[[int], int], bool]:
    from tremble.envs.gym import open_environment
    from tremble.envs.jax_gym import JaxGymEnv
    from tremble.training.spec import RunSpec
    from tremble.training.xla_loop import iterate
    from tremble.worlds.nchain import NChain

    agent = preset(name, "nchain")
    if not RunSpec(name, "nchain", 1).compiled(agent):
        return _on_host_loop(agent, open_environment(JaxGymEnv(NChain(), 0))), False
    moments = iterate(agent, NChain(), 0, 10**6, 10**6, (100,))
    inside_xla(moments, START)
    return partial(inside_xla, moments), True


def _on_host_loop(agent: Any, env: Any) -> Callable[[int], int]:
    from tremble.training.gym_loop import GymLoop

    loop = GymLoop(agent.fitted_to(env.n_envs), env, 0, 10**6)
    loop.advance(START)
    return partial(by_host_loop, loop)


def sb3_family(kind: str, steps: int) -> Contender:
    """Stable-Baselines3's DQN or sb3-contrib's QRDQN, with the common column."""
    import torch
    from sb3_contrib import QRDQN
    from stable_baselines3 import DQN

    column = settings("control", **COMMON)
    network: dict[str, Any] = {"net_arch": list(column.widths)}
    if kind == "qrdqn":
        network["n_quantiles"] = column.n_quantiles
    model = {"dqn": DQN, "qrdqn": QRDQN}[kind](
        "MlpPolicy",
        ENV,
        learning_rate=column.learning_rate,
        buffer_size=column.memory_size,
        learning_starts=START,
        batch_size=column.batch_size,
        gamma=column.gamma,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=column.target_update_interval,
        exploration_initial_eps=column.epsilon_end,
        exploration_final_eps=column.epsilon_end,
        policy_kwargs=network,
        seed=0,
        device="cpu",
    )

    by_sb3(model, START + 20)
    return Contender(lambda _: by_sb3(model, steps), {"threads": torch.get_num_threads()})


def tianshou_family(kind: str, steps: int) -> Contender:
    """An agent of Tianshou with the common column, by its collector and its update in turn, without its logging."""
    import gymnasium
    import torch
    from tianshou.data import Collector, PrioritizedVectorReplayBuffer, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode

    column = settings("control", **COMMON)
    torch.manual_seed(0)
    envs = DummyVectorEnv([lambda: gymnasium.make(ENV)])
    envs.seed(0)
    algorithm = _tianshou_algorithm(kind, column, envs.observation_space[0], envs.action_space[0])
    buffer: Any = (
        PrioritizedVectorReplayBuffer(column.memory_size, 1, alpha=0.6, beta=0.4)
        if kind == "rainbow"
        else VectorReplayBuffer(column.memory_size, 1)
    )
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
    run(20)
    return Contender(lambda _: run(steps), {"threads": torch.get_num_threads()})


def _tianshou_algorithm(kind: str, column: Any, observations: Any, actions: Any) -> Any:
    """DQN, C51, QRDQN, IQN, FQF or Rainbow, their networks as ours."""
    from tianshou.algorithm.modelfree.c51 import C51, C51Policy
    from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
    from tianshou.algorithm.modelfree.fqf import FQF, FQFPolicy
    from tianshou.algorithm.modelfree.iqn import IQN, IQNPolicy
    from tianshou.algorithm.modelfree.qrdqn import QRDQN, QRDQNPolicy
    from tianshou.algorithm.modelfree.rainbow import RainbowDQN
    from tianshou.algorithm.optim import AdamOptimizerFactory, RMSpropOptimizerFactory
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import (
        FractionProposalNetwork,
        FullQuantileFunction,
        ImplicitQuantileNetwork,
        NoisyLinear,
    )

    widths, shape, n = list(column.widths), observations.shape, actions.n
    common = {
        "optim": AdamOptimizerFactory(lr=column.learning_rate),
        "gamma": column.gamma,
        "target_update_freq": column.target_update_interval,
    }
    acting = {"action_space": actions, "eps_training": column.epsilon_end}
    support = {"num_atoms": SIZES["n_atoms"], "v_min": column.support[0], "v_max": column.support[1]}
    if kind == "dqn":
        net = Net(state_shape=shape, action_shape=n, hidden_sizes=widths)
        return DQN(policy=DiscreteQLearningPolicy(model=net, **acting), is_double=False, **common)
    if kind == "c51":
        net = Net(state_shape=shape, action_shape=n, hidden_sizes=widths, softmax=True, num_atoms=SIZES["n_atoms"])
        return C51(policy=C51Policy(model=net, **acting, **support), **common)
    if kind == "rainbow":
        noisy = {"linear_layer": lambda x, y: NoisyLinear(x, y, 0.1)}
        net = Net(
            state_shape=shape,
            action_shape=n,
            hidden_sizes=widths,
            softmax=True,
            num_atoms=SIZES["n_atoms"],
            dueling_param=(noisy, noisy),
        )
        policy = C51Policy(model=net, action_space=actions, **support)
        return RainbowDQN(policy=policy, n_step_return_horizon=3, **common)
    if kind == "qrdqn":
        net = Net(state_shape=shape, action_shape=n, hidden_sizes=widths, num_atoms=column.n_quantiles)
        return QRDQN(policy=QRDQNPolicy(model=net, **acting), num_quantiles=column.n_quantiles, **common)
    features = Net(state_shape=shape, action_shape=widths[-1], hidden_sizes=widths[:-1])
    if kind == "iqn":
        net = ImplicitQuantileNetwork(preprocess_net=features, action_shape=n, hidden_sizes=widths[-1:])
        levels = {"sample_size": 32, "online_sample_size": 8, "target_sample_size": 8}
        return IQN(policy=IQNPolicy(model=net, **levels, **acting), **common)
    net = FullQuantileFunction(preprocess_net=features, action_shape=n, hidden_sizes=widths[-1:])
    fractions = FractionProposalNetwork(SIZES["n_fractions"], net.input_dim)
    return FQF(
        policy=FQFPolicy(model=net, fraction_model=fractions, **acting),
        num_fractions=SIZES["n_fractions"],
        fraction_optim=RMSpropOptimizerFactory(lr=2.5e-9),
        **common,
    )
