"""The perturbed distributional Bellman optimality operator of the paper, exactly, on finite MDPs.

    T_xi Z(s, a) = R(s, a) + gamma Z(S', a*(S', xi)),    a*(s, xi) = argmax_a E_xi[Z(s, a)].

Distributions are probabilities on one grid that covers all returns. On such a grid a mixture is a sum, and the shift by
a reward is a fixed matrix, so that an iteration is two matrix products. The projection to the grid splits an atom
between its two neighbours, which preserves the mean, so means are exact (Bellemare, Dabney and Munos 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from tremble.criteria.perturbed import perturbation, sample_dirichlet
from tremble.theory.mdp import FiniteMDP, QValues

Distributions = Float[Array, "states actions n"]
"""Probabilities on a grid for every state and action."""
Density = Float[Array, "bins"]
"""xi, or a point of the simplex, on equal bins of levels."""
Scaling = Literal["theory", "direct", "edge"]
"""How a draw x and a bound Delta make xi. ``theory``: alpha = Delta / ((N - 1) V_max), always inside the ambiguity set.
``direct``: alpha = Delta, as in the algorithm, which does not know V_max; it may be outside. ``edge``: alpha such that
the largest gap over states and actions is Delta, or 1 if that is smaller."""


class Grid(eqx.Module):
    """Equally spaced support ``points[n]`` that covers every return, and the backup onto it."""

    points: Float[Array, "n"]
    backups: Float[Array, "rewards n n"]
    """Row j of matrix d: where probability at r_d + gamma points_j goes."""
    zero: Float[Array, "n"]
    """The distribution of the return 0."""

    @staticmethod
    def of(mdp: FiniteMDP, n: int = 51) -> Grid:
        """A grid from -V_max to V_max."""
        bound = jnp.maximum(mdp.v_max(), 1e-6)
        points = jnp.linspace(-1.0, 1.0, n) * bound
        shifted = mdp.rewards[:, None] + mdp.gamma * points[None, :]
        return Grid(points, project(shifted, points), project(jnp.zeros(()), points))

    def level_means(self, probabilities: Float[Array, "*batch n"], n_bins: int) -> Float[Array, "*batch n_bins"]:
        """M_k = n_bins int Q_Z(u) du over the k-th bin of levels, so that E_xi[Z] = (1/n_bins) sum_k xi_k M_k.

        The same as `tremble.criteria.perturbed.reweighted_mean`, for all xi at once. By parts, with the top point t and
        the spacing h, M_k = t - h sum_n (share of bin k below F_n).
        """
        below = jnp.cumsum(probabilities, -1)[..., :-1, None] * n_bins - jnp.arange(n_bins)
        # From the ends: the difference of two neighbours has lost digits.
        spacing = (self.points[-1] - self.points[0]) / (self.points.shape[0] - 1)
        return self.points[-1] - spacing * jnp.clip(below, 0.0, 1.0).sum(-2)


def project(values: Float[Array, "*batch"], points: Float[Array, "n"]) -> Float[Array, "*batch n"]:
    """Probabilities on an equally spaced grid of a unit mass at each value, split so that the mean is kept."""
    spacing = points[1] - points[0]
    return jnp.clip(1.0 - jnp.abs(values[..., None] - points) / spacing, 0.0, 1.0)


def apply(mdp: FiniteMDP, grid: Grid, z: Distributions, choice: Int[Array, "states"]) -> Distributions:
    """R + gamma Z(S', choice(S')), projected onto the grid."""
    future = jnp.take_along_axis(z, choice[:, None, None], 1)[:, 0]
    future = jnp.where(mdp.terminal[:, None], grid.zero, future)
    # Shift first, then mix: there are fewer states than pairs of state and action.
    shifted = jnp.einsum("tn,dnm->dtm", future, grid.backups)
    mixed = jnp.einsum("dsat,dtm->sam", mdp.law, shifted)
    return mixed / mixed.sum(-1, keepdims=True)  # against float32 drift over many iterations


class Step(eqx.Module):
    """One iteration."""

    z: Distributions
    """Z^(n) = T_xi Z^(n-1)."""
    gap: Float[Array, ""]
    """sup over (s, a) of |E_xi Z^(n-1) - E Z^(n-1)|, measured."""
    loss: QValues
    """E T Z^(n-1) - E T_xi Z^(n-1): loss by selecting with xi in this iteration."""
    q: QValues
    """E Z^(n)."""


def perturbed_step(mdp: FiniteMDP, grid: Grid, z: Distributions, xi: Density) -> Step:
    """T_xi applied once: selection with xi, evaluation without it. ``xi = 1`` is the ordinary operator."""
    mean, score = z @ grid.points, (grid.level_means(z, xi.shape[-1]) * xi).mean(-1)
    new = apply(mdp, grid, z, jnp.argmax(score, -1))
    q = new @ grid.points
    # E T is an operator on means.
    plain = mdp.backup(mean.max(-1))
    return Step(new, jnp.abs(score - mean).max(), plain - q, q)


def scaled(
    mdp: FiniteMDP, grid: Grid, z: Distributions, x: Density, delta: Float[Array, ""], scaling: Scaling
) -> Density:
    """xi from a point x of the simplex and a bound Delta."""
    if scaling == "direct":
        return perturbation(x, delta)
    if scaling == "theory":
        return perturbation(x, delta / (max(x.shape[-1] - 1, 1) * mdp.v_max()))
    # For alpha <= 1 nothing is clipped and the gap is proportional to alpha.
    whole = jnp.abs(grid.level_means(z, x.shape[-1]) @ x - z @ grid.points).max()
    return perturbation(x, jnp.minimum(delta / jnp.maximum(whole, 1e-12), 1.0))


Draw = Callable[[PRNGKeyArray, FiniteMDP, Grid, Distributions, Array], Density]
"""Chooses xi of an iteration from a key, the MDP, the grid, Z and the bound Delta_n."""


def random_draw(n_bins: int, beta: float = 0.05, scaling: Scaling = "edge") -> Draw:
    """x ~ Dir(beta), scaled: the paper's way to sample from the ambiguity set; one xi for all states and actions."""

    def draw(key: PRNGKeyArray, mdp: FiniteMDP, grid: Grid, z: Array, delta: Array) -> Array:
        return scaled(mdp, grid, z, sample_dirichlet(key, n_bins, beta), delta, scaling)

    return draw


