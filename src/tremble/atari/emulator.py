"""Atari games under published protocols, exactly, as Gymnasium environments: ``atari/Pong``, ``atari/MsPacman``, …"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from tremble.atari.games import rom_of
from tremble.atari.protocols import AtariProtocol, find_protocol
from tremble.envs.gym import INFO_GAME_OVER, INFO_NO_BOOTSTRAP, INFO_RAW_REWARD, INFO_TRAINING_REWARD
from tremble.envs.rewind import restored_generator
from tremble.settings import SettingsError

try:
    import ale_py
    from ale_py import roms

    from tremble.atari.preprocessing import Camera, Stack
except ImportError as error:
    raise gymnasium.error.DependencyNotInstalled(f"Atari games need ale-py, OpenCV and Pillow ({error})") from error


@dataclass(frozen=True)
class Played:
    """What one repeated action brought."""

    reward: float
    over: bool
    """The game is over."""
    life_lost: bool
    """Some frame had fewer lives than the one before."""
    fewer_lives: bool
    """There are fewer lives than before the action, but some: games may show none for a while before they are over."""


def clipped(reward: float, how: Literal["sign", "clip", "none"]) -> float:
    """The reward that agents are trained on."""
    if how == "sign":
        return float(np.sign(reward))
    return max(-1.0, min(1.0, reward)) if how == "clip" else reward


class AtariGame(gymnasium.Env[np.ndarray, Any]):
    """One game, for training or for evaluation, as a protocol prescribes.

    Observations are bytes ``[height, width, stack]``. What the rewards of training hide is in ``info``: the reward in
    points of the game, and whether the game is over, where lives are episodes. Where a lost life ends the return but
    not the episode, ``info`` says so too.
    """

    metadata = {"render_modes": ["rgb_array"], "stacked_pictures": True}  # noqa: RUF012 (Gymnasium's way)

    def __init__(
        self,
        game: str,
        protocol: str | AtariProtocol = "paper",
        training: bool = True,
        render_mode: str | None = None,
        engine: str = "exact",
        **changes: Any,
    ) -> None:
        """``changes`` are settings of the protocol that shall be others (``sticky_probability=0.1``).

        ``engine`` says what trains: this class, or ``vector`` (`AtariVector`); evaluation always uses this one.
        """
        if engine not in ("exact", "vector"):
            raise SettingsError(f"engine is 'exact' or 'vector', got {engine!r}")
        self.protocol = find_protocol(protocol, **changes)
        self.metadata = {**self.metadata, "frames_per_step": self.protocol.frame_skip_max}
        self.game, self.training, self.render_mode = rom_of(game), training, render_mode
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._load(0)
        full = self.protocol.action_set == "full"
        self._actions = self._ale.getLegalActionSet() if full else self._ale.getMinimalActionSet()
        self._camera, self._stack = Camera(self._ale, self.protocol), Stack(self.protocol)
        wanted = self.protocol.fire_reset_training if training else self.protocol.fire_reset_evaluation
        self._fire = wanted and ale_py.Action.FIRE in self._actions
        self._life_loss = self.protocol.life_loss_training if training else self.protocol.life_loss_evaluation
        self._by_life = training and self.protocol.cap_counts_training == "life"
        self._cap_steps = self.protocol.cap_frames // self.protocol.frame_skip_max
        self.action_space = spaces.Discrete(len(self._actions))
        self.action_names = tuple(action.name for action in self._actions)
        shape = (self.protocol.height, self.protocol.width, self.protocol.stack)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self._lives = self._steps = 0
        self._last = ale_py.Action.NOOP
        self._goes_on = False
        """Whether the next episode continues the game: its last one ended with a life."""

    def _load(self, seed: int) -> None:
        self._ale.setInt("random_seed", seed)
        rom = roms.get_rom_path(self.game)
        assert rom is not None, "ale-py carries all games of the benchmark"
        self._ale.loadROM(rom)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: in the same game if only a life was lost; from a seed, always a new game."""
        super().reset(seed=seed)
        if seed is not None:
            self._load(seed % 2**31)
            self._goes_on = False
        self._begin()
        if self._fire:
            for number in (1, 2):
                played = self._play(number)
                if played.over or self._ends(played):
                    self._goes_on = not played.over
                    self._begin()
        self._goes_on = False
        self._stack.begin(self._camera.picture())
        return self._stack.show(), self._info(Played(0.0, False, False, False), over=False)

    def _begin(self) -> None:
        """A new game with its no-ops, or a no-op in the old one."""
        if self._by_life:
            self._steps = 0
        if self._goes_on and not self._play(0).over:
            return
        protocol, ale = self.protocol, self._ale
        ale.reset_game()
        self._last = ale_py.Action.NOOP
        for _ in range(int(self.np_random.integers(protocol.no_op_min_frames, protocol.no_op_max_frames + 1))):
            self._frame(ale_py.Action.NOOP)
            if ale.game_over(with_truncation=False):
                ale.reset_game()
        self._steps, self._lives = 0, ale.lives()
        self._camera.clear()
        self._camera.look(0)

    def _play(self, action: int) -> Played:
        """Repeat an action, and keep the last screens."""
        protocol, ale = self.protocol, self._ale
        skip = protocol.frame_skip_max
        if protocol.frame_skip_min < skip:
            skip = int(self.np_random.integers(protocol.frame_skip_min, skip + 1))
        if protocol.missing_frames == "black":
            self._camera.clear()
        reward, over, life_lost, lives = 0.0, False, False, self._lives
        for frame in range(skip):
            reward += self._frame(self._actions[action])
            over, now = ale.game_over(with_truncation=False), ale.lives()
            life_lost |= now < lives
            lives = now
            if frame >= skip - protocol.pool_frames:
                self._camera.look(frame - (skip - protocol.pool_frames))
            if over:
                break
        before, self._lives = self._lives, lives
        return Played(reward, over, life_lost, 0 < lives < before)

    def _frame(self, action: Any) -> float:
        """One frame: the action, or by chance the last one once more.

        The emulator can do this too, but its saved states do not tell which action was the last.
        """
        sticky = self.protocol.sticky_probability
        if not (sticky and self.np_random.random() < sticky):
            self._last = action
        return self._ale.act(self._last)

    def _ends(self, played: Played) -> bool:
        """Whether losing a life ended the episode."""
        return self._life_loss == "ends_episode" and played.fewer_lives

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Repeat an action."""
        played = self._play(int(action))
        self._steps += 1
        self._stack.add(self._camera.picture())
        life_ended = self._ends(played) and not played.over
        capped = self._steps >= self._cap_steps and not played.over and not life_ended
        terminated = played.over or life_ended or (capped and self.protocol.cap_terminates)
        truncated = capped and not self.protocol.cap_terminates
        self._goes_on = life_ended or (capped and self._by_life)
        info = self._info(played, over=(terminated or truncated) and not self._goes_on)
        reward = info[INFO_TRAINING_REWARD] if self.training else played.reward
        return self._stack.show(), reward, terminated, truncated, info

    def _info(self, played: Played, over: bool) -> dict[str, Any]:
        """What the observation and the reward do not tell; of the return, always as it is in training."""
        rule = self.protocol.life_loss_training
        cut = (rule == "zero_discount" and played.life_lost) or (rule == "ends_episode" and played.fewer_lives)
        return {
            INFO_RAW_REWARD: played.reward,
            INFO_TRAINING_REWARD: clipped(played.reward, self.protocol.reward_clip),
            INFO_NO_BOOTSTRAP: cut and not played.over,
            INFO_GAME_OVER: over,
            "lives": self._lives,
        }

    def render(self) -> np.ndarray:
        """The emulator's screen, in colour."""
        return np.asarray(self._ale.getScreenRGB())

    # --- exact resume -------------------------------------------------------------------------------------------------

    def save_state(self) -> dict[str, np.ndarray]:
        """Emulator, the generator of all chance, screens, pictures, counters."""
        generator = json.dumps(self.np_random.bit_generator.state)
        return {
            "emulator": np.frombuffer(self._ale.cloneState(include_rng=True).serialize(), np.uint8).copy(),
            "generator": np.frombuffer(generator.encode(), np.uint8).copy(),
            "screens": self._camera.screens.copy(),
            "pictures": np.stack(self._stack.pictures),
            "counters": np.array([self._lives, self._steps, int(self._goes_on), self._last.value], np.int64),
        }

    def load_state(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Be in that state again."""
        if state["screens"].shape != self._camera.screens.shape:
            raise SettingsError("a game saved under another protocol cannot be continued under this one")
        self._ale.restoreState(ale_py.ALEState(state["emulator"].tobytes()))
        self.np_random = restored_generator(json.loads(state["generator"].tobytes().decode()))
        self._camera.screens[:] = state["screens"]
        self._stack.pictures = list(state["pictures"])
        self._lives, self._steps = (int(x) for x in state["counters"][:2])
        self._goes_on, self._last = bool(state["counters"][2]), ale_py.Action(int(state["counters"][3]))
        return self._stack.show()
