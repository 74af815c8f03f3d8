"""The training loop that a run's settings ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from tremble.agent import Agent
from tremble.envs.encoding import Actions, Encoder
from tremble.envs.gym import open_environment
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.registry import is_jax_env, make_jax_env
from tremble.networks.network import BUILT_IN
from tremble.settings import SettingsError, reference
from tremble.training.gym_loop import GymLoop
from tremble.training.loop import Loop
from tremble.training.spec import RunSpec
from tremble.training.trained import learner_shapes
from tremble.training.xla_loop import XlaLoop


def open_loop(spec: RunSpec, agent: Agent, env: Any, replay_file: Path | None = None) -> Loop:
    """A loop before its first step: inside XLA where the whole run can be compiled, else beside Gymnasium.

    ``env`` is what the user gave: a name or an object. ``replay_file`` takes the pictures of replay.
    """
    if spec.compiled(agent):
        loop = XlaLoop(agent, make_jax_env(spec.env, spec.env_options), spec.seed, spec.steps)
        _check_torso(agent, loop.encoder, loop.actions)
        return loop
    if is_jax_env(spec.env):
        if spec.n_envs > 1:
            raise SettingsError(f"{spec.env} is written in JAX: train_many runs many of it at once, n_envs does not")
        single = JaxGymEnv(make_jax_env(spec.env, spec.env_options), spec.seed)
        world, step_log = open_environment(single), single.step_log
    else:
        world, step_log = open_environment(env, spec.n_envs, spec.parallel, spec.env_options), None
    try:
        _check_torso(agent, world.encoder, world.actions)
        return GymLoop(_fitted(agent, spec, world.n_envs), world, spec.seed, spec.steps, replay_file, step_log)
    except BaseException:
        world.close()
        raise


def _check_torso(agent: Agent, encoder: Encoder, actions: Actions) -> None:
    """Raise if a network of the user's fails on observations as replay stores them: bytes, or zeros and ones.

    With floating-point numbers every torso is tried where it is made.
    """
    if type(agent.network) in BUILT_IN or encoder.dtype == "float32":
        return
    params = learner_shapes(agent, encoder, actions.n).params
    obs = jax.ShapeDtypeStruct((1, *encoder.shape), encoder.dtype)
    try:
        jax.eval_shape(lambda params, obs: agent.predict(params, obs), params, obs)
    except Exception as error:
        raise SettingsError(
            f"the torso of {reference(agent.network)} fails for observations {encoder.dtype}{list(encoder.shape)}: "
            f"{type(error).__name__}: {error}. It gets them as the environment gives them: convert them first, "
            "obs.astype(jnp.float32)"
        ) from error


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
