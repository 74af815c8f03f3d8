"""Environments that users bring: wrapped, normalised, vectorised, with several choices, of other packages."""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import tremble
from tremble.cli.main import main
from tremble.core import RandomStream
from tremble.envs.encoding import Actions, Encoder, UnsupportedSpaceError
from tremble.envs.faults import EnvironmentFaultError
from tremble.envs.gym import Serial, Vector, open_environment
from tremble.envs.masks import as_mask
from tremble.envs.rewind import Rewindable
from tremble.envs.running_statistics import check_statistics, normalisers, statistics_of
from tremble.envs.unknown import likely_packages
from tremble.records import CheckpointError, as_record
from tremble.settings import SettingsError
from tremble.training.checkpoint import read
from tremble.training.evaluation_env import evaluation_env, evaluation_maker
from tremble.training.gym_loop import env_seed

SMALL = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}


def small(env, steps=120, agent="qrdqn", **options):
    return tremble.train(agent, env, steps=steps, **(SMALL | options))


def cartpole(**options):
    return gymnasium.make("CartPole-v1", **options)


def normalised(**options):
    return wrappers.NormalizeReward(wrappers.NormalizeObservation(cartpole(**options)))


class Unrecorded(gymnasium.Wrapper):
    """A wrapper that Gymnasium cannot make again; the first observation is scaled."""

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, 2.0 * reward, *rest


# --- evaluation sees what training sees -------------------------------------------------------------------------------


def test_a_ready_made_environment_is_evaluated_with_its_wrappers():
    run = small(wrappers.TransformReward(cartpole(), lambda reward: 10.0 * reward), evaluate_every=60)
    for row in run.evaluation_rows:
        assert row["returns"] == [10.0 * length for length in row["lengths"]]
    stacked = small(wrappers.FrameStackObservation(cartpole(max_episode_steps=9), 3), evaluate_every=60)
    assert stacked.agent.encoder.shape == (3, 4) and max(stacked.evaluation_rows[0]["lengths"]) <= 9


def test_windows_of_training_are_not_opened_in_evaluations():
    shown = wrappers.HumanRendering(cartpole(render_mode="rgb_array"))
    made = str(evaluation_env(wrappers.RecordEpisodeStatistics(shown))())
    assert "HumanRendering" not in made and "RecordEpisodeStatistics" in made


def test_what_cannot_be_made_again_is_refused_before_the_first_step():
    env, asked = Unrecorded(cartpole()), pytest.raises(SettingsError, match=r"wrapper Unrecorded.*evaluate_env=")
    shown = []
    with asked:
        small(env, evaluate_every=60, on_progress=lambda step, row: shown.append(step))
    assert not shown
    assert small(env).evaluation_rows == []
    doubled = small(env, evaluate_every=60, evaluate_env=lambda: Unrecorded(cartpole()))
    plain = small(env, evaluate_every=60, evaluate_env="CartPole-v1")
    assert doubled.evaluation_rows[0]["lengths"] == plain.evaluation_rows[0]["lengths"]
    assert doubled.evaluation_rows[0]["returns"] == [2.0 * length for length in plain.evaluation_rows[0]["lengths"]]
    with pytest.raises(SettingsError, match="evaluate_env is the environment of training"):
        small(env, evaluate_every=60, evaluate_env=env)
    given = small(env, evaluate_every=60, evaluate_env=Unrecorded(cartpole()))
    assert given.evaluation_rows[0]["returns"] == doubled.evaluation_rows[0]["returns"], (
        "one that is ready-made is used itself, an episode at a time"
    )


def test_environments_without_a_spec_are_refused_with_the_way_out():
    with pytest.raises(SettingsError, match=r"Counting was not made by gymnasium.make.*Give a function"):
        small(Counting(), evaluate_every=10)


def test_another_environment_for_evaluation_must_have_the_same_spaces():
    with pytest.raises(SettingsError, match=r"trained on other spaces than those of Acrobot-v1.*\[4\].*2 actions"):
        small("CartPole-v1", evaluate_every=60, evaluate_env="Acrobot-v1")


def test_the_environment_for_evaluation_is_part_of_a_run(tmp_path):
    other = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    small("CartPole-v1", out=tmp_path / "id", evaluate_env=other)
    agent = tremble.load(tmp_path / "id")
    assert evaluation_maker(agent.spec, agent.spec.env).name == other
    small(cartpole, out=tmp_path / "object")
    with pytest.raises(SettingsError, match=r"given as an object.*tremble.evaluate\(tremble.load"):
        agent = tremble.load(tmp_path / "object")
        evaluation_maker(agent.spec, agent.spec.env)


