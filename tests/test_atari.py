"""Atari under each protocol, beside independent versions written from the published descriptions.

The references below follow the structure of the code bases they describe (chained wrappers, frames through a buffer, a
preprocessing class), not that of the environment under test; both are given the same no-op counts and emulator seeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
import scipy.stats
from ale_py import roms
from gymnasium.utils import seeding
from PIL import Image

from tremble.atari.emulator import AtariGame
from tremble.atari.games import GAMES, id_of, rom_of
from tremble.atari.protocols import PROTOCOLS
from tremble.atari.vector import AtariVector
from tremble.envs.gym import INFO_GAME_OVER, INFO_NO_BOOTSTRAP, INFO_RAW_REWARD, open_environment
from tremble.settings import SettingsError

FIVE = ("breakout", "pong", "space_invaders", "freeway", "qbert")
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def emulator(game: str, seed: int) -> Any:
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", seed)
    ale.loadROM(roms.get_rom_path(game))
    return ale


class Raw:
    """Frame by frame, in colour."""

    def __init__(self, ale: Any):
        self.ale, self.actions = ale, ale.getMinimalActionSet()

    def reset(self):
        self.ale.reset_game()
        return self.ale.getScreenRGB()

    def step(self, action):
        reward = self.ale.act(self.actions[action])
        return self.ale.getScreenRGB(), reward, self.ale.game_over()


class NoOps:
    def __init__(self, env: Any, draw: Callable[[], int]):
        self.env, self.draw, self.step = env, draw, env.step

    def reset(self):
        obs = self.env.reset()
        for _ in range(self.draw()):
            obs, _, done = self.env.step(0)
            if done:
                obs = self.env.reset()
        return obs


class MaxAndSkip:
    def __init__(self, env: Any):
        self.env, self.reset = env, env.reset
        self.buffer = np.zeros((2, 210, 160, 3), np.uint8)

    def step(self, action):
        total = 0.0
        for i in range(4):
            obs, reward, done = self.env.step(action)
            if i >= 2:
                self.buffer[i - 2] = obs
            total += reward
            if done:
                break
        return self.buffer.max(axis=0), total, done


class EpisodicLife:
    def __init__(self, env: Any, ale: Any):
        self.env, self.ale, self.lives, self.real_done = env, ale, 0, True

    def step(self, action):
        obs, reward, done = self.env.step(action)
        self.real_done = done
        lives = self.ale.lives()
        if 0 < lives < self.lives:
            done = True
        self.lives = lives
        return obs, reward, done

    def reset(self):
        obs = self.env.reset() if self.real_done else self.env.step(0)[0]
        self.lives = self.ale.lives()
        return obs


class FireReset:
    def __init__(self, env: Any):
        self.env, self.step = env, env.step

    def reset(self):
        self.env.reset()
        for action in (1, 2):
            obs, _, done = self.env.step(action)
            if done:
                obs = self.env.reset()
        return obs


class PaperReference:
    """Wrappers as in the code base whose settings the paper's table repeats."""

    def __init__(self, game: str, seed: int, training: bool, generator: np.random.Generator):
        ale = emulator(game, seed)
        self.ale = ale
        env: Any = MaxAndSkip(NoOps(Raw(ale), lambda: int(generator.integers(1, 31))))
        if training:
            env = EpisodicLife(env, ale)
        if "FIRE" in [action.name for action in ale.getMinimalActionSet()]:
            env = FireReset(env)
        self.env, self.training = env, training
        self.frames: deque[np.ndarray] = deque(maxlen=4)

    def _small(self, obs):
        return cv2.resize(cv2.cvtColor(obs, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA)

    def reset(self):
        self.frames.extend([self._small(self.env.reset())] * 4)
        return np.stack(self.frames, -1)

    def step(self, action):
        obs, reward, done = self.env.step(action)
        self.frames.append(self._small(obs))
        return np.stack(self.frames, -1), float(np.sign(reward)) if self.training else reward, done, reward, False


class ZooReference:
    """Frames through a buffer of four, padded with black; a life lost in any frame cuts the return."""

    def __init__(self, game: str, seed: int, training: bool, generator: np.random.Generator):
        self.raw, self.generator, self.training = Raw(emulator(game, seed)), generator, training
        self.ale = self.raw.ale

    def _small(self, frames):
        buffer = frames + [np.zeros((210, 160, 3), np.uint8)] * (4 - len(frames))
        pooled = np.max(np.stack(buffer[-2:]), axis=0)
        luma = np.tensordot(pooled, [0.299, 0.587, 1 - (0.299 + 0.587)], (-1, 0)).astype(np.uint8)
        return np.array(Image.fromarray(luma).resize((84, 84), Image.BILINEAR), dtype=np.uint8)

    def _stacked(self):
        black = np.zeros((84, 84), np.uint8)
        return np.stack(list(self.small) + [black] * (4 - len(self.small)), -1)

    def reset(self):
        first = self.raw.reset()
        for _ in range(int(self.generator.integers(1, 31))):
            first, _, done = self.raw.step(0)
            assert not done
        self.lives = self.ale.lives()
        black = np.zeros_like(first)
        self.small = deque([self._small([black, black, black, first])], maxlen=4)
        return self._stacked()

    def step(self, action):
        frames, total, discount = [], 0.0, 1.0
        for _ in range(4):
            obs, reward, done = self.raw.step(action)
            frames.append(obs)
            total += reward
            if not done and self.ale.lives() < self.lives:
                discount = 0.0
            self.lives = self.ale.lives()
            if done:
                break
        self.small.append(self._small(frames))
        shown = max(min(total, 1.0), -1.0) if self.training else total
        return self._stacked(), shown, done, total, discount == 0.0 and not done


class DopamineReference:
    """Gray screens straight from the emulator, pooled in place; the screen of a lost game is not looked at."""

    def __init__(self, game: str, seed: int, training: bool, generator: np.random.Generator):
        self.ale, self.training, self.generator = emulator(game, seed), training, generator
        self.actions = self.ale.getMinimalActionSet()
        self.buffers = [np.zeros((210, 160), np.uint8) for _ in range(2)]

    def _pooled(self):
        np.maximum(self.buffers[0], self.buffers[1], out=self.buffers[0])
        small = cv2.resize(self.buffers[0], (84, 84), interpolation=cv2.INTER_AREA)
        self.state = np.concatenate([self.state[..., 1:], small[..., None]], -1)
        return self.state

    def reset(self):
        self.ale.reset_game()
        self.held = ale_py.Action.NOOP
        self.ale.getScreenGrayscale(self.buffers[0])
        self.buffers[1].fill(0)
        self.state = np.zeros((84, 84, 4), np.uint8)
        return self._pooled()

    def step(self, action):
        total = 0.0
        for i in range(4):
            # As in the emulator: every frame, with a chance of a quarter, the joystick stays where it was.
            self.held = self.held if self.generator.random() < 0.25 else self.actions[action]
            total += self.ale.act(self.held)
            done = self.ale.game_over()
            if done:
                break
            if i >= 2:
                self.ale.getScreenGrayscale(self.buffers[i - 2])
        return self._pooled(), float(np.clip(total, -1, 1)) if self.training else total, done, total, False


REFERENCES = {"paper": PaperReference, "dqn_zoo": ZooReference, "dopamine": DopamineReference}


def play_both(game: str, protocol: str, training: bool, steps: int, seed: int = 7) -> dict[str, int]:
    """Compare everything, step by step; returns how often what happened."""
    env = AtariGame(game, protocol, training)
    generator, _ = seeding.np_random(seed)
    reference = REFERENCES[protocol](game, seed, training, generator)
    obs, _ = env.reset(seed=seed)
    np.testing.assert_array_equal(obs, reference.reset())
    rng, seen = np.random.default_rng(seed), {"ended": 0, "cut": 0, "rewards": 0, "over": 0}
    for t in range(steps):
        action = int(rng.integers(env.action_space.n))
        obs, reward, terminated, truncated, info = env.step(action)
        expected, clipped, done, raw, cut = reference.step(action)
        where = f"{game} {protocol} step {t}"
        assert (reward, info[INFO_RAW_REWARD], terminated, truncated) == (clipped, raw, done, False), where
        assert info["lives"] == reference.ale.lives(), where
        if protocol == "dqn_zoo":
            assert info[INFO_NO_BOOTSTRAP] == cut, where
        # Dopamine does not look at the screen of a lost game: what it shows there is never learned from.
        if not (done and protocol == "dopamine"):
            np.testing.assert_array_equal(obs, expected, err_msg=where)
        assert info[INFO_GAME_OVER] == reference.ale.game_over(), where
        seen = {
            "ended": seen["ended"] + done,
            "cut": seen["cut"] + cut,
            "rewards": seen["rewards"] + (raw != 0),
            "over": seen["over"] + info[INFO_GAME_OVER],
        }
        if done:
            obs, _ = env.reset()
            np.testing.assert_array_equal(obs, reference.reset(), err_msg=where)
    return seen


@pytest.mark.parametrize("protocol", REFERENCES)
def test_frames_rewards_and_lives_are_those_of_the_reference(protocol):
    totals = {"ended": 0, "cut": 0, "rewards": 0, "over": 0}
    for game in FIVE:
        seen = play_both(game, protocol, True, 260 if game == "breakout" else 120)
        totals = {name: totals[name] + seen[name] for name in totals}
    assert totals["rewards"] >= 5 and totals["over"] >= 1
    assert totals["ended"] > totals["over"] if protocol == "paper" else totals["ended"] == totals["over"]
    assert (totals["cut"] > 3) == (protocol == "dqn_zoo")


@pytest.mark.parametrize("protocol", REFERENCES)
def test_evaluation_has_raw_rewards_and_whole_games(protocol):
    seen = play_both("breakout", protocol, False, 250)
    assert seen["ended"] == seen["over"] >= 1
    space_invaders = AtariGame("space_invaders", protocol, training=False)
    space_invaders.reset(seed=1)
    rewards = {space_invaders.step(1)[1] for _ in range(120)}
    assert max(rewards) >= 5


@pytest.mark.long
@pytest.mark.parametrize("protocol", REFERENCES)
def test_all_games_agree_with_the_references(protocol):
    for game in GAMES:
        play_both(game, protocol, True, 500)


class OnlyCounts:
    """An emulator that never starts a game anew, and says how many frames there were since it should have."""

    def __init__(self, ale: Any):
        self.ale, self.frames = ale, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ale, name)

    def reset_game(self):
        self.frames = 0

    def act(self, action):
        self.frames += 1
        assert action == ale_py.Action.NOOP
        return 0

    def getEpisodeFrameNumber(self):
        return self.frames


