"""The training loop that a run's settings ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tremble.agent import Agent
from tremble.envs.gym import open_environment
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.registry import is_jax_env, make_jax_env
from tremble.settings import SettingsError
from tremble.training.gym_loop import GymLoop
from tremble.training.loop import Loop
from tremble.training.spec import RunSpec
from tremble.training.xla_loop import XlaLoop


def open_loop(spec: RunSpec, agent: Agent, env: Any, replay_file: Path | None = None) -> Loop:
    """A loop before its first step: inside XLA where the whole run can be compiled, else beside Gymnasium.

    ``env`` is what the user gave: a name or an object. ``replay_file`` takes the pictures of replay.
    """
    if spec.compiled(agent):
        return XlaLoop(agent, make_jax_env(spec.env, spec.env_options), spec.seed, spec.steps)
    if is_jax_env(spec.env):
        if spec.n_envs > 1:
            raise SettingsError(f"{spec.env} is written in JAX: train_many runs many of it at once, n_envs does not")
        single = JaxGymEnv(make_jax_env(spec.env, spec.env_options), spec.seed)
        world, step_log = open_environment(single), single.step_log
    else:
        world, step_log = open_environment(env, spec.n_envs, spec.parallel, spec.env_options), None
    try:
        return GymLoop(_fitted(agent, spec, world.n_envs), world, spec.seed, spec.steps, replay_file, step_log)
    except BaseException:
        world.close()
        raise


def _fitted(agent: Agent, spec: RunSpec, n_envs: int) -> Agent:
    """The agent for this number of environments; settings that follow from it may not be given otherwise."""
    fitted = agent.fitted_to(n_envs)
    derived = {
        "batch_size": fitted.learning.batch_size,
        "memory_size": fitted.memory_size,
        "update_interval": fitted.learning.update_interval,
    }
    for name, value in derived.items():
        if spec.agent_options.get(name, value) != value:
            raise SettingsError(
                f"{name} of {spec.agent!r} follows from its rollouts: {n_envs} environments times "
                f"{agent.replay.rollout} steps are {value}. Leave it out, or change n_envs or rollout."
            )
    return fitted