# --- normalising wrappers ---------------------------------------------------------------------------------------------


def played(agent, env, seed, number):
    """The return and length of one evaluation episode, by hand."""
    obs, _ = env.reset(seed=env_seed(seed, RandomStream.EVALUATE, number))
    total, length, over = 0.0, 0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        total, length, over = total + float(reward), length + 1, terminated or truncated
    return total, length


@pytest.mark.parametrize("source", [normalised, "ready-made", "vector"])
def test_evaluations_normalise_as_training_did(source):
    made = []

    def make():
        made.append(normalised())
        return made[-1]

    if source == "vector":
        env = wrappers.vector.NormalizeReward(wrappers.vector.NormalizeObservation(SyncVectorEnv([cartpole] * 2)))
        made.append(env)
    else:
        env = make if source is normalised else make()
    run = small(env, evaluate_every=120, evaluate_episodes=3)
    found = statistics_of(normalisers(made[0]))
    assert found["observation-0/count"] > 100 and found.keys() == run.agent.statistics.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(run.agent.statistics[name], array)
    by_hand = normalised()
    for name, wrapper in normalisers(by_hand).items():
        moments = wrapper.obs_rms if name.startswith("observation") else wrapper.return_rms
        moments.mean, moments.var = run.agent.statistics[f"{name}/mean"], run.agent.statistics[f"{name}/var"]
        wrapper.update_running_mean = False
    expected = [played(run.agent, by_hand, 0, number) for number in range(3)]
    assert list(zip(run.evaluation_rows[0]["returns"], run.evaluation_rows[0]["lengths"], strict=True)) == expected
    again = tremble.evaluate(run.agent, normalised, episodes=3)
    assert list(again.returns) == run.evaluation_rows[0]["returns"]


def test_statistics_are_those_of_the_first_of_several_environments():
    made = []

    def make():
        made.append(normalised())
        return made[-1]

    run = small(make, n_envs=2)
    assert run.agent.statistics["observation-0/count"] == made[0].env.obs_rms.count
    assert not np.array_equal(made[0].env.obs_rms.mean, made[1].env.obs_rms.mean)