@pytest.mark.parametrize(("protocol", "first", "last"), [("paper", 1, 30), ("dqn_zoo", 1, 30), ("dopamine", 0, 0)])
def test_no_ops_are_uniform_raw_frames(protocol, first, last):
    # Without FIRE, which would take frames of its own.
    env = AtariGame("freeway", protocol)
    env.reset(seed=0)
    counts = []
    env._ale = OnlyCounts(env._ale)  # starting a game takes most of the time, and does not matter here
    for _ in range(300 if last else 5):
        env.reset()
        counts.append(env._ale.getEpisodeFrameNumber())
    assert set(counts) <= set(range(first, last + 1))
    if last:
        assert scipy.stats.chisquare(np.bincount(counts, minlength=last + 1)[first:]).pvalue > 1e-4


def test_fire_takes_two_repeats_where_there_is_fire():
    for game, frames in (("breakout", 8), ("freeway", 0)):
        env = AtariGame(game, "paper", no_op_min_frames=3, no_op_max_frames=3)
        env.reset(seed=0)
        assert env._ale.getEpisodeFrameNumber() == 3 + frames
    assert all(a.index("FIRE") == 1 for a in (AtariGame(g).action_names for g in FIVE) if "FIRE" in a)


def test_sticky_actions_stick_in_a_quarter_of_frames():
    # Breakout's paddle (byte 72 of its memory) moves on the very frame that RIGHT is obeyed. After frames of nothing,
    # one frame of RIGHT is obeyed unless nothing sticks, and then the paddle does not move at all.
    def moved(sticky: float, trials: int) -> float:
        env = AtariGame(
            "breakout", "dopamine", frame_skip_min=1, frame_skip_max=1, pool_frames=1, sticky_probability=sticky
        )
        env.reset(seed=5)
        names, hits = env.action_names, 0
        for k in range(trials):
            direction = "RIGHT" if k // 4 % 2 else "LEFT"  # so that it never reaches a wall
            for _ in range(8):
                env._frame(ale_py.Action.NOOP)
            before = env._ale.getRAM()[72]
            env._play(names.index(direction))
            for _ in range(8):
                env._frame(ale_py.Action.NOOP)
            hits += env._ale.getRAM()[72] != before
            if env._ale.game_over():
                env.reset()
        return hits / trials

    assert moved(0.0, 50) == 1.0
    share = moved(0.25, 400)
    assert abs(share - 0.75) < 4 * np.sqrt(0.25 * 0.75 / 400)


