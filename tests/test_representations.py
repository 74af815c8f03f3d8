"""Every way to predict a return: its loss against an independent oracle, what it learns against the exact answer."""

from __future__ import annotations

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import scipy.integrate
import scipy.stats
from agent_helpers import auxiliary_losses, batch_losses, flat_agent, predict_each, predict_one
from hypothesis import given
from hypothesis import strategies as st

from tremble.choosers import Chooser
from tremble.core import Clock, Enumerated, Transition
from tremble.criteria import Mean, Perturbed
from tremble.dist import ReturnDist
from tremble.learn import bootstrap_target, learn, update_target
from tremble.losses import categorical_cross_entropy, project, quantile_huber, share_outside, squared_mmd
from tremble.networks import ImplicitHead, Mlp, MlpSpec, Network, NoisyLinear
from tremble.optimisers import Adam
from tremble.representations import Categorical, Expected, FullyParameterised, Implicit, Particles, Quantile
from tremble.representations.quantile import increasing

jit_learn, jit_target, jit_losses, jit_each = map(eqx.filter_jit, (learn, bootstrap_target, batch_losses, predict_each))
predict = eqx.filter_jit(predict_one)
few = st.lists(st.floats(-20, 20, width=32), min_size=5, max_size=5)

# Categorical ----------------------------------------------------------------------------------------------------------


@given(few, st.lists(st.integers(1, 100), min_size=5, max_size=5))
def test_projection_is_that_of_rlax_and_keeps_the_mean_inside(atoms, raw):
    y, w = np.array(atoms, np.float32), (np.array(raw) / np.sum(raw)).astype(np.float32)
    support = np.linspace(-10, 10, 9, dtype=np.float32)
    ours = np.asarray(jax.jit(project)(y, w, support))
    # rlax wants a sorted source.
    order = np.argsort(y, kind="stable")
    theirs = jax.jit(rlax.categorical_l2_project)(y[order], w[order], support)
    np.testing.assert_allclose(ours, np.asarray(theirs), atol=2e-5)
    assert ours.sum() == pytest.approx(1, abs=1e-4)
    assert ours @ support == pytest.approx(w @ np.clip(y, -10, 10), abs=1e-3)
    outside = float(jax.jit(partial(share_outside, low=-10.0, high=10.0))(y, w))
    assert outside == pytest.approx(w[(y < -10) | (y > 10)].sum(), abs=1e-5)


