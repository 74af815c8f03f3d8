"""N-Chain: dynamics by hand, the two front ends against each other, and the exact returns against simulation.

Statistical bounds as in `test_criteria`: five standard errors, or a p-value of 1e-5, set before the first run.
"""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from gymnasium.utils.env_checker import check_env

import tremble.envs
from tremble.envs.registry import make_jax_env
from tremble.settings import SettingsError
from tremble.worlds.gaussian_mixture import GaussianMixture
from tremble.worlds.nchain import LEFT, RIGHT, ChainState, NChain
from tremble.worlds.nchain_gym import NChainEnv

ID = "tremble/NChain-v0"
LEVEL = 1e-5
STAY = 4
OUTCOMES = ("arrived", "elapsed", "reward", "terminated", "truncated")


def one_step(chain: NChain, position: int, action: int, coin: float = 0.2, normal: float = 0.0) -> tuple:
    outcome = chain.dynamics(position, 0, action, coin, normal, xp=np)
    return int(outcome[0]), float(outcome[2]), bool(outcome[3])


# Dynamics -------------------------------------------------------------------------------------------------------------


def test_paid_on_exit_by_hand():
    chain = NChain()
    # Between the ends: moves that pay nothing and end nothing.
    assert one_step(chain, 2, LEFT) == (1, 0.0, False)
    assert one_step(chain, 2, RIGHT) == (3, 0.0, False)
    assert [one_step(chain, 2, stay) for stay in (2, 3, 4, 5)] == [(2, 0.0, False)] * 4
    assert one_step(chain, 1, LEFT) == (0, 0.0, False)
    assert one_step(chain, 3, RIGHT) == (4, 0.0, False)
    # In an end state every action collects, 10 + 0.1 * 2 and 5 or 13 by the coin, and the episode is over.
    for action in range(6):
        assert one_step(chain, 0, action, normal=2.0) == (0, 10.2, True)
        assert one_step(chain, 4, action, coin=0.49) == (4, 5.0, True)
        assert one_step(chain, 4, action, coin=0.5) == (4, 13.0, True)


def test_paid_on_entry_by_hand():
    chain = NChain(reward_on="enter")
    assert one_step(chain, 2, LEFT) == (1, 0.0, False)
    assert one_step(chain, 1, STAY) == (1, 0.0, False)
    assert one_step(chain, 1, RIGHT) == (2, 0.0, False)
    assert one_step(chain, 1, LEFT, normal=-1.0) == (0, 9.9, True)
    assert one_step(chain, 3, RIGHT, coin=0.9, normal=1.0) == (4, 13.1, True)
    assert one_step(chain, 3, RIGHT, coin=0.1) == (4, 5.0, True)


def test_options_change_the_rewards():
    chain = NChain(left_reward=1.0, right_low=-4.0, right_high=7.0, reward_noise=0.5, reward_scale=10.0, length=3)
    assert chain.start == 1
    assert one_step(chain, 0, STAY, normal=2.0) == (0, 20.0, True)
    assert one_step(chain, 2, STAY, coin=0.0) == (2, -40.0, True)
    assert one_step(chain, 2, STAY, coin=0.99, normal=-1.0) == (2, 65.0, True)


