"""The environments that agents are evaluated in: as in training, but others."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium import wrappers
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

from tremble.envs.encoding import Actions, Encoder
from tremble.envs.gym import make_single, name_of
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.registry import benchmark_of, is_jax_env, make_jax_env
from tremble.envs.running_statistics import OBSERVATIONS, REWARDS, Statistics, freeze, layers, normalisers
from tremble.settings import SettingsError
from tremble.training.spec import CUSTOM, RunSpec

Env = gymnasium.Env[Any, Any]

WAY_OUT = (
    "Give a function that makes the environment in place of a ready-made one; training also takes another environment "
    "to evaluate in (evaluate_env=), or evaluates nothing (evaluate_every=0)"
)
RECORDERS = (wrappers.RecordVideo, wrappers.HumanRendering)
"""Wrappers that an evaluation leaves out: they change nothing that an agent sees, and would write over recordings."""
NEUTRAL = (wrappers.vector.RecordEpisodeStatistics, wrappers.vector.RecordVideo, wrappers.vector.HumanRendering)
"""Vector wrappers that change nothing that an agent sees."""
VECTOR_ONLY = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""Options of `gymnasium.make_vec` in the spec of a vector environment."""


@dataclass(frozen=True)
class EvaluationEnv:
    """Makes environments for evaluation; called again for each of those that run side by side."""

    name: str
    make: Callable[[], Env]
    at_once: int | None = None
    """How many there may be at a time; None if any number."""

    def __call__(self) -> Env:
        """A new environment."""
        return self.make()


