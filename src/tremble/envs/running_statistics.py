"""Running statistics of Gymnasium's normalising wrappers, and of their vector forms.

`NormalizeObservation` and `NormalizeReward` change what an environment returns by means and variances of what it has
returned so far. So they are part of a run: an agent is evaluated under those it was trained with, no longer updated.
They are arrays by name, such as ``observation-0/mean``; number 0 of a kind is the outermost wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from tremble.envs.encoding import UnsupportedSpaceError

Statistics = dict[str, np.ndarray]
OBSERVATIONS = (wrappers.NormalizeObservation, wrappers.vector.NormalizeObservation)
REWARDS = (wrappers.NormalizeReward, wrappers.vector.NormalizeReward)
PARTS = ("mean", "var", "count")
CARRIED = "carried"
"""The discounted sum of rewards that `NormalizeReward` carries from step to step, and into the next episode after a
time limit: part of a run's state, but of no use to an evaluation."""


def layers(env: Any, index: int = 0) -> Iterator[Any]:
    """The wrappers around an environment, outermost first, and the environment itself.

    Of a vector environment in this process, those of the environment at ``index`` in it follow.
    """
    while isinstance(env, gymnasium.Wrapper | gymnasium.vector.VectorWrapper):
        yield env
        env = env.env
    yield env
    if isinstance(env, gymnasium.vector.SyncVectorEnv):
        yield from layers(env.envs[index])


def normalisers(env: Any, index: int = 0) -> dict[str, Any]:
    """The normalising wrappers among `layers`, by name."""
    found: dict[str, Any] = {}
    for layer in layers(env, index):
        kind = "observation" if isinstance(layer, OBSERVATIONS) else "reward" if isinstance(layer, REWARDS) else None
        if kind is not None:
            found[f"{kind}-{sum(name.startswith(kind) for name in found)}"] = layer
    return found


def moments(normaliser: Any) -> Any:
    """Mean, variance and count of a normalising wrapper."""
    return normaliser.obs_rms if isinstance(normaliser, OBSERVATIONS) else normaliser.return_rms


def statistics_of(found: Mapping[str, Any], carried: bool = False) -> Statistics:
    """The statistics of `normalisers`; Gymnasium replaces these arrays and never writes into them."""
    arrays: Statistics = {}
    for name, normaliser in found.items():
        now = moments(normaliser)
        arrays |= {f"{name}/{part}": np.asarray(vars(now)[part]) for part in PARTS}
        if carried and isinstance(normaliser, wrappers.NormalizeReward):
            arrays[f"{name}/{CARRIED}"] = np.array(normaliser.discounted_reward)
    return arrays


def set_statistics(found: Mapping[str, Any], arrays: Statistics) -> None:
    """Give `normalisers` the statistics of others with the same names."""
    for name, normaliser in found.items():
        now = moments(normaliser)
        if missing := [part for part in PARTS if f"{name}/{part}" not in arrays]:
            raise UnsupportedSpaceError(f"there is no {missing[0]} of {name} for {type(normaliser).__name__}")
        mean, var, count = (arrays[f"{name}/{part}"] for part in PARTS)
        if mean.shape != np.shape(now.mean):
            raise UnsupportedSpaceError(
                f"statistics of shape {list(mean.shape)} do not fit {type(normaliser).__name__}: expected "
                f"{list(np.shape(now.mean))}"
            )
        # As Gymnasium has them: an array in place of a number would change rounding.
        now.mean, now.var, now.count = mean[()], var[()], float(count)
        if f"{name}/{CARRIED}" in arrays:
            normaliser.discounted_reward = arrays[f"{name}/{CARRIED}"].copy()


def freeze(env: Any, arrays: Statistics) -> Callable[[], None]:
    """Let an environment for evaluation normalise by these statistics from now on; an error if they do not fit it.

    The function that is returned undoes that, for environments that are used for something else afterwards.
    Rewards may stay as they are although training normalised them, not the other way round.
    """
    found = normalisers(env)
    given = {name.partition("/")[0] for name in arrays}
    if found.keys() - given:
        kinds = " and ".join(sorted({name.partition("-")[0] + "s" for name in found.keys() - given}))
        raise UnsupportedSpaceError(
            f"the environment for evaluation normalises {kinds}, but no statistics to do it by came from training: it "
            "was without, or in processes that tremble did not start. Evaluate without the wrapper, or train again "
            "with it: a function that makes the environment keeps them"
        )
    if lacking := sorted(name for name in given - found.keys() if name.startswith("observation")):
        raise UnsupportedSpaceError(
            "the agent was trained on observations that gymnasium.wrappers.NormalizeObservation normalised "
            f"({len(lacking)} more of these wrappers than here): evaluate it in an environment with the same wrappers"
        )
    before, updating = statistics_of(found, carried=True), {n: x.update_running_mean for n, x in found.items()}
    set_statistics(found, arrays)
    for normaliser in found.values():
        normaliser.update_running_mean = False

    def thaw() -> None:
        set_statistics(found, before)
        for name, normaliser in found.items():
            normaliser.update_running_mean = updating[name]

    return thaw


def check_statistics(arrays: Statistics) -> Statistics:
    """The arrays, if they are statistics as a run writes them; a ValueError otherwise."""
    names = {name.rpartition("/")[0] for name in arrays}
    if arrays.keys() != {f"{name}/{part}" for name in names for part in PARTS}:
        raise ValueError(f"statistics have the parts {', '.join(PARTS)}, got {', '.join(sorted(arrays))}")
    for name in names:
        mean, var, count = (arrays[f"{name}/{part}"] for part in PARTS)
        fits = re.fullmatch(r"(observation|reward)-\d", name) and mean.shape == var.shape and count.shape == ()
        fits = fits and {x.dtype.name for x in (mean, var, count)} <= {"float32", "float64"}
        if not fits or not (np.isfinite(mean).all() and np.isfinite(var).all() and np.isfinite(count)):
            raise ValueError(f"statistics {name} are not finite numbers of one shape")
        if not ((var >= 0).all() and count > 0):
            raise ValueError(f"statistics {name} have a negative variance or no count")
    return arrays
