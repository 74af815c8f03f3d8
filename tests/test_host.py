"""Training beside Gymnasium environments: reproducible, equal to the compiled loop, resumable, and it learns."""

from __future__ import annotations

import json
import shutil
import warnings

import equinox as eqx
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import tremble
from tremble.agent import Agent
from tremble.criteria import Mean
from tremble.envs.encoding import Actions, UnsupportedSpaceError
from tremble.envs.faults import EnvironmentFaultError
from tremble.envs.gym import open_environment
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.masks import stack_masks
from tremble.learning_schedule import LearningSchedule
from tremble.records import CheckpointError
from tremble.representations import Quantile
from tremble.settings import SettingsError
from tremble.training import checkpoint, compiled_calls
from tremble.training.gym_loop import GymLoop
from tremble.worlds.nchain import NChain

SMALL = {"n_quantiles": 8, "widths": [16], "batch_size": 16, "start_steps": 60, "learning_rate": 1e-3}
STEPS = 400


def small_run(agent="pqr", env="CartPole-v1", seed=0, steps=STEPS, **options):
    how = {"record_every": 100, "chunk": 50, "checkpoint_every": 100}
    return tremble.train(agent, env, steps=steps, seed=seed, **(how | SMALL | options))


def same(a, b):
    """Bit for bit."""
    for x, y in zip(jax.tree.leaves(a.agent.params), jax.tree.leaves(b.agent.params), strict=True):
        np.testing.assert_array_equal(x, y)
    assert a.rows == b.rows and a.episode_rows == b.episode_rows and a.evaluation_rows == b.evaluation_rows
    return True


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    directory = tmp_path_factory.mktemp("base")
    return small_run(out=directory, evaluate_every=200, evaluate_episodes=3), directory


def test_one_seed_repeats_and_seeds_differ(base):
    assert same(base[0], small_run(evaluate_every=200, evaluate_episodes=3, chunk=33))
    other = small_run(seed=1)
    assert other.episode_rows != base[0].episode_rows


