"""The smaller statements of the paper's appendix, each as a function that returns its two sides.

Most of them hold. Tests check them numerically, and show that some do not hold as stated (`uniform_gap` with
``bounded = "mean"``, and `tremble.theory.counterexamples`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from tremble.dist import ReturnDist
from tremble.theory.atoms import mixture
from tremble.theory.mdp import FiniteMDP, QValues


class Sides(NamedTuple):
    """The claim is ``left <= right``."""

    left: Float[Array, ""]
    right: Float[Array, ""]


def supremum_of_sum(f: Float[Array, "x"], g: Float[Array, "x"]) -> Sides:
    """Lemma 1: sup |f + g| <= sup |f| + sup |g|."""
    return Sides(jnp.abs(f + g).max(), jnp.abs(f).max() + jnp.abs(g).max())


def difference_of_suprema(f: Float[Array, "x"], g: Float[Array, "x"], same_point: bool = False) -> Sides:
    """Lemma 2: |sup f - sup g| <= sup over x and x' of |f(x) - g(x')|.

    The proofs use a stronger form, ``same_point``: <= sup over x of |f(x) - g(x)|. It holds too, and is a step of the
    lemma's own proof.
    """
    far = f - g if same_point else f[:, None] - g[None, :]
    return Sides(jnp.abs(f.max() - g.max()), jnp.abs(far).max())


def closure(mdp: FiniteMDP, z: ReturnDist, choice: Array) -> Sides:
    """E|T_xi Z| <= R_max + gamma sup E|Z| for any selection; <= V_max if E|Z| <= V_max everywhere."""
    after = mixture(mdp, z, choice)
    size = jnp.where(mdp.terminal[:, None], 0.0, (z.weights * jnp.abs(z.atoms)).sum(-1)).max()
    left = (after.weights * jnp.abs(after.atoms)).sum(-1).max()
    return Sides(left, jnp.abs(mdp.rewards).max() + mdp.gamma * size)


def contraction(mdp: FiniteMDP, first: QValues, second: QValues) -> Sides:
    """||E T Z_1 - E T Z_2|| <= gamma ||E Z_1 - E Z_2||: E T is the optimality operator on means.

    So the mean has one fixed point, Q*. T_xi is no contraction, nor is T on distributions.
    """
    left = jnp.abs(mdp.backup(first.max(-1)) - mdp.backup(second.max(-1))).max()
    return Sides(left, mdp.gamma * jnp.abs(first - second).max())


def uniform_gap(
    xi: Float[Array, "bins"], v_max: float | Float[Array, ""], bounded: Literal["values", "mean"] = "values"
) -> Float[Array, ""]:
    """sup over Z of |E_xi Z - E Z|, in closed form, with G(u) = int_0^u xi.

    ``values``, |Z| <= V_max: the extreme Z jump from -V_max to V_max at some level c, so it is 2 V_max sup |G(c) - c|.
    It is at most V_max E|xi - 1|, and vanishes if a bounded xi tends to 1 in probability.

    ``mean``, E|Z| <= V_max, the class of the paper: the extreme Z have all of it above or below some level, so it is
    V_max times the largest deviation from 1 of a mean of xi over an upper or a lower part. It does *not* vanish then: a
    xi of 2 on the top share 1/n tends to 1 in probability, and the supremum stays V_max.
    """
    n = xi.shape[0]
    level = jnp.arange(n + 1) / n
    mass = jnp.concatenate([jnp.zeros(1), jnp.cumsum(xi) / n])
    if bounded == "values":
        return 2 * v_max * jnp.abs(mass - level).max()
    lower = jnp.abs(mass[1:] / level[1:] - 1).max()
    upper = jnp.abs((mass[-1] - mass[:-1]) / (1 - level[:-1]) - 1).max()
    return v_max * jnp.maximum(lower, upper)
