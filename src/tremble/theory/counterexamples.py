"""Small MDPs as counter-examples: statements that fail without a condition, or fail as stated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from tremble.dist import ReturnDist
from tremble.theory.mdp import FiniteMDP, from_gymnasium, random_mdp
from tremble.theory.operator import Draw, Grid, iterate


def gamble(gamma: float = 0.9, loss: float = 1.5) -> FiniteMDP:
    """One step, then a choice: 0 for sure, or +1 and -``loss`` with equal chances (mean -0.25).

    Optimism of constant size always gambles, with an error of gamma / 4 at the first state; random perturbations of
    constant size do so infinitely often.
    """
    choice = {0: [(1.0, 0, 0.0, True)], 1: [(0.5, 0, 1.0, True), (0.5, 0, -loss, True)]}
    return from_gymnasium({0: {a: [(1.0, 1, 0.0, False)] for a in (0, 1)}, 1: choice}, gamma)


def tie(gamma: float = 0.9) -> FiniteMDP:
    """As `gamble`, with +1 and -1: both choices have mean 0, so the optimal *return* is not unique.

    Perturbations that tend to 1 may alternate between the two: the mean of the iterates is Q* from the start, their
    distribution does not converge.
    """
    return gamble(gamma, loss=1.0)


def concentrated(n: int, gamma: float = 0.5) -> tuple[FiniteMDP, ReturnDist, Float[Array, "n"]]:
    """Against uniform convergence on all Z with E|Z| <= V_max: an MDP, a Z and a xi, for each n.

    One state, reward 1, so V_max = 1/(1 - gamma). xi is 2 on the top share 1/n of the levels and a little below 1
    elsewhere: it tends to 1 in probability and is bounded. Z(a_0) = 0.8 V_max surely; Z(a_1) = n V_max / 2 with
    probability 1/n, else 0, of mean V_max / 2. T takes a_0, T_xi sees a_1 as V_max and takes it: E T Z - E T_xi Z is
    0.3 gamma V_max for every n.
    """
    mdp = FiniteMDP(jnp.ones((1, 1, 2, 1)), jnp.ones(1), jnp.zeros(1, bool), gamma)
    bound = 1.0 / (1.0 - gamma)
    atoms = jnp.array([[[0.8 * bound, 0.8 * bound], [0.0, n * bound / 2]]])
    weights = jnp.array([1.0 - 1.0 / n, 1.0 / n])
    xi = jnp.full(n, (n - 2) / (n - 1)).at[-1].set(2.0)
    return mdp, ReturnDist(atoms, jnp.broadcast_to(weights, atoms.shape)), xi


def lasting_errors(
    keys: Key[Array, "mdps"], draw: Draw, delta: float, gamma: float = 0.9, iterations: int = 200, n_atoms: int = 51
) -> tuple[Float[Array, "mdps"], Float[Array, "mdps"]]:
    """Smallest and largest error in the last half of the iterations, with ambiguity sets of constant size.

    One random MDP (three states, two actions, two rewards) per key. If the smallest is well above 0, the iteration has
    a wrong limit; if only the largest is, it has no limit.
    """

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        make, walk = jax.random.split(key)
        mdp = random_mdp(make, 3, 2, 2, gamma)
        sizes = jnp.full(iterations, delta)
        late = iterate(mdp, Grid.of(mdp, n_atoms), draw, sizes, walk, mdp.optimal_q(300)).errors[iterations // 2 :]
        return late.min(), late.max()

    return jax.jit(jax.vmap(one))(keys)


def limit_bound(delta: float, gamma: float) -> float:
    """Bound of the error in the limit for constant sizes: 2 gamma Delta / (1 - gamma)."""
    return 2 * gamma * delta / (1 - gamma)
