"""An agent with its parameters: what a finished or loaded run offers to act with and to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tremble.agent import Agent, Network
from tremble.core import Clock, Criterion, RandomStream, stream_key
from tremble.criteria import Mean
from tremble.dist import ReturnDist
from tremble.envs.encoding import Encoder
from tremble.settings import SettingsError, describe
from tremble.training import checkpoint
from tremble.training.checkpoint import CheckpointError
from tremble.training.run_directory import BEST, WEIGHTS
from tremble.training.spec import CUSTOM, RunSpec


@dataclass(frozen=True)
class Counts:
    """How far training had come, for criteria that change with time."""

    transitions: int = 0
    updates: int = 0
    episodes: int = 0


@dataclass(frozen=True)
class TrainedAgent:
    """Parameters and all that is needed to use them; no environment."""

    agent: Agent
    params: Any
    encoder: Encoder
    n_actions: int
    action_offset: int = 0
    counts: Counts = field(default_factory=Counts)
    spec: RunSpec | None = None

    def distribution(self, obs: Any) -> ReturnDist:
        """Predicted return distribution of every action: ``atoms[actions, atoms]``, or ``[n, actions, atoms]``.

        ``obs`` is what the environment returns, one observation or n of them along a leading axis.
        """
        n = self.encoder.batch_of(obs)
        encoded = self.encoder(obs, () if n is None else (n,))
        return _predict(self.agent, self.params, encoded[None] if n is None else encoded)[
            0 if n is None else slice(None)
        ]

    def atoms(self, encoded: np.ndarray) -> np.ndarray:
        """Predicted atoms ``[n, actions, atoms]`` of encoded observations."""
        return np.asarray(_predict(self.agent, self.params, encoded).atoms)

    def act(self, obs: Any, mask: Any = None) -> int:
        """The permitted action of the highest expected return."""
        mean = np.asarray(self.distribution(obs).mean())
        return int(np.argmax(mean if mask is None else np.where(mask, mean, -np.inf))) + self.action_offset

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Actions in the form of Stable-Baselines3's policies, so that its tools accept this agent.

        Deterministic: the highest expected return. Otherwise as in training: the criterion with a fresh draw, and the
        chooser's epsilon, at the time where training stopped; ``state`` then counts the calls and must be passed on.
        """
        n = self.encoder.batch_of(observation)
        encoded = self.encoder(observation, () if n is None else (n,))
        batch = encoded[None] if n is None else encoded
        calls = 0 if state is None else int(np.ravel(state[0])[0]) + 1
        criterion = Mean() if deterministic else self.agent.behaviour_criterion
        epsilon = 0.0 if deterministic else None
        key = stream_key(0 if self.spec is None else self.spec.seed, RandomStream.EVALUATE, calls)
        keys = jax.random.split(key, len(batch))
        actions = np.asarray(self.choose(criterion, epsilon, keys, batch, None, as_trained=not deterministic))
        actions = actions.astype(np.int64) + self.action_offset
        return (actions[0] if n is None else actions), (None if deterministic else (np.full(len(batch), calls),))

    def choose(
        self, criterion: Criterion, epsilon: float | None, keys: Any, encoded: Any, mask: Any, as_trained: bool = False
    ) -> Any:
        """Actions ``[n]`` (from 0) by a criterion; ``epsilon`` None is the chooser's own at this time.

        ``as_trained`` lets a representation that has a say in acting have it, as at the first step of an episode.
        """
        counts = self.counts
        clock = Clock(
            np.int32(counts.transitions),
            np.int32(counts.updates),
            np.int32(counts.episodes),
            np.int32(counts.transitions),
        )
        random = self.agent.chooser.epsilon(clock) if epsilon is None else jnp.float32(epsilon)
        return _choose(self.agent, self.params, criterion, random, keys, encoded, mask, clock, as_trained)


