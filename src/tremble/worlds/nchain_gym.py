"""N-Chain for Gymnasium: the dynamics of `tremble.worlds.nchain`, with NumPy's numbers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tremble.settings import override
from tremble.worlds.nchain import N_ACTIONS, NChain

Observation = np.ndarray[Any, np.dtype[np.float32]]


class NChainEnv(gymnasium.Env[Observation, np.int64]):
    """`tremble/NChain-v0`: a chain of states with a safe end on the left and a risky one on the right.

    Keyword options are the fields of `NChain`. ``info`` holds ``position`` (0 at the left end) and, after a step,
    ``is_optimal``: whether that action counts as optimal where it was taken.
    """

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's declaration)

    def __init__(self, render_mode: str | None = None, **options: Any):
        """Build the chain; an option that `NChain` does not have is an error."""
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None, 'rgb_array' or 'ansi', got {render_mode!r}")
        self.chain = override(NChain(), options)
        self._observations = self.chain.encode(np.arange(self.chain.length))
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (self.chain.length,), np.float32)
        self.action_space = spaces.Discrete(N_ACTIONS)
        self._running = False
        self._position, self._elapsed = self.chain.start, 0
        self._paid: float | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Back to the middle; ``options`` has no meaning here."""
        super().reset(seed=seed)
        self._running = True
        self._position, self._elapsed, self._paid = self.chain.start, 0, None
        return self._observations[self._position].copy(), {"position": self._position}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One step; both random numbers are drawn each time, so a seed means the same whatever is done."""
        if not self._running:
            raise gymnasium.error.ResetNeeded("this episode has ended or was never started: call reset() before step()")
        if not self.action_space.contains(np.asarray(action)):
            raise gymnasium.error.InvalidAction(
                f"action must be a whole number from 0 to {N_ACTIONS - 1}, got {action!r}"
            )
        is_optimal = bool(self.chain.is_optimal_at(self._position, action))
        position, elapsed, reward, terminated, truncated = self.chain.dynamics(
            self._position, self._elapsed, action, self.np_random.random(), self.np_random.standard_normal(), xp=np
        )
        self._position, self._elapsed = int(position), int(elapsed)
        self._paid = float(reward) if terminated else None
        self._running = not (terminated or truncated)
        info = {"position": self._position, "is_optimal": is_optimal}
        return self._observations[self._position].copy(), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        """The chain as an image (``rgb_array``) or as a line of text (``ansi``); None without a render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn("NChainEnv.render() without a render mode: pass render_mode='rgb_array' or 'ansi'")
            return None
        # Imported here, so that training does not load a drawing library.
        from tremble.worlds import nchain_image

        draw = nchain_image.image if self.render_mode == "rgb_array" else nchain_image.text
        return draw(self.chain, self._position, self._elapsed, self._paid)