@pytest.mark.parametrize(("n_envs", "parallel"), [(2, False), pytest.param(1, True, marks=pytest.mark.slow)])
def test_a_run_that_normalises_resumes_exactly(tmp_path, n_envs, parallel):
    def interrupt(step, row):
        if step >= 70:
            raise KeyboardInterrupt

    how = {"evaluate_every": 60, "evaluate_episodes": 2, "chunk": 10, "checkpoint_every": 20}
    how |= {"n_envs": n_envs, "parallel": parallel}
    whole = small(normalised, out=tmp_path / "whole", **how)
    with pytest.raises(KeyboardInterrupt):
        small(normalised, out=tmp_path / "cut", on_progress=interrupt, **how)
    sorted((tmp_path / "cut" / "checkpoints").glob("step-*"))[-1].unlink()  # as if killed before it was written
    resumed = small(normalised, out=tmp_path / "cut", **how)
    assert resumed.rows == whole.rows and resumed.evaluation_rows == whole.evaluation_rows
    for file in ("weights.safetensors", "best.safetensors", "episodes.jsonl", "evaluations.jsonl"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


class Stumbling(gymnasium.ObservationWrapper):
    """Gives one observation that is not finite."""

    count, at = 0, 70

    def observation(self, observation):
        Stumbling.count += 1
        return observation * (np.float32(np.nan) if Stumbling.count == self.at else np.float32(1))


def test_a_step_that_failed_leaves_no_trace_in_the_statistics(tmp_path, monkeypatch):
    def make():
        return wrappers.NormalizeObservation(Stumbling(cartpole()))

    monkeypatch.setattr(Stumbling, "count", 0)
    with pytest.raises(EnvironmentFaultError, match="gave nan as observation"):
        small(make, out=tmp_path)
    assert np.isfinite(tremble.load(tmp_path).statistics["observation-0/mean"]).all()
    resumed = small(make, out=tmp_path)
    monkeypatch.setattr(Stumbling, "at", -1)
    whole = small(make)
    assert resumed.rows == whole.rows
    for name, array in whole.agent.statistics.items():
        np.testing.assert_array_equal(resumed.agent.statistics[name], array)


def test_rewinding_restores_rewards_that_are_carried_over_a_time_limit():
    def make():
        return Serial([wrappers.NormalizeReward(normalised(max_episode_steps=4))], "limited")

    env, rng = make(), np.random.default_rng(0)
    env.start([3])
    for _ in range(26):
        env.send(rng.integers(0, 2, 1))
        seen = env.receive().next
    fresh = make()
    np.testing.assert_array_equal(fresh.rewind(env.snapshot()), seen.obs)
    for action in rng.integers(0, 2, 12):
        outs = []
        for each in (env, fresh):
            each.send(np.array([action]))
            outs.append(each.receive())
        assert outs[0].reward == outs[1].reward
        np.testing.assert_array_equal(outs[0].next.obs, outs[1].next.obs)


def test_statistics_are_kept_with_the_weights(tmp_path):
    run = small(normalised, out=tmp_path, evaluate_every=60, evaluate_episodes=2)
    for weights, agent in (("newest", run.agent), ("best", run.best)):
        loaded = tremble.load(tmp_path, weights=weights)
        assert loaded.statistics.keys() == agent.statistics.keys()
        results = [tremble.evaluate(each, normalised, episodes=2) for each in (loaded, agent)]
        np.testing.assert_array_equal(results[0].returns, results[1].returns)


def test_an_agent_and_an_environment_that_normalise_differently_are_refused():
    with_both, without = small(normalised).agent, small("CartPole-v1").agent
    with pytest.raises(UnsupportedSpaceError, match=r"trained on observations that .*NormalizeObservation normalised"):
        tremble.evaluate(with_both, "CartPole-v1")
    with pytest.raises(UnsupportedSpaceError, match="normalises observations and rewards, but no statistics"):
        tremble.evaluate(without, normalised)
    in_points = tremble.evaluate(with_both, lambda: wrappers.NormalizeObservation(cartpole()), episodes=2)
    assert list(in_points.returns) == list(in_points.lengths), "rewards may stay as the game has them"


WRONG = {
    "a part is missing": {"observation-0/mean": np.zeros(2), "observation-0/var": np.ones(2)},
    "another name": {f"reward-x/{part}": np.ones(()) for part in ("mean", "var", "count")},
    "other shapes": {
        "reward-0/mean": np.zeros(2),
        "reward-0/var": np.ones(3),
        "reward-0/count": np.ones(()),
    },
    "not finite": {"reward-0/mean": np.array(np.nan), "reward-0/var": np.ones(()), "reward-0/count": np.ones(())},
    "negative": {"reward-0/mean": np.zeros(()), "reward-0/var": -np.ones(()), "reward-0/count": np.ones(())},
    "whole numbers": {f"reward-0/{part}": np.ones((), np.int64) for part in ("mean", "var", "count")},
}


@pytest.mark.parametrize("what", WRONG)
def test_statistics_from_files_are_checked(what):
    with pytest.raises(ValueError, match="statistics"):
        check_statistics(WRONG[what])


# --- tremble.evaluate -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agent():
    return small("CartPole-v1").agent


def test_evaluate_takes_what_train_takes(agent):
    expected = list(tremble.evaluate(agent, cartpole, episodes=2).returns)
    by_class = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    for env in ("CartPole-v1", cartpole(), partial(gymnasium.make, "CartPole-v1"), SyncVectorEnv([cartpole] * 2)):
        assert list(tremble.evaluate(agent, env, episodes=2).returns) == expected
    assert list(tremble.evaluate(agent, by_class, episodes=2, max_steps=500).returns) == expected
    own = Unrecorded(cartpole())
    assert list(tremble.evaluate(agent, own, episodes=2).returns) == [2.0 * x for x in expected]


def test_evaluate_takes_names_of_environments_inside_xla():
    run = small("nchain", env_options={"time_limit": 5})
    assert list(tremble.evaluate(run.agent, "nchain", episodes=2).lengths) == [5, 5], "with the options of training"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 0}, "episodes of an evaluation must be at least 1, got 0"),
        ({"episodes": -3}, "episodes of an evaluation must be at least 1, got -3"),
        ({"steps": -1}, "steps of an evaluation must be at least 0"),
        ({"at_once": 0}, "at_once of an evaluation must be at least 1"),
        ({"env": "LunarLander-v3"}, "other spaces than those of LunarLander-v3"),
        ({"env": "CartPole-v11"}, "did you mean 'CartPole-v1'"),
    ],
)
def test_bad_requests_to_evaluate_are_one_message(agent, options, message):
    with pytest.raises(SettingsError, match=message):
        tremble.evaluate(agent, **({"env": "CartPole-v1"} | options))


def test_a_function_must_make_a_new_environment_each_time(agent):
    one = cartpole()
    with pytest.raises(SettingsError, match="returned the same environment again"):
        tremble.evaluate(agent, lambda: one, episodes=3)
    with pytest.raises(UnsupportedSpaceError, match="returned the same environment again"):
        small(lambda: one, n_envs=2)