@jax.jit
def _predict(agent: Agent, params: Network, obs: jax.Array) -> ReturnDist:
    return jax.vmap(partial(agent.predict, params))(obs)


@partial(jax.jit, static_argnums=(8,))
def _choose(agent, params, criterion, epsilon, keys, obs, mask, clock, as_trained):  # type: ignore[no-untyped-def]
    from tremble.choosers import draw_choice, greedy, uniform

    def one(key: Any, obs: Any, mask: Any) -> Any:
        draw_key, choice_key = jax.random.split(key)
        dist = agent.predict(params, obs)
        scores = criterion.score(dist, criterion.draw(draw_key), clock)
        if as_trained and agent.behaves:
            own = agent.representation
            noise = own.draw_behaviour(jax.random.fold_in(draw_key, 1))
            fresh, features = jnp.asarray(True), params.torso(obs)
            scores, _ = own.behave(params.head, features, dist, scores, own.start_memory(), fresh, noise, clock)
        noise = draw_choice(choice_key, scores.shape[0])
        random = noise.explore < epsilon
        return jnp.where(random, uniform(scores.shape[0], mask, noise), greedy(scores, mask, noise))

    return jax.vmap(one, in_axes=(0, 0, None if mask is None else 0))(keys, obs, mask)


def load(
    path: str | Path,
    agent: Agent | None = None,
    *,
    weights: Literal["newest", "best"] = "newest",
    trust_code: bool = False,
) -> TrainedAgent:
    """The trained agent in a run's directory, or in a file of weights. Nothing in the files is executed.

    Of a directory ``weights`` chooses the newest, or those of the best evaluation during training.
    ``agent`` is needed only where the run was trained with an `Agent` object instead of a name. A run whose criterion
    or functions are somebody's own (``module:name``) names code to import: refused, unless ``trust_code`` is true.
    """
    path = Path(path)
    if weights not in ("newest", "best"):
        raise SettingsError(f"weights are 'newest' or 'best', not {weights!r}")
    file = path / (BEST if weights == "best" else WEIGHTS) if path.is_dir() else path
    if not file.exists():
        hint = "train it with evaluate_every" if weights == "best" else "give the directory of a run"
        raise CheckpointError(f"there are no weights at {file}: {hint}")
    contents = checkpoint.read(file)
    try:
        spec = RunSpec(**contents.meta["spec"])
        encoder = Encoder.restore(contents.meta["encoder"])
        n_actions, action_offset = int(contents.meta["n_actions"]), int(contents.meta["action_offset"])
        counts = Counts(**contents.meta["counts"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file} does not describe a run ({type(error).__name__}: {error})") from error
    if agent is None:
        if spec.agent == CUSTOM:
            raise CheckpointError(f"{path} was trained with an agent object: pass it, tremble.load(path, agent=...)")
        named = [f"{name}={value}" for name, value in spec.agent_options.items() if ":" in str(value)]
        if named and not trust_code:
            raise CheckpointError(
                f"{file} names code to import ({', '.join(named)}). If you trust where it comes from: "
                "tremble.load(path, trust_code=True); or make the agent yourself: tremble.load(path, agent=...)"
            )
        try:
            agent = spec.rebuild_agent(contents.meta["settings"]["agent_settings"])
        except (KeyError, SettingsError) as error:
            raise CheckpointError(f"the agent in {file} cannot be made: {error}") from error
    else:
        here, there = describe(agent), contents.meta["settings"]["agent_settings"]
        changed = sorted(name for name in here.keys() & there.keys() if here[name] != there[name])
        if changed:
            raise CheckpointError(f"{file} was made with other settings of the agent: {', '.join(changed)}")
    like = jax.eval_shape(lambda: agent.init(jax.random.key(0), encoder.shape, n_actions).params)
    params = jax.tree.map(jnp.asarray, contents.tree("params", like))
    return TrainedAgent(agent, params, encoder, n_actions, action_offset, counts, spec)