def test_a_random_frame_skip_is_uniform():
    env = AtariGame("freeway", "paper_v4")
    env.reset(seed=0)
    lengths = []
    for _ in range(300):
        before = env._ale.getEpisodeFrameNumber()
        env.step(0)
        lengths.append(env._ale.getEpisodeFrameNumber() - before)
    assert set(lengths) == {2, 3, 4}
    assert scipy.stats.chisquare(np.bincount(lengths)[2:]).pvalue > 1e-4


@pytest.mark.parametrize("protocol", REFERENCES)
def test_a_cap_truncates_and_the_next_game_is_new(protocol):
    env = AtariGame("pong", protocol, cap_frames=40)
    env.reset(seed=0)
    for game in range(2):
        ends = [env.step(0)[2:] for _ in range(10)]
        assert [(terminated, truncated) for terminated, truncated, _ in ends] == [(False, False)] * 9 + [(False, True)]
        assert not any(info[INFO_NO_BOOTSTRAP] for _, _, info in ends)
        frames = env._ale.getEpisodeFrameNumber()
        env.reset()
        # The paper's code base caps lives: it goes on in the same game.
        if protocol == "paper":
            assert env._ale.getEpisodeFrameNumber() > frames and not ends[-1][2][INFO_GAME_OVER]
        else:
            assert env._ale.getEpisodeFrameNumber() <= 30 and ends[-1][2][INFO_GAME_OVER], game