@pytest.mark.parametrize("options", [{"n_envs": 2}, {"parallel": True}, {"env_options": {"render_mode": None}}])
def test_settings_that_a_ready_made_environment_cannot_follow_are_refused(options):
    for env in (cartpole(), SyncVectorEnv([cartpole])):
        with pytest.raises(UnsupportedSpaceError, match="is ready-made, so it cannot"):
            small(env, **options)


@pytest.mark.parametrize("made", ["a vector", None])
def test_functions_that_make_something_else_are_named(made):
    def make():
        return SyncVectorEnv([cartpole]) if made else None

    with pytest.raises(UnsupportedSpaceError, match="make makes a"):
        small(make)


# --- vector environments ----------------------------------------------------------------------------------------------


class Counting(gymnasium.Env):
    """Counts down from a random number of steps; ends by termination or by time."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.total = int(self.np_random.integers(1, 6)), 0.0
        self.by_time = bool(self.np_random.integers(2))
        return np.array([self.left, self.total], np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(self.np_random.normal() + action)
        self.left, self.total = self.left - 1, self.total + reward
        over = self.left == 0
        return (
            np.array([self.left, self.total], np.float32),
            reward,
            over and not self.by_time,
            over and self.by_time,
            {},
        )


class Handwritten(VectorEnv):
    """What Gymnasium asks of a vector environment and no more: one seed for all, and one of the three modes."""

    def __init__(self, mode, n=3):
        self.metadata = {"autoreset_mode": mode}
        self.num_envs, self.envs = n, [Counting() for _ in range(n)]
        self.single_observation_space, self.single_action_space = Counting.observation_space, Counting.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, n)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, n)
        self.over = np.zeros(n, bool)

    def reset(self, *, seed=None, options=None):
        assert seed is None or type(seed) is int
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if seed is None and options is None:
            raise AssertionError("nobody asked for new episodes")
        for i in np.flatnonzero(chosen):
            self.seen(i, self.envs[i].reset(seed=None if seed is None else seed * (int(i) + 1)))
        return self.obs.copy(), {}

    def seen(self, i, result):
        if i == 0 and not hasattr(self, "obs"):
            self.obs = np.zeros((self.num_envs, 2), np.float32)
        self.obs[i] = result[0]

    def step(self, actions):
        assert self.action_space.contains(actions), actions
        n, mode = self.num_envs, self.metadata["autoreset_mode"]
        reward, terminated, truncated = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
        info = {}
        for i, env in enumerate(self.envs):
            if mode is AutoresetMode.NEXT_STEP and self.over[i]:
                self.seen(i, env.reset())
                continue
            result = env.step(actions[i])
            self.seen(i, result)
            reward[i], terminated[i], truncated[i] = result[1:4]
            if mode is AutoresetMode.SAME_STEP and (terminated[i] or truncated[i]):
                info.setdefault("final_obs", np.zeros_like(self.obs))[i] = result[0]
                self.seen(i, env.reset())
        self.over = terminated | truncated
        return self.obs.copy(), reward, terminated, truncated, info


def transitions(env, n, steps=40):
    """Transitions of each of n environments, acting by script."""
    seen, stored = env.start([11, 22, 33][:n]), [[] for _ in range(n)]
    script = [np.random.default_rng(i).integers(0, 3, 10 * steps) for i in range(n)]
    while min(map(len, stored)) < steps:
        actions = np.array([script[i][len(stored[i])] for i in range(n)])
        env.send(actions)
        out = env.receive()
        for i in np.flatnonzero(out.happened):
            stored[i].append((*seen.obs[i], out.reward[i], out.terminated[i], out.truncated[i], *out.final.obs[i]))
        seen = out.next
    return [[tuple(float(x) for x in row) for row in rows[:steps]] for rows in stored]


@pytest.fixture(scope="module")
def alone():
    return transitions(Serial([Counting() for _ in range(3)], "counting"), 3)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments_written_as_such_give_true_transitions(alone, mode):
    assert transitions(Vector(Handwritten(mode), "handwritten"), 3) == alone


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments_written_as_such_train(mode):
    assert small(Handwritten(mode)).rows == small(Handwritten(mode)).rows


def test_vector_environments_of_gymnasium_train_and_are_evaluated(tmp_path):
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point", max_episode_steps=9)
    run = small(wrappers.vector.RecordEpisodeStatistics(env), evaluate_every=120)
    assert max(row["length"] for row in run.episode_rows) <= 9 and max(run.evaluation_rows[0]["lengths"]) <= 9


def test_a_pool_that_is_vector_and_environment_at_once_is_a_vector():
    """As EnvPool's environments are; they warn that their seed was fixed when they were made."""

    class Pool(Handwritten, gymnasium.Env):
        spec = object()

        def reset(self, *, seed=None, options=None):
            if seed is not None:
                warnings.warn("seeds are fixed when the environment is created", stacklevel=2)
            return super().reset(seed=7, options=options)

    with pytest.warns(UserWarning, match="seeds are fixed"):
        run = small(Pool(AutoresetMode.NEXT_STEP))
    assert run.rows[-1]["step"] >= 120


