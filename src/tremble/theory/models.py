"""Known problems as finite MDPs: the library's own environments, enumerated, and a grid with a tempting short cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tremble.core import JaxEnv
from tremble.theory.mdp import FiniteMDP, from_gymnasium
from tremble.worlds.deep_sea import DeepSea, DeepSeaState
from tremble.worlds.nchain import ChainState, NChain

Table = dict[int, dict[int, list[tuple[Any, ...]]]]


def chain(env: NChain | None = None, gamma: float = 0.9, nodes: int = 3) -> FiniteMDP:
    """The paper's N-Chain; see `normal_nodes` for what becomes of its Gaussian rewards."""
    env = env or NChain()
    positions = jnp.arange(env.length)
    states = ChainState(positions, jnp.zeros_like(positions))
    table = enumerate_env(env, states, [0.5], nodes if float(env.reward_noise) > 0 else 1)
    return from_gymnasium(table, gamma, start=env.start)


def deep_sea(env: DeepSea | None = None, gamma: float = 0.99, nodes: int = 3) -> FiniteMDP:
    """Deep Sea, cell by cell; states in the order of its observations, the end of the episode last."""
    env = env or DeepSea()
    rows, columns = jnp.divmod(jnp.arange(env.size**2), env.size)
    states = DeepSeaState(rows.astype(jnp.int32), columns.astype(jnp.int32))
    table = enumerate_env(env, states, [env.success], nodes if env.stochastic else 1)
    return from_gymnasium(table, gamma, start=0)


def enumerate_env(env: JaxEnv, states: Any, cuts: Sequence[float], nodes: int) -> Table:
    """Every state, action and outcome of an environment whose noise is one uniform and one normal number.

    Outcomes change with the uniform number only at the ``cuts``; the normal one is replaced by ``nodes`` values. All
    combinations go through the environment's own `step`, so that there is one description of its dynamics.
    """
    edges = np.array([0.0, *cuts, 1.0])
    uniforms = [(low + high) / 2 for low, high in pairwise(edges)]
    normals, masses = normal_nodes(nodes)

    def outcome(state: Any, action: Any, noise: Any) -> tuple[Any, Any, Any]:
        after, reward, terminated, _ = env.step(state, action, noise)
        return env.index(after), reward, terminated

    everything = jax.vmap(outcome, (None, None, 0))  # over noise, then actions, then states
    everything = jax.jit(jax.vmap(jax.vmap(everything, (None, 0, None)), (0, None, None)))
    noise = tuple(grid.ravel() for grid in np.meshgrid(uniforms, normals, indexing="ij"))
    probability = np.outer(np.diff(edges), masses).ravel()
    made = everything(states, jnp.arange(env.n_actions), jax.tree.map(jnp.float32, noise))
    arrived, reward, terminated = (np.asarray(array) for array in made)
    reward = np.round(reward.astype(float), 6)  # the same reward by two ways differs in its last bits
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


def normal_nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and probabilities of n points with the moments of N(0, 1) up to order 2n - 1 (Gauss and Hermite).

    Three points have its mean, variance, skewness and kurtosis, so means and variances of returns are exact.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(n)
    return points, weights / weights.sum()


def risky_grid(
    width: int = 5,
    height: int = 3,
    stake: float = 1.0,
    loss: float = 0.2,
    step_cost: float = 0.05,
    slip: float = 0.1,
    gamma: float = 0.95,
) -> FiniteMDP:
    """From the bottom left to the bottom right, where 1 is paid: around, or straight on over cells that gamble.

    Entering a cell of the bottom row between the two corners adds +``stake`` or -``stake``, with equal chances, and
    costs ``loss``. Around is better on average, straight on varies more. A move goes sideways with probability
    ``slip``; actions are up, right, down, left, and walls stop.
    """
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    bottom, goal = height - 1, width - 1

    def outcomes(row: int, column: int, action: int) -> list[tuple[Any, ...]]:
        found = []
        for turn, probability in ((0, 1 - slip), (1, slip / 2), (3, slip / 2)):
            down, right = moves[(action + turn) % 4]
            r, c = min(max(row + down, 0), bottom), min(max(column + right, 0), goal)
            done = r == bottom and c == goal
            gambles = r == bottom and 0 < c < goal and (r, c) != (row, column)
            mean = -step_cost + (1.0 if done else 0.0) - (loss if gambles else 0.0)
            for sign in (-1, 1):
                found.append((probability / 2, r * width + c, round(mean + gambles * sign * stake, 6), done))
        return found

    table = {
        row * width + column: {a: outcomes(row, column, a) for a in range(4)}
        for row in range(height)
        for column in range(width)
    }
    return from_gymnasium(table, gamma, start=bottom * width)
