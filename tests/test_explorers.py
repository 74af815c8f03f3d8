"""Agents that learn something extra in order to explore: bootstrapped heads, QUOTA, NDQFN.

Statistical bounds are five standard errors, or reasoned beside the test, set before the first run.
"""

from __future__ import annotations

import warnings
from functools import partial

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from agent_helpers import auxiliary_losses, batch_losses, flat_agent, predict_each, predict_one
from gymnasium import spaces
from probe_answers import answers

import tremble
from tremble.core import Clock, Enumerated, RandomStream, Transition, stream_key
from tremble.criteria import MajorityVote, Mean, RandomAtom
from tremble.dist import ReturnDist
from tremble.envs.gym import open_environment
from tremble.envs.jax_gym import JaxGymEnv
from tremble.learn import bootstrap_target, learn
from tremble.networks import MlpSpec, SideBySide
from tremble.optimisers import Adam, RMSProp
from tremble.replay import ReplaySpec
from tremble.representations import ActContext, Bootstrapped, NonDecreasing, Quantile
from tremble.representations.bootstrapped import scale_gradient
from tremble.representations.non_decreasing import grid, ramps
from tremble.representations.options import QuantileOptions, option_target, windows
from tremble.settings import SettingsError
from tremble.training.gym_loop import GymLoop
from tremble.wasserstein import wasserstein
from tremble.worlds.nchain import NChain
from tremble.worlds.probes import Discounting, JointPolicy

ACTIONS, BATCH, FEATURES = 3, 8, 6
LATE = Clock(5000, 4500, 100, 5000, 10)
PRESETS = ("bootstrapped_dqn", "quota", "quota_onpolicy", "ndqfn")
jit_learn, jit_target = eqx.filter_jit(learn), eqx.filter_jit(bootstrap_target)
TWO = jnp.asarray(2.0)  # traced, so that tests of one shape compile once


def agent_of(representation, **changes):
    fields = {
        "representation": representation,
        "criterion": Mean(),
        "network": MlpSpec((FEATURES,)),
        "gamma": 0.9,
        "optimiser": Adam(1e-2),
        "batch_size": BATCH,
        "start_steps": 10,
    }
    return flat_agent(**(fields | changes))


def state_of(agent):
    """Online and target parameters that differ."""
    online, other = (agent.init(jax.random.key(seed), (4,), ACTIONS) for seed in (0, 1))
    return eqx.tree_at(lambda s: s.target_params, online, other.params)


def batch_of(extra=None, seed=0):
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return Transition(
        normal(BATCH, 4),
        jnp.asarray(rng.integers(0, ACTIONS, BATCH), jnp.int32),
        normal(BATCH),
        jnp.asarray(rng.choice([0.0, 0.9], BATCH), jnp.float32),
        normal(BATCH, 4),
        jnp.asarray(rng.uniform(0.2, 1.0, BATCH), jnp.float32),
        extra=extra,
    )


def values_of(ensemble, torso, obs, scale):
    """Heads ``[K, actions]`` layer by layer in NumPy: trained value plus scaled prior."""

    def layers(head, x, k):
        hidden = np.maximum(np.asarray(head.hidden.weight[k]) @ x + np.asarray(head.hidden.bias[k]), 0)
        return np.asarray(head.out.linear.weight[k]) @ hidden + np.asarray(head.out.linear.bias[k])

    seen, frozen = (np.asarray(part(obs)) for part in torso.torsos)
    n_heads = ensemble.trained.hidden.weight.shape[0]
    return np.stack(
        [layers(ensemble.trained, seen, k) + scale * layers(ensemble.prior, frozen, k) for k in range(n_heads)]
    )


# Bootstrapped DQN -----------------------------------------------------------------------------------------------------


def test_each_head_selects_and_evaluates_for_itself():
    # Columns are heads. Head 0 likes action 1, head 1 action 0, head 2 action 2; what counts is the evaluator's value.
    selector = ReturnDist(np.array([[0.0, 9.0, 1.0], [5.0, 1.0, 2.0], [1.0, 2.0, 3.0]], np.float32))
    evaluator = ReturnDist(np.array([[10.0, 20.0, 30.0], [11.0, 21.0, 31.0], [12.0, 22.0, 32.0]], np.float32))
    selector, evaluator = (jax.tree.map(lambda x: x[None], dist) for dist in (selector, evaluator))
    future, action = Bootstrapped(3).bootstrap(selector, evaluator, None)
    assert action.tolist() == [[1, 0, 2]] and future.atoms.tolist() == [[11, 20, 32]]
    future, action = Bootstrapped(3).bootstrap(selector, evaluator, jnp.array([[False, True, True]]))
    assert action.tolist() == [[1, 2, 2]] and future.atoms.tolist() == [[11, 22, 32]]