def test_vector_wrappers_that_evaluation_cannot_copy_are_refused():
    env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    with pytest.raises(SettingsError, match="cannot make ClipReward around the vector environment CartPole-v1 again"):
        small(wrappers.vector.ClipReward(env, 0.0, 0.5), evaluate_every=60)
    with pytest.raises(SettingsError, match="Handwritten is a vector environment that does not say how a single one"):
        small(Handwritten(AutoresetMode.NEXT_STEP), evaluate_every=60)
    once = cartpole()
    with pytest.raises(SettingsError, match="return the environments of training again"):
        small(SyncVectorEnv([lambda: once]), evaluate_every=60)


@pytest.mark.slow
def test_statistics_in_processes_of_others_cannot_be_had():
    env = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=1,
        vectorization_mode="async",
        vector_kwargs={"context": "forkserver"},
        wrappers=[wrappers.NormalizeObservation],
    )
    with pytest.raises(SettingsError, match="normalises in processes that tremble did not start"):
        small(env, evaluate_every=60)


def test_wrappers_inside_a_vector_are_part_of_evaluations():
    env = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=2,
        vectorization_mode="sync",
        wrappers=[lambda env: wrappers.FrameStackObservation(env, 2)],
    )
    run = small(env, evaluate_every=120)
    assert run.agent.encoder.shape == (2, 4) and len(run.evaluation_rows) == 1


@pytest.mark.parametrize(("mode", "said"), [(None, "does not say"), ("Sometimes", "says by 'Sometimes'")])
def test_a_vector_environment_without_a_mode_is_refused_with_the_fix(mode, said):
    with pytest.raises(UnsupportedSpaceError, match=rf"Handwritten {said}.*AutoresetMode.NEXT_STEP"):
        open_environment(Handwritten(mode))


def test_a_same_step_vector_without_final_observations_is_named():
    class Forgetful(Handwritten):
        def step(self, actions):
            return *super().step(actions)[:4], {}

    with pytest.raises(EnvironmentFaultError, match=r"Forgetful ended an episode without info\['final_obs'\]"):
        small(Forgetful(AutoresetMode.SAME_STEP))


def test_a_run_of_a_vector_says_that_it_does_not_resume_exactly(tmp_path):
    def interrupt(step, row):
        raise KeyboardInterrupt

    def make():
        return wrappers.vector.NormalizeObservation(SyncVectorEnv([cartpole] * 2))

    with (
        pytest.warns(UserWarning, match="after an interruption this run goes on with new"),
        pytest.raises(KeyboardInterrupt),
    ):
        small(make(), out=tmp_path, on_progress=interrupt, chunk=80)
    before = tremble.load(tmp_path).statistics["observation-0/count"]
    with pytest.warns(UserWarning, match="could not be brought back.*give an id or a function and n_envs"):
        run = small(make(), out=tmp_path)
    assert run.rows[-1]["step"] == 120
    assert run.agent.statistics["observation-0/count"] > before, "what it normalises by goes on"


# --- actions of several choices ---------------------------------------------------------------------------------------


SPACES = {
    "discrete": (spaces.Discrete(3, start=-1), 3),
    "small numbers": (spaces.Discrete(3, dtype=np.int8), 3),
    "multi-discrete": (spaces.MultiDiscrete([2, 3, 2], start=[5, -1, 0]), 12),
    "several axes": (spaces.MultiDiscrete([[2, 3], [1, 2]], dtype=np.int32), 12),
    "multi-binary": (spaces.MultiBinary(3), 8),
    "binary, two axes": (spaces.MultiBinary((2, 2)), 16),
}


@pytest.mark.parametrize("name", SPACES)
def test_every_action_has_a_number(name):
    space, n = SPACES[name]
    actions = Actions.of(space, "x")
    assert actions.n == n and actions == as_record(actions.describe(), Actions, "x")
    own = [actions.own(k) for k in range(n)]
    assert all(space.contains(action) for action in own) and len({str(action) for action in own}) == n
    np.testing.assert_array_equal(actions.decode(np.arange(n)), np.array(own))
    np.testing.assert_array_equal(actions.encode(np.array(own)), np.arange(n))
    batch = actions.decode(np.arange(n).reshape(-1, 2)) if n % 2 == 0 else actions.decode([[0, 1]])
    assert batch.shape[2:] == space.shape and actions.encode(own[1]) == 1