def test_a_cap_may_terminate_and_counts_games_in_evaluation():
    env = AtariGame("pong", "paper", training=False, cap_frames=40, cap_terminates=True)
    env.reset(seed=0)
    *_, (terminated, truncated, info) = [env.step(0)[2:] for _ in range(10)]
    assert (terminated, truncated, info[INFO_GAME_OVER]) == (True, False, True)
    env.reset()
    assert env._ale.getEpisodeFrameNumber() <= 30 + 8


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_saved_game_goes_on_exactly(protocol):
    env = AtariGame("breakout", protocol)
    env.reset(seed=2)
    rng = np.random.default_rng(0)

    def live(game: AtariGame, actions: list[int]) -> list[Any]:
        happened = []
        for action in actions:
            obs, *rest = game.step(action)
            happened.append((obs.tobytes(), *rest))
            if rest[1] or rest[2]:
                happened.append(game.reset()[0].tobytes())
        return happened

    live(env, rng.integers(4, size=60).tolist())
    state = env.save_state()
    other = AtariGame("breakout", protocol)
    other.reset(seed=9)
    live(other, [1, 2, 3])
    np.testing.assert_array_equal(other.load_state(state), env._stack.show())
    actions = rng.integers(4, size=120).tolist()
    assert live(env, actions) == live(other, actions)


def test_a_game_of_another_protocol_is_not_continued():
    env = AtariGame("pong", "dopamine")
    env.reset(seed=0)
    with pytest.raises(SettingsError, match="another protocol"):
        AtariGame("pong", "paper").load_state(env.save_state())


def test_names():
    assert len(set(GAMES)) == 57
    assert rom_of("atari/MsPacman") == rom_of("MsPacman") == rom_of("ms_pacman") == "ms_pacman"
    assert all(id_of(game) in gymnasium.registry and rom_of(id_of(game)) == game for game in GAMES)
    with pytest.raises(SettingsError, match="did you mean 'Breakout'"):
        rom_of("atari/Breakuot")
    with pytest.raises(SettingsError, match="there is no setting 'stickyness'"):
        AtariGame("pong", stickyness=1)
    assert AtariGame("pong", action_set="full").action_space.n == 18
    env = gymnasium.make("atari/Pong", protocol="dopamine")
    assert env.action_space.n == 6
    # A video's captions are `action_names` of the environment, one for each action.
    assert env.unwrapped.action_names == ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")