def test_targets_and_update_by_brute_force():
    """Every head by its own action, selected online and evaluated by its own target head, priors in both."""
    agent = agent_of(Bootstrapped(4, prior_scale=TWO), double=True)
    state, batch = state_of(agent), batch_of()
    target, changed = jit_target(agent, state, batch, (), LATE)
    expected, picked = np.zeros((BATCH, 4)), np.zeros((BATCH, 4), int)
    means = np.zeros(BATCH, int)
    for b in range(BATCH):
        online = values_of(state.params.head, state.params.torso, batch.obs_t[b], 2.0)
        delayed = values_of(state.target_params.head, state.target_params.torso, batch.obs_t[b], 2.0)
        picked[b], means[b] = online.argmax(1), online.mean(0).argmax()
        expected[b] = batch.reward_t[b] + batch.discount_t[b] * delayed[np.arange(4), picked[b]]
    np.testing.assert_allclose(target.atoms, expected, atol=1e-5)
    assert changed == pytest.approx((picked != means[:, None]).mean()) and 0 < changed < 1
    taken = np.stack(
        [
            values_of(state.params.head, state.params.torso, o, 2.0)[:, a]
            for o, a in zip(batch.obs_tm1, batch.action_tm1, strict=True)
        ]
    )
    error = np.abs(expected - taken)
    huber = np.where(error < 1, error**2 / 2, error - 0.5)
    _, info = jit_learn(agent, state, batch, (), LATE)
    np.testing.assert_allclose(info.losses, huber.sum(1), rtol=1e-4)
    np.testing.assert_allclose(info.loss, (batch.weight * huber.sum(1)).mean(), rtol=1e-4)
    mask = np.random.default_rng(3).random((BATCH, 4)) < 0.5
    masked, _ = eqx.filter_jit(batch_losses)(agent, state.params, batch_of(jnp.asarray(mask)), target)
    np.testing.assert_allclose(masked, (mask * huber).sum(1), rtol=1e-4)


def test_enumerated_observations_give_the_same_targets():
    agent = agent_of(Bootstrapped(4, prior_scale=TWO), double=True)
    state, batch, table = state_of(agent), batch_of(), jnp.eye(4)
    index = jnp.arange(BATCH) % 4
    plain = eqx.tree_at(lambda b: (b.obs_tm1, b.obs_t), batch, (table[index], table[index]))
    listed = eqx.tree_at(lambda b: (b.obs_tm1, b.obs_t), batch, (Enumerated(table, index), Enumerated(table, index)))
    np.testing.assert_allclose(
        jit_target(agent, state, listed, (), LATE)[0].atoms,
        jit_target(agent, state, plain, (), LATE)[0].atoms,
        rtol=1e-5,
    )


def test_priors_are_never_trained():
    agent = agent_of(Bootstrapped(4, prior_scale=TWO), double=True)
    state = agent.init(jax.random.key(0), (4,), ACTIONS)
    after = state
    for seed in range(3):
        after, _ = jit_learn(agent, after, batch_of(seed=seed), (), LATE)

    def moved(part):
        before, now = (jax.tree.leaves(part(s.params)) for s in (state, after))
        return [not np.array_equal(x, y) for x, y in zip(before, now, strict=True)]

    assert not any(moved(lambda p: (p.head.prior, p.torso.torsos[1])))
    assert all(moved(lambda p: (p.head.trained, p.torso.torsos[0])))
    assert isinstance(state.params.torso, SideBySide)
    drawn = jax.tree.leaves(state.params.head.prior)[0]
    assert len(np.unique(np.asarray(drawn).reshape(4, -1)[:, 0])) == 4, "every head has a prior of its own"


def test_the_torso_gets_a_kth_of_the_heads_gradient():
    agent = agent_of(Bootstrapped(4))
    params, batch = agent.init(jax.random.key(0), (4,), ACTIONS).params, batch_of()
    x = jnp.array([2.0, -3.0])
    np.testing.assert_array_equal(scale_gradient(x, 0.25), x)

    def plain(params):
        seen, frozen = (torso(batch.obs_tm1[0]) for torso in params.torso.torsos)
        trained = jax.vmap(lambda h: h(seen))(params.head.trained)
        prior = jax.vmap(lambda h: h(frozen))(params.head.prior)
        return ((trained + 3.0 * prior) ** 2).sum()

    ours, theirs = (
        eqx.filter_jit(jax.grad(f))(params)
        for f in (lambda p: (predict_one(agent, p, batch.obs_tm1[0]).atoms ** 2).sum(), plain)
    )
    for a, b in zip(jax.tree.leaves(ours.head.trained), jax.tree.leaves(theirs.head.trained), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for a, b in zip(jax.tree.leaves(ours.torso.torsos[0]), jax.tree.leaves(theirs.torso.torsos[0]), strict=True):
        np.testing.assert_allclose(4 * a, b, rtol=1e-4, atol=1e-6)
    assert any(np.abs(x).sum() > 0 for x in jax.tree.leaves(theirs.torso.torsos[0]))


def test_stacked_heads_start_by_their_own_fan_in():
    """Variance 1/64 for 64 inputs, whatever the number of heads: 16,384 weights, five standard errors of 1.1 %."""
    agent = agent_of(Bootstrapped(4), network=MlpSpec((64,), "lecun_normal"))
    hidden = agent.init(jax.random.key(0), (4,), ACTIONS).params.head.trained.hidden
    assert hidden.weight.shape == (4, 64, 64) and hidden.bias.shape == (4, 64)
    assert abs(64 * float(hidden.weight.var()) - 1) < 0.055 and not hidden.bias.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "representation",
    [
        Bootstrapped(3),
        pytest.param(NonDecreasing(4, n_cosines=4), marks=pytest.mark.long),  # the covering set has it
        QuantileOptions(Quantile(5)),
    ],
)
def test_dueling_and_noisy_heads(representation):
    agent = agent_of(representation, dueling=True, noisy=True)
    params = agent.init(jax.random.key(0), (4,), ACTIONS).params
    predict = jax.jit(lambda key: predict_one(agent, params, jnp.ones(4), "choose", key).atoms)
    one, again, other = (predict(jax.random.key(k)) for k in (1, 1, 2))
    assert one.shape[0] == ACTIONS and np.array_equal(one, again) and not np.allclose(one, other)