def test_too_many_combinations_are_refused_with_their_number():
    with pytest.raises(
        UnsupportedSpaceError, match=r"robot has action space .*20 x 20 x 20 = 8,000 combinations.*4,096"
    ):
        Actions.of(spaces.MultiDiscrete([20, 20, 20]), "robot")
    with pytest.raises(UnsupportedSpaceError, match="ActionWrapper"):
        Actions.of(spaces.Tuple([spaces.Discrete(2)]), "pair")


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": [0, 3]},
        {"sizes": [2**31, 3]},
        {"sizes": [4096, 2]},
        {"start": [0]},
        {"start": [2**70, 0]},
        {"shape": [3]},
        {"shape": []},
        {"dtype": "object"},
    ],
)
def test_actions_in_files_are_checked(changes):
    described = Actions.of(spaces.MultiDiscrete([2, 3]), "x").describe()
    with pytest.raises(CheckpointError, match="actions"):
        as_record(described | changes, Actions, "actions")


def test_masks_of_several_choices():
    actions = Actions.of(spaces.MultiDiscrete([2, 3]), "x")
    parts = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    np.testing.assert_array_equal(as_mask(parts, actions), np.outer(*parts).ravel())
    np.testing.assert_array_equal(as_mask([1, 0, 1, 0, 1, 0], actions), [1, 0, 1, 0, 1, 0])
    nested = Actions.of(spaces.MultiDiscrete([[2, 1], [1, 2]]), "x")
    ones = np.ones(1, np.int8)
    np.testing.assert_array_equal(as_mask(((parts[0], ones), (ones, parts[0])), nested), [1, 0, 0, 0])
    with pytest.raises(EnvironmentFaultError, match=r"a mask for each of the 2 choices, of sizes \[2, 3\]"):
        as_mask((np.ones(3), np.ones(2)), actions)
    with pytest.raises(EnvironmentFaultError, match="for each of the 6 actions"):
        as_mask([1, 0], actions)