class _Kept(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that is used for one evaluation after another, so that the end of one does not close it."""

    def close(self) -> None:
        """Leave that to whoever made it."""


def evaluation_maker(
    spec: RunSpec, env: Any, evaluate_env: Any = None, options: Mapping[str, Any] | None = None
) -> EvaluationEnv:
    """Environments for the evaluations of a run: like ``env``, that of training, unless there is another for them.

    ``options`` of the environment are added to those of training, or to none of another environment.
    """
    other = spec.evaluate_env if evaluate_env is None else evaluate_env
    source = env if other is None else other
    if isinstance(source, str) and source == CUSTOM:
        raise SettingsError(
            "the environment of this run was given as an object, which its files do not hold: evaluate the run in "
            "Python, tremble.evaluate(tremble.load(directory), env)"
        )
    if other is None:
        return EvaluationEnv(name_of(env), _maker(env, {**spec.env_options, **(options or {})}))
    if isinstance(env, gymnasium.Env) and isinstance(other, gymnasium.Env) and env.unwrapped is other.unwrapped:
        raise SettingsError(
            "evaluate_env is the environment of training, which evaluations would disturb: give another"
        )
    return evaluation_env(other, options)


def evaluation_env(env: Any, options: Mapping[str, Any] | None = None) -> EvaluationEnv:
    """Environments for evaluation from whatever `tremble.train` takes.

    A ready-made one is made again where Gymnasium knows how to, else it is used itself, for one episode at a time.
    """
    if isinstance(env, EvaluationEnv):
        return env
    make = _maker(env, options or {})
    if isinstance(env, gymnasium.Env):
        try:
            make().close()
        except SettingsError:
            kept = _Kept(env)
            return EvaluationEnv(name_of(env), lambda: kept, at_once=1)
    return EvaluationEnv(name_of(env), make)


def prepare(made: Env, name: str, encoder: Encoder, actions: Actions, statistics: Statistics) -> Callable[[], None]:
    """Let an environment for evaluation normalise as that of training did; an error unless its spaces are the same.

    The function that is returned undoes it.
    """
    seen, taken = made.observation_space, made.action_space
    if Encoder.of(seen) != encoder or Actions.of(taken, name) != actions:
        raise SettingsError(
            f"the agent was trained on other spaces than those of {name}: its observations have shape "
            f"{list(encoder.shape)} ({encoder.kind}, {encoder.dtype}) and it chooses among {actions.n} actions; here "
            f"observations are {seen} and actions {taken}"
        )
    return freeze(made, statistics)


def evaluation_settings(spec: RunSpec) -> dict[str, Any]:
    """Keyword arguments of `evaluate`: length, end and epsilon.

    Without a benchmark's protocol, whole episodes and epsilon 0; with one, what it or the agent's publication says.
    """
    length = {"episodes": spec.evaluate_episodes, "steps": spec.evaluate_steps}
    benchmark = benchmark_of(spec.env)
    if benchmark is None or spec.protocol is None:
        return length
    return length | benchmark.evaluation_rules(spec.protocol, spec.agent)


def _maker(env: Any, options: Mapping[str, Any]) -> Callable[[], Env]:
    """A function that makes a new environment like this one."""
    if isinstance(env, str) and is_jax_env(env):
        chosen = dict(options)
        render_mode = chosen.pop("render_mode", None)
        return lambda: JaxGymEnv(make_jax_env(env, chosen), render_mode=render_mode)
    if isinstance(env, VectorEnv):
        return partial(_single_of, env)
    if isinstance(env, gymnasium.Env):
        return partial(_made_again, env)
    benchmark = benchmark_of(env) if isinstance(env, str) else None
    return partial(make_single, env, {**options, **({} if benchmark is None else benchmark.evaluation_options)})


def _made_again(env: Env) -> Env:
    """A ready-made environment once more, from Gymnasium's record of how it and its wrappers were made."""
    name, spec = name_of(env), env.spec
    if spec is None:
        raise SettingsError(f"{name} was not made by gymnasium.make: evaluation cannot make it again. {WAY_OUT}")
    spec, dropped = copy.copy(spec), {recorder.__name__ for recorder in RECORDERS}
    spec.additional_wrappers = tuple(w for w in spec.additional_wrappers if w.name not in dropped)
    for wrapper in spec.additional_wrappers:
        if wrapper.kwargs is None:
            raise SettingsError(
                f"evaluation cannot make the wrapper {wrapper.name} around {name} again: it does not record its "
                f"arguments (gymnasium.utils.RecordConstructorArgs). {WAY_OUT}"
            )
    made = _from_spec(spec, {})
    kinds, kinds_again = (Counter(type(part) for part in layers(whole)) for whole in (env, made))
    for recorder in RECORDERS:
        del kinds[recorder]
    if kinds != kinds_again:
        made.close()
        lost = ", ".join(sorted(kind.__name__ for kind in (kinds - kinds_again) + (kinds_again - kinds)))
        raise SettingsError(f"made again by its spec, {name} differs in {lost}. {WAY_OUT}")
    return made


def _single_of(envs: VectorEnv[Any, Any, Any]) -> Env:
    """A single environment like those in a vector, with single forms of the wrappers around the vector."""
    name, base = name_of(envs), envs.unwrapped
    around = [layer for layer in layers(envs) if isinstance(layer, VectorWrapper)]
    for wrapper in around:
        if not isinstance(wrapper, (*NEUTRAL, *OBSERVATIONS, *REWARDS)):
            raise SettingsError(
                f"evaluation, which runs single environments, cannot make {type(wrapper).__name__} around the vector "
                f"environment {name} again. {WAY_OUT}"
            )
    made: Env
    if isinstance(base, SyncVectorEnv | AsyncVectorEnv):
        made = base.env_fns[0]()
        if isinstance(base, SyncVectorEnv) and any(made.unwrapped is env.unwrapped for env in base.envs):
            raise SettingsError(f"the functions of {name} return the environments of training again. {WAY_OUT}")
        if isinstance(base, AsyncVectorEnv) and normalisers(made):
            made.close()
            raise SettingsError(
                f"{name} normalises in processes that tremble did not start, so that it cannot read the statistics "
                f"(n_envs and parallel=True start some). {WAY_OUT}"
            )
    elif isinstance(base.spec, EnvSpec) and base.spec.entry_point is not None:
        spec = copy.copy(base.spec)
        spec.kwargs = {key: value for key, value in spec.kwargs.items() if key not in VECTOR_ONLY}
        limit = {"max_episode_steps": spec.kwargs.pop("max_episode_steps", None)}
        made = _from_spec(spec, limit)
    else:
        raise SettingsError(
            f"{name} is a vector environment that does not say how a single one is made, which evaluation needs. "
            f"{WAY_OUT}"
        )
    for wrapper in reversed(around):
        if isinstance(wrapper, OBSERVATIONS):
            made = wrappers.NormalizeObservation(made, wrapper.epsilon)
        elif isinstance(wrapper, REWARDS):
            made = wrappers.NormalizeReward(made, wrapper.gamma, wrapper.epsilon)
    return made


def _from_spec(spec: EnvSpec, options: dict[str, Any]) -> Env:
    try:
        return gymnasium.make(spec, **options)
    except Exception as error:  # any fault of the environment or a wrapper
        raise SettingsError(
            f"evaluation cannot make {spec.id} again from its spec: {type(error).__name__}: {error}. {WAY_OUT}"
        ) from error