@pytest.mark.parametrize(
    "options", [{"n_step": 3, "t_unit": "updates"}, pytest.param({"share_noise": True}, marks=pytest.mark.slow)]
)
def test_a_burst_is_the_updates_one_by_one(options, monkeypatch):
    """One compiled call for a round of updates, several for what memory does not hold at once, or one for each."""

    def run(change):
        agent = tremble.make("pqr", "control", **SMALL, **options, update_interval=16, updates_per_round=7)
        loop = GymLoop(agent, open_environment("CartPole-v1"), 0, 200)
        change(loop)
        loop.advance(200)
        return loop

    def one_by_one(loop):
        loop._in_turn = False

    def in_parts(loop):
        loop._updates_per_call = 3

    together, apart, parts = run(lambda loop: None), run(one_by_one), run(in_parts)
    assert together._in_turn and together.updates == apart.updates == parts.updates > 50
    for other in (apart, parts):
        for x, y in zip(jax.tree.leaves(together.learner), jax.tree.leaves(other.learner), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_run_directory_holds_what_it_says(base):
    run, directory = base
    names = {p.name for p in directory.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "episodes.jsonl",
        "evaluations.jsonl",
        "weights.safetensors",
        "checkpoints",
        "timing.jsonl",
        "lock-1.json",
        "best.safetensors",
    }
    assert [p.name for p in sorted((directory / "checkpoints").iterdir())] == [
        "step-0000000300.safetensors",
        "step-0000000400.safetensors",
    ]
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert rows == run.rows and [row["step"] for row in rows] == [100, 200, 300, 400]
    assert sum(e["length"] for e in run.episode_rows) <= STEPS
    assert len(run.evaluation_rows) == 2 and len(run.evaluation_rows[0]["returns"]) == 3


def test_episodes_before_a_fault_are_logged(tmp_path, monkeypatch):
    """The last checkpoint is made when the environment fails; the episodes up to there belong to it."""
    monkeypatch.setattr(Broken, "how", "crash")
    monkeypatch.setattr(Broken, "steps", 0)
    with pytest.raises(EnvironmentFaultError):
        small_run(env=Broken, out=tmp_path, chunk=1000, record_every=1000, checkpoint_every=1000)
    episodes = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert episodes[-1]["step"] == sum(e["length"] for e in episodes) > 100, "Broken ends one step in ten"


def test_equal_runs_have_equal_files(base, tmp_path):
    small_run(out=tmp_path, evaluate_every=200, evaluate_episodes=3)
    for path in base[1].rglob("*"):
        if path.is_file() and not path.name.startswith(("timing", "lock")):
            assert path.read_bytes() == (tmp_path / path.relative_to(base[1])).read_bytes(), path.name


COMBINATIONS = {
    "plain": {},
    "held for an episode": {"resample_noise_every": "episode"},
    "shared draw": {"share_noise": True},
    "prioritised 3-step": {"prioritised": True, "n_step": 3},
    "bursts": {"update_interval": 20, "updates_per_round": 20, "target_update_interval": 20},
    "acting meanwhile": {"async_learning": True, "update_interval": 4, "target_update_interval": 20},
    "acting meanwhile, double, prioritised": {
        "async_learning": True,
        "double": True,
        "prioritised": True,
        "n_envs": 2,
        "memory_size": 50,
    },
    "three environments": {"n_envs": 3},
    "three processes": {
        "n_envs": 3,
        "parallel": True,
        "prioritised": True,
        "n_step": 3,
        "resample_noise_every": "episode",
    },
}


ALWAYS = {
    "plain": (),
    "acting meanwhile": pytest.mark.slow,
    "acting meanwhile, double, prioritised": pytest.mark.slow,
    "three environments": pytest.mark.slow,
}
"""The rest, and what several processes add, in `make test-long`."""


@pytest.mark.parametrize(
    "name, stop_at",
    [
        pytest.param(name, stop_at, marks=ALWAYS.get(name, pytest.mark.long) if stop_at == 130 else pytest.mark.long)
        for name in COMBINATIONS
        for stop_at in (130, 250)
    ],
)
def test_interrupted_and_continued_equals_uninterrupted(tmp_path, name, stop_at):
    options = COMBINATIONS[name]

    def interrupt(step, row):
        if step >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(out=tmp_path, on_progress=interrupt, chunk=7, **options)
    newest = sorted((tmp_path / "checkpoints").iterdir())[-1]
    assert stop_at <= checkpoint.read_meta(newest)["facts"]["t"] < stop_at + 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps = []
        continued = tremble.resume(tmp_path, on_progress=lambda step, row: steps.append(step))
    assert min(steps) > stop_at, "it went on instead of starting over"
    assert same(continued, small_run(**options))


@pytest.mark.slow
def test_both_loops_make_the_same_run():
    """Identical actions and transitions for a thousand steps; parameters within float tolerance."""
    steps, options = 1000, {"n_quantiles": 16, "widths": [16, 16], "batch_size": 16, "start_steps": 100}
    options["learning_rate"] = 1e-3
    inside = tremble.train("pqr", "nchain", steps=steps, **options)

    class Spy(JaxGymEnv):
        rows: list = []  # noqa: RUF012

        def step(self, action):
            outcome = super().step(action)
            Spy.rows.append((int(action), np.float32(outcome[1]), outcome[2] + 2 * outcome[3]))
            return outcome

    beside = tremble.train("pqr", lambda: Spy(NChain(), run_seed=0), steps=steps, hyperparameters="nchain", **options)
    actions, rewards, done = zip(*Spy.rows, strict=True)
    np.testing.assert_array_equal(actions, inside.log["action"])
    np.testing.assert_array_equal(rewards, inside.log["reward"])
    np.testing.assert_array_equal(done, inside.log["done"])
    assert inside.episode_rows == beside.episode_rows and len(inside.episode_rows) > 50
    for ours, theirs in zip(inside.rows, beside.rows, strict=True):
        for name in ("step", "updates", "episodes", "return", "episode_length", "behaviour_changed"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-12), name
    for x, y in zip(jax.tree.leaves(inside.agent.params), jax.tree.leaves(beside.agent.params), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


class FourFrames(gymnasium.Wrapper):
    """An environment whose steps span four frames."""

    @property
    def unwrapped(self):
        return self

    metadata = {"frames_per_step": 4}  # noqa: RUF012


@pytest.mark.slow
def test_frames_are_counted_in_frames():
    """A step of four frames moves a schedule in frames by four, and a schedule in transitions by one."""

    def delta(env, t_unit):
        run = small_run(env=env, steps=100, hyperparameters="control", t_unit=t_unit)
        assert run.agent.counts.frames == (400 if env is not make_one else 100)
        return run.rows[-1]["delta"], run

    def make_one():
        return gymnasium.make("CartPole-v1")

    def make_four():
        return FourFrames(gymnasium.make("CartPole-v1"))

    by_frames, four = delta(make_four, "frames")
    by_transitions, _ = delta(make_four, "transitions")
    one_frame, _ = delta(make_one, "frames")
    assert by_transitions == one_frame
    criterion = four.agent.agent.criterion
    clock = tremble.core.Clock(*[np.int32(n) for n in (100, 40, 0, 400)])
    assert by_frames == pytest.approx(float(criterion.metrics(criterion.draw(jax.random.key(0)), clock)["delta"]))
    assert by_frames < by_transitions / 2
    assert open_environment(make_four, 2, parallel=True).frames_per_step == 4


class Broken(gymnasium.Env):
    """Misbehaves at a step of choice, once."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    how, at = "", 150
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Broken.steps += 1
        obs, reward = np.ones(2, np.float32) * self.np_random.normal(), 1.0
        if Broken.steps == self.at:
            match self.how:
                case "nan reward":
                    reward = float("nan")
                case "nan observation":
                    obs = np.array([0.0, np.inf], np.float32)
                case "crash":
                    raise RuntimeError("the motor is on fire")
                case "shape":
                    obs = np.zeros(3, np.float32)
        return obs, reward, bool(self.np_random.random() < 0.1), False, {}


FAULTS = {
    "nan reward": "Broken gave nan as reward at step 150",
    "nan observation": "Broken gave inf as observation at step 150",
    "crash": "Broken failed at step 150: RuntimeError: the motor is on fire",
    "shape": r"Broken failed at step 150: ValueError: expected an observation of shape \(2,\), got \(3,\)",
}


@pytest.mark.parametrize("how", FAULTS)
def test_a_misbehaving_environment_is_named_and_nothing_is_lost(tmp_path, monkeypatch, how):
    monkeypatch.setattr(Broken, "how", how)
    monkeypatch.setattr(Broken, "steps", 0)
    with pytest.raises(EnvironmentFaultError, match=FAULTS[how]):
        small_run(env=Broken, out=tmp_path)
    newest = checkpoint.read(sorted((tmp_path / "checkpoints").iterdir())[-1])
    assert newest.meta["facts"]["t"] == 149, "every step before the fault is kept"
    finished = small_run(env=Broken, out=tmp_path)
    monkeypatch.setattr(Broken, "how", "not at all")
    undisturbed = small_run(env=Broken)
    assert finished.rows == undisturbed.rows and finished.episode_rows == undisturbed.episode_rows
    jax.tree.map(np.testing.assert_array_equal, finished.agent.params, undisturbed.agent.params)


def test_environments_that_fail_at_the_first_reset_are_named_and_closed():
    closed = []

    class Unready(Broken):
        def reset(self, *, seed=None, options=None):
            raise RuntimeError("no power")

        def close(self):
            closed.append(self)

    with pytest.raises(EnvironmentFaultError, match="Unready failed at step 1: RuntimeError: no power"):
        small_run(env=Unready)
    assert len(closed) == 1


def test_environments_that_fail_during_evaluation_are_reported_and_closed(base):
    made, closed = [], []

    class Dying(gymnasium.Wrapper):
        def step(self, action):
            raise RuntimeError("the motor is on fire")

        def close(self):
            closed.append(self)

    def make():
        made.append(Dying(gymnasium.make("CartPole-v1")))
        return made[-1]

    with pytest.raises(EnvironmentFaultError, match="failed during evaluation: RuntimeError: the motor is on fire"):
        tremble.evaluate(base[0].agent, make, episodes=2)
    assert len(made) == 2 and set(closed) == set(made)


def test_an_environment_that_cannot_be_brought_back_starts_a_new_episode(tmp_path):
    class Secret(Broken):
        def step(self, action):
            obs, *rest = super().step(action)
            return obs + np.float32(np.random.default_rng().normal()), *rest

    def interrupt(step, row):
        if step >= 130:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(env=Secret, out=tmp_path, on_progress=interrupt, chunk=10)
    with pytest.warns(UserWarning, match="could not be brought back"):
        run = small_run(env=Secret, out=tmp_path)
    assert run.rows[-1]["step"] == STEPS


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "bit":
        data[-37] ^= 4
    path.write_bytes(data[: len(data) // 2] if how == "cut" else b"\x80\x04hostile" if how == "pickle" else bytes(data))


@pytest.mark.parametrize("how", ["bit", "cut", "pickle"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(base, tmp_path, how):
    run, directory = base
    shutil.copytree(directory, tmp_path / "run")
    paths = sorted((tmp_path / "run" / "checkpoints").iterdir())
    damage(paths[-1], how)
    with pytest.warns(UserWarning, match="is damaged.*Using the checkpoint before it"):
        again = tremble.resume(tmp_path / "run")
    assert same(again, run)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        damage(path, how)
    with warnings.catch_warnings(), pytest.raises(CheckpointError, match="damaged"):
        warnings.simplefilter("ignore")
        tremble.resume(tmp_path / "run")


def test_loading_and_predicting(base):
    run, directory = base
    loaded = tremble.load(directory)
    obs = np.array([0.01, 0.02, -0.01, 0.03], np.float32)
    np.testing.assert_array_equal(loaded.distribution(obs).atoms, run.agent.distribution(obs).atoms)
    assert loaded.distribution(obs).atoms.shape == (2, 8)
    assert loaded.distribution(np.stack([obs] * 3)).atoms.shape == (3, 2, 8)
    action, state = loaded.predict(obs)
    assert action == loaded.act(obs) and state is None and np.shape(action) == ()
    assert loaded.predict(np.stack([obs] * 3))[0].shape == (3,)
    actions, state = loaded.predict(np.stack([obs] * 500), deterministic=False)
    _, later = loaded.predict(np.stack([obs] * 500), state=state, deterministic=False)
    assert later[0][0] == state[0][0] + 1, "another call, another draw"
    assert set(np.unique(actions)) <= {0, 1}
    with pytest.raises(ValueError, match="shape"):
        loaded.distribution(np.zeros(5))
    with pytest.raises(CheckpointError, match="no weights"):
        tremble.load(directory / "nothing")


def test_the_weights_of_the_best_evaluation_are_kept(base):
    """They make that evaluation again, number by number; of two equals the later ones."""
    run, directory = base
    means = [row["mean"] for row in run.evaluation_rows]
    best = max(i for i, mean in enumerate(means) if mean == max(means))
    loaded = tremble.load(directory, weights="best")
    assert loaded.counts.transitions == run.best.counts.transitions == run.evaluation_rows[best]["step"]
    for agent in (loaded, run.best):
        again = tremble.evaluate(agent, lambda: gymnasium.make("CartPole-v1"), episodes=3, seed=run.spec.seed)
        assert list(again.returns) == run.evaluation_rows[best]["returns"]


def test_evaluation_is_a_function_of_its_seed_and_not_of_how_many_run_at_once(base):
    agent = base[0].agent

    def go(**options):
        return tremble.evaluate(agent, lambda: gymnasium.make("CartPole-v1"), episodes=7, **options)

    a, b, c = go(seed=1), go(seed=1, at_once=3), go(seed=2)
    np.testing.assert_array_equal(a.returns, b.returns)
    assert not np.array_equal(a.returns, c.returns)
    assert a.predicted.shape == (7, 8) and (a.lengths == a.returns).all()
    gamma = float(agent.agent.gamma)
    np.testing.assert_allclose(a.discounted, (1 - gamma**a.lengths) / (1 - gamma), rtol=1e-9)
    assert go(seed=1, epsilon=1.0).mean != a.mean


@pytest.mark.parametrize("ends", ["whole_episode", "cut"])
def test_evaluation_by_steps_is_what_one_environment_would_play(base, ends):
    """Against episodes played one after the other, whatever runs side by side; budgets before, at and after an end."""
    agent = base[0].agent

    def go(**options):
        return tremble.evaluate(agent, lambda: gymnasium.make("CartPole-v1"), seed=1, ends=ends, **options)

    every = go(episodes=9)
    third = int(every.lengths[:3].sum())
    for steps, at_once in ((third - 1, 4), (third, 1), (third + 1, 10), (int(every.lengths[0]) - 2, 3)):
        played, alone = [], 0  # what one environment does, in the words of the definition
        for total, length in zip(every.returns, every.lengths, strict=True):
            if alone >= steps:
                break
            if alone + length <= steps or ends == "whole_episode":
                played.append(total)
            elif not played:
                played.append(steps)  # the unfinished one, because no other is finished: one point a step
            alone += length
        np.testing.assert_array_equal(go(steps=steps, at_once=at_once).returns, played)


def test_calibration_of_a_true_prediction():
    from tremble.training.evaluation import Evaluation

    rng = np.random.default_rng(0)
    happened, truth = rng.normal(3, 2, 4000), np.quantile(rng.normal(3, 2, 10**6), (np.arange(64) + 0.5) / 64)
    zeros = np.zeros(4000)
    result = Evaluation(happened, happened, zeros, zeros > 1, np.tile(truth, (4000, 1)))
    calibration = result.calibration()
    assert calibration["w1"] < 0.1
    for level, share in calibration["coverage"].items():
        assert abs(share - float(level)) < 0.03, (level, share)  # 4 standard errors at 4000 episodes, plus the 64 atoms
    off = Evaluation(happened + 2, happened + 2, zeros, zeros > 1, np.tile(truth, (4000, 1))).calibration()
    assert 1.9 < off["w1"] < 2.1 and off["coverage"]["0.5"] < 0.2


class Corridor(gymnasium.Env):
    """Action 1 pays 1, action 0 pays 0, and the mask sometimes forbids action 1."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.where = 0
        return 0, {"action_mask": np.array([1, 0], np.int8)}

    def step(self, action):
        assert not (self.where == 0 and action == 1), "a forbidden action was taken"
        over, reward = self.where == 1, float(action if self.where == 1 else 0)
        self.where = 1
        return 1, reward, over, False, {"action_mask": np.array([1, 0], np.int8)}


def test_masks_hold_for_acting_and_for_the_bootstrap():
    """Action 1 would pay at the second state but is always forbidden: every value is 0 if the bootstrap obeys."""
    learning = LearningSchedule(batch_size=16, start_steps=20, target_update_interval=10)
    agent = Agent(Quantile(8), Mean(), gamma=0.9, learning=learning, memory_size=1000)
    agent = eqx.tree_at(lambda a: a.optimiser.learning_rate, agent, 3e-3)
    run = tremble.train(agent, Corridor, steps=600)
    # The forbidden action's own value at the second state is never learned; it must not leak into the first.
    assert abs(float(run.agent.distribution(0).mean()[0])) < 0.05


def test_bad_requests():
    with pytest.raises(SettingsError, match="did you mean 'CartPole-v1'"):
        small_run(env="CartPole-v11")
    with pytest.raises(UnsupportedSpaceError, match="finite set"):
        small_run(env="Pendulum-v1")
    with pytest.raises(SettingsError, match="n_envs must be between 1 and 65536"):
        small_run(n_envs=0)
    with pytest.raises(SettingsError, match="no setting 'delta0'; did you mean 'delta_0'"):
        small_run(delta0=3)
    with pytest.raises(CheckpointError, match="no run to resume"):
        tremble.resume("/nonexistent")


def host_loop(**options):
    settings = SMALL | {"epsilon_start": 1.0, "epsilon_end": 1.0, "epsilon_decay_steps": 1.0} | options
    return GymLoop(tremble.make("qrdqn", "control", **settings), open_environment("CartPole-v1"), 0, 1000)


@pytest.mark.parametrize("options", [{"update_interval": 4}, {"double": True, "target_update_interval": 30}])
def test_with_async_learning_only_the_actions_are_late(options, monkeypatch):
    """While actions do not depend on parameters nothing else changes; they come from before the newest round."""
    plain, late = host_loop(**options), host_loop(async_learning=True, **options)
    newest, acted = [], []
    plain.advance(150)
    act, regress = compiled_calls.act, compiled_calls.regress_towards
    monkeypatch.setattr(
        compiled_calls, "act", lambda run, params, *rest: (acted.append(params), act(run, params, *rest))[1]
    )
    monkeypatch.setattr(
        compiled_calls,
        "regress_towards",
        lambda run, both, *rest: (newest.append(both[0]), regress(run, both, *rest))[1],
    )
    late.advance(150)
    assert plain.updates == late.updates == len(newest)
    for x, y in zip(jax.tree.leaves(plain.learner), jax.tree.leaves(late.learner), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    rounds = [t for t in range(60, 150) if t % options.get("update_interval", 1) == 0]
    assert len(newest) == len(rounds)
    for t in range(62, 150):
        made = sum(r < t for r in rounds)  # rounds begun before the action at t is chosen
        np.testing.assert_array_equal(acted[t].leaves[0], newest[made - 1].leaves[0])
    assert not np.array_equal(newest[-1].leaves[0], newest[-2].leaves[0])


def test_with_async_learning_priorities_come_one_update_later():
    """And only to items that are still there: with so small a memory most are overwritten before."""
    loop = host_loop(async_learning=True, prioritised=True, memory_size=64, update_interval=20)
    given, made = [], []
    update, priorities = loop._async.update, loop.replay.update_priorities

    def recorded(*args):
        learner, losses = update(*args)
        made.append(losses)
        return learner, losses

    loop._async.update = recorded
    loop.replay.update_priorities = lambda slots, losses: given.append((slots, losses)) or priorities(slots, losses)
    sampled, sample = [], loop.replay.sample_batch
    loop.replay.sample_batch = lambda *args: sampled.append((sample(*args), loop.replay.count)) or sampled[-1][0]
    loop.advance(200)
    assert len(made) == 7 and len(given) == 6, "those of the last batch are still to come"
    for k, (slots, losses) in enumerate(given):
        (_, drawn), count = sampled[k]
        age = (count - 1 - drawn) % 64
        there = age < 64 - 20  # twenty items were inserted until the next update
        np.testing.assert_array_equal(slots, drawn[there])
        np.testing.assert_array_equal(losses, np.asarray(made[k])[there])


class Masked(Broken):
    """Gives action masks, wrong ones on demand."""

    mask: list[object] = [1, 1]  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {} if self.how == "late" else {"action_mask": [1, 1]}

    def step(self, action):
        wrong = {"nothing permitted": [0, 0], "too long": [1, 1, 1], "no numbers": ["a", None], "other numbers": [1, 7]}
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"action_mask": wrong.get(self.how, [1, 0])}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("nothing permitted", "permits no action"),
        ("too long", "one entry, 0 or 1, for each of the 2 actions"),
        ("no numbers", "one entry, 0 or 1"),
        ("other numbers", "one entry, 0 or 1"),
        ("late", "only now"),
    ],
)
def test_masks_are_checked_at_the_door(monkeypatch, how, message):
    monkeypatch.setattr(Masked, "how", how)
    with pytest.raises(EnvironmentFaultError, match=message):
        small_run(env=Masked)