def test_projection_by_hand():
    # 0.25 lies a quarter of the way from 0 to 1; 5 lies beyond the end.
    m = project(jnp.array([0.25, 5.0]), jnp.array([0.8, 0.2]), jnp.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(m, [0.6, 0.2, 0.2], atol=1e-6)


def test_cross_entropy_and_its_gradient_are_those_of_the_logits():
    rng = np.random.default_rng(0)
    logits, target = jnp.asarray(5 * rng.normal(size=9)), jnp.asarray(rng.dirichlet(np.ones(9)))

    def ours(x):
        return categorical_cross_entropy(jax.nn.softmax(x), target)

    def theirs(x):
        return rlax.categorical_cross_entropy(target, x)

    assert float(ours(logits)) == pytest.approx(float(theirs(logits)), rel=1e-5)
    np.testing.assert_allclose(jax.grad(ours)(logits), jax.grad(theirs)(logits), atol=1e-6)
    far = jnp.array([0.0, 200.0, -200.0])  # probabilities that underflow
    assert np.isfinite(jax.grad(lambda x: categorical_cross_entropy(jax.nn.softmax(x), jnp.ones(3) / 3))(far)).all()


def test_a_support_must_be_one():
    with pytest.raises(ValueError, match="v_min must be below v_max"):
        Categorical(1.0, 1.0)


# Particles and monotone quantiles -------------------------------------------------------------------------------------


@given(few, few)
def test_mmd_by_its_definition(x, y):
    def kernel(a, b):
        return sum(np.exp(-((a - b) ** 2) / h) for h in range(1, 11))

    def mean(p, q):
        return np.mean([kernel(np.float64(a), np.float64(b)) for a in p for b in q])

    expected = mean(x, x) + mean(y, y) - 2 * mean(x, y)
    assert float(jax.jit(squared_mmd)(np.float32(x), np.float32(y))) == pytest.approx(max(expected, 0), abs=2e-4)


@pytest.mark.parametrize("n, m", [(1, 3), (8, 16), (19, 11)])
def test_the_gradient_of_mmd_is_that_of_its_definition(n, m):
    """The closed form beside automatic differentiation of the formula, in both arguments and in float64."""

    def definition(x, y):
        def mean(a, b):
            return sum(jnp.exp(-((a[:, None] - b[None, :]) ** 2) / h) for h in range(1, 11)).mean()

        return mean(x, x) + mean(y, y) - 2 * mean(x, y)

    with jax.enable_x64(True):
        x, y = (3 * np.random.default_rng(k).normal(size=size) for k, size in enumerate((n, m)))
        ours, theirs = (jax.jit(jax.grad(loss, (0, 1)))(x, y) for loss in (squared_mmd, definition))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_mmd_is_least_at_the_target():
    y = jnp.array([0.0, 1.0, 3.0])
    assert float(squared_mmd(y, y)) == pytest.approx(0, abs=1e-6)
    assert float(squared_mmd(jnp.roll(y, 1), y)) == pytest.approx(0, abs=1e-6), "particles have no order"
    moved = y.at[0].add(0.3)
    assert jax.grad(squared_mmd)(moved, y)[0] > 0, "downhill leads back"


@given(few)
def test_monotone_quantiles_do_not_cross(outputs):
    atoms = np.asarray(jax.jit(increasing)(np.float32(outputs)))
    assert (np.diff(atoms) >= 0).all()
    assert (atoms[0] + atoms[-1]) / 2 == pytest.approx(outputs[0], abs=1e-3), "centred on the first output"


# Levels: implicit and fully parameterised -----------------------------------------------------------------------------

OBS = jnp.eye(2)
CLOCK = Clock(10_000, 9_000, 0, 0)


def agent_of(representation, **changes):
    fields = {
        "criterion": Mean(),
        "chooser": Chooser(),
        "network": MlpSpec((32,)),
        "gamma": 0.9,
        "optimiser": Adam(3e-3, decay_updates=600),
        "batch_size": 64,
        "start_steps": 0,
        "target_update_interval": 25,
    }
    return flat_agent(representation=representation, **(fields | changes))


@partial(jax.jit, static_argnums=1)
def batch_of(key, n=64):
    """Half the samples lead from the first state to the second; there, action 0 pays 0 or 2, action 1 pays 1/2."""
    keys = jax.random.split(key, 3)
    here = jax.random.bernoulli(keys[0], 0.5, (n,)).astype(int)
    action = jax.random.bernoulli(keys[1], 0.5, (n,)).astype(int)
    coin = jax.random.bernoulli(keys[2], 0.5, (n,))
    reward = jnp.where(here == 0, 0.0, jnp.where(action == 0, 2.0 * coin, 0.5))
    return Transition(OBS[here], action, reward, 0.9 * (1.0 - here), OBS[jnp.ones_like(here)], jnp.ones(n))


@eqx.filter_jit
def start(agent, seed=0):
    return agent.init(jax.random.key(seed), (2,), 2)


def test_implicit_levels():
    iqn = Implicit(n_online=5, n_target=7, n_choose=3)
    agent = agent_of(iqn)
    params = start(agent).params
    for use, n in (("online", 5), ("target", 7), ("choose", 3)):
        dist = predict(agent, params, OBS[0], use)
        np.testing.assert_allclose(dist.levels[0], (np.arange(n) + 0.5) / n, rtol=1e-6)
    many = jit_each(agent, params, jnp.ones((2000, 2)), "online", jax.random.key(1))
    levels = np.asarray(many.levels[:, 0])
    chosen = jit_each(agent, params, jnp.ones((20, 2)), "choose", jax.random.key(1))
    assert (np.diff(np.asarray(chosen.levels), axis=-1) >= 0).all(), "criteria read atoms in the order of their levels"
    assert scipy.stats.kstest(levels.ravel(), "uniform").pvalue > 1e-4, "uniform, and fresh for every sample"
    even = agent_of(Implicit(n_choose=3, choose_levels="midpoints"))
    np.testing.assert_allclose(
        predict_one(even, params, OBS[0], "choose", jax.random.key(1)).levels[0], [1 / 6, 1 / 2, 5 / 6]
    )


def test_the_level_is_heard():
    """Another level is another output: the network is not a constant in it."""
    head = ImplicitHead(jax.random.key(0), 8, 3, 64, 0, False, False)
    out = head(jnp.ones((1, 8)), jnp.array([[0.1, 0.5, 0.9]]))[0]
    assert out.shape == (3, 3) and (np.abs(np.diff(np.asarray(out))) > 1e-4).all()


def test_the_implicit_loss_is_at_its_own_levels():
    agent = agent_of(Implicit(4, 6, 3))
    state = start(agent)
    batch, key = batch_of(jax.random.key(1), 5), jax.random.key(2)
    target, _ = jit_target(agent, state, batch, (), CLOCK, jax.random.key(3))
    assert target.atoms.shape == (5, 6)
    losses, predicted = jit_losses(agent, state.params, batch, target, key)
    every = jit_each(agent, state.params, batch.obs_tm1, "online", key)
    for b in range(5):
        dist, action = every[b], batch.action_tm1[b]
        np.testing.assert_allclose(predicted.levels[b], dist.levels[action])
        expected = quantile_huber(dist.atoms[action], target.atoms[b], dist.levels[action])
        assert float(losses[b]) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("representation", [Implicit(4, 4, 4), FullyParameterised(4), Categorical(), Particles(4)])
def test_targets_come_from_the_target_parameters(representation):
    agent = agent_of(representation)
    state, other = (start(agent, k) for k in (0, 1))
    batch, key = batch_of(jax.random.key(1), 6), jax.random.key(2)

    def target(params, target_params):
        changed = eqx.tree_at(lambda s: (s.params, s.target_params), state, (params, target_params))
        dist = jit_target(agent, changed, batch, (), CLOCK, key)[0]
        return np.asarray(dist.atoms * dist.weights)

    base = target(state.params, state.params)
    np.testing.assert_array_equal(base, target(other.params, state.params))
    assert not np.allclose(base, target(state.params, other.params))


class NormalQuantiles(eqx.Module):
    """The quantile function of N(0, 1), in place of a network."""

    def __call__(self, features, levels, key=None):
        return jax.scipy.special.ndtri(levels)[:, None]


def at(obs):
    """A batch of one transition of the first action."""
    return Transition(obs[None], jnp.zeros(1, int), jnp.zeros(1), jnp.zeros(1), obs[None])


def test_the_fraction_gradient_is_that_of_w1():
    """dW1/dtau by finite differences of W1 = sum_i int_{tau_i}^{tau_{i+1}} |Q(u) - Q(tau_hat_i)| du, by quadrature."""
    made = FullyParameterised(4).init_head(jax.random.key(3), 1, 1)
    made = eqx.tree_at(lambda h: h.fractions.weight, made, jnp.zeros((4, 1)))

    def loss(bias):
        head = eqx.tree_at(lambda h: (h.fractions.bias, h.quantiles), made, (bias, NormalQuantiles()))
        network = Network(Mlp(jax.random.key(0), 1, ()), head)
        return auxiliary_losses(agent_of(FullyParameterised(4)), network, network, at(jnp.ones(1)))[0]

    def w1(bias):
        steps = np.exp(bias) / np.exp(bias).sum()
        edges = np.concatenate([[0], np.cumsum(steps)])
        total = 0.0
        for low, high in itertools.pairwise(edges):
            middle = scipy.stats.norm.ppf((low + high) / 2)
            for a, b in ((low, (low + high) / 2), ((low + high) / 2, high)):
                total += scipy.integrate.quad(lambda u, m=middle: abs(scipy.stats.norm.ppf(u) - m), a, b)[0]
        return total

    bias = np.array([0.3, -0.4, 0.1, 0.7])
    numeric = [(w1(bias + 1e-4 * e) - w1(bias - 1e-4 * e)) / 2e-4 for e in np.eye(4)]
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.array(bias, jnp.float32)), numeric, atol=2e-3)


