"""Any environment written in JAX as a Gymnasium environment, with the random numbers of the compiled loop."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from tremble.core import JaxEnv, Stream, stream_key

BLOCK = 256


class JaxGymEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Steps a `JaxEnv` one call at a time.

    With ``run_seed`` its random numbers are those of the compiled run of that seed (key t of the streams RESET and
    STEP, t counting all steps since the first reset), so that both loops see the same world; the seeds given to `reset`
    are then ignored, and every step is remembered in `taken`. Without it, a seeded `reset` starts those streams from
    that seed.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's declaration)

    def __init__(self, env: JaxEnv, run_seed: int | None = None):
        """Wrap ``env``."""
        self.env, self._fixed = env, run_seed is not None
        self._run_seed, self._t = run_seed or 0, 0
        self.taken: list[tuple[float, float, float, float]] = []
        """Action, reward, how the step ended (0 not, 1 terminated, 2 truncated), and whether it was optimal."""
        self._reset = jax.jit(lambda seed, t: env.reset(stream_key(seed, Stream.RESET, t)))
        # In blocks, as the compiled loop does: drawn one by one, some numbers would differ in their last bit.
        self._draw = jax.jit(
            lambda seed, t0: jax.vmap(lambda t: env.draw(stream_key(seed, Stream.STEP, t)))(t0 + jnp.arange(BLOCK))
        )
        self._block: tuple[int, int, Any] | None = None
        self._step = jax.jit(
            lambda state, action, block, k: env.step(state, action, jax.tree.map(lambda x: x[k], block))
        )
        self._observe, self._is_optimal = jax.jit(env.observe), jax.jit(env.is_optimal)
        self._state = self._reset(self._run_seed, 0)
        shape = np.shape(self._observe(self._state))
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Discrete(env.n_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        if seed is not None and not self._fixed:
            self._run_seed, self._t = seed % 2**31, 0
        self._state = self._reset(self._run_seed, self._t)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        optimal = bool(self._is_optimal(self._state, np.int32(action)))
        first = self._t // BLOCK * BLOCK
        if self._block is None or self._block[:2] != (self._run_seed, first):
            self._block = (self._run_seed, first, self._draw(self._run_seed, first))
        self._state, reward, terminated, truncated = self._step(
            self._state, np.int32(action), self._block[2], self._t - first
        )
        self._t += 1
        if self._fixed:
            self.taken.append((int(action), float(reward), bool(terminated) + 2 * bool(truncated), optimal))
        return self._obs(), float(reward), bool(terminated), bool(truncated), {"is_optimal": optimal}

    def log(self) -> dict[str, np.ndarray]:
        """What the compiled loop would have logged of the steps: action, reward, done, optimal."""
        action, reward, done, optimal = np.asarray(self.taken, np.float32).reshape(-1, 4).T
        return {
            "action": action.astype(np.int8), "reward": reward, "done": done.astype(np.int8), "optimal": optimal > 0,
        }  # fmt: skip

    def save_state(self) -> dict[str, np.ndarray]:
        """Everything that determines what follows."""
        leaves = jax.tree.leaves(jax.device_get(self._state))
        state = {f"leaf-{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        taken = np.asarray(self.taken, np.float32).reshape(-1, 4)
        return state | {"t": np.asarray(self._t), "run_seed": np.asarray(self._run_seed), "taken": taken}

    def load_state(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Be in that state again."""
        leaves, structure = jax.tree.flatten(self._state)
        self._state = jax.tree.unflatten(structure, [state[f"leaf-{i}"] for i in range(len(leaves))])
        self._t, self._run_seed = int(state["t"]), int(state["run_seed"])
        self.taken = [tuple(row) for row in state.get("taken", np.zeros((0, 4))).tolist()]  # older files have none
        return self._obs()

    def _obs(self) -> np.ndarray:
        return np.asarray(self._observe(self._state), np.float32)
