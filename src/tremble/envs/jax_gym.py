"""An environment written in JAX as a Gymnasium environment, with the random numbers of the compiled loop."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from tremble.core import JaxEnv, RandomStream, stream_key
from tremble.settings import SettingsError

BLOCK = 256


# Compiled once for all environments of a kind: several of them run side by side in an evaluation.
@jax.jit
def _reset(env: JaxEnv, seed: Any, t: Any) -> Any:
    return env.reset(stream_key(seed, RandomStream.RESET, t))


@jax.jit
def _draw(env: JaxEnv, seed: Any, t0: Any) -> Any:
    """Numbers of `BLOCK` steps at once, as in the compiled loop: drawn one by one, some differ in the last bit."""
    return jax.vmap(lambda t: env.draw(stream_key(seed, RandomStream.STEP, t)))(t0 + jnp.arange(BLOCK))


@jax.jit
def _step(env: JaxEnv, state: Any, action: Any, block: Any, k: Any) -> Any:
    return env.step(state, action, jax.tree.map(lambda x: x[k], block))


@jax.jit
def _observe(env: JaxEnv, state: Any) -> Any:
    return env.observe(state)


@jax.jit
def _is_optimal(env: JaxEnv, state: Any, action: Any) -> Any:
    return env.is_optimal(state, action)


class JaxGymEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Steps a `JaxEnv` one call at a time.

    With ``run_seed`` its random numbers are those of the compiled run of that seed (key t of the streams RESET and
    STEP, t counting all steps since the first reset), so that both loops see the same episodes; the seeds given to
    `reset` are then ignored, and environments with an observation table log every step (`step_log`). Without it, a
    seeded `reset` starts those streams from that seed.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's declaration)

    def __init__(self, env: JaxEnv, run_seed: int | None = None, render_mode: str | None = None):
        """Wrap ``env``, which can be rendered if it has a function ``image`` from observations to pictures."""
        if not hasattr(env, "image"):
            self.metadata = self.metadata | {"render_modes": []}
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise SettingsError(f"{type(env).__name__} cannot be rendered as {render_mode!r}")
        self.render_mode = render_mode
        self.env, self._fixed = env, run_seed is not None
        self._run_seed, self._t = run_seed or 0, 0
        # Numbers become arrays once: a Python float would be sent to the device at every call.
        self._world: JaxEnv = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), env)
        self._logs = self._fixed and env.observation_table is not None
        self._log: list[tuple[float, float, float, float]] = []
        """Action, reward, how the step ended (0 not, 1 terminated, 2 truncated), and whether it was optimal."""
        self._block: tuple[int, int, Any] | None = None
        self._state = _reset(self._world, self._run_seed, 0)
        first = _observe(self._world, self._state)
        # Booleans become bytes of 0 and 1, which every space and every replay memory supports.
        self._bytes = first.dtype in (jnp.bool_, jnp.uint8)
        low, high = (0, 1 if first.dtype == jnp.bool_ else 255) if self._bytes else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, first.shape, np.uint8 if self._bytes else np.float32)
        self.action_space = spaces.Discrete(env.n_actions)
        self.action_names: tuple[str, ...] | None = getattr(env, "action_names", None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        if seed is not None and not self._fixed:
            self._run_seed, self._t = seed % 2**31, 0
        self._state = _reset(self._world, self._run_seed, self._t)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        optimal = _is_optimal(self._world, self._state, np.int32(action))  # None where the environment cannot tell
        first = self._t // BLOCK * BLOCK
        if self._block is None or self._block[:2] != (self._run_seed, first):
            self._block = (self._run_seed, first, _draw(self._world, self._run_seed, first))
        self._state, reward, terminated, truncated = _step(
            self._world, self._state, np.int32(action), self._block[2], self._t - first
        )
        self._t += 1
        if self._logs:
            self._log.append((int(action), float(reward), bool(terminated) + 2 * bool(truncated), bool(optimal)))
        info = {} if optimal is None else {"is_optimal": bool(optimal)}
        return self._obs(), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        """The picture of the current state; None without a render mode."""
        if self.render_mode is None:
            return None
        return self.env.image(np.asarray(_observe(self._world, self._state)))  # type: ignore[attr-defined]

    def step_log(self) -> dict[str, np.ndarray]:
        """The step log as the compiled loop has it: action, reward, done, optimal."""
        action, reward, done, optimal = np.asarray(self._log, np.float32).reshape(-1, 4).T
        return {
            "action": action.astype(np.int8),
            "reward": reward,
            "done": done.astype(np.int8),
            "optimal": optimal > 0,
        }

    def save_state(self) -> dict[str, np.ndarray]:
        """Everything that later steps depend on."""
        leaves = jax.tree.leaves(jax.device_get(self._state))
        state = {f"leaf-{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        log = np.asarray(self._log, np.float32).reshape(-1, 4)
        return state | {"t": np.asarray(self._t), "run_seed": np.asarray(self._run_seed), "log": log}

    def load_state(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Restore a `save_state`; returns the observation."""
        leaves, structure = jax.tree.flatten(self._state)
        self._state = jax.tree.unflatten(structure, [state[f"leaf-{i}"] for i in range(len(leaves))])
        self._t, self._run_seed = int(state["t"]), int(state["run_seed"])
        self._log = [tuple(row) for row in state["log"].tolist()]
        return self._obs()

    def _obs(self) -> np.ndarray:
        return np.asarray(_observe(self._world, self._state)).astype(np.uint8 if self._bytes else np.float32)
