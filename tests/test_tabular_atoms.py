"""Dynamic programming with moving atoms, against dictionaries of outcomes in float64 and SciPy's W1."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tremble.criteria.perturbed import reweighted_mean
from tremble.dist import ReturnDist
from tremble.theory import FiniteMDP, random_mdp
from tremble.theory.atoms import atom_step, merged, mixture, quantiles, zero
from tremble.wasserstein import wasserstein

S, A, GAMMA, BINS = 3, 2, 0.5, 10


def sparse_mdp(seed: int) -> FiniteMDP:
    """Rewards -1, 0, 1 and two outcomes per action: with gamma 1/2 many returns coincide. State 2 is terminal."""
    generator = np.random.default_rng(seed)
    law = np.zeros((3, S, A, S), np.float32)
    for s in range(S):
        for a in range(A):
            for probability in (0.25, 0.75):
                law[generator.integers(3), s, a, generator.integers(S)] += probability
    return FiniteMDP(jnp.asarray(law), jnp.array([-1.0, 0.0, 1.0]), jnp.arange(S) == S - 1, GAMMA)


def by_dictionary(mdp, z, choice):
    """One application, as dictionaries from value to probability."""
    law, rewards = np.asarray(mdp.law, float), np.asarray(mdp.rewards, float)
    made = {}
    for s in range(S):
        for a in range(A):
            out = defaultdict(float)
            for d, reward in enumerate(rewards):
                for t in range(S):
                    future = {0.0: 1.0} if bool(mdp.terminal[t]) else z[t, choice[t]]
                    for value, probability in future.items():
                        out[round(reward + GAMMA * value, 9)] += law[d, s, a, t] * probability
            made[s, a] = {v: p for v, p in out.items() if p > 0}
    return made


step = jax.jit(partial(atom_step, reduce=merged(64)))
score = jax.jit(reweighted_mean)
merge = {capacity: jax.jit(merged(capacity)) for capacity in (2, 5, 12)}
project = {
    n: jax.jit(lambda mdp, z, n=n: (full := mixture(mdp, z, jnp.zeros(S, int)), quantiles(n)(full))) for n in (1, 4)
}


def moved(full, kept):
    """W1 between two distributions of one (s, a)."""
    return wasserstein(full.atoms, kept.atoms, 1, weights_a=full.weights, weights_b=kept.weights)


@pytest.mark.slow
@given(st.integers(0, 10_000), st.lists(st.integers(0, BINS - 1), min_size=4, max_size=4))
@settings(max_examples=20)
def test_while_there_is_room_it_is_exact(seed, tops):
    """Four iterations with perturbations that each listen to one tenth of the levels."""
    mdp = sparse_mdp(seed)
    z, dictionaries = zero(mdp, 64), {(s, a): {0.0: 1.0} for s in range(S) for a in range(A)}
    for top in tops:
        xi = jax.nn.one_hot(top, BINS) * BINS
        choice = np.asarray(score(z, xi)).argmax(-1)
        made, dictionaries = step(mdp, z, xi), by_dictionary(mdp, dictionaries, choice)
        z = made.z
        for (s, a), truth in dictionaries.items():
            mass = np.asarray(z.weights[s, a])
            assert (mass > 1e-7).sum() == len(truth), "equal returns are one atom"
            values = np.array(sorted(truth))
            np.testing.assert_allclose(np.asarray(z.atoms[s, a])[mass > 1e-7], values, atol=1e-5)
            np.testing.assert_allclose(mass[mass > 1e-7], [truth[v] for v in values], atol=1e-5)
        far = [moved(made.full[s, a], made.z[s, a]) for s in range(S) for a in range(A)]
        assert max(far) < 1e-5 and float(jnp.abs(made.bias).max()) < 1e-5


@given(st.integers(0, 10_000), st.sampled_from(list(merge)))
@settings(max_examples=20)
def test_merging_keeps_the_mean_and_moves_as_little_as_it_says(seed, capacity):
    generator = np.random.default_rng(seed)
    atoms, mass = np.sort(generator.normal(size=40)), generator.dirichlet(np.full(40, 0.3))
    full = ReturnDist(jnp.asarray(atoms, jnp.float32), jnp.asarray(mass, jnp.float32))
    kept = merge[capacity](full)
    assert kept.n_atoms == capacity and float(kept.weights.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(kept.mean()) == pytest.approx(atoms @ mass, abs=1e-5)
    far = scipy.stats.wasserstein_distance(atoms, kept.atoms, mass, np.asarray(kept.weights))
    assert moved(full, kept) == pytest.approx(far, abs=1e-5)
    assert (np.diff(kept.atoms) >= 0).all()


def test_the_nearest_are_merged_first():
    full = ReturnDist(jnp.array([0.0, 1.0, 1.1, 5.0]), jnp.array([0.4, 0.1, 0.3, 0.2]))
    kept = merged(3)(full)
    np.testing.assert_allclose(kept.atoms, [0.0, (0.1 + 0.33) / 0.4, 5.0], atol=1e-6)  # 1 and 1.1 in the ratio 1 : 3
    np.testing.assert_allclose(kept.weights, [0.4, 0.4, 0.2], atol=1e-6)


@given(st.integers(0, 10_000), st.sampled_from(list(project)))
@settings(max_examples=20)
def test_quantiles_are_quantiles_of_the_mixture(seed, n):
    mdp = sparse_mdp(seed)
    z = ReturnDist(jnp.asarray(np.random.default_rng(seed + 1).normal(size=(S, A, 7)), jnp.float32))
    full, kept = project[n](mdp, z)
    atoms, mass = np.asarray(full.atoms, float), np.asarray(full.weights, float)
    for k in range(n):
        level, at = (k + 0.5) / n, np.asarray(kept.atoms)[..., k, None]
        assert (np.where(atoms < at, mass, 0).sum(-1) <= level + 1e-5).all()
        assert (np.where(atoms <= at, mass, 0).sum(-1) >= level - 1e-5).all()


def test_quantiles_do_not_keep_the_mean_and_say_by_how_much():
    """A reward of 10 once in ten times: one quantile, the median, sees none of it."""
    law = np.zeros((2, 2, 1, 2), np.float32)
    law[:, 0, 0, 1] = [0.9, 0.1]
    law[0, 1, 0, 1] = 1.0
    mdp = FiniteMDP(jnp.asarray(law), jnp.array([0.0, 10.0]), jnp.array([False, True]), 0.9)
    one_step = jax.jit(
        lambda mdp, n: atom_step(mdp, zero(mdp, n, weighted=False), jnp.ones(BINS), quantiles(n)), static_argnums=1
    )
    made = one_step(mdp, 1)
    assert float(made.q[0, 0]) == pytest.approx(1.0) and float(made.z.atoms[0, 0, 0]) == 0.0
    assert float(made.bias[0, 0]) == pytest.approx(-1.0) and moved(made.full[0, 0], made.z[0, 0]) == pytest.approx(1.0)
    made = one_step(mdp, 5)  # levels 0.1 ... 0.9
    assert float(made.bias[0, 0]) == pytest.approx(-1.0), "0.9 is still reached by 0"


@pytest.mark.long
def test_many_mdps_at_once_give_what_one_gives():
    def once(mdp):
        return atom_step(mdp, zero(mdp, 16), jnp.ones(BINS), merged(16)).z

    mdps = jax.jit(jax.vmap(lambda key: random_mdp(key, S, A, 2)))(jax.random.split(jax.random.key(3), 4))
    alone = jax.tree.map(lambda leaf: leaf[2], mdps)
    together, apart = jax.jit(jax.vmap(once))(mdps), jax.jit(once)(alone)
    np.testing.assert_allclose(together.atoms[2], apart.atoms, atol=1e-6)
    np.testing.assert_allclose(together.weights[2], apart.weights, atol=1e-6)
