"""Evaluation: returns of an agent, and the calibration of its predictions, on environments of their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from tremble.core import RandomStream, stream_key
from tremble.criteria import Criterion
from tremble.dist import ReturnDist
from tremble.envs.gym import INFO_NO_BOOTSTRAP, INFO_TRAINING_REWARD
from tremble.envs.masks import INFO_ACTION_MASK, check_masks, stack_masks
from tremble.settings import SettingsError
from tremble.training.evaluation_env import evaluation_env, prepare
from tremble.training.gym_loop import env_seed, environment_faults
from tremble.training.trained import TrainedAgent
from tremble.wasserstein import wasserstein

Ends = Literal["whole_episode", "cut"]
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


FINAL_LEVELS = 21
"""Quantiles of a predicted return that are kept of each episode after training."""
MAX_STEPS = 30_000
"""More than the longest game that a published protocol allows on Atari (27,000 steps)."""


class EvaluationStopped(BaseException):
    """An evaluation was asked to end before it was complete; no fault of the environment, so no `Exception`."""


@dataclass(frozen=True)
class Evaluation:
    """Episodes in order of their numbers."""

    returns: np.ndarray
    """Sum of rewards."""
    discounted: np.ndarray
    """What the agent's distributions are about: with its discount, of the rewards it is trained on, and no further
    than its training looks (on Atari these are clipped, and end with a life)."""
    lengths: np.ndarray
    truncated: np.ndarray
    """Whether a time limit ended the episode: its discounted return then lacks what would have followed."""
    predicted: np.ndarray
    """``[episodes, atoms]``: the return distribution predicted at the start for the action taken there."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    def calibration(self) -> dict[str, Any]:
        """Predicted against what happened: distances of the two distributions, and coverage of the quantiles.

        ``coverage[level]`` is the share of episodes whose discounted return was at most the predicted quantile at
        that level; a calibrated agent's coverage is the level itself.
        """
        pooled = self.predicted.reshape(-1)
        quantiles = dict(zip(LEVELS, np.asarray(_quantiles(self.predicted)), strict=True))
        return {
            "w1": wasserstein(self.discounted, pooled, 1),
            "w2": wasserstein(self.discounted, pooled, 2),
            "mean_predicted": float(self.predicted.mean()),
            "mean_happened": float(self.discounted.mean()),
            "coverage": {str(level): float((self.discounted <= q).mean()) for level, q in quantiles.items()},
            "truncated": float(self.truncated.mean()),
        }

    def row(self) -> dict[str, Any]:
        """For a log."""
        return {
            "mean": self.mean,
            "std": float(self.returns.std()),
            "returns": [float(x) for x in self.returns],
            "lengths": [int(x) for x in self.lengths],
            "calibration": self.calibration(),
        }

    def final_row(self) -> dict[str, Any]:
        """For the log of evaluations after training, which also holds predictions: `FINAL_LEVELS` quantiles each."""
        levels = (np.arange(FINAL_LEVELS) + 0.5) / FINAL_LEVELS
        return self.row() | {
            "discounted": [float(x) for x in self.discounted],
            "truncated": [bool(x) for x in self.truncated],
            "predicted": np.quantile(self.predicted.astype(float), levels, axis=1).T.tolist(),
        }


@dataclass
class _Episode:
    """One episode, under way or over."""

    number: int
    total: float = 0.0
    discounted: float = 0.0
    length: int = 0
    truncated: bool = False
    learned: bool = True
    """Whether what happens is still part of the return as training has it."""
    predicted: np.ndarray | None = None