@pytest.mark.parametrize("parallel", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_points_and_cut_returns_reach_the_loop(parallel):
    env = open_environment("atari/Breakout", 2, parallel, {"protocol": "dqn_zoo"})
    assert env.stacked and env.encoder.dtype == "uint8" and env.encoder.shape == (84, 84, 4)
    env.start([3, 4])
    rng, score, cuts, over = np.random.default_rng(0), 0.0, 0, 0
    for _ in range(150):
        env.send(rng.integers(4, size=2))
        outcome = env.receive()
        score, cuts, over = score + outcome.score.sum(), cuts + outcome.no_bootstrap.sum(), over + outcome.over.sum()
        assert outcome.next.obs.dtype == np.uint8
        assert not (outcome.no_bootstrap & outcome.terminated).any()
        np.testing.assert_array_equal(outcome.over, outcome.terminated)
    assert score > 0 and cuts >= 4 and over >= 1
    env.close()


# --- ale-py's threads -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_vector_agrees_with_single_games_frame_by_frame():
    # Sticky actions come from other generators, so they are off; all else is the same, cap and next episode included.
    for game, padding in (("breakout", "zeros_before"), ("seaquest", "repeat_first"), ("pong", "zeros_before")):
        changes = {
            "sticky_probability": 0.0,
            "stack_padding": padding,
            "cap_frames": 480 if game == "breakout" else 120,
        }
        vector = AtariVector(game, 2, "dopamine", **changes)
        singles = [AtariGame(game, "dopamine", **changes) for _ in range(2)]
        seen = vector.start([5, 6])
        for i, single in enumerate(singles):
            np.testing.assert_array_equal(single.reset(seed=vector._seed(i))[0], seen.obs[i])
        rng, ends = np.random.default_rng(1), 0
        for t in range(130 if game == "breakout" else 40):
            actions = rng.integers(vector.actions.n, size=2)
            vector.send(actions)
            outcome = vector.receive()
            for i, single in enumerate(singles):
                obs, reward, terminated, truncated, info = single.step(int(actions[i]))
                np.testing.assert_array_equal(outcome.final.obs[i], obs, err_msg=f"{game} step {t}")
                assert (outcome.reward[i], outcome.score[i]) == (reward, info[INFO_RAW_REWARD])
                assert (outcome.terminated[i], outcome.truncated[i]) == (terminated, truncated), (game, t)
                if terminated or truncated:
                    ends += 1
                    obs = single.reset(seed=vector._seed(i))[0]
                np.testing.assert_array_equal(outcome.next.obs[i], obs)
        assert ends >= 2
        vector.close()


@pytest.mark.slow
def test_a_vector_is_brought_back():
    options = {"protocol": "dopamine", "engine": "vector", "cap_frames": 160}
    vector, other = (open_environment("atari/Breakout", 3, options=options) for _ in range(2))
    rng = np.random.default_rng(0)

    def live(env: Any, steps: int, rng: np.random.Generator) -> list[np.ndarray]:
        seen = []
        for _ in range(steps):
            env.send(rng.integers(4, size=3))
            outcome = env.receive()
            seen += [outcome.final.obs, outcome.reward, outcome.next.obs]
        return seen

    vector.start([1, 2, 3])
    live(vector, 33, rng)  # episodes of at most 40 steps: all are in their first
    vector._begin(np.array([False, True, False]))  # and one is younger
    live(vector, 5, rng)
    there = other.rewind(vector.snapshot())
    np.testing.assert_array_equal(there, vector._seen().obs)
    for a, b in zip(live(vector, 60, np.random.default_rng(2)), live(other, 60, np.random.default_rng(2)), strict=True):
        np.testing.assert_array_equal(a, b)
    vector.close()
    other.close()


def test_what_the_vector_cannot_do_is_said():
    for protocol in ("paper", "dqn_zoo"):
        with pytest.raises(SettingsError, match="cannot play atari/Pong under protocol"):
            open_environment("atari/Pong", options={"protocol": protocol, "engine": "vector"})
