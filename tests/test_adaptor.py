"""True transitions from every kind of Gymnasium environment, and the way back to where one was."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from tremble.envs.encoding import Encoder, UnsupportedSpaceError
from tremble.envs.gym import Serial, Vector, open_environment
from tremble.envs.rewind import Rewindable
from tremble.records import as_record
from tremble.settings import SettingsError

N, STEPS = 3, 60
SEEDS = [11, 22, 33]


class Countdown(gymnasium.Env):
    """Ends after a random number of steps, by termination or truncation; forbids one action; rewards differ."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3, start=5)

    def _seen(self):
        mask = np.ones(3, np.int8)
        mask[self.left % 3] = 0
        return np.array([self.left, self.total], np.float32), {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.total = int(self.np_random.integers(1, 6)), 0.0
        self.by_time = bool(self.np_random.integers(2))
        return self._seen()

    def step(self, action):
        assert self.action_space.contains(action), action
        self.left -= 1
        reward = float(self.np_random.normal() + action)
        self.total += reward
        over = self.left == 0
        obs, info = self._seen()
        return obs, reward, over and not self.by_time, over and self.by_time, info


class SecretlyRandom(Countdown):
    """Draws from a generator nobody can see."""

    hidden = np.random.default_rng()

    def step(self, action):
        self.total += self.hidden.normal()
        return super().step(action)


def scripted(i: int) -> np.ndarray:
    """The actions of environment i, by its own count of transitions."""
    return np.random.default_rng(i).integers(0, 3, 10 * STEPS)


def collect(env, n: int) -> list[list[tuple]]:
    """Transitions of each of n environments, acting by script."""
    seen, stored, counts = env.start(SEEDS[:n]), [[] for _ in range(n)], [0] * n
    while min(counts) < STEPS:
        resetting = np.array(env.resetting)
        actions = np.array([scripted(i)[counts[i]] for i in range(n)])
        env.send(actions)
        out = env.receive()
        np.testing.assert_array_equal(out.happened, ~resetting)
        for i in np.flatnonzero(out.happened):
            stored[i].append(
                (
                    *seen.obs[i],
                    *seen.mask[i],
                    actions[i],
                    out.reward[i],
                    out.terminated[i],
                    out.truncated[i],
                    *out.final.obs[i],
                    *out.final.mask[i],
                )
            )
            counts[i] += 1
        seen = out.next
    env.close()
    return [[tuple(float(x) for x in t) for t in rows[:STEPS]] for rows in stored]


@pytest.fixture(scope="module")
def singles():
    """What each environment does alone."""
    rows = []
    for i in range(N):
        env = Serial([Countdown()], "countdown")
        env_rows, seen = [], env.start([SEEDS[i]])
        for k in range(STEPS):
            action = scripted(i)[k]
            env.send(np.array([action]))
            out = env.receive()
            env_rows.append(
                tuple(
                    float(x)
                    for x in (
                        *seen.obs[0],
                        *seen.mask[0],
                        action,
                        out.reward[0],
                        out.terminated[0],
                        out.truncated[0],
                        *out.final.obs[0],
                        *out.final.mask[0],
                    )
                )
            )
            seen = out.next
        rows.append(env_rows)
    assert any(t[7] for t in rows[0]) and any(t[8] for t in rows[0]), "both kinds of ends occur"
    return rows


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_transitions_are_those_of_single_environments_in_every_autoreset_mode(singles, kind, mode):
    env = Vector(kind([Countdown] * N, autoreset_mode=mode), "countdown")
    assert collect(env, N) == singles


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [False, True])
def test_transitions_of_environments_made_here(singles, parallel):
    assert collect(open_environment(Countdown, N, parallel), N) == singles