def evaluate(
    agent: TrainedAgent,
    env: Any,
    *,
    episodes: int = 100,
    steps: int = 0,
    ends: Ends = "whole_episode",
    seed: int = 0,
    criterion: str | Criterion = "mean",
    epsilon: float = 0.0,
    at_once: int = 10,
    max_steps: int = MAX_STEPS,
    on_episode: Callable[[int], None] = lambda done: None,
    stop: Callable[[], bool] = lambda: False,
    **criterion_settings: Any,
) -> Evaluation:
    """Run episodes and act by a criterion; further keyword arguments are its settings (``criterion="cvar", eta=0.1``).

    ``env`` is what `tremble.train` takes: a name, an id, ``module:Class``, a function, or a ready-made environment,
    which is made again with its wrappers (where that is impossible it is used itself). By the name that the agent was
    trained with it has the options of training too. Observations and rewards that training normalised
    (`gymnasium.wrappers.NormalizeObservation`, `NormalizeReward`) are normalised by the statistics of training.
    Returns are sums of the rewards that ``env`` gives: normalised ones if it normalises rewards.

    With ``steps`` an evaluation is as long as one environment that plays episode after episode for so many steps,
    whatever ``episodes`` says; ``ends`` says whether the episode under way then is played out, or left out unless it is
    the only one.

    Episode k is seeded by (seed, k) alone, apart from all seeds of training, so the same seed means the same starts for
    every agent. ``at_once`` episodes run side by side to act in batches; it does not matter to the results which.
    An episode that has not ended after ``max_steps`` is cut, as by a time limit: a bad policy may never end it.
    If ``stop`` returns true after a step, the evaluation ends with `EvaluationStopped`.
    """
    for name, least, value in (
        ("episodes", 0 if steps else 1, episodes),
        ("steps", 0, steps),
        ("at_once", 1, at_once),
        ("max_steps", 1, max_steps),
    ):
        if value < least:
            raise SettingsError(f"{name} of an evaluation must be at least {least}, got {value}")
    spec = agent.spec
    source = evaluation_env(env, spec.env_options if spec is not None and spec.env == env else {})
    n = min(at_once, source.at_once or at_once)
    n = n if steps else min(n, episodes)
    longest = min(max_steps, steps) if steps and ends == "cut" else max_steps
    policy = agent.policy_by(criterion, epsilon, **criterion_settings)
    actors = jax.device_get(policy.init_actors(n))
    starting = np.ones(n, bool)
    gamma = float(agent.agent.gamma)
    begun: list[_Episode] = []
    playing: list[_Episode | None] = [None] * n
    obs = np.zeros((n, *agent.encoder.shape), agent.encoder.dtype)
    masks: list[Any] = [None] * n
    expected: bool | None = None
    """Whether the environment gives masks, as its first observation says."""
    envs: list[gymnasium.Env[Any, Any]] = []

    def begin(i: int) -> None:
        """The next episode, if there is to be one: with a budget, while fewer steps are made than it has."""
        made = sum(episode.length for episode in begun)
        if made >= steps if steps else len(begun) >= episodes:
            playing[i] = None
            return
        playing[i] = next_one = _Episode(len(begun))
        begun.append(next_one)
        starting[i] = True
        first, info = envs[i].reset(seed=env_seed(seed, RandomStream.EVALUATE, next_one.number))
        obs[i], masks[i] = agent.encoder(first), info.get(INFO_ACTION_MASK)

    with ExitStack() as stack:
        for _ in range(n):
            envs.append(source())
            stack.callback(envs[-1].close)
            stack.callback(prepare(envs[-1], source.name, agent.encoder, agent.actions, agent.statistics))
        if len({id(env.unwrapped) for env in envs}) < n:
            raise SettingsError(f"{source.name} returned the same environment again: it must make a new one each time")
        stack.enter_context(environment_faults("the environment failed during evaluation"))
        for i in range(n):
            begin(i)
        finished = 0
        while any(playing):
            if stop():
                raise EvaluationStopped
            mask, acting = stack_masks(masks, agent.actions), [i for i, e in enumerate(playing) if e is not None]
            expected = mask is not None if expected is None else expected
            check_masks(None if mask is None else mask[acting], expected, source.name, "in an evaluation")
            now = np.array([(e.number, e.length) if e else (0, 0) for e in playing], np.int32)
            actors = eqx.tree_at(lambda a: a.episode_start, actors, starting)
            chosen, actors = policy.act(actors, obs, mask, _step_keys(np.int32(seed), *now.T))
            actions, starting = np.asarray(chosen), np.zeros(n, bool)
            if any(e is not None and e.length == 0 for e in playing):
                atoms = np.asarray(agent.predict_encoded(obs).atoms)
            for i, episode in enumerate(playing):
                if episode is None:
                    continue
                if episode.length == 0:
                    episode.predicted = atoms[i, actions[i]]
                after, reward, terminated, truncated, info = envs[i].step(agent.actions.own(actions[i]))
                episode.total += float(reward)
                episode.discounted += (
                    gamma**episode.length * float(info.get(INFO_TRAINING_REWARD, reward)) * episode.learned
                )
                episode.learned &= not info.get(INFO_NO_BOOTSTRAP, False)
                episode.length += 1
                obs[i], masks[i] = agent.encoder(after), info.get(INFO_ACTION_MASK)
                if terminated or truncated or episode.length >= longest:
                    episode.truncated = not terminated
                    finished += 1
                    on_episode(finished)
                    begin(i)
    if not steps and all(episode.length >= max_steps for episode in begun):
        warnings.warn(
            f"no evaluation episode of {source.name} ended within {max_steps:,} steps, where they are cut: give the "
            "environment a time limit (gymnasium.wrappers.TimeLimit), or evaluate with max_steps=",
            stacklevel=2,
        )
    counted = within(begun, steps, ends) if steps else begun
    return Evaluation(
        np.array([e.total for e in counted]),
        np.array([e.discounted for e in counted]),
        np.array([e.length for e in counted], np.int64),
        np.array([e.truncated for e in counted]),
        np.stack([e.predicted for e in counted if e.predicted is not None]),
    )


@jax.jit
def _step_keys(seed: Int[Array, ""], number: Int[Array, "n"], step: Int[Array, "n"]) -> Key[Array, "n"]:
    """The keys by which actions are chosen in these steps of these episodes."""
    base = stream_key(seed, RandomStream.EVALUATE)
    return jax.vmap(lambda k, t: jax.random.fold_in(jax.random.fold_in(base, k), t))(number, step)


@jax.jit
def _quantiles(atoms: Float[Array, "episodes atoms"]) -> Float[Array, "levels episodes"]:
    """The predicted quantiles at `LEVELS`."""
    dist = ReturnDist(atoms)
    return jnp.stack([dist.quantile(level) for level in LEVELS])


def within(begun: list[_Episode], steps: int, ends: Ends) -> list[_Episode]:
    """Those of the episodes that one environment would have played in so many steps.

    All of them have been begun: each was, while fewer steps had been made than the budget, and those before it alone
    are no more than were made.
    """
    until = np.cumsum([episode.length for episode in begun])
    before = until - [episode.length for episode in begun]
    count = int((before < steps).sum() if ends == "whole_episode" else (until <= steps).sum())
    return begun[: max(count, 1)]