class Faulty(gymnasium.Env):
    """Ten steps an episode; ``fault`` says what goes wrong at step 150 of the process, or at the reset after it."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
    fault = "none"
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        bad = Faulty.fault == "reset" and Faulty.steps >= 150
        return np.full(2, np.nan if bad else 0.0, np.float32), {}

    def step(self, action):
        self.t += 1
        Faulty.steps += 1
        info = {"raw_reward": float("nan")} if Faulty.fault == "raw_reward" and Faulty.steps == 150 else {}
        return np.zeros(2, np.float32), 1.0, self.t >= 10, False, info


def test_a_first_observation_that_is_not_finite_is_reported(monkeypatch):
    monkeypatch.setattr(Faulty, "fault", "reset")
    monkeypatch.setattr(Faulty, "steps", 0)
    with pytest.raises(EnvironmentFaultError, match=r"gave nan as observation at a reset"):
        small_run(env=Faulty)


def test_a_return_that_is_not_finite_can_be_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(Faulty, "fault", "raw_reward")
    monkeypatch.setattr(Faulty, "steps", 0)
    run = small_run(env=Faulty, steps=155, out=tmp_path, record_every=40)
    assert [row["return"] for row in run.episode_rows].count(None) == 1
    monkeypatch.setattr(Faulty, "fault", "none")
    tremble.train("pqr", Faulty, steps=155, out=tmp_path, **({"record_every": 40, "checkpoint_every": 100} | SMALL))


def test_a_run_holds_the_kinds_of_its_parts(tmp_path):
    """Two kinds with equal settings must not be taken for each other."""

    class Other(Mean):
        pass

    def run(criterion):
        agent = tremble.make("qrdqn", "control", criterion=criterion, **SMALL)
        return tremble.train(agent, "CartPole-v1", steps=80, out=tmp_path)

    first = run(Mean)
    with pytest.raises(CheckpointError, match=r"criterion is tremble\.criteria"):
        run(Other)
    with pytest.raises(CheckpointError, match="other settings of the agent: criterion"):
        tremble.load(tmp_path, tremble.make("qrdqn", "control", criterion=Other, **SMALL))
    assert tremble.load(tmp_path, first.agent.agent).counts.transitions == 80


class EvaluationBreaks(gymnasium.Wrapper):
    """CartPole whose second environment fails once, in an evaluation."""

    made, armed = 0, True

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        EvaluationBreaks.made += 1
        self.number = EvaluationBreaks.made

    def step(self, action):
        if EvaluationBreaks.armed and self.number > 2:
            EvaluationBreaks.armed = False
            raise RuntimeError("no connection")
        return self.env.step(action)


def test_what_came_before_an_evaluation_that_fails_is_saved(tmp_path):
    how = {"evaluate_every": 150, "evaluate_episodes": 2, "steps": 300, "checkpoint_every": 10_000}
    with pytest.raises(EnvironmentFaultError, match="no connection"):
        small_run(env=EvaluationBreaks, out=tmp_path / "ours", **how)
    assert [path.name for path in (tmp_path / "ours/checkpoints").glob("step-*")] == ["step-0000000150.safetensors"]
    assert same(small_run(env=EvaluationBreaks, out=tmp_path / "ours", **how), small_run(env=EvaluationBreaks, **how))


def test_one_of_several_environments_that_gives_no_mask_is_named():
    actions = Actions.numbered(2)
    with pytest.raises(EnvironmentFaultError, match="environment 1 of 2 gives no info"):
        stack_masks([np.ones(2), None], actions)
    assert stack_masks([None, None], actions) is None


def test_more_environments_than_noise_is_drawn_for_at_a_time():
    """Each of 300 environments acts by a draw of its own."""
    run = small_run(env="CartPole-v1", n_envs=300, steps=600, start_steps=100_000, criterion="p_dltv")
    assert run.rows[-1]["step"] == 600