def test_fractions_have_their_own_loss_and_optimiser():
    agent = agent_of(FullyParameterised(4, fraction_learning_rate=1e-3))
    state = start(agent)
    dist = predict(agent, state.params, OBS[0])
    np.testing.assert_allclose(dist.weights, 0.25, atol=0.02)
    np.testing.assert_allclose(dist.levels[0], [0.125, 0.375, 0.625, 0.875], atol=0.02)

    def only(part):
        def loss(params):
            if part == "auxiliary":
                return auxiliary_losses(agent, params, state.target_params, at(OBS[0])).sum()
            return batch_losses(agent, params, batch_of(jax.random.key(1)), ReturnDist(jnp.zeros((64, 4))))[0].mean()

        return eqx.filter_jit(jax.grad(loss))(state.params)

    def size(tree):
        return float(sum(jnp.abs(x).sum() for x in jax.tree.leaves(tree)))

    gradient = only("auxiliary")
    assert size(gradient.head.fractions) > 0 and size((gradient.torso, gradient.head.quantiles)) == 0
    gradient = only("divergence")
    assert size(gradient.head.fractions) == 0 and size(gradient.head.quantiles) > 0 and size(gradient.torso) > 0
    still = agent_of(FullyParameterised(4, fraction_learning_rate=0.0))
    after, _ = jit_learn(still, start(still), batch_of(jax.random.key(1)), (), CLOCK)
    np.testing.assert_array_equal(after.params.head.fractions.weight, state.params.head.fractions.weight)
    assert not np.allclose(after.params.head.quantiles.hidden.weight, state.params.head.quantiles.hidden.weight)


