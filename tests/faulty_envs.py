"""Environments that fail on purpose: for tests of sweeps. Named as ``tests.faulty_envs:Faulty``."""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MARKS = "TREMBLE_TEST_MARKS"
"""Environment variable: a folder for marks of the faults that struck, where they are to strike so many times only."""
EPISODE = 20
"""Steps of an episode."""


class Faulty(gymnasium.Env):
    """A random walk that can be restored; at its step ``at`` (counted over episodes) something happens.

    ``strikes``: how many times, in all processes together; 0 is always.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault: str = "", at: int = 300, strikes: int = 0):
        """See the class."""
        if fault and fault not in FAULTS:
            raise ValueError(f"there is no fault {fault!r}")
        self._fault, self._at, self._strikes = fault, at, strikes
        self._steps, self._t, self._place = 0, 0, np.zeros(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin in the middle."""
        super().reset(seed=seed)
        self._t, self._place = 0, np.zeros(2)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Walk, or fail."""
        self._steps += 1
        self._t += 1
        self._place = self._place + self.np_random.normal(size=2) * 0.1 + (0.05 if action else -0.05)
        reward = float(-np.abs(self._place).sum())
        if self._fault and self._steps == self._at and self._strikes_now():
            reward = FAULTS[self._fault](reward)
        return self._seen(), reward, False, self._t >= EPISODE, {}

    def save_state(self) -> dict[str, np.ndarray]:
        """Everything, its random generator too."""
        generator = np.frombuffer(json.dumps(self.np_random.bit_generator.state).encode(), np.uint8)
        return {"place": self._place.copy(), "counts": np.array([self._steps, self._t]), "generator": generator.copy()}

    def load_state(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Go on from there."""
        self._place = np.array(state["place"])
        self._steps, self._t = (int(x) for x in state["counts"])
        self.np_random.bit_generator.state = json.loads(state["generator"].tobytes())
        return self._seen()

    def _seen(self) -> np.ndarray:
        return np.array([*self._place, self._t / EPISODE], np.float32)

    def _strikes_now(self) -> bool:
        for number in range(self._strikes):
            try:
                os.close(os.open(Path(os.environ[MARKS]) / f"{self._fault}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
        return not self._strikes


def _raise(reward: float) -> float:
    raise RuntimeError("the simulator crashed")


def _os_error(reward: float) -> float:
    raise OSError("the simulator lost its connection")


def _hang(reward: float) -> float:
    while True:
        time.sleep(1)


def _exit(reward: float) -> float:
    os._exit(3)


def _sys_exit(reward: float) -> float:
    sys.exit("the simulator gave up")


def _crash(reward: float) -> float:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    ctypes.string_at(0)
    return reward


FAULTS = {
    "raise": _raise,
    "os_error": _os_error,
    "hang": _hang,
    "exit": _exit,
    "sys_exit": _sys_exit,
    "crash": _crash,
    "nan": lambda reward: math.nan,
    "inf": lambda reward: math.inf,
}
"""What happens instead of a reward."""


class Explosive(Faulty):
    """Rewards that are finite, and grow until predictions of them are not."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Walk."""
        seen, _, terminated, truncated, info = super().step(action)
        return seen, float(np.float32(3e38)), terminated, truncated, info
