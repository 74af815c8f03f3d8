"""The library's own environments as finite MDPs, by enumeration."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tremble.core import JaxEnv
from tremble.theory.mdp import FiniteMDP, from_gymnasium
from tremble.worlds.deep_sea import DeepSea, DeepSeaState
from tremble.worlds.nchain import ChainState, NChain
from tremble.worlds.risky_grid import RiskyGrid

Table = dict[int, dict[int, list[tuple[Any, ...]]]]
Nodes = tuple[np.ndarray, np.ndarray]
"""Values of one random number, and their probabilities."""


def chain(env: NChain | None = None, gamma: float = 0.9, nodes: int = 3) -> FiniteMDP:
    """The paper's N-Chain; its Gaussian rewards are replaced by `normal_nodes`."""
    env = env or NChain()
    positions = jnp.arange(env.length)
    states = ChainState(positions, jnp.zeros_like(positions))
    normal = normal_nodes(nodes if float(env.reward_noise) > 0 else 1)
    return from_gymnasium(enumerate_env(env, states, uniform_nodes(0.5), normal), gamma, start=env.start)


def deep_sea(env: DeepSea | None = None, gamma: float = 0.99, nodes: int = 3) -> FiniteMDP:
    """Deep Sea, cell by cell; states in the order of its observations, the end of the episode last."""
    env = env or DeepSea()
    rows, columns = jnp.divmod(jnp.arange(env.size**2), env.size)
    states = DeepSeaState(rows.astype(jnp.int32), columns.astype(jnp.int32))
    normal = normal_nodes(nodes if env.stochastic else 1)
    return from_gymnasium(enumerate_env(env, states, uniform_nodes(env.success), normal), gamma, start=0)


def risky_grid(env: RiskyGrid | None = None, gamma: float = 0.95) -> FiniteMDP:
    """The risky grid, cell by cell; the end of the episode is one more state, the last."""
    env = env or RiskyGrid()
    slip = float(env.slip)
    table = enumerate_env(env, jnp.arange(env.n_cells), uniform_nodes(slip / 2, slip), uniform_nodes(0.5))
    return from_gymnasium(table, gamma, start=env.start)


def enumerate_env(env: JaxEnv, states: Any, first: Nodes, second: Nodes) -> Table:
    """Every state, action and outcome of an environment whose noise is a pair of independent random numbers.

    All combinations go through the environment's own `step`, so its dynamics are defined in one place.
    """
    noise = tuple(grid.ravel() for grid in np.meshgrid(first[0], second[0], indexing="ij"))
    probability = np.outer(first[1], second[1]).ravel()

    def outcome(state: Any, action: Any, noise: Any) -> tuple[Any, Any, Any]:
        after, reward, terminated, _ = env.step(state, action, noise)
        return env.index(after), reward, terminated

    everything = jax.vmap(outcome, (None, None, 0))  # over noise, then actions, then states
    everything = jax.jit(jax.vmap(jax.vmap(everything, (None, 0, None)), (0, None, None)))
    made = everything(states, jnp.arange(env.n_actions), jax.tree.map(jnp.float32, noise))
    arrived, reward, terminated = (np.asarray(array) for array in made)
    reward = np.round(reward.astype(float), 6)  # rounding errors would make two values of one reward
    return {
        s: {
            a: [
                (p, int(arrived[s, a, k]), reward[s, a, k], bool(terminated[s, a, k]))
                for k, p in enumerate(probability)
                if p > 0
            ]
            for a in range(env.n_actions)
        }
        for s in range(arrived.shape[0])
    }


def uniform_nodes(*cuts: float) -> Nodes:
    """A uniform number that matters only through the interval between ``cuts`` it is in: midpoints and lengths."""
    edges = np.array([0.0, *cuts, 1.0])
    return np.array([(low + high) / 2 for low, high in pairwise(edges)]), np.diff(edges)


def normal_nodes(n: int) -> Nodes:
    """Values and probabilities of n points with the moments of N(0, 1) up to order 2n - 1 (Gauss and Hermite).

    Three points have its mean, variance, skewness and kurtosis, so means and variances of returns are exact.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(n)
    return points, weights / weights.sum()
