"""The update: targets, selection, gradients, against brute force and by what must not matter."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import batch_losses, flat_agent, predict_each, predict_one

import tremble
import tremble.learn
from tremble.agent import Agent
from tremble.core import Clock, Enumerated, Transition, materialise, pick_rows
from tremble.criteria import Mean, Perturbed
from tremble.learn import update_target
from tremble.networks import MlpSpec
from tremble.optimisers import Adam
from tremble.representations import Expected, Quantile
from tremble.representations.base import pick_action

# Compiled once for each kind of agent: op by op, each of these would be compiled a hundred times.
learn, bootstrap_target, best_return, predict_taken = (
    eqx.filter_jit(getattr(tremble.learn, name))
    for name in ("learn", "bootstrap_target", "best_return", "predict_taken")
)
predict = eqx.filter_jit(predict_one)
N_STATES, N_ACTIONS, N, BATCH = 5, 3, 7, 16
CLOCK = Clock(1000, 500, 30, 1000, 500)


def small_agent(**changes):
    fields = {
        "representation": Quantile(N),
        "criterion": Perturbed(500.0, n_bins=N),
        "network": MlpSpec((11,)),
        "optimiser": Adam(1e-2, 1e-8),
        "gamma": 0.9,
        "batch_size": BATCH,
        "start_steps": 10,
        "target_update_interval": 5,
    }
    return flat_agent(**(fields | changes))


@eqx.filter_jit
def fresh(agent, key):
    return agent.init(key, (N_STATES,), N_ACTIONS)


def state_of(agent, seed=0):
    """Online and target parameters that differ."""
    online, other = (fresh(agent, jax.random.key(k)) for k in (seed, seed + 1))
    return eqx.tree_at(lambda s: s.target_params, online, other.params)


def batch_of(seed=0, enumerated=True, weight=None):
    rng = np.random.default_rng(seed)
    table = jnp.eye(N_STATES)
    before, after = (jnp.asarray(rng.integers(0, N_STATES, BATCH)) for _ in range(2))
    wrap = (lambda i: Enumerated(table, i)) if enumerated else (lambda i: table[i])
    return Transition(
        wrap(before),
        jnp.asarray(rng.integers(0, N_ACTIONS, BATCH)),
        jnp.asarray(rng.normal(size=BATCH), jnp.float32),
        jnp.asarray(np.where(rng.random(BATCH) < 0.3, 0.0, 0.9), jnp.float32),
        wrap(after),
        jnp.ones(BATCH) if weight is None else weight,
    )


def test_target_is_reward_plus_discount_times_all_atoms_of_one_action():
    agent, batch = small_agent(), batch_of()
    state, noise = state_of(agent), agent.draw_learn(jax.random.key(3))
    target, _ = bootstrap_target(agent, state, batch, noise, CLOCK)
    xi = np.asarray(agent.criterion.weights(noise[0], CLOCK))
    for b in range(BATCH):
        obs = jnp.eye(N_STATES)[batch.obs_t.index[b]]
        atoms = np.asarray(predict(agent, state.target_params, obs).atoms)  # [actions, N]
        best = int(np.argmax((atoms * xi).mean(-1)))  # selected with xi ...
        expected = float(batch.reward_t[b]) + float(batch.discount_t[b]) * atoms[best]  # ... evaluated without it
        np.testing.assert_allclose(target.atoms[b], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("enumerated", [True, False])
def test_a_forbidden_action_is_never_bootstrapped_from(enumerated):
    agent, batch = small_agent(criterion=Mean()), batch_of(enumerated=enumerated)
    state, noise = state_of(agent), agent.draw_learn(jax.random.key(3))
    table, rng = jnp.eye(N_STATES), np.random.default_rng(4)
    index = batch_of().obs_t.index
    atoms = np.asarray(predict_each(agent, state.target_params, table[index]).atoms)  # [batch, actions, N]
    best = atoms.mean(-1).argmax(-1)
    mask = np.ones((BATCH, N_ACTIONS), bool)
    mask[np.arange(BATCH), best] = rng.random(BATCH) < 0.5  # forbid the best action of about half the samples
    assert 0 < (~mask).sum() < BATCH
    target, _ = bootstrap_target(agent, state, batch._replace(mask_t=jnp.asarray(mask)), noise, CLOCK)
    permitted = np.where(mask, atoms.mean(-1), -np.inf).argmax(-1)
    expected = (
        np.asarray(batch.reward_t)[:, None] + np.asarray(batch.discount_t)[:, None] * atoms[np.arange(BATCH), permitted]
    )
    np.testing.assert_allclose(target.atoms, expected, rtol=1e-5, atol=1e-5)


def test_selection_by_the_criterion_differs_from_the_mean_somewhere():
    """Otherwise the test above could not tell a perturbed selection from a plain one."""
    agent, batch = small_agent(), batch_of()
    state = state_of(agent)
    changed = [
        float(bootstrap_target(agent, state, batch, agent.draw_learn(jax.random.key(k)), CLOCK)[1]) for k in range(20)
    ]
    assert 0 < np.mean(changed) < 1
    plain = small_agent(criterion=Mean())
    assert float(bootstrap_target(plain, state, batch, plain.draw_learn(jax.random.key(0)), CLOCK)[1]) == 0.0


def test_terminated_transitions_do_not_bootstrap():
    agent, batch = small_agent(), batch_of()
    target, _ = bootstrap_target(agent, state_of(agent), batch, agent.draw_learn(jax.random.key(0)), CLOCK)
    ended = np.asarray(batch.discount_t) == 0
    assert ended.any() and (~ended).any()
    np.testing.assert_array_equal(np.asarray(target.atoms)[ended], np.repeat(batch.reward_t[ended][:, None], N, 1))
    assert (np.asarray(target.atoms)[~ended].std(-1) > 1e-3).all()


def test_target_depends_on_target_parameters_only():
    agent, batch = small_agent(), batch_of()
    state, noise = state_of(agent), agent.draw_learn(jax.random.key(0))
    base = bootstrap_target(agent, state, batch, noise, CLOCK)[0].atoms
    moved = jax.tree.map(lambda x: x + 0.3, state.params)
    online = bootstrap_target(agent, eqx.tree_at(lambda s: s.params, state, moved), batch, noise, CLOCK)[0].atoms
    target = bootstrap_target(agent, eqx.tree_at(lambda s: s.target_params, state, moved), batch, noise, CLOCK)[0].atoms
    np.testing.assert_array_equal(base, online)
    assert not np.allclose(base, target)


def test_double_selects_online_and_evaluates_with_the_target():
    agent, batch = small_agent(double=True, criterion=Mean()), batch_of()
    state = state_of(agent)
    target, _ = bootstrap_target(agent, state, batch, agent.draw_learn(jax.random.key(0)), CLOCK)
    differs = False
    for b in range(BATCH):
        obs = jnp.eye(N_STATES)[batch.obs_t.index[b]]
        by_online = int(jnp.argmax(predict(agent, state.params, obs).mean()))
        atoms = predict(agent, state.target_params, obs).atoms
        differs |= by_online != int(jnp.argmax(atoms.mean(-1)))
        expected = batch.reward_t[b] + batch.discount_t[b] * atoms[by_online]
        np.testing.assert_allclose(target.atoms[b], expected, rtol=1e-5, atol=1e-5)
    assert differs


def test_enumerated_observations_give_the_same_update():
    agent = small_agent()
    state, noise = state_of(agent), agent.draw_learn(jax.random.key(5))
    one, info_one = learn(agent, state, batch_of(enumerated=True), noise, CLOCK)
    two, info_two = learn(agent, state, batch_of(enumerated=False), noise, CLOCK)
    np.testing.assert_allclose(info_one.losses, info_two.losses, rtol=1e-5, atol=1e-6)
    for a, b in zip(jax.tree.leaves(one.params), jax.tree.leaves(two.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("representation", [Quantile(N), Quantile(N, kappa=0.0), Expected()])
def test_gradient_matches_brute_force(representation):
    """Finite differences of the loss written out with plain loops."""
    agent = small_agent(representation=representation, criterion=Mean())
    state, batch = state_of(agent), batch_of()
    target, _ = bootstrap_target(agent, state, batch, agent.draw_learn(jax.random.key(0)), CLOCK)

    def brute(params):
        total = 0.0
        for b in range(BATCH):
            obs = jnp.eye(N_STATES)[batch.obs_tm1.index[b]]
            theta = predict_one(agent, params, obs).atoms[batch.action_tm1[b]]
            if isinstance(representation, Expected):
                u = target.atoms[b].mean() - theta[0]
                total += jnp.where(jnp.abs(u) <= 1, u**2 / 2, jnp.abs(u) - 0.5)
                continue
            levels = (jnp.arange(N) + 0.5) / N
            u = target.atoms[b][None, :] - theta[:, None]
            size = jnp.abs(u)
            loss = size if representation.kappa == 0 else jnp.where(size <= 1, u**2 / 2, size - 0.5)
            total += (jnp.abs(levels[:, None] - (u < 0)) * loss).mean(1).sum()
        return total / BATCH

    ours = jax.jit(jax.grad(lambda p: batch_losses(agent, p, batch, target)[0].mean()))(state.params)
    theirs = jax.jit(jax.grad(brute))(state.params)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_importance_weights_scale_each_sample_in_the_gradient():
    agent = small_agent(optimiser=Adam(1e-2, 1.0))
    state, noise = state_of(agent), agent.draw_learn(jax.random.key(0))
    _, plain = learn(agent, state, batch_of(), noise, CLOCK)
    weight = jnp.asarray(np.random.default_rng(1).uniform(0.1, 2.0, BATCH), jnp.float32)
    weighted_state, weighted = learn(agent, state, batch_of(weight=weight), noise, CLOCK)
    np.testing.assert_allclose(weighted.losses, plain.losses, rtol=1e-6)
    np.testing.assert_allclose(weighted.loss, (weight * plain.losses).mean(), rtol=1e-5)
    unweighted_state, _ = learn(agent, state, batch_of(), noise, CLOCK)
    assert not np.allclose(weighted_state.params.head.linear.weight, unweighted_state.params.head.linear.weight)
    silent, info = learn(agent, state, batch_of(weight=jnp.zeros(BATCH)), noise, CLOCK)
    assert float(info.gradient_norm) == 0.0
    np.testing.assert_array_equal(silent.params.head.linear.weight, state.params.head.linear.weight)


def test_several_draws_average_the_objective():
    """The loss with K draws is the mean of the K losses with one draw each."""
    many, one, batch = small_agent(draws_per_update=4), small_agent(), batch_of()
    state, noise = state_of(many), many.draw_learn(jax.random.key(2))
    assert noise.shape == (4, N)
    _, info = learn(many, state, batch, noise, CLOCK)
    singles = [learn(one, state, batch, noise[k : k + 1], CLOCK)[1].loss for k in range(4)]
    np.testing.assert_allclose(info.loss, np.mean(singles), rtol=1e-5)
    assert np.std(singles) > 0


def test_noise_per_sample_selects_with_each_samples_own_draw():
    agent, batch = small_agent(noise_per_sample=True), batch_of()
    state, noise = state_of(agent), agent.draw_learn(jax.random.key(2))
    assert noise.shape == (1, BATCH, N)
    target, _ = bootstrap_target(agent, state, batch, noise, CLOCK)
    for b in range(BATCH):
        atoms = predict(agent, state.target_params, jnp.eye(N_STATES)[batch.obs_t.index[b]]).atoms
        best = int(jnp.argmax(agent.criterion.score(tremble.ReturnDist(atoms), noise[0, b], CLOCK)))
        expected = batch.reward_t[b] + batch.discount_t[b] * atoms[best]
        np.testing.assert_allclose(target.atoms[b], expected, rtol=1e-5, atol=1e-5)


def test_picking_is_exact():
    rng = np.random.default_rng(0)
    dist = tremble.ReturnDist(jnp.asarray(rng.normal(size=(BATCH, N_ACTIONS, N)) * 1e3, jnp.float32))
    action = jnp.asarray(rng.integers(0, N_ACTIONS, BATCH))
    expected = np.asarray(dist.atoms)[np.arange(BATCH), action]
    np.testing.assert_array_equal(pick_action(dist, action).atoms, expected)
    rows = tremble.ReturnDist(dist.atoms[:, 0])
    order = jnp.asarray(rng.integers(0, BATCH, 30))
    np.testing.assert_array_equal(pick_rows(rows, order).atoms, np.asarray(rows.atoms)[order])


def test_predict_taken_reads_the_taken_action():
    agent, batch = small_agent(), batch_of()
    params = state_of(agent).params
    every = predict_each(agent, params, materialise(batch.obs_tm1))
    taken = predict_taken(agent, params, batch.obs_tm1, batch.action_tm1)
    np.testing.assert_allclose(taken.atoms, every.atoms[jnp.arange(BATCH), batch.action_tm1], rtol=1e-5, atol=1e-6)


def test_refresh_copies_or_mixes():
    hard, soft = small_agent(), small_agent(target_tau=0.25)
    state = state_of(hard)
    copied = update_target(hard, state)
    np.testing.assert_array_equal(copied.target_params.head.linear.weight, state.params.head.linear.weight)
    mixed = update_target(soft, state).target_params.head.linear.weight
    expected = 0.25 * state.params.head.linear.weight + 0.75 * state.target_params.head.linear.weight
    np.testing.assert_allclose(mixed, expected, rtol=1e-5, atol=1e-6)


def test_best_return_reports_changes_per_observation():
    agent = small_agent(criterion=Mean())
    obs = jnp.eye(N_STATES)
    dist, changed = best_return(agent, state_of(agent), obs, None, agent.draw_learn(jax.random.key(0)), CLOCK)
    assert dist.atoms.shape == (N_STATES, N) and not changed.any()


def test_gradient_clipping_limits_the_step():
    free, clipped = small_agent(), small_agent(optimiser=Adam(1e-2, 1e-8, max_grad_norm=1e-6))
    state = state_of(clipped)
    noise = free.draw_learn(jax.random.key(0))
    after, info = learn(clipped, state, batch_of(), noise, CLOCK)
    assert float(info.gradient_norm) > 1e-3, "reported before clipping"
    assert jax.tree.structure(after) == jax.tree.structure(state)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"batch_size": 0}, "batch_size"),
        ({"start_steps": -1}, "start_steps"),
        ({"share_noise": True, "draws_per_update": 2}, "share_noise"),
        ({"share_noise": True, "criterion_for": "target"}, "share_noise"),
    ],
)
def test_contradictions_are_refused(changes, word):
    with pytest.raises(ValueError, match=word):
        small_agent(**changes)


def test_agent_is_a_record_of_plain_fields():
    assert {f.name for f in dataclasses.fields(Agent)} >= {
        "representation",
        "criterion",
        "chooser",
        "resample_noise_every",
        "double",
    }