def top_draw(n_bins: int) -> Draw:
    """Always the highest level: optimism, the paper's OPT."""

    def draw(key: PRNGKeyArray, mdp: FiniteMDP, grid: Grid, z: Array, delta: Array) -> Array:
        return scaled(mdp, grid, z, jax.nn.one_hot(n_bins - 1, n_bins), delta, "edge")

    return draw


def worst_draw(n_bins: int) -> Draw:
    """The vertex of the simplex with the largest loss, scaled to the bound: the worst case for the bounds."""

    def draw(key: PRNGKeyArray, mdp: FiniteMDP, grid: Grid, z: Array, delta: Array) -> Array:
        mean, corners = z @ grid.points, jnp.eye(n_bins)
        # Scores are linear in alpha; the loss depends only on the choices.
        away = jnp.moveaxis(grid.level_means(z, n_bins), -1, 0) - mean
        alpha = jnp.minimum(delta / jnp.maximum(jnp.abs(away).max((-2, -1)), 1e-12), 1.0)
        choice = jnp.argmax(mean + alpha[:, None, None] * away, -1)
        missed = mean.max(-1) - jax.vmap(lambda a: jnp.take_along_axis(mean, a[:, None], -1)[:, 0])(choice)
        damage = jnp.einsum("sat,kt->ksa", mdp.continuation(), missed).max((-2, -1))
        worst = jnp.argmax(damage)
        return perturbation(corners[worst], alpha[worst])

    return draw


class Trajectory(eqx.Module):
    """Iterations 1 .. n, with the start as e_0."""

    gaps: Float[Array, "n"]
    losses_low: Float[Array, "n"]
    """Smallest entry of E T Z - E T_xi Z at each iteration."""
    losses_high: Float[Array, "n"]
    errors: Float[Array, "n_plus_1"]
    """e_0 .. e_n with e_k = ||E Z^(k) - Q*||, the largest entry."""


def iterate(
    mdp: FiniteMDP, grid: Grid, draw: Draw, deltas: Float[Array, "n"], key: PRNGKeyArray, optimal_q: QValues
) -> Trajectory:
    """Z^(n) = T_{xi_n} Z^(n-1) from Z^(0) = 0, one xi per iteration, chosen within the bound Delta_n."""

    def step(z: Array, inputs: tuple[Array, Array]) -> tuple[Array, Step]:
        delta, number = inputs
        xi = draw(jax.random.fold_in(key, number), mdp, grid, z, delta)
        made = perturbed_step(mdp, grid, z, xi)
        return made.z, eqx.tree_at(lambda s: s.z, made, jnp.zeros(()))

    start = jnp.broadcast_to(grid.zero, (mdp.n_states, mdp.n_actions, grid.points.shape[0]))
    _, steps = jax.lax.scan(step, start, (deltas, jnp.arange(deltas.shape[0])))
    first = jnp.abs(start @ grid.points - optimal_q).max()
    errors = jnp.concatenate([first[None], jnp.abs(steps.q - optimal_q).max((-2, -1))])
    return Trajectory(steps.gap, steps.loss.min((-2, -1)), steps.loss.max((-2, -1)), errors)
