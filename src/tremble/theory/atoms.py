"""Distributional dynamic programming with moving atoms: exact atoms, merged beyond a capacity, or quantiles.

    T_xi Z(s, a) = sum_{d, s'} p(r_d, s' | s, a)  law of  r_d + gamma Z(s', a*(s')),

a mixture of shifted copies with rewards x states x atoms atoms, which has to be reduced: `merged` keeps all atoms up to
a capacity and merges the nearest ones beyond it, which preserves the mean; `quantiles` keeps N quantiles, which does
not (`AtomStep.bias`). Everything can be vectorised over MDPs with `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from tremble.criteria.perturbed import reweighted_mean
from tremble.dist import ReturnDist
from tremble.theory.mdp import FiniteMDP, QValues

Reduction = Callable[[ReturnDist], ReturnDist]
"""From a mixture with sorted atoms to a distribution with fewer atoms."""


def mixture(mdp: FiniteMDP, z: ReturnDist, choice: Int[Array, "states"]) -> ReturnDist:
    """R + gamma Z(S', choice(S')) exactly, atoms increasing.

    From ``z.atoms[states, actions, n]`` to ``[states, actions, rewards * states * n]``.
    """
    row = jnp.arange(mdp.n_states)
    # The return of a terminal state is 0.
    future = jnp.where(mdp.terminal[:, None], 0.0, z.atoms[row, choice])
    atoms = (mdp.rewards[:, None, None] + mdp.gamma * future).reshape(-1)
    order = jnp.argsort(atoms)  # states and actions differ in the masses only
    mass = jnp.einsum("dsat,tn->sadtn", mdp.law, z.weights[row, choice])
    mass = mass.reshape(*mass.shape[:2], -1)[..., order]
    mass = mass / mass.sum(-1, keepdims=True)
    return ReturnDist(jnp.broadcast_to(atoms[order], mass.shape), mass)


def merged(capacity: int) -> Reduction:
    """At most ``capacity`` atoms: cut at the largest gaps between neighbours, and replace each group by its mean.

    Equal atoms have no gap between them, so the reduction is exact while there are at most ``capacity`` different
    values. It preserves the mean.
    """

    def one(atoms: Float[Array, "m"], mass: Float[Array, "m"]) -> tuple[Array, Array]:
        # Atoms without mass take the value of the one before, so that they do not count.
        filled = jax.lax.cummax(jnp.where(mass > 0, atoms, -jnp.inf))
        filled = jnp.where(jnp.isfinite(filled), filled, jnp.where(mass > 0, atoms, jnp.inf).min())
        gaps = jnp.diff(filled, prepend=filled[:1])
        width, place = jax.lax.top_k(gaps, min(capacity - 1, gaps.shape[0] - 1))
        group = jnp.cumsum(jnp.zeros(gaps.shape, jnp.int32).at[place].set((width > 0).astype(jnp.int32)))
        weight = jax.ops.segment_sum(mass, group, capacity)
        # Relative to the first of a group, which rounds less than a weighted sum of the values.
        first = jax.ops.segment_min(filled, group, capacity)
        offset = jax.ops.segment_sum(mass * (filled - first[group]), group, capacity)
        at = first + offset / jnp.where(weight > 0, weight, 1.0)
        return jnp.where(weight > 0, at, filled[-1]), weight

    def reduce(dist: ReturnDist) -> ReturnDist:
        return ReturnDist(*jnp.vectorize(one, signature="(m),(m)->(c),(c)")(dist.atoms, dist.weights))

    return reduce


def quantiles(n: int) -> Reduction:
    """N atoms of equal mass at the levels (i - 1/2)/N: the nearest such distribution in W1; the mean changes."""

    def reduce(dist: ReturnDist) -> ReturnDist:
        levels = (jnp.arange(n) + 0.5) / n
        reached = jnp.vectorize(jnp.searchsorted, signature="(m),(n)->(n)")(dist.cumulative(), levels - 1e-6)
        return ReturnDist(jnp.take_along_axis(dist.atoms, jnp.minimum(reached, dist.n_atoms - 1), -1))

    return reduce


class AtomStep(eqx.Module):
    """One iteration with moving atoms."""

    z: ReturnDist
    """T_xi Z after the reduction, ``atoms[states, actions, n]``."""
    full: ReturnDist
    """T_xi Z before it, ``atoms[states, actions, rewards * states * n]``."""
    q: QValues
    """E T_xi Z, before the reduction."""
    bias: QValues
    """Mean after the reduction minus `q`: 0 up to rounding when merging, not for quantiles."""
    gap: Float[Array, ""]
    """sup over (s, a) of |E_xi Z - E Z|."""


def atom_step(mdp: FiniteMDP, z: ReturnDist, xi: Float[Array, "bins"], reduce: Reduction) -> AtomStep:
    """T_xi and a reduction: selection with xi, evaluation without it."""
    mean, score = z.mean(), reweighted_mean(z, xi)
    full = mixture(mdp, z, jnp.argmax(score, -1))
    kept, q = reduce(full), full.mean()
    return AtomStep(kept, full, q, kept.mean() - q, jnp.abs(score - mean).max())


def zero(mdp: FiniteMDP, n: int, weighted: bool = True) -> ReturnDist:
    """The return 0 everywhere, as n atoms: the first with all the mass, or (for quantiles) with equal masses."""
    shape = (mdp.n_states, mdp.n_actions, n)
    first = jnp.broadcast_to(jnp.zeros(n).at[0].set(1.0), shape)
    return ReturnDist(jnp.zeros(shape), first if weighted else None)
