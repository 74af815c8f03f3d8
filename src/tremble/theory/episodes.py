"""Learning from samples on a finite MDP: episodes and their regret.

By the performance difference lemma V*(s_0) - V^pi(s_0) = E sum_h gamma^h (V*(s_h) - Q*(s_h, a_h)). The sum under the
expectation, with the exact Q*, is recorded for each episode: an estimate of its regret without the noise of rewards.
Episodes truncated at the horizon omit the rest of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from tremble.core import Clock
from tremble.theory.mdp import FiniteMDP, QValues

Index = Int[Array, ""]
"""Number of a state or an action."""


class Episode(eqx.Module):
    """Transitions in order, or one of them; those after the end of the episode are not ``alive``."""

    state: Int[Array, "*steps"]
    action: Int[Array, "*steps"]
    reward: Float[Array, "*steps"]
    discount: Float[Array, "*steps"]
    """gamma, or 0 where the step ended the episode."""
    following: Int[Array, "*steps"]
    alive: Bool[Array, "*steps"]


@runtime_checkable
class Learner(Protocol):
    """Interface of a tabular agent that learns after each episode."""

    def init(self, n_states: int, n_actions: int, key: PRNGKeyArray) -> PyTree:
        """Initial beliefs."""
        ...

    def begin(self, belief: PyTree, key: PRNGKeyArray, clock: Clock) -> Any:
        """What is drawn or planned at the start of an episode and kept to its end."""
        ...

    def act(self, belief: PyTree, plan: Any, state: Index, key: PRNGKeyArray, clock: Clock) -> Index:
        """An action."""
        ...

    def learn(self, belief: PyTree, episode: Episode, key: PRNGKeyArray, clock: Clock) -> PyTree:
        """Beliefs after an episode."""
        ...


Sampler = Callable[[Array, Array, PRNGKeyArray], tuple[Float[Array, ""], Index, Bool[Array, ""]]]
"""From state, action and key to reward, next state, and whether it is terminal."""


def sampler(mdp: FiniteMDP) -> Sampler:
    """Draws transitions of an MDP; outcomes are pairs of reward and next state."""
    joint = jnp.moveaxis(mdp.law, 0, 2).reshape(mdp.n_states, mdp.n_actions, -1)
    cumulative = jnp.cumsum(joint, -1)
    cumulative = cumulative / cumulative[..., -1:]

    def draw(state: Array, action: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        outcome = (cumulative[state, action] <= jax.random.uniform(key)).sum()
        reward, following = jnp.divmod(outcome, mdp.n_states)
        return mdp.rewards[reward], following, mdp.terminal[following]

    return draw


def regret(
    mdp: FiniteMDP, optimal_q: QValues, learner: Learner, episodes: int, horizon: int, key: PRNGKeyArray
) -> Float[Array, "episodes"]:
    """Regret of each episode. Vectorise over seeds with `jax.vmap` over ``key``."""
    draw = sampler(mdp)
    loss = optimal_q.max(-1, keepdims=True) - optimal_q
    init_key, play_key = jax.random.split(key)

    def step(carry: tuple[Any, ...], step_key: PRNGKeyArray) -> tuple[tuple[Any, ...], Episode]:
        belief, plan, state, alive, clock = carry
        act_key, draw_key = jax.random.split(step_key)
        action = learner.act(belief, plan, state, act_key, clock)
        reward, following, ended = draw(state, action, draw_key)
        record = Episode(state, action, reward, jnp.where(ended, 0.0, mdp.gamma), following, alive)
        clock = eqx.tree_at(lambda c: c.transitions, clock, jnp.asarray(clock.transitions) + alive)
        return (belief, plan, following, alive & ~ended, clock), record

    def episode(carry: tuple[PyTree, Clock], number: Int[Array, ""]) -> tuple[tuple[PyTree, Clock], Float[Array, ""]]:
        belief, clock = carry
        keys = jax.random.split(jax.random.fold_in(play_key, number), horizon + 2)
        plan = learner.begin(belief, keys[0], clock)
        start = (belief, plan, jnp.asarray(mdp.start, jnp.int32), jnp.asarray(True), clock)
        (_, _, _, _, clock), made = jax.lax.scan(step, start, keys[2:])
        belief = learner.learn(belief, made, keys[1], clock)
        clock = eqx.tree_at(lambda c: c.episodes, clock, jnp.asarray(clock.episodes) + 1)
        weight = mdp.gamma ** jnp.arange(horizon) * made.alive
        return (belief, clock), (weight * loss[made.state, made.action]).sum()

    none = jnp.asarray(0)
    begin = (learner.init(mdp.n_states, mdp.n_actions, init_key), Clock(none, none, none, none))
    return jax.lax.scan(episode, begin, jnp.arange(episodes))[1]
