"""The environment a run is evaluated in, and how."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from tremble.envs.gym import make_single
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.registry import benchmark_of, is_jax_env, make_jax_env
from tremble.settings import SettingsError
from tremble.training.spec import RunSpec


def evaluation_maker(spec: RunSpec, env: Any) -> Callable[[], gymnasium.Env[Any, Any]]:
    """A function that makes a new environment for evaluation."""
    if is_jax_env(spec.env):
        options = dict(spec.env_options)
        render_mode = options.pop("render_mode", None)
        return lambda: JaxGymEnv(make_jax_env(spec.env, options), render_mode=render_mode)
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        made = getattr(env, "spec", None)
        if made is None:
            raise SettingsError(
                "evaluation needs an environment of its own: give train a Gymnasium id or a function instead of a "
                "ready-made environment, or evaluate_every=0"
            )
        return partial(gymnasium.make, made.id, **dict(made.kwargs))
    benchmark = benchmark_of(spec.env)
    return partial(
        make_single, env, spec.env_options | ({} if benchmark is None else dict(benchmark.evaluation_options))
    )


def evaluation_settings(spec: RunSpec) -> dict[str, Any]:
    """Keyword arguments of `evaluate`: length, end and epsilon.

    Without a benchmark's protocol, whole episodes and epsilon 0; with one, what it or the agent's publication says.
    """
    length = {"episodes": spec.evaluate_episodes, "steps": spec.evaluate_steps}
    benchmark = benchmark_of(spec.env)
    if benchmark is None or spec.protocol is None:
        return length
    return length | benchmark.evaluation_rules(spec.protocol, spec.agent)