class Safe(gymnasium.Env):
    """Two dials; one pair pays, some values are forbidden, and the next state depends on both."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.MultiDiscrete([2, 3], start=[1, -1])
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    flat = False

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def seen(self):
        parts = (np.ones(2, np.int8), np.array([1, 1, self.at % 2], np.int8))
        mask = np.outer(*parts).ravel() if self.flat else parts
        return np.array([self.at, self.sum], np.float32), {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.sum = 0, float(self.np_random.normal())
        return self.seen()

    def step(self, action):
        assert self.action_space.contains(action), action
        assert type(self) is Switches or action[1] < 1 or self.at % 2, "forbidden"
        self.at, self.sum = self.at + 1, self.sum + float(action @ [0.1, 0.01]) + float(self.np_random.normal())
        return *self.seen()[:1], float(action[0] == 2 and action[1] == 0), self.at > 9, False, self.seen()[1]

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)


class Flat(Safe):
    flat = True


class Switches(Safe):
    """The same with switches."""

    action_space = spaces.MultiBinary(2)

    def seen(self):
        return super().seen()[0], {}


@pytest.mark.parametrize("env", [Safe, Flat, pytest.param(Switches, marks=pytest.mark.slow)])
def test_agents_choose_among_combinations_and_resume_exactly(tmp_path, env):
    def interrupt(step, row):
        if step >= 70:
            raise KeyboardInterrupt

    how = {"evaluate_every": 60, "evaluate_episodes": 2, "chunk": 10, "n_envs": 2}
    whole = small(env, **how)
    with pytest.raises(KeyboardInterrupt):
        small(env, out=tmp_path, on_progress=interrupt, **how)
    resumed = small(env, out=tmp_path, **how)
    assert resumed.rows == whole.rows and resumed.evaluation_rows == whole.evaluation_rows
    agent = tremble.load(tmp_path)
    assert agent.actions == whole.agent.actions == Actions.of(env.action_space, "x")
    obs = np.zeros(2, np.float32)
    assert env.action_space.contains(agent.act(obs)) and env.action_space.contains(agent.predict(obs)[0])
    assert agent.predict(np.zeros((5, 2), np.float32))[0].shape == (5, 2)
    if env is Safe:
        only = (np.array([0, 1], np.int8), np.array([0, 1, 0], np.int8))
        assert agent.act(obs, mask=only).tolist() == [2, 0]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("env", [Safe, Flat])
def test_combinations_and_their_masks_in_vectors(env, mode):
    vector = Vector(SyncVectorEnv([env, env], autoreset_mode=mode), "safe")
    seen = vector.start([1, 2])
    rng = np.random.default_rng(0)
    for _ in range(40):
        assert seen.mask.shape == (2, 6)
        np.testing.assert_array_equal(seen.mask[:, [2, 5]], np.repeat(seen.obs[:, :1] % 2 == 1, 2, axis=1))
        vector.send(np.array([rng.choice(np.flatnonzero(mask)) for mask in seen.mask]))
        seen = vector.receive().next


def test_a_mask_of_a_handwritten_vector_may_be_a_tuple_of_arrays():
    vector = Vector(SyncVectorEnv([Safe, Safe]), "safe")
    parts = (np.array([[1, 0], [1, 1]]), np.array([[0, 1, 1], [1, 0, 0]]))
    expected = [np.outer(a, b).ravel() for a, b in zip(*parts, strict=True)]
    np.testing.assert_array_equal(vector._masks({"action_mask": parts}), expected)
    with pytest.raises(EnvironmentFaultError, match="a row for each of 2 environments, got 3"):
        vector._masks({"action_mask": np.ones((3, 6))})


# --- masks in evaluations and videos ----------------------------------------------------------------------------------


class Masked(gymnasium.Env):
    """Gives action masks, wrong ones on demand from the third step on."""

    observation_space, action_space = spaces.Box(0, 1, (2,)), spaces.Discrete(2)
    how = ""

    def __init__(self, how, render_mode=None):
        self.how, self.render_mode = how, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {} if self.how == "late" else {"action_mask": [1, 1]}

    def step(self, action):
        self.steps += 1
        wrong = {"nothing": [0, 0], "too long": [1, 1, 1]}.get(self.how, [1, 1])
        mask = {} if self.how == "gone" else {"action_mask": wrong}
        return np.zeros(2, np.float32), 1.0, self.steps > 5, False, mask

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("nothing", "Masked permits no action"),
        ("too long", "for each of the 2 actions"),
        ("late", "Masked gives an action mask .* only now"),
        ("gone", "Masked gives an action mask .* no more"),
    ],
)
def test_masks_are_checked_in_evaluations_and_videos(masked_agent, how, message):
    from tremble.viewer.video import play

    with pytest.raises(EnvironmentFaultError, match=message):
        tremble.evaluate(masked_agent, Masked(how), episodes=3)
    with pytest.raises(EnvironmentFaultError, match=message):
        play(masked_agent, Masked(how, "rgb_array"), policy=masked_agent.policy(), seed=0, max_steps=9)


@pytest.fixture(scope="module")
def masked_agent():
    return small(partial(Masked, "")).agent


# --- ids of other packages --------------------------------------------------------------------------------------------


@pytest.fixture
def minigrid(tmp_path, monkeypatch):
    """An installed package that needs Gymnasium and registers an environment when it is imported."""
    (tmp_path / "highway_env_x-2.0.dist-info").mkdir()
    (tmp_path / "highway_env_x-2.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: highway-env-x\nVersion: 2.0\nRequires-Dist: gymnasium>=1.0.0\n"
    )
    (tmp_path / "highway_env_x.py").write_text(
        "import gymnasium\ngymnasium.register('highwayx-fast-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    gymnasium.registry.pop("highwayx-fast-v0", None)
    sys.modules.pop("highway_env_x", None)


def test_unknown_ids_say_how_packages_are_named(minigrid):
    assert likely_packages("highway-fast-v0") == ["highway_env_x"]
    with pytest.raises(
        SettingsError, match="highway_env_x may register it when it is imported: highway_env_x:highway-fast-v0"
    ):
        small("highway-fast-v0")
    assert "highway_env_x" not in sys.modules, "nothing is imported that nobody named"
    with pytest.raises(SettingsError, match="before the id: PACKAGE:MiniGrid-Empty-5x5-v0"):
        small("MiniGrid-Empty-5x5-v0")
    with pytest.raises(SettingsError, match="did you mean 'tremble/NChain-v0'"):
        small("tremble/NChains-v0")  # a package whose environments are there already
    run = small("highway_env_x:highwayx-fast-v0", steps=30)
    assert len(tremble.evaluate(run.agent, "highway_env_x:highwayx-fast-v0", episodes=1).returns) == 1


# --- by command -------------------------------------------------------------------------------------------------------


OWN = """
import gymnasium
from gymnasium import wrappers