# Noisy layers ---------------------------------------------------------------------------------------------------------


def test_noisy_layer():
    layer = NoisyLinear(6, 4, key=jax.random.key(0), scale=0.5)
    x = jnp.arange(1.0, 7.0)
    np.testing.assert_allclose(layer.weight_scale, 0.5 / np.sqrt(6), rtol=1e-6)
    draws = np.asarray(jax.vmap(lambda k: layer(x, key=k))(jax.random.split(jax.random.key(1), 20_000)))
    mean = np.asarray(layer(x))
    np.testing.assert_allclose(mean, layer.weight @ x + layer.bias, rtol=1e-6)
    # Var y_o = s^2 E[e_o^2] (sum_i x_i^2 E[e_i^2] + 1), E[e^2] = E|g| = sqrt(2/pi), plus the cross terms of e_i: none.
    second = np.sqrt(2 / np.pi)
    variance = (0.25 / 6) * second * (second * float((x**2).sum()) + 1)
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(variance / 20_000))
    np.testing.assert_allclose(draws.var(0), variance, rtol=0.1)
    # Factorised: the noise of all weights is one outer product, of rank 1.
    key = jax.random.key(2)
    columns = jnp.stack([layer(e, key=key) - layer(jnp.zeros(6), key=key) for e in jnp.eye(6)], 1) - layer.weight
    assert np.linalg.matrix_rank(np.asarray(columns), tol=1e-4) == 1


def test_noise_is_independent_where_it_must_be():
    agent = agent_of(Quantile(4), noisy=True)
    state = start(agent)
    quiet = predict(agent, state.params, OBS[0]).atoms
    assert not np.allclose(quiet, predict(agent, state.params, OBS[0], "choose", jax.random.key(0)).atoms)
    both = jit_each(agent, state.params, jnp.stack([OBS[0], OBS[0]]), "online", jax.random.key(0)).atoms
    np.testing.assert_allclose(both[0], both[1], rtol=1e-6, err_msg="one set of weights for a batch")
    batch = batch_of(jax.random.key(1))
    after, _ = jit_learn(agent, state, batch, (), CLOCK, jax.random.key(5))
    moved = after.params.head.linear.weight_scale - state.params.head.linear.weight_scale
    assert float(jnp.abs(moved).max()) > 0, "the size of the noise is learned"
    targets = [jit_target(agent, state, batch, (), CLOCK, jax.random.key(k))[0].atoms for k in (1, 2)]
    assert not np.allclose(*targets)


def test_listed_observations_make_no_difference_to_noisy_weights():
    agent = agent_of(Categorical(-1.0, 3.0, 11), noisy=True, double=True)
    state = start(agent)
    plain = batch_of(jax.random.key(1))
    here, after = (jnp.argmax(x, -1) for x in (plain.obs_tm1, plain.obs_t))
    listed = eqx.tree_at(lambda b: (b.obs_tm1, b.obs_t), plain, (Enumerated(OBS, here), Enumerated(OBS, after)))
    one, two = (jit_learn(agent, state, b, (), CLOCK, jax.random.key(7))[1] for b in (plain, listed))
    np.testing.assert_allclose(one.losses, two.losses, rtol=2e-5)


# What they learn ------------------------------------------------------------------------------------------------------