@pytest.mark.parametrize("reward_on", ["exit", "enter"])
def test_a_time_limit_truncates_and_does_not_terminate(reward_on: str):
    env = NChainEnv(time_limit=3, reward_on=reward_on)
    env.reset(seed=0)
    assert [env.step(STAY)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    # Going straight left with payment on exit ends by itself on the third step: terminated, not truncated.
    env.reset()
    flags = [env.step(LEFT)[2:4] for _ in range(3 if reward_on == "exit" else 2)]
    assert flags[-1] == (True, False)
    chain = NChain(time_limit=1)
    _, _, terminated, truncated = chain.step(chain.reset(jax.random.key(0)), jnp.asarray(STAY), (jnp.zeros(()),) * 2)
    assert (bool(terminated), bool(truncated)) == (False, True)
    assert not NChain().dynamics(2, 10**9, STAY, 0.0, 0.0, xp=np)[4]


@pytest.mark.parametrize("reward_on", ["exit", "enter"])
def test_jax_and_numpy_agree_everywhere(reward_on: str):
    chain = NChain(reward_on=reward_on, time_limit=4, reward_scale=0.5)
    grid = np.meshgrid(np.arange(5), [0, 3], np.arange(6), [0.0, 0.49, 0.5, 0.99], [-1.5, 0.0, 2.0], indexing="ij")
    position, elapsed, action, coin, normal = (x.ravel() for x in grid)
    ours = chain.dynamics(position, elapsed, action, coin, normal, xp=np)
    states = ChainState(jnp.asarray(position), jnp.asarray(elapsed))
    noise = jnp.asarray(coin, jnp.float32), jnp.asarray(normal, jnp.float32)
    state, *rest = jax.jit(jax.vmap(chain.step))(states, jnp.asarray(action), noise)
    for name, one, other in zip(OUTCOMES, ours, (state.position, state.elapsed, *rest), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=name)


class Forced:
    """Stands for NumPy's generator, with numbers known beforehand."""

    def __init__(self, coins: np.ndarray, normals: np.ndarray):
        self.coins, self.normals = iter(coins.tolist()), iter(normals.tolist())

    def random(self) -> float:
        return next(self.coins)

    def standard_normal(self) -> float:
        return next(self.normals)


@pytest.mark.parametrize("encoding", ["one_hot", "thermometer"])
def test_jax_and_gymnasium_make_the_same_episodes(encoding: str):
    generator = np.random.default_rng(0)
    steps = 60
    coins, normals = generator.uniform(size=steps).astype(np.float32), generator.normal(size=steps).astype(np.float32)
    actions = generator.integers(0, 3, steps)
    env, chain = NChainEnv(time_limit=6, encoding=encoding), NChain(time_limit=6, encoding=encoding)
    obs, info = env.reset(seed=0)
    env.np_random = Forced(coins, normals)
    state, step, ends = chain.reset(jax.random.key(0)), jax.jit(chain.step), set()
    np.testing.assert_array_equal(obs, chain.observe(state))
    for k in range(steps):
        optimal = bool(chain.is_optimal(state, jnp.asarray(actions[k])))
        state, reward, terminated, truncated = step(state, actions[k], (coins[k], normals[k]))
        obs, gym_reward, *flags, info = env.step(actions[k])
        np.testing.assert_array_equal(obs, chain.observe(state))
        np.testing.assert_allclose(gym_reward, reward, rtol=1e-6)
        assert flags == [bool(terminated), bool(truncated)]
        assert info == {"position": int(state.position), "is_optimal": optimal}
        if any(flags):
            ends.add(tuple(flags))
            env.reset()
            state = chain.reset(jax.random.key(0))
    assert ends == {(True, False), (False, True)}


def test_encodings():
    one_hot, thermometer = NChain(length=3), NChain(length=3, encoding="thermometer")
    assert one_hot.observation_table.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert thermometer.observation_table.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    for chain in (one_hot, thermometer):
        state = chain.reset(jax.random.key(0))
        np.testing.assert_array_equal(chain.observe(state), chain.observation_table[chain.index(state)])
        assert (int(state.position), int(state.elapsed)) == (1, 0)


def test_optimal_actions():
    # Left in s1, s2, s3; anything in s0, where it only collects; nothing in s4.
    expected = [[True] * 6] + [[True] + [False] * 5] * 3 + [[False] * 6]
    chain = NChain()
    assert [[bool(chain.is_optimal_at(s, a)) for a in range(6)] for s in range(5)] == expected
    zero = jnp.asarray(0)
    traced = [
        [bool(chain.is_optimal(ChainState(jnp.asarray(s), zero), jnp.asarray(a))) for a in (0, 1)] for s in (0, 3)
    ]
    assert traced == [[True, True], [True, False]]


@pytest.mark.parametrize("end", ["left", "right"])
def test_rewards_follow_their_law(end: str):
    chain = NChain(reward_scale=2.0)
    state = ChainState(jnp.asarray(0 if end == "left" else 4), jnp.asarray(2))
    keys = jax.random.split(jax.random.key(3), 20_000)
    rewards = jax.jit(jax.vmap(lambda k: chain.step(state, jnp.asarray(STAY), chain.draw(k))[1]))(keys)
    law = chain.reward_law(end)
    assert scipy.stats.kstest(np.asarray(rewards, np.float64), law.cdf).pvalue > LEVEL
    means = (20.0,) if end == "left" else (10.0, 26.0)
    exact = GaussianMixture(np.full(len(means), 1 / len(means)), np.array(means), np.full(len(means), 0.2))
    np.testing.assert_allclose(law.quantile([0.01, 0.3, 0.6, 0.99]), exact.quantile([0.01, 0.3, 0.6, 0.99]))


# Exact returns --------------------------------------------------------------------------------------------------------


def test_ground_truths_of_the_paper():
    chain = NChain()
    left = chain.optimal_return(2, LEFT, 0.9)
    assert (left.mean(), left.std()) == pytest.approx((8.1, 0.081))
    assert len(left.means) == 1
    right = chain.committed_return(2, RIGHT, 0.9)
    assert right.mean() == pytest.approx(7.29)
    assert right.means.tolist() == pytest.approx([0.81 * 5, 0.81 * 13])
    # One step right of the middle the nearer end is worth more, 0.9 * 9 = 8.1 against 0.9^3 * 10 = 7.29, so the optimal
    # way on from there is right as well; from the middle it is left.
    assert [chain.optimal_action(s, 0.9) for s in (1, 2, 3)] == [LEFT, LEFT, RIGHT]
    assert chain.optimal_return(2, RIGHT, 0.9).means.tolist() == right.means.tolist()
    assert chain.optimal_return(3, RIGHT, 0.9).mean() == pytest.approx(8.1)
    # Without discounting the larger mean is worth any way: after right, back to the left end.
    assert chain.optimal_return(2, RIGHT, 1.0).mean() == pytest.approx(10.0)
    assert chain.optimal_return(2, STAY, 0.9).mean() == pytest.approx(0.9 * 8.1)
    assert NChain(reward_on="enter").optimal_return(2, LEFT, 0.9).mean() == pytest.approx(9.0)
    assert NChain(reward_scale=0.1).optimal_return(2, LEFT, 0.9).std() == pytest.approx(0.0081)


@pytest.mark.parametrize("reward_on", ["exit", "enter"])
@pytest.mark.parametrize("gamma", [0.5, 0.9, 1.0])
def test_optimal_returns_against_dynamic_programming(reward_on: str, gamma: float):
    for options in ({}, {"right_low": 9.0, "right_high": 15.0}, {"length": 9, "left_reward": 20.0}):
        chain = NChain(reward_on=reward_on, **options)
        states = np.arange(1, chain.length - 1) if reward_on == "enter" else np.arange(chain.length)
        worth = np.zeros(chain.length)
        for _ in range(2 * chain.length):
            q = np.zeros((chain.length, 3))
            for action in (LEFT, RIGHT, STAY):
                # The mean reward: no Gaussian noise, both sides of the coin.
                tails, heads = (chain.dynamics(states, 0, action, coin, 0.0, xp=np) for coin in (0.0, 0.9))
                reward = (tails[2] + heads[2]) / 2
                q[states, min(action, 2)] = reward + gamma * np.where(tails[3], 0.0, worth[tails[0]])
            worth = q.max(1)
        for s in states:
            for action in (LEFT, RIGHT, STAY):
                exact = chain.optimal_return(int(s), action, gamma).mean()
                assert exact == pytest.approx(q[s, min(action, 2)]), (options, s, action)


@pytest.mark.parametrize("reward_on", ["exit", "enter"])
@pytest.mark.parametrize(("start", "action"), [(2, LEFT), (2, RIGHT), (1, STAY), (3, LEFT)])
def test_optimal_return_against_simulation(reward_on: str, start: int, action: int):
    chain, gamma, episodes = NChain(reward_on=reward_on), 0.9, 4000
    generator = np.random.default_rng([start, action])
    position, elapsed, total = np.full(episodes, start), np.zeros(episodes, int), np.zeros(episodes)
    alive, actions = np.ones(episodes, bool), np.full(episodes, action)
    policy = np.array([chain.optimal_action(s, gamma) for s in range(chain.length)])
    for k in range(12):
        coin, normal = generator.uniform(size=episodes), generator.normal(size=episodes)
        position, elapsed, reward, terminated, _ = chain.dynamics(position, elapsed, actions, coin, normal, xp=np)
        total += np.where(alive, gamma**k * reward, 0.0)
        alive, actions = alive & ~terminated, policy[position]
    assert not alive.any()
    assert scipy.stats.kstest(total, chain.optimal_return(start, action, gamma).cdf).pvalue > LEVEL


def test_mixture_against_scipy():
    law = GaussianMixture(np.array([0.25, 0.75]), np.array([5.0, 13.0]), np.array([0.5, 2.0]))
    x = np.array([3.0, 5.0, 9.0, 20.0])
    parts = [scipy.stats.norm(5, 0.5), scipy.stats.norm(13, 2)]
    np.testing.assert_allclose(law.cdf(x), 0.25 * parts[0].cdf(x) + 0.75 * parts[1].cdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.pdf(x), 0.25 * parts[0].pdf(x) + 0.75 * parts[1].pdf(x), rtol=1e-12)
    # E = 11; E Z^2 = 1/4 (25 + 1/4) + 3/4 (169 + 4)
    assert (law.mean(), law.std()) == pytest.approx((11.0, np.sqrt(136.0625 - 121)))
    levels = np.linspace(0.001, 0.999, 401)
    np.testing.assert_allclose(law.cdf(law.quantile(levels)), levels, rtol=1e-9)
    np.testing.assert_allclose(law.quantile(law.cdf(x)), x, rtol=1e-6)
    moved = law.affine(1.0, -2.0)
    np.testing.assert_allclose(moved.quantile(levels), 1 - 2 * law.quantile(1 - levels), rtol=1e-9)
    single = GaussianMixture(np.ones(1), np.array([2.0]), np.array([3.0]))
    np.testing.assert_allclose(single.quantile(levels), scipy.stats.norm(2, 3).ppf(levels), rtol=1e-9, atol=1e-12)


def test_distance_of_atoms_from_a_law():
    law = NChain().committed_return(2, RIGHT, 0.9)
    levels = (np.arange(200) + 0.5) / 200
    own = law.quantile(levels)
    # The best 200 atoms can do: what is left is the spread of the law inside each two-hundredth.
    assert 0 < law.w2(own) < 0.02
    assert law.w2(np.random.default_rng(0).permutation(own)) == law.w2(own)
    np.testing.assert_allclose(law.w2(own + 3.0), np.hypot(3.0, law.w2(own)), rtol=1e-3)
    # All atoms at the mean: the distance is the standard deviation.
    np.testing.assert_allclose(law.w2(np.full(200, law.mean())), law.std(), rtol=1e-4)
    # Two Gaussians: W2^2 = (difference of means)^2 + (difference of deviations)^2
    narrow = GaussianMixture(np.ones(1), np.array([0.0]), np.array([1.0]))
    np.testing.assert_allclose(narrow.w2(4.0 + 2.0 * scipy.stats.norm.ppf(levels)), np.sqrt(17), rtol=5e-3)


def test_rewards_without_noise_have_a_law_too():
    law = NChain(reward_noise=0.0).reward_law("right")
    assert law.cdf([4.9, 5.0, 12.9, 13.0]).tolist() == [0, 0.5, 0.5, 1]
    np.testing.assert_allclose(law.quantile([0.1, 0.49, 0.51, 0.9]), [5, 5, 13, 13])
    assert law.w2(np.array([13.0, 5.0])) == pytest.approx(0.0, abs=1e-9)


# Gymnasium ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward_on", ["exit", "enter"])
@pytest.mark.parametrize("encoding", ["one_hot", "thermometer"])
def test_gymnasium_finds_nothing_to_complain_about(encoding: str, reward_on: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(ID, encoding=encoding, reward_on=reward_on, length=7, time_limit=50)
        check_env(env.unwrapped)
    assert env.observation_space.shape == (7,)
    assert env.observation_space.dtype == np.float32
    assert env.action_space.n == 6


def test_registration_happens_once():
    before = gymnasium.registry[ID]
    importlib.reload(tremble.worlds)
    assert gymnasium.registry[ID] is before
    assert isinstance(make_jax_env("nchain", {}), NChain)


def test_made_by_name_without_importing_tremble():
    source = Path(tremble.worlds.__file__).parents[2]
    program = (
        f"import gymnasium; env = gymnasium.make('tremble.worlds:{ID}', left_reward=3); print(env.reset(seed=0)[1], "
        "env.unwrapped.chain.left_reward)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "{'position': 2} 3.0"


def returns(env: gymnasium.Env, seed: int | None, actions: list[int]) -> list[float]:
    env.reset(seed=seed)
    return [env.step(a)[1] for a in actions]


def test_seeds():
    env, global_state = NChainEnv(), np.random.get_state()[1].tolist()  # noqa: NPY002
    way = [RIGHT, STAY, RIGHT, STAY]
    first, again, other = returns(env, 1, way), returns(NChainEnv(), 1, way), returns(env, 2, way)
    assert first == again
    assert first[-1] != other[-1]
    assert returns(env, None, way)[-1] != other[-1]
    assert np.random.get_state()[1].tolist() == global_state  # noqa: NPY002
    # Every step draws the same numbers, wherever the agent goes.
    assert returns(env, 1, [LEFT, STAY, LEFT, STAY])[-1] - 10 == pytest.approx(
        min(first[-1] - 5, first[-1] - 13, key=abs)
    )


def test_rewards_of_gymnasium_follow_their_law():
    env = NChainEnv()
    env.reset(seed=5)
    paid = []
    for _ in range(400):
        env.reset()
        paid.append([env.step(a)[1] for a in (RIGHT, RIGHT, LEFT)][-1])
    assert scipy.stats.kstest(paid, env.chain.reward_law("right").cdf).pvalue > LEVEL


def test_information_of_an_episode():
    env = NChainEnv()
    obs, info = env.reset(seed=0)
    assert obs.tolist() == [0, 0, 1, 0, 0]
    assert info == {"position": 2}
    told = [env.step(a)[4] for a in (RIGHT, LEFT, LEFT, LEFT, 5)]
    assert [i["position"] for i in told] == [3, 2, 1, 0, 0]
    assert [i["is_optimal"] for i in told] == [False, True, True, True, True]


def test_stepping_an_episode_that_is_over_is_an_error():
    env = NChainEnv(time_limit=1)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(LEFT)
    env.reset(seed=0)
    assert env.step(STAY)[3]
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(LEFT)
    env = NChainEnv(reward_on="enter", length=3)
    env.reset(seed=0)
    assert env.step(LEFT)[2]
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(LEFT)


def test_bad_options_and_actions_are_refused():
    with pytest.raises(SettingsError, match=r"no setting 'colour'; choose from: .*length.*time_limit"):
        NChainEnv(colour="red")
    with pytest.raises(SettingsError, match="no setting 'lenght'; did you mean 'length'"):
        gymnasium.make(ID, lenght=5)
    with pytest.raises(ValueError, match="render_mode"):
        NChainEnv(render_mode="human")
    for length in (1, 4, -5):
        with pytest.raises(ValueError, match=r"length must be (odd|at least 3)"):
            NChain(length=length)
    with pytest.raises(ValueError, match="time_limit"):
        NChain(time_limit=0)
    # The type checks of the tests may speak first; both name the field.
    with pytest.raises((ValueError, TypeError), match="reward_on"):
        NChain(reward_on="never")
    with pytest.raises((ValueError, TypeError), match="encoding"):
        NChain(encoding="binary")
    env = NChainEnv()
    env.reset(seed=0)
    for action in (-1, 6, 0.5, "left", None):
        with pytest.raises(gymnasium.error.InvalidAction, match="0 to 5"):
            env.step(action)
    assert env.step(np.int64(1))[4]["position"] == 3
    assert env.step(jnp.asarray(0))[4]["position"] == 2


def test_pictures():
    env = NChainEnv(render_mode="rgb_array")
    env.reset(seed=0)
    frames = [env.render()]
    for action in (LEFT, LEFT, LEFT):
        env.step(action)
        frames.append(env.render())
    assert all(f.shape == (320, 720, 3) and f.dtype == np.uint8 for f in frames)
    assert all(np.any(a != b) for a, b in itertools.pairwise(frames))
    # The agent's colour sits where the agent is: the middle, then ever further left.
    yellow = [np.all(np.abs(f.astype(int) - (0xF2, 0xB1, 0x34)) < 8, -1)[:140].nonzero()[1].mean() for f in frames]
    assert yellow[:3] == pytest.approx([360, 215, 70], abs=2)
    for options in ({"length": 101}, {"length": 3, "reward_noise": 0, "right_low": 10, "right_high": 10}):
        env = NChainEnv(render_mode="rgb_array", **options)
        env.reset(seed=0)
        assert env.render().std() > 1


def test_text():
    env = NChainEnv(render_mode="ansi", reward_scale=2)
    env.reset(seed=0)
    assert env.render() == "N(20, 0.2²) < 0   1  [2]  3   4 > ½ N(10, 0.2²) + ½ N(26, 0.2²)   step 0\n"
    for action in (LEFT, LEFT):
        env.step(action)
    assert "<[0]  1   2   3   4 >" in env.render()
    reward = env.step(LEFT)[1]
    assert env.render().endswith(f"step 3, paid {reward:.2f}\n")
    with pytest.warns(UserWarning, match="render mode"):
        assert NChainEnv().render() is None


@pytest.mark.parametrize("rewards", [{}, {"right_low": 20.0, "right_high": 30.0}, {"reward_scale": -1.0}])
def test_what_counts_as_optimal_follows_the_rewards(rewards):
    env = NChain(**rewards)
    best = env.optimal_action(env.length // 2, 1.0)
    towards = (LEFT, RIGHT).index(best)
    end, other = (0, env.length - 1) if best == LEFT else (env.length - 1, 0)
    for position in range(1, env.length - 1):
        assert [bool(env.is_optimal_at(position, a)) for a in range(6)] == [a == towards for a in range(6)]
    assert all(env.is_optimal_at(end, a) for a in range(6)) and not any(env.is_optimal_at(other, a) for a in range(6))
    assert (best == LEFT) == (not rewards)