def normalised(**options):
    return wrappers.NormalizeObservation(gymnasium.make("CartPole-v1", **options))

def shorter(max_episode_steps=7, **options):
    return normalised(max_episode_steps=max_episode_steps, **options)
"""


@pytest.mark.slow
def test_commands_know_the_statistics_of_a_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_environments.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = small("own_environments:normalised", out=tmp_path / "run", evaluate_every=120, evaluate_episodes=3)
    main(["evaluate", "run", "--episodes", "3", "--trust-code"])
    written = json.loads((tmp_path / "run" / "evaluation-mean-e0-s0.json").read_text())
    assert written["returns"] == run.evaluation_rows[-1]["returns"]
    main(["video", "run", "--out", "episode.gif", "--max-steps", "3", "--trust-code"])
    assert (tmp_path / "episode.gif").stat().st_size > 0
    how = {"evaluate_every": 120, "evaluate_episodes": 3, "evaluate_env": "own_environments:shorter"}
    small("own_environments:normalised", out=tmp_path / "other", **how)
    main(["evaluate", "other", "--episodes", "3", "--trust-code", "--env-set", "max_episode_steps=4"])
    written = json.loads((tmp_path / "other" / "evaluation-mean-max_episode_steps=4-e0-s0.json").read_text())
    assert written["lengths"] == [4, 4, 4]
    main(["video", "other", "--out", "other.gif", "--trust-code"])
    assert "7 steps, return" in capsys.readouterr().out
    contents = read(tmp_path / "run" / "weights.safetensors")
    assert contents.group("statistics").keys() == {f"observation-0/{part}" for part in ("mean", "var", "count")}


def test_a_savable_environment_inside_wrappers_with_a_state_is_replayed():
    """A time limit counts steps: the state of the environment alone would let the episode last longer."""
    env = Rewindable(wrappers.TimeLimit(Remembering(), 5))
    env.reset(seed=1)
    env.step(0), env.step(1)
    fresh = Rewindable(wrappers.TimeLimit(Remembering(), 5))
    np.testing.assert_array_equal(fresh.rewind([env.snapshot()]), env.unwrapped.obs())
    assert [fresh.step(0)[3] for _ in range(3)] == [False, False, True]


def test_a_savable_environment_is_saved_with_its_generator():
    """What it saves itself lacks its randomness: without it the run would go on, silently, with other numbers."""
    env, fresh = Rewindable(Remembering()), Rewindable(Remembering())
    env.reset(seed=1)
    env.step(0)
    facts, arrays = env.snapshot()
    fresh.rewind([(json.loads(json.dumps(facts)), arrays)])
    np.testing.assert_array_equal([fresh.step(1)[0] for _ in range(5)], [env.step(1)[0] for _ in range(5)])
    np.testing.assert_array_equal(fresh.reset()[0], env.reset()[0])


class Remembering(gymnasium.Env):
    """Can save and load its state."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Discrete(2)

    def obs(self):
        return np.array([self.x])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal()
        return self.obs(), {}

    def step(self, action):
        self.x += action + self.np_random.normal()
        return self.obs(), 0.0, False, False, {}

    def save_state(self):
        return {"x": np.array(self.x)}

    def load_state(self, state):
        self.x = float(state["x"])
        return self.obs()


def test_parts_of_a_dict_without_an_encoder_are_named_with_the_way_out():
    several = spaces.Dict({"image": spaces.Box(0, 1, (2,)), "mission": spaces.Text(10)})
    with pytest.raises(
        UnsupportedSpaceError, match=r"the part 'mission' \(Text\).*FilterObservation\(env, \['image'\]"
    ):
        Encoder.of(several)
    with pytest.raises(UnsupportedSpaceError, match="observations of Text are not supported"):
        Encoder.of(spaces.Dict({"mission": spaces.Text(10)}))


def test_an_observation_outside_a_discrete_space_is_refused():
    encode = Encoder.of(spaces.Discrete(3, start=2))
    assert encode(2).tolist() == [1, 0, 0]
    for outside in (1, 5):
        with pytest.raises(ValueError, match="is not in the space"):
            encode(outside)


def test_an_environment_that_is_used_for_an_evaluation_goes_on_normalising_afterwards():
    """It cannot be made again, so it is used itself."""
    mine = wrappers.NormalizeObservation(Unrecorded(cartpole()))
    agent = small(lambda: wrappers.NormalizeObservation(Unrecorded(cartpole()))).agent
    mine.reset(seed=0)
    before = mine.obs_rms.count
    tremble.evaluate(agent, mine, episodes=2)
    assert mine.update_running_mean and mine.obs_rms.count == before