def test_a_head_is_followed():
    dist = ReturnDist(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    for u, k in ((0.0, 0), (0.249, 0), (0.25, 1), (0.999, 3), (1.0, 3)):
        assert RandomAtom().score(dist, jnp.asarray(u), LATE).tolist() == [k, 4 + k, 8 + k]
    weighted = ReturnDist(np.arange(3.0, dtype=np.float32)[None], np.array([[0.5, 0.2, 0.3]], np.float32))
    assert [RandomAtom().score(weighted, jnp.asarray(u), LATE).item() for u in (0.4, 0.6, 0.8)] == [0, 1, 2]
    counts = np.bincount((np.asarray(jax.vmap(RandomAtom().draw)(KEYS)) * 4).astype(int), minlength=4)
    assert scipy.stats.chisquare(counts).pvalue > 1e-6


KEYS = jax.random.split(jax.random.key(5), 20_000)


def test_a_vote_by_hand():
    # Heads (columns) vote for actions 2, 2, 0, 1; the mean would take action 0.
    dist = ReturnDist(np.array([[0, 0, 99, 0], [1, 1, 0, 3], [2, 2, 0, 2]], np.float32))
    scores = MajorityVote().score(dist, (), LATE)
    np.testing.assert_allclose(scores, [0.25, 0.25, 0.5], atol=1e-4)
    assert scores[0] > scores[1], "equal votes: the mean decides"
    np.testing.assert_allclose(MajorityVote().score(dist.affine(-7.0, 3.0), (), LATE), scores, rtol=1e-6)
    assert int(jnp.argmax(dist.mean())) == 0


def test_masks_are_bernoulli_and_stored_with_their_transition():
    masks = np.asarray(jax.vmap(Bootstrapped(3, mask_share=0.3).draw_behaviour)(KEYS))
    assert np.abs(masks.mean(0) - 0.3).max() < 5 * np.sqrt(0.21 / len(KEYS))
    assert np.abs(np.corrcoef(masks.T) - np.eye(3)).max() < 5 / np.sqrt(len(KEYS))
    agent = agent_of(Bootstrapped(3, mask_share=0.3), replay=ReplaySpec(n_step=2), start_steps=100)
    loop = GymLoop(agent, open_environment("CartPole-v1", 2), seed=4, steps=60)
    loop.advance(60)
    drawn = jax.jit(jax.vmap(lambda t: agent.draw_act(stream_key(4, RandomStream.ACT, t), 2).behaviour))(jnp.arange(60))
    # Items come out environment by environment, some late: compared as sets of (mask, how often).
    stored = loop.replay.state()["extra"]
    pending = loop.accumulator.state()["extra"]
    together = sorted(map(tuple, np.concatenate([stored, pending]).tolist()))
    assert together == sorted(map(tuple, np.asarray(drawn).tolist()))
    for name, value in (("n_heads", 0), ("mask_share", 0.0), ("mask_share", 1.5)):
        with pytest.raises(ValueError, match=name):
            Bootstrapped(**{name: value})


# QUOTA ----------------------------------------------------------------------------------------------------------------


def test_windows():
    np.testing.assert_allclose(windows(2, 4), [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    # Five quantiles for two options: the middle one belongs to both, half each.
    np.testing.assert_allclose(windows(2, 5), [[0.4, 0.4, 0.2, 0, 0], [0, 0, 0.2, 0.4, 0.4]], atol=1e-7)
    published = windows(10, 200)
    assert all(np.flatnonzero(row).tolist() == list(range(20 * j, 20 * j + 20)) for j, row in enumerate(published))
    for shape in ((10, 32), (10, 7), (1, 5)):
        np.testing.assert_allclose(windows(*shape).sum(1), 1, rtol=1e-6)
        np.testing.assert_allclose(windows(*shape).mean(0), 1 / shape[1], rtol=1e-5)


def test_option_target_by_hand():
    values = jnp.array([1.0, 5.0, 3.0])
    # 2 + 0.5 (0.1 * 5 + 0.9 * 3) = 3.6
    assert option_target(jnp.asarray(2.0), jnp.asarray(0.5), values, jnp.asarray(2), 0.1) == pytest.approx(3.6)
    assert option_target(jnp.asarray(2.0), jnp.asarray(0.0), values, jnp.asarray(2), 0.1) == 2


def test_option_loss_by_brute_force():
    agent = agent_of(QuantileOptions(Quantile(5), n_options=4, option_beta=0.3))
    options = np.random.default_rng(1).integers(0, 4, BATCH).astype(np.int32)
    state, batch = state_of(agent), batch_of(jnp.asarray(options))
    total = 0.0
    for b in range(BATCH):
        delayed, online = (
            np.asarray(p.head.options.weight) @ np.asarray(p.torso(obs)) + np.asarray(p.head.options.bias)
            for p, obs in ((state.target_params, batch.obs_t[b]), (state.params, batch.obs_tm1[b]))
        )
        follow = 0.3 * max(delayed) + 0.7 * delayed[options[b]]
        y = batch.reward_t[b] + batch.discount_t[b] * follow
        total += batch.weight[b] * 0.5 * (y - online[options[b]]) ** 2 / BATCH
    loss = lambda *args: auxiliary_losses(agent, *args).mean()  # noqa: E731
    value, gradient = eqx.filter_jit(jax.value_and_grad(loss, argnums=(0, 1)))(state.params, state.target_params, batch)
    assert value == pytest.approx(float(total), rel=1e-5)
    online, delayed = ([bool(np.abs(x).sum() > 0) for x in jax.tree.leaves(g)] for g in gradient)
    assert not any(delayed), "the target is a constant"
    assert all(np.abs(x).sum() > 0 for x in jax.tree.leaves((gradient[0].torso, gradient[0].head.options)))
    assert not any(np.abs(x).sum() > 0 for x in jax.tree.leaves(gradient[0].head.quantiles))
    # Added to the quantile loss.
    _, info = jit_learn(agent, state, batch, (), LATE)
    np.testing.assert_allclose(info.loss, (batch.weight * info.losses).mean() + total, rtol=1e-5)


def follow_options(representation, fresh, n=20_000):
    """The options in force over so many steps at one observation."""
    agent = agent_of(representation)
    params = agent.init(jax.random.key(0), (4,), ACTIONS).params
    features = params.torso(jnp.ones(4))
    dist = predict_one(agent, params, jnp.ones(4))

    def step(option, inputs):
        key, fresh = inputs
        noise = representation.draw_behaviour(key)
        context = ActContext(params.head, features, dist, dist.mean(), option, fresh, noise, LATE)
        _, option = representation.behave(context)
        return option, option

    options = jax.jit(lambda: jax.lax.scan(step, representation.init_memory(), (KEYS[:n], fresh))[1])()
    return np.asarray(options), int(jnp.argmax(params.head.options(features)))


def test_options_last_geometrically_long():
    """With M options at random, one is replaced by another with probability beta (1 - 1/M) at every step."""
    beta, m, n = 0.05, 5, 20_000
    random = QuantileOptions(Quantile(5), m, option_beta=beta, option_epsilon_start=1.0, option_epsilon_end=1.0)
    options, _ = follow_options(random, jnp.zeros(n, bool))
    changes = np.flatnonzero(np.diff(options))
    rate = beta * (1 - 1 / m)
    assert abs(len(changes) / n - rate) < 5 * np.sqrt(rate * (1 - rate) / n)
    lengths = np.diff(changes)
    edges = scipy.stats.geom.ppf([0.2, 0.4, 0.6, 0.8], rate)
    observed = np.bincount(np.searchsorted(edges, lengths), minlength=5)
    shares = np.diff(np.concatenate([[0], scipy.stats.geom.cdf(edges, rate), [1]]))
    assert scipy.stats.chisquare(observed, shares * len(lengths)).pvalue > 1e-6
    counts = np.bincount(options[np.concatenate([[0], changes + 1])], minlength=m)
    assert scipy.stats.chisquare(counts).pvalue > 1e-6, "all options alike"


def test_options_are_greedy_in_the_end_and_new_at_the_start_of_an_episode():
    n = 2_000
    greedy = QuantileOptions(Quantile(5), 5, option_beta=0.5, option_epsilon_start=0.0)
    options, best = follow_options(greedy, jnp.zeros(n, bool), n)
    assert (options[20:] == best).all()
    # An option that never ends by itself: new ones at the start of episodes alone.
    lasting = QuantileOptions(Quantile(5), 5, option_beta=0.0, option_epsilon_start=1.0, option_epsilon_end=1.0)
    fresh = jnp.arange(n) % 10 == 0
    options, _ = follow_options(lasting, fresh, n)
    assert set(np.flatnonzero(np.diff(options)) % 10) == {9} and len(np.unique(options)) == 5
    falling = QuantileOptions(option_epsilon_decay_steps=100.0)
    assert [float(falling.option_epsilon(Clock(t, 0, 0, t))) for t in (0, 50, 100, 1000)] == [1.0, 0.5, 0.0, 0.0]


def test_acting_is_by_the_window_of_the_option():
    agent = agent_of(QuantileOptions(Quantile(6), 3, option_beta=1.0, option_epsilon_start=1.0, option_epsilon_end=1.0))
    assert agent.has_actor_state
    params = agent.init(jax.random.key(2), (4,), ACTIONS).params
    obs, actor = jnp.array([1.0, -2.0, 0.5, 3.0]), agent.init_actor(ACTIONS)
    act = eqx.filter_jit(agent.act)
    atoms = np.asarray(predict_one(agent, params, obs).atoms)
    seen = set()
    for key in KEYS[:40]:
        noise = agent.draw_act(key, ACTIONS)
        action, after, _, _ = act(params, actor, obs, None, noise, LATE)
        option = int(after.extra)
        assert option == int(noise.behaviour.option)
        assert int(action) == atoms[:, 2 * option : 2 * option + 2].mean(1).argmax()
        seen.add(option)
    assert seen == {0, 1, 2}


# QUOTA on policy ------------------------------------------------------------------------------------------------------


class Ticking(gymnasium.Env):
    """Observation k, reward k + 1, at step k; ends after 7 steps, by a time limit in every other episode."""

    observation_space = spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.k, self.episode = 0, self.episode + 1
        return np.array([0.0], np.float32), {}

    def step(self, action):
        self.k += 1
        over = self.k == 7
        limit = self.episode % 2 == 1
        return np.array([self.k], np.float32), float(self.k), over and not limit, over and limit, {}


def test_a_rollout_is_learned_from_whole_and_once():
    gamma, n, length = 0.9, 2, 5
    agent = agent_of(
        QuantileOptions(Quantile(5), 2),
        replay=ReplaySpec(n_step=5, rollout=5),
        start_steps=0,
        target_update_interval=10,
        optimiser=RMSProp(),
    ).fitted_to(n)
    assert (agent.learning.batch_size, agent.memory_size, agent.learning.update_interval) == (10, 10, 10)
    loop = GymLoop(agent, open_environment(Ticking, n), seed=0, steps=200)
    for rollout in range(6):
        loop.advance(n * length * (rollout + 1))
        assert loop.updates == rollout, "learned from at the step after its last"
        batch, _ = loop.replay.sample(np.zeros(10, np.uint32), 1.0)
        expected = []
        for i in range(length):
            t = rollout * length + i  # both environments do the same
            k, episode = t % 7, t // 7
            rewards, discount, at, last = 0.0, 1.0, k, length - i
            for _ in range(last):
                rewards += discount * (at + 1)
                discount *= gamma
                at += 1
                if at == 7:
                    discount = 0.0 if episode % 2 == 0 else discount
                    break
            expected += [(k, rewards, discount, at)] * n
        got = zip(batch.obs_tm1[:, 0], batch.reward_t, batch.discount_t, batch.obs_t[:, 0], strict=True)
        for a, b in zip(sorted(tuple(map(float, row)) for row in got), sorted(expected), strict=True):
            assert a == pytest.approx(b, rel=1e-5)
        assert batch.weight.tolist() == [1.0] * 10 and batch.extra.shape == (10,)


def test_rollouts_fit_the_environments():
    agent = tremble.make("quota_onpolicy", "control", widths=[4], n_quantiles=4)
    assert agent.learning.batch_size == agent.memory_size == agent.learning.update_interval == 16 * 5
    with pytest.raises(SettingsError, match=r"2 environments is a batch of 10, not of 80.*fitted_to\(2\)"):
        GymLoop(agent, open_environment(Ticking, 2), seed=0, steps=100)
    with pytest.raises(SettingsError, match="batch_size of 'quota_onpolicy' follows from its rollouts: 2 environments"):
        tremble.train("quota_onpolicy", Ticking, steps=10, n_envs=2, batch_size=32)
    vector = gymnasium.vector.SyncVectorEnv([Ticking] * 2, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP)
    loop = GymLoop(tremble.make("quota_onpolicy", start_steps=99).fitted_to(2), open_environment(vector), 0, 100)
    with pytest.raises(SettingsError, match="autoreset"):
        loop.advance(50)
    assert tremble.make("qrdqn").fitted_to(16) == tremble.make("qrdqn")
    for changes, word in (
        ({"rollout": -1}, "rollout must be at least 0"),
        ({"rollout": 5, "prioritised": True}, "as a whole"),
    ):
        with pytest.raises(ValueError, match=word):
            ReplaySpec(**changes)
    with pytest.raises(ValueError, match="learned from once"):
        flat_agent(replay=ReplaySpec(rollout=5), updates_per_round=2)


def test_the_published_settings():
    agent = tremble.make("quota_onpolicy", "atari")
    assert isinstance(agent.optimiser, RMSProp) and agent.optimiser == RMSProp(1e-4, 0.99, 1e-5, max_grad_norm=5.0)
    assert agent.replay == ReplaySpec(n_step=5, rollout=5) and agent.learning.target_update_interval == 16 * 10_000
    assert (agent.representation.n_options, agent.representation.option_beta) == (10, 0.01)
    assert agent.representation.quantiles == Quantile(200) and not agent.double
    assert (agent.chooser.epsilon_end, agent.chooser.epsilon_decay_steps) == (0.05, 4e6)
    boot = tremble.make("bootstrapped_dqn", "atari")
    assert (boot.representation.n_heads, boot.representation.mask_share) == (10, 1.0)
    assert boot.double and boot.resample_noise_every == "episode" and boot.criterion_for == "behaviour"


def test_rmsprop_step_by_step():
    """As PyTorch: v <- a v + (1 - a) g^2, x <- x - lr g / (sqrt(v) + eps), g clipped to a norm of 5."""
    transform = RMSProp(0.1, 0.9, 1e-2, max_grad_norm=5.0).transform()
    params = {"x": jnp.array([1.0, -2.0])}
    state, x, v = transform.init(params), np.array([1.0, -2.0]), np.zeros(2)
    for gradient in (np.array([0.3, -0.4]), np.array([30.0, 40.0]), np.array([0.0, 1.0])):
        updates, state = transform.update({"x": jnp.asarray(gradient, jnp.float32)}, state, params)
        params = {"x": params["x"] + updates["x"]}
        g = gradient * min(1.0, 5.0 / np.linalg.norm(gradient))
        v = 0.9 * v + 0.1 * g**2
        x = x - 0.1 * g / (np.sqrt(v) + 1e-2)
        np.testing.assert_allclose(params["x"], x, rtol=1e-5)
    centred = RMSProp(0.1, 0.9, 1e-2, centred=True).transform()
    params = {"x": jnp.array([1.0, -2.0])}
    state, x, v, m = centred.init(params), np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for gradient in (np.array([0.3, -0.4]), np.array([3.0, 4.0]), np.array([0.0, 1.0])):
        updates, state = centred.update({"x": jnp.asarray(gradient, jnp.float32)}, state, params)
        params = {"x": params["x"] + updates["x"]}
        v, m = 0.9 * v + 0.1 * gradient**2, 0.9 * m + 0.1 * gradient
        x = x - 0.1 * gradient / np.sqrt(v - m**2 + 1e-2)
        np.testing.assert_allclose(params["x"], x, rtol=1e-5)
    falling = RMSProp(0.1, decay_updates=2).transform()
    state, sizes = falling.init(params), []
    for _ in range(3):
        updates, state = falling.update({"x": jnp.ones(2)}, state, params)
        sizes.append(float(jnp.abs(updates["x"]).max()))
    assert sizes[2] == 0 < sizes[1] < sizes[0]


# NDQFN ----------------------------------------------------------------------------------------------------------------


def test_the_grid_and_interpolation_against_numpy():
    np.testing.assert_allclose(grid(4), [0.001, 0.25, 0.5, 0.75, 0.999])
    rng = np.random.default_rng(0)
    increments, levels = rng.exponential(size=7), np.concatenate([rng.random(50), [0.0, 1.0], grid(7)])
    values = np.concatenate([[-3.0], -3.0 + np.cumsum(increments)])
    ours = -3.0 + increments @ np.asarray(ramps(jnp.asarray(levels, jnp.float32), 7))
    np.testing.assert_allclose(ours, np.interp(levels, grid(7), values), atol=1e-5)


def test_quantiles_never_decrease_and_are_linear_between_the_points():
    representation = NonDecreasing(n_intervals=6, n_cosines=8, bonus="none")
    levels = jnp.sort(jax.random.uniform(jax.random.key(9), (40,)))

    @jax.jit
    def at(key, where):
        # Weights far larger than training makes them.
        head = representation.init_head(key, FEATURES, ACTIONS)
        wild = jax.tree.map(lambda x: 20.0 * jax.random.normal(key, x.shape), head)
        return wild.quantiles(jax.random.normal(key, (1, FEATURES)), where[None])[0]

    sizes = []
    for key in KEYS[:20]:
        at_levels, at_grid = np.asarray(at(key, levels)), np.asarray(at(key, jnp.asarray(grid(6))))
        size = np.abs(at_grid).max()
        assert (np.diff(at_levels, axis=1) >= -1e-6 * size).all() and (np.diff(at_grid, axis=1) >= 0).all()
        sizes.append(size)
        for action in range(ACTIONS):
            np.testing.assert_allclose(at_levels[action], np.interp(levels, grid(6), at_grid[action]), atol=1e-5 * size)
    assert max(sizes) > 100, "wild enough to mean something"


def test_levels_and_loss_are_those_of_iqn():
    representation = NonDecreasing(n_intervals=6, n_online=5, n_target=3, bonus="none")
    agent = agent_of(representation)
    params = agent.init(jax.random.key(0), (4,), ACTIONS).params
    predict = eqx.filter_jit(partial(predict_each, agent))
    online, other = (predict(params, jnp.ones((2, 4)), "online", jax.random.key(1))[i] for i in range(2))
    assert online.atoms.shape == (ACTIONS, 5) and not np.allclose(online.levels, other.levels)
    assert predict(params, jnp.ones((1, 4)), "target", jax.random.key(1)).atoms.shape == (1, ACTIONS, 3)
    np.testing.assert_allclose(predict(params, jnp.ones((1, 4))).levels[0, 0], (np.arange(6) + 0.5) / 6)
    y = np.array([0.3, -2.0, 1.0])
    expected = 0.0
    for tau, theta in zip(np.asarray(online.levels[1]), np.asarray(online.atoms[1]), strict=True):
        for u in y - theta:
            huber = u * u / 2 if abs(u) <= 1 else abs(u) - 0.5
            expected += abs(tau - (u < 0)) * huber / 3
    predicted, target = online[1:2], ReturnDist(y.astype(np.float32)[None])
    assert representation.loss(predicted, target)[0] == pytest.approx(expected, rel=1e-5)


@pytest.fixture(scope="module")
def surprised():
    """An agent before and after 150 updates on one observation and action."""
    agent = agent_of(NonDecreasing(n_intervals=6, n_cosines=8, n_online=4, n_target=4))
    batch = batch_of()
    seen = jnp.array([1.0, -1.0, 0.5, 0.0])
    batch = eqx.tree_at(
        lambda b: (b.obs_tm1, b.action_tm1), batch, (jnp.tile(seen, (BATCH, 1)), jnp.zeros(BATCH, jnp.int32))
    )
    before = agent.init(jax.random.key(3), (4,), ACTIONS)
    after = before
    for i in range(150):
        after, _ = jit_learn(agent, after, batch, (), LATE, jax.random.key(i))
    return agent, before.params, after.params, seen


def surprise(agent, params, obs):
    return np.asarray(agent.representation.surprise(params.head, params.features(obs[None]))[0])


def test_the_bonus_falls_where_something_was_done(surprised):
    agent, before, after, seen = surprised
    new = jnp.array([-2.0, 2.0, 1.0, 3.0])
    assert surprise(agent, after, seen)[0] < 0.1 * surprise(agent, before, seen)[0]
    # Nothing is promised of what was not seen; but a network that learns one input to a tenth does not learn another.
    assert surprise(agent, after, new)[0] > 3 * surprise(agent, after, seen)[0]


def test_what_is_imitated_stays_and_the_return_is_not_disturbed(surprised):
    agent, before, after, _ = surprised
    for x, y in zip(
        jax.tree.leaves((before.head.frozen, before.torso.torsos[2])),
        jax.tree.leaves((after.head.frozen, after.torso.torsos[2])),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)
    one = jax.tree.map(lambda x: x[:1], batch_of())
    gradient = jax.jit(jax.grad(lambda p: auxiliary_losses(agent, p, p, one).sum()))(before)

    def size(tree):
        return sum(float(jnp.abs(x).sum()) for x in jax.tree.leaves(tree))

    assert size((gradient.head.quantiles, gradient.torso.torsos[0])) == 0
    assert size((gradient.head.frozen, gradient.torso.torsos[2])) == 0
    assert size(gradient.head.imitator) > 0 and size(gradient.torso.torsos[1]) > 0


@pytest.mark.parametrize("bonus, p", [("w1", 1), ("w2", 2)])
def test_the_bonus_is_the_distance_of_two_distributions(surprised, bonus, p):
    agent, params, _, obs = surprised
    representation = NonDecreasing(n_intervals=6, n_cosines=8, bonus=bonus, c=3.0)
    _, seen, frozen = jnp.split(params.torso(obs), 3)
    levels = ((jnp.arange(6) + 0.5) / 6)[None]
    one, two = (
        ReturnDist(head(x[None], levels)[0]) for head, x in ((params.head.imitator, seen), (params.head.frozen, frozen))
    )
    expected = np.array([wasserstein(a, b, p) for a, b in zip(one.atoms, two.atoms, strict=True)])
    ours = representation.surprise(params.head, params.features(obs[None]))[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-4)
    scores = jnp.array([1.0, 2.0, 3.0])
    dist, clock = predict_one(agent, params, obs), Clock(99, 0, 0, 99)
    context = ActContext(params.head, params.torso(obs), dist, scores, (), jnp.asarray(False), (), clock)
    acted, _ = representation.behave(context)
    np.testing.assert_allclose(acted, scores + 3.0 * np.sqrt(np.log(100) / 100) * expected, rtol=1e-4)
    with pytest.raises(ValueError, match="n_intervals"):
        NonDecreasing(n_intervals=1)


# All of them ----------------------------------------------------------------------------------------------------------

SMALL = {"widths": [8], "record_every": 60, "checkpoint_every": 1000, "chunk": 1000}
OPTIONS = {
    "bootstrapped_dqn": {"n_heads": 3, "mask_share": 0.5, "n_step": 3, "batch_size": 8, "start_steps": 30},
    "quota": {"n_quantiles": 6, "n_options": 3, "n_step": 3, "batch_size": 8, "start_steps": 30},
    "quota_onpolicy": {"n_quantiles": 6, "n_options": 3, "n_envs": 3},
    "ndqfn": {"n_intervals": 6, "n_cosines": 8, "n_online": 5, "n_target": 5, "batch_size": 8, "start_steps": 30},
}
ATOMS = {"bootstrapped_dqn": 3, "quota": 6, "quota_onpolicy": 6, "ndqfn": 6}


TIME = {p: pytest.mark.slow if p == "quota" else pytest.mark.long for p in PRESETS}
"""One of them before a merge; the others take longer to compile."""


@pytest.mark.parametrize("preset", [pytest.param(p, marks=TIME[p]) for p in PRESETS])
def test_saved_interrupted_continued_loaded_and_evaluated(preset, tmp_path):
    run = partial(tremble.train, preset, "CartPole-v1", steps=180, **(SMALL | OPTIONS[preset]))

    def interrupt(step, row):
        if step >= 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(out=tmp_path, on_progress=interrupt, chunk=7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps = []
        continued = tremble.resume(tmp_path, on_progress=lambda step, row: steps.append(step))
    assert min(steps) > 100, "it went on instead of starting over"
    whole = run()
    for x, y in zip(jax.tree.leaves(continued.agent.params), jax.tree.leaves(whole.agent.params), strict=True):
        np.testing.assert_array_equal(x, y)
    assert continued.rows == whole.rows and continued.episode_rows == whole.episode_rows
    assert whole.rows[-1]["updates"] > 5 and np.isfinite(whole.rows[-1]["loss"])
    loaded, obs = tremble.load(tmp_path), np.zeros(4, np.float32)
    assert loaded.distribution(obs).atoms.shape == (2, ATOMS[preset])
    np.testing.assert_array_equal(loaded.distribution(obs).atoms, whole.agent.distribution(obs).atoms)
    assert loaded.predict(obs)[0] == loaded.act(obs)
    actions, _ = loaded.predict(np.stack([obs] * 5), deterministic=False)
    assert actions.shape == (5,) and set(actions) <= {0, 1}
    for criterion in ("mean", "own", *(["majority_vote"] if preset == "bootstrapped_dqn" else [])):
        result = tremble.evaluate(
            loaded, lambda: gymnasium.make("CartPole-v1", max_episode_steps=20), episodes=2, criterion=criterion
        )
        assert (result.returns >= 1).all()


@pytest.mark.long
@pytest.mark.parametrize("preset", PRESETS)
def test_on_an_environment_written_in_jax(preset):
    """Three of them inside XLA; the rollouts of the fourth beside it, with one environment."""
    options = OPTIONS[preset] | {"n_envs": 1, "n_step": 5 if preset == "quota_onpolicy" else 1}
    run = tremble.train(preset, "nchain", steps=120, **(SMALL | options))
    assert len(run.log["action"]) == 120
    assert run.rows[-1]["updates"] == (23 if preset == "quota_onpolicy" else 90)
    assert np.isfinite(run.rows[-1]["loss"])


@pytest.mark.long
def test_both_loops_make_the_same_run_with_options():
    """What is remembered and stored is the same inside XLA and beside it."""
    options = {
        "n_quantiles": 6,
        "n_options": 3,
        "widths": [8],
        "batch_size": 8,
        "start_steps": 50,
        "learning_rate": 1e-3,
        "option_beta": 0.2,
        "option_epsilon_decay_steps": 200,
        "epsilon_decay_steps": 100,
        "epsilon_end": 0.5,
    }
    inside = tremble.train("quota", "nchain", steps=300, **options)
    beside = tremble.train(
        "quota", lambda: JaxGymEnv(NChain(), run_seed=0), steps=300, hyperparameters="nchain", **options
    )
    returns = [e["return"] for e in beside.episode_rows]
    ends = np.flatnonzero(inside.log["done"])
    assert [e["step"] for e in beside.episode_rows] == (ends + 1).tolist() and len(ends) > 4
    np.testing.assert_allclose(np.cumsum(inside.log["reward"])[ends], np.cumsum(returns), rtol=1e-4)
    for x, y in zip(jax.tree.leaves(inside.agent.params), jax.tree.leaves(beside.agent.params), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("probe", [Discounting(), JointPolicy()], ids=["discounting", "joint"])
def test_rollouts_solve_probes(probe):
    """Within 0.1 of the exact returns: a mistake in the powers of gamma would be off by 0.2, a sign by 2.

    250 updates a thousandth each are too few at the published rate; at 3e-3 they are enough.
    """
    run = tremble.train(
        "quota_onpolicy",
        lambda: JaxGymEnv(probe),
        steps=16 * 5 * 250,
        n_envs=16,
        hyperparameters="nchain",
        gamma=0.8,
        n_quantiles=8,
        n_options=4,
        widths=[32],
        learning_rate=3e-3,
        kappa=0.1,
        epsilon_start=0.5,
        epsilon_end=0.5,
        record_every=20_000,
        chunk=20_000,
    )
    for answer in answers(probe, 0.8):
        atoms = np.asarray(run.agent.distribution(np.array(answer.obs, np.float32)).atoms)[answer.action]
        assert np.abs(atoms - answer.mean).mean() < 0.1, answer