def learned(agent, updates=600):
    """Distributions ``[states, actions]`` after training on `batch_of`, the losses on the way, what was reported, and
    the loss at the end beside that of the untrained parameters on the same targets (targets move while one learns).
    """
    key = jax.random.key(11)

    @jax.jit
    def train(state):
        def step(state, t):
            keys = jax.random.split(jax.random.fold_in(key, t), 3)
            state = jax.lax.cond(t % 25 == 0, lambda s: update_target(agent, s), lambda s: s, state)
            noise = agent.draw_learn(keys[0])
            state, info = learn(agent, state, batch_of(keys[1]), noise, CLOCK, keys[2])
            return state, (info.loss, info.metrics)

        return jax.lax.scan(step, state, jnp.arange(updates))

    begin = start(agent)
    state, (losses, reported) = train(begin)
    dist = agent.predict(state.params, OBS)
    untrained = eqx.tree_at(lambda s: s.params, state, begin.params)
    noise, batch = agent.draw_learn(key), batch_of(key)
    before, after = (float(jit_learn(agent, s, batch, noise, CLOCK, key)[1].loss) for s in (untrained, state))
    return dist, np.asarray(losses), reported, (before, after)


def w1(dist, state, action, outcomes):
    """To equally likely outcomes."""
    one = dist[state][action]
    weights = np.asarray(one.weights, np.float64)
    return scipy.stats.wasserstein_distance(np.asarray(one.atoms), outcomes, weights / weights.sum())


SHARP = 0.05
"""With kappa = 1 the loss itself pulls the quantiles of {0, 2} towards the middle."""
REPRESENTATIONS = {
    "expected": Expected(),
    "categorical": Categorical(-1.0, 3.0, 41),
    "quantile": Quantile(16, SHARP),
    "monotone": Quantile(16, SHARP, monotone=True),
    "implicit": Implicit(16, 16, 16, SHARP),
    "fully_parameterised": FullyParameterised(16, SHARP),
    "particles": Particles(16),
}
LATE = Perturbed(delta_0=1e3, n_bins=16, order="sorted")
"""Delta = 0.1 at the clock of these tests: selections vary, the best action does not."""
COMBINATIONS = [
    ("implicit", {}),
    ("fully_parameterised", {"criterion": LATE}),
    ("categorical", {"criterion": LATE, "noisy": True, "double": True}),
    ("monotone", {"dueling": True, "double": True}),
    ("particles", {"criterion": LATE, "double": True, "dueling": True}),
    ("expected", {"criterion": LATE, "double": True}),
    ("categorical", {"dueling": True}),
    ("quantile", {"noisy": True, "criterion": LATE}),
    ("implicit", {"criterion": LATE, "dueling": True, "noisy": True}),
]
"""Each representation, and each pair of switches, at least once."""


@pytest.mark.long  # before a merge, the covering set of `test_grid.py` has these
@pytest.mark.parametrize(
    ("name", "switches"), COMBINATIONS, ids=lambda x: x if isinstance(x, str) else "+".join(x) or "plain"
)
def test_the_distribution_is_learned(name, switches):
    """{0, 2} and {1/2} at the second state, 0.9 {0, 2} at the first.

    The share of heads in the last hundred batches has a standard error of 0.013, worth 0.026 in W1; a grid of 0.1 or
    sixteen atoms adds up to 0.1. One value for the two outcomes has W1 = 1; a discount forgotten is off by 0.1, twice
    what the mean may be.
    """
    agent = agent_of(REPRESENTATIONS[name], **switches)
    dist, losses, reported, (before, after) = learned(agent)
    assert np.isfinite(losses).all() and after < before
    means = np.asarray(dist.mean())
    assert means[1, 0] == pytest.approx(1.0, abs=0.12) and means[1, 1] == pytest.approx(0.5, abs=0.06)
    assert means[0] == pytest.approx([0.9, 0.9], abs=0.12)
    assert w1(dist, 1, 1, [0.5]) < 0.1
    if name != "expected":
        assert w1(dist, 1, 0, [0.0, 2.0]) < 0.25
        assert w1(dist, 0, 0, [0.0, 1.8]) < 0.25
    assert ("clipped_mass" in reported) == (name == "categorical")
    if name == "categorical":
        assert float(reported["clipped_mass"].max()) == 0.0


def test_clipped_mass_is_reported():
    agent = agent_of(Categorical(0.0, 1.0, 5))
    state = start(agent)
    batch = eqx.tree_at(
        lambda b: (b.reward_t, b.discount_t),
        batch_of(jax.random.key(1), 4),
        (jnp.array([0.5, 2, 0, -1.0]), jnp.zeros(4)),
    )
    _, info = jit_learn(agent, state, batch, (), CLOCK)
    assert float(info.metrics["clipped_mass"]) == pytest.approx(0.5)
