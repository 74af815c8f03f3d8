"""An agent with its parameters: what a finished or loaded run offers to act with and to look at."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from tremble.agent import ActorState, Agent, LearnerState
from tremble.core import Clock, RandomStream, stream_key
from tremble.criteria import Criterion, Mean, make_criterion
from tremble.dist import ReturnDist
from tremble.envs.encoding import Actions, Encoder
from tremble.envs.masks import as_mask
from tremble.envs.running_statistics import Statistics, check_statistics
from tremble.networks import Network
from tremble.presets import PARTS
from tremble.records import CheckpointError
from tremble.settings import SettingsError, describe, reference
from tremble.training import checkpoint
from tremble.training.consent import code_of_agent, require_consent
from tremble.training.loop import Count
from tremble.training.run_directory import BEST, WEIGHTS
from tremble.training.spec import CUSTOM, RunSpec


@dataclass(frozen=True)
class Counts:
    """How far training had come, for criteria that change over time."""

    transitions: Count = 0
    updates: Count = 0
    episodes: Count = 0
    frames: Count = 0


@dataclass(frozen=True)
class TrainedAgent:
    """Parameters and all that is needed to use them; no environment."""

    agent: Agent
    params: Network
    encoder: Encoder
    actions: Actions
    """What the numbers of actions stand for: distributions are in their order."""
    counts: Counts = field(default_factory=Counts)
    spec: RunSpec | None = None
    statistics: Statistics = field(default_factory=dict)
    """What the environment of training normalised observations and rewards by, if it did (`envs.running_statistics`);
    evaluations do the same."""

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return self.actions.n

    @property
    def clock(self) -> Clock:
        """The time at which training stopped."""
        counts = {name: np.int32(count) for name, count in dataclasses.asdict(self.counts).items()}
        return Clock(**counts, start_transitions=self.agent.learning.start_steps)

    def distribution(self, obs: Any) -> ReturnDist:
        """Predicted return distribution of every action: ``atoms[actions, atoms]``, or ``[n, actions, atoms]``.

        ``obs`` is what the environment returns, one observation or n of them along a leading axis.
        """
        batch, single = self._encode(obs)
        dist = self.predict_encoded(batch)
        return dist[0] if single else dist

    def predict_encoded(self, encoded: Any) -> ReturnDist:
        """Predicted distributions ``[n, actions, atoms]`` of encoded observations."""
        return _predict(self.agent, self.params, encoded)

    def act(
        self, obs: Any, mask: Any = None, *, criterion: str | Criterion = "mean", seed: int = 0, **settings: Any
    ) -> Any:
        """The permitted action that a criterion scores highest for one observation, as the environment takes it.

        ``criterion`` is a name, such as ``agent.act(obs, criterion="cvar", eta=0.1)`` with its settings, ``"own"`` for
        the agent's as at the end of training, or a `Criterion`. ``seed`` is for criteria that are random.
        """
        policy = self.policy_by(criterion, 0.0, **settings)
        masks = None if mask is None else as_mask(mask, self.actions)[None]
        key = stream_key(seed, RandomStream.EVALUATE)
        chosen, _ = policy.act(policy.init_actors(1), self.encoder(obs)[None], masks, key[None])
        return self.actions.own(int(np.asarray(chosen)[0]))

    def policy_by(self, criterion: str | Criterion, epsilon: float | None, **settings: Any) -> Policy:
        """Act by a criterion, some settings changed: ``"own"`` is the agent's, other names make a new one."""
        if criterion != "own":
            return self.policy(make_criterion(criterion, **settings), epsilon)
        own = dataclasses.replace(self.agent, criterion=make_criterion(self.agent.criterion, **settings))
        return dataclasses.replace(self, agent=own).policy(None, epsilon)

    def policy(self, criterion: Criterion | None = None, epsilon: float | None = 0.0) -> Policy:
        """Act by a criterion (None: the agent's own), at random with ``epsilon`` (None: the agent's own schedule)."""
        return Policy(_for_evaluation(self.agent, criterion, epsilon), self.params, self.n_actions, self.clock)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Actions in the form of Stable-Baselines3's policies, so that its tools accept this agent.

        Deterministic: the highest expected return. Otherwise as in training, at the time where training stopped;
        ``state`` then holds the number of calls and the actor state, and must be passed on.
        """
        batch, single = self._encode(observation)
        policy = self.policy(Mean(), 0.0) if deterministic else self.policy(None, None)
        calls, actors = 0, policy.init_actors(len(batch))
        if state is not None:
            calls = int(np.ravel(state[0])[0]) + 1
            actors = jax.tree.unflatten(jax.tree.structure(actors), state[1:])
            if episode_start is not None:
                starts = jnp.asarray(np.broadcast_to(episode_start, (len(batch),)), bool)
                actors = eqx.tree_at(lambda a: a.episode_start, actors, starts)
        key = stream_key(0 if self.spec is None else self.spec.seed, RandomStream.EVALUATE, calls)
        actions, actors = policy.act(actors, batch, None, jax.random.split(key, len(batch)))
        actions = self.actions.decode(actions)
        after = None if deterministic else (np.full(len(batch), calls), *jax.tree.leaves(jax.device_get(actors)))
        return (actions[0] if single else actions), after

    def _encode(self, obs: Any) -> tuple[np.ndarray, bool]:
        """Encoded observations ``[n, *obs]``, and whether a single one was given."""
        n = self.encoder.batch_of(obs)
        encoded = self.encoder(obs, () if n is None else (n,))
        return (encoded[None], True) if n is None else (encoded, False)


class Policy(eqx.Module):
    """`Agent.act` in n environments at a fixed time: for evaluation, videos and other libraries."""

    agent: Agent
    params: Network
    n_actions: int = eqx.field(static=True)
    clock: Clock

    def init_actors(self, n: int) -> ActorState:
        """Actor states at the start of n episodes, with a leading axis."""
        return jax.tree.map(lambda x: jnp.stack([x] * n), self.agent.init_actor(self.n_actions))

    @jax.jit
    def act(self, actors: ActorState, obs: Any, mask: Any, keys: Key[Array, "n"]) -> tuple[Any, ActorState]:
        """Actions ``[n]`` (from 0) for encoded observations, and the new actor states; one key each."""

        def one(actor: ActorState, obs: Any, mask: Any, key: Any) -> tuple[jax.Array, ActorState]:
            noise = self.agent.draw_act(key, self.n_actions)
            action, actor, _, _ = self.agent.act(self.params, actor, obs, mask, noise, self.clock)
            return action, actor

        return jax.vmap(one, in_axes=(0, 0, None if mask is None else 0, 0))(actors, obs, mask, keys)


def _for_evaluation(agent: Agent, criterion: Criterion | None, epsilon: float | None) -> Agent:
    """The agent as a policy acts: never at random because learning has not started yet.

    Under another criterion the representation does not override action selection: no options, no bonus.
    """
    own = criterion is None and agent.chooser.use_representation
    chooser = dataclasses.replace(agent.chooser, random_start=False, use_representation=own)
    if epsilon is not None:
        chooser = dataclasses.replace(chooser, epsilon_start=epsilon, epsilon_end=epsilon)
    if criterion is None:
        return dataclasses.replace(agent, chooser=chooser)
    return dataclasses.replace(
        agent, chooser=chooser, criterion=criterion, criterion_for="both", resample_noise_every="step"
    )


_predict = jax.jit(Agent.predict)


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
    spec, encoder = contents.record("spec", RunSpec), contents.record("encoder", Encoder)
    actions: Actions = contents.record("actions", Actions)
    counts, recorded = contents.record("counts", Counts), contents.settings()
    if agent is None:
        if spec.agent == CUSTOM:
            raise CheckpointError(f"{path} was trained with an agent object: pass it, tremble.load(path, agent=...)")
        require_consent(file, code_of_agent(spec, recorded), trust_code)
        try:
            agent = spec.rebuild_agent(recorded)
        except SettingsError as error:
            raise CheckpointError(f"the agent in {file} cannot be made: {error}") from error
    else:
        here, there = describe(agent), contents.record("parts", dict[str, str])
        here |= {part: reference(type(getattr(agent, part))) for part in there if part in PARTS}
        recorded |= there
        changed = sorted(name for name in here.keys() & recorded.keys() if here[name] != recorded[name])
        if changed:
            raise CheckpointError(f"{file} was made with other settings of the agent: {', '.join(changed)}")
    with contents.reading():
        like = learner_shapes(agent, encoder, actions.n).params
        statistics = check_statistics(contents.group("statistics"))
    params = jax.tree.map(jnp.asarray, contents.tree("params", like))
    return TrainedAgent(agent, params, encoder, actions, counts, spec, statistics)


def learner_shapes(agent: Agent, encoder: Encoder, n_actions: int) -> LearnerState:
    """Shapes and types of an agent's parameters and optimiser; allocates nothing."""
    return jax.eval_shape(lambda: agent.init(jax.random.key(0), encoder.shape, n_actions))