def test_a_final_observation_is_the_true_one(singles):
    # The countdown reaches 0 exactly where an episode ends; the next episode's start would show 1 to 5.
    for row in singles[0]:
        assert (row[9] == 0) == bool(row[7] or row[8])


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rewinding_leads_back(parallel):
    env = open_environment(Countdown, 2, parallel)
    seen = env.start(SEEDS[:2])
    rng = np.random.default_rng(0)
    for _ in range(17):
        env.send(rng.integers(0, 3, 2))
        seen = env.receive().next
    snapshots = env.snapshot()
    fresh = open_environment(Countdown, 2, parallel)
    np.testing.assert_array_equal(fresh.rewind(snapshots), seen.obs)
    actions = rng.integers(0, 3, (40, 2))
    for both in actions:
        outs = []
        for e in (env, fresh):
            e.send(both)
            outs.append(e.receive())
        np.testing.assert_array_equal(outs[0].reward, outs[1].reward)
        np.testing.assert_array_equal(outs[0].next.obs, outs[1].next.obs)
    env.close(), fresh.close()


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "LunarLander-v3", "tremble/NChain-v0"])
def test_gymnasium_environments_rewind(name):
    env = Serial([gymnasium.make(name)], name)
    seen = env.start([5])
    rng = np.random.default_rng(1)
    for _ in range(150):
        env.send(rng.integers(0, env.actions.n, 1))
        seen = env.receive().next
    fresh = Serial([gymnasium.make(name)], name)
    np.testing.assert_array_equal(fresh.rewind(env.snapshot()), seen.obs)


def test_hidden_randomness_shows_as_another_observation():
    env = Serial([SecretlyRandom()], "secret")
    seen = env.start([3])
    while seen.obs[0, 0] < 3 or seen.obs[0, 1] == 0:  # in the middle of an episode, after some reward
        env.send(np.array([0]))
        seen = env.receive().next
    there = Serial([SecretlyRandom()], "secret").rewind(env.snapshot())
    assert not np.array_equal(there, seen.obs)


def test_a_step_that_failed_is_not_part_of_the_way_back():
    class Failing(Countdown):
        def step(self, action):
            if getattr(self, "broken", False):
                raise RuntimeError("sensor")
            return super().step(action)

    env = Rewindable(Failing())
    env.reset(seed=0)
    env.step(5)
    env.unwrapped.broken = True
    with pytest.raises(RuntimeError):
        env.step(6)
    assert env.snapshot()[1]["actions"].tolist() == [5]


SPACES = {
    "box": (spaces.Box(-1, 1, (2, 3)), (2, 3)),
    "bytes": (spaces.Box(0, 255, (4, 4, 1), np.uint8), (4, 4, 1)),
    "discrete": (spaces.Discrete(4, start=-1), (4,)),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), (5,)),
    "multi-binary": (spaces.MultiBinary(3), (3,)),
    "dict": (spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (2,))}), (4,)),
    "tuple": (spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, ())]), (4,)),
}


@pytest.mark.parametrize("name", SPACES)
def test_encoding(name):
    space, shape = SPACES[name]
    space.seed(0)
    encoder = Encoder.of(space)
    assert encoder == as_record(encoder.describe(), Encoder, "x") and encoder.shape == shape
    samples = [space.sample() for _ in range(5)]
    single = np.stack([encoder(s) for s in samples])
    assert single.shape == (5, *shape) and single.dtype == (np.uint8 if name == "bytes" else np.float32)
    flat = np.stack([spaces.flatten(space, s) for s in samples])  # Gymnasium's own, as the oracle
    np.testing.assert_array_equal(np.reshape(single, (5, -1)).astype(np.float32), flat.astype(np.float32))
    batched = gymnasium.vector.utils.concatenate(
        space, samples, gymnasium.vector.utils.create_empty_array(space, n=5, fn=np.zeros)
    )
    np.testing.assert_array_equal(encoder(batched, (5,)), single)
    assert encoder.batch_of(samples[0]) is None and encoder.batch_of(batched) == 5


def test_what_cannot_be_used_is_named():
    with pytest.raises(UnsupportedSpaceError, match=r"MountainCarContinuous-v0 has action space Box.*ActionWrapper"):
        open_environment("MountainCarContinuous-v0")
    with pytest.raises(UnsupportedSpaceError, match="Text"):
        Encoder.of(spaces.Text(5))
    with pytest.raises(SettingsError, match="CartPole"):
        open_environment("CartPoll-v1")
    with pytest.raises(UnsupportedSpaceError, match="No module named 'nowhere'"):
        open_environment("nowhere:Env")
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        Encoder.of(spaces.Box(0, 1, (2,)))(np.zeros(3))


def test_environments_by_module_and_class():
    env = open_environment("tremble.worlds.nchain_gym:NChainEnv", options={"length": 7})
    assert env.encoder.shape == (7,) and env.actions.n == 6
    assert open_environment(partial(gymnasium.make, "CartPole-v1")).actions.n == 2
