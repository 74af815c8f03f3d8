"""Criteria for atoms that are estimates of one value by different heads."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Clock, Noise
from tremble.criteria.base import Criterion, RiskMeasure
from tremble.dist import ReturnDist


class RandomAtom(Criterion):
    """score(a) = atom k of action a, the same k for all actions, drawn uniformly.

    With a bootstrapped ensemble and one draw per episode (``resample_noise_every = "episode"``) this follows one head
    at a time: a sample of what the best action may be. On other atoms it is a random level of the return.
    """

    def draw(self, key: PRNGKeyArray) -> Noise:
        """u ~ U(0, 1), so that the criterion need not know how many atoms there are."""
        return jax.random.uniform(key)

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """Atom floor(u n) of every action; with unequal masses, the one whose share of the mass u falls into."""
        if dist.equal_mass:
            # The product may be rounded up to n.
            k = jnp.minimum((noise * dist.n_atoms).astype(int), dist.n_atoms - 1)
            return jnp.take(dist.atoms, k, axis=-1)
        at = jnp.argmax(dist.cumulative() > noise, -1)
        return jnp.take_along_axis(dist.atoms, at[..., None], -1)[..., 0]


class MajorityVote(RiskMeasure):
    """score(a) = share of the atoms k for which a is the best action; equal shares are decided by the mean.

    The published way to test Bootstrapped DQN. Actions that are equally good for an atom share its vote. Unlike every
    other criterion this one compares: the score of an action depends on the other actions.
    """

    def measure(self, dist: ReturnDist) -> Float[Array, "*batch actions"]:
        """Shares of the mass, and so little for the order of the means that it decides between equal shares only."""
        n_actions, n_atoms = dist.atoms.shape[-2:]
        best = dist.atoms == dist.atoms.max(-2, keepdims=True)
        votes = (best / best.sum(-2, keepdims=True) * dist.weights).sum(-1)
        mean = dist.mean()
        rank = (mean[..., :, None] > mean[..., None, :]).sum(-1)
        return votes + 1e-4 * rank / (n_actions * n_atoms)
