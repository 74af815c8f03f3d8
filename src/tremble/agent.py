"""The agent: a record that names one point on each of the three axes, and the pure functions that follow from it.

A. representation: how the return is predicted;  B. criterion: how a distribution becomes a score per action;
C. improvements: double, dueling, noisy, n-step and prioritised replay, as fields.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree, Shaped

from tremble.choosers import ChoiceNoise, Chooser, draw_choice
from tremble.core import Clock, Noise, Scalar, Settings, Use
from tremble.criteria import Criterion, Mean, Perturbed
from tremble.dist import ReturnDist
from tremble.learning_schedule import LearningSchedule
from tremble.networks import AutoSpec, Network, NetworkSpec, deepen_streams, init_torso, started
from tremble.optimisers import Adam, Optimiser
from tremble.replay import ReplaySpec
from tremble.representations import DETERMINISTIC, ActContext, Quantile, Query, Representation
from tremble.settings import COUNT, NON_NEGATIVE, SHARE, Range, SettingsError


class LearnerState(eqx.Module):
    """Parameters, their delayed copy, and the optimiser's state."""

    params: Network
    target_params: Network
    opt_state: PyTree


class ActNoise(eqx.Module):
    """All randomness of one action, drawn before the observation is known."""

    criterion: Noise
    choice: ChoiceNoise
    behaviour: Noise = ()


class ActorState(eqx.Module):
    """What acting remembers between steps, in one environment."""

    held: Noise
    """The criterion's draw of this episode, if noise is drawn once per episode."""
    episode_start: Bool[Array, ""]
    """Whether the next step is the first of an episode."""
    memory: Any = ()
    """The representation's own memory; it is stored with the transition."""

    @property
    def extra(self) -> Any:
        """The memory as a transition carries it: None where there is none."""
        return self.memory if jax.tree.leaves(self.memory) else None


class ActInfo(eqx.Module):
    """Diagnostics of one action."""

    greedy: Bool[Array, ""]
    """Whether the criterion agrees with the mean about the best action."""


class Agent(Settings):
    """Everything that defines an agent. Array-like fields are traced, so a sweep over them compiles once.

    Methods are written for one environment; loops apply `jax.vmap` over several.
    """

    representation: Representation = Quantile()
    """Axis A: how the return is predicted, and which loss trains it."""
    criterion: Criterion = Perturbed()
    """Axis B: what score the predicted return of an action has."""
    chooser: Chooser = Chooser()
    """How scores become actions."""
    network: NetworkSpec = eqx.field(static=True, default=AutoSpec())
    """The torso."""
    optimiser: Optimiser = Adam()
    """What turns gradients into updates."""

    gamma: Annotated[Scalar, SHARE] = 0.99
    """Discount."""
    target_tau: Annotated[Scalar, SHARE] = 1.0
    """How far the target parameters move at each update of them; 1 is a hard copy."""
    learning: LearningSchedule = LearningSchedule()
    """When updates are made, and from how many samples."""
    memory_size: Annotated[int, COUNT] = eqx.field(static=True, default=1_000_000)
    """Transitions kept in replay."""
    replay: ReplaySpec = ReplaySpec()
    """What replay hands out: how many steps an item spans, and by which law items are sampled."""
    async_learning: bool = eqx.field(static=True, default=False)
    """Act with the parameters from before the newest round of learning, so that acting and learning share the cores
    (Gymnasium loop only). Priorities are then updated one round later. Pays where an update takes long, as on Atari."""

    criterion_for: Literal["both", "behaviour", "target"] = eqx.field(static=True, default="both")
    """Where the criterion applies; the other place uses the mean."""
    share_noise: bool = eqx.field(static=True, default=False)
    """Whether the update of a step uses the very draw its action used."""
    noise_per_sample: bool = eqx.field(static=True, default=False)
    """One draw per sample of the batch instead of one for all (the theory has one for all)."""
    draws_per_update: Annotated[int, Range(1, 1024)] = eqx.field(static=True, default=1)
    """Draws over which the objective's expectation is taken."""
    resample_noise_every: Literal["step", "episode"] = eqx.field(static=True, default="step")
    """How often behaviour draws the criterion's noise."""
    double: bool = eqx.field(static=True, default=False)
    """Select the bootstrap action with the online parameters instead of the target ones."""
    dueling: bool = eqx.field(static=True, default=False)
    """Split the head into a value and advantages (`tremble.networks.Dueling`)."""
    stream_width: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Units of a hidden layer in each of the two, noisy where the head is; 0 for none. Rainbow has its dense layer
    there and not in the torso."""
    noisy: bool = eqx.field(static=True, default=False)
    """Learned noise in the head's weights (`tremble.networks.NoisyLinear`), drawn anew for every prediction."""

    def __check_init__(self) -> None:
        """Validate combinations of fields."""
        if self.stream_width and not self.dueling:
            raise SettingsError("stream_width is about the streams of a dueling head: it needs dueling=True")
        if self.replay.rollout and self.learning.updates_per_round > 1:
            raise SettingsError("a rollout is learned from once: updates_per_round needs to be 1")
        if self.share_noise and self.criterion_for != "both":
            raise SettingsError("share_noise needs criterion_for='both': only then is there one criterion to share")
        if self.share_noise and (self.noise_per_sample or self.draws_per_update > 1):
            raise SettingsError(
                "share_noise uses the action's single draw: noise_per_sample and draws_per_update need it off"
            )

    def fitted_to(self, n_envs: int) -> Agent:
        """The agent for so many environments: with rollouts, their size is the batch, the memory and the interval."""
        if not self.replay.rollout:
            return self
        size = n_envs * self.replay.rollout
        learning = dataclasses.replace(self.learning, batch_size=size, update_interval=size)
        return dataclasses.replace(self, learning=learning, memory_size=size)

    @property
    def behaviour_criterion(self) -> Criterion:
        """The criterion that scores actions to take."""
        return self.criterion if self.criterion_for in ("both", "behaviour") else Mean()

    @property
    def target_criterion(self) -> Criterion:
        """The criterion that selects the action to bootstrap from."""
        return self.criterion if self.criterion_for in ("both", "target") else Mean()

    def init(self, key: PRNGKeyArray, obs_shape: tuple[int, ...], n_actions: int) -> LearnerState:
        """Initial parameters; the target parameters are their copy."""
        torso_key, head_key = jax.random.split(key)
        torso, n_features = init_torso(self.network, torso_key, obs_shape, self.representation.n_torsos)
        head = self.representation.init_head(head_key, n_features, n_actions, self.dueling, self.noisy)
        if self.stream_width:
            head = deepen_streams(head, self.stream_width, jax.random.fold_in(key, 2))
        params = started(self.network, Network(torso, head), jax.random.fold_in(key, 1))
        return LearnerState(params, params, self.transform().init(params))

    def transform(self) -> optax.GradientTransformation:
        """The optimiser of all parameters; a representation may have its own for a part of the head."""
        main = self.optimiser.transform()
        separate = self.representation.separate_optimiser()
        if separate is None:
            return main
        own, mark = separate

        def label(params: Network) -> PyTree:
            marks = Network(jax.tree.map(lambda _: False, params.torso), mark(params.head))
            return jax.tree.map(lambda is_own: "own" if is_own else "main", marks)

        return optax.multi_transform({"main": main, "own": own}, label)

    @property
    def has_actor_state(self) -> bool:
        """Whether acting must be told where episodes start."""
        return self.resample_noise_every == "episode" or bool(jax.tree.leaves(self.representation.init_memory()))

    @property
    def random_predictions(self) -> bool:
        """Whether predictions need a key."""
        return self.noisy or self.representation.random_levels

    def clock(self, t: Any, episodes: Any, updates: Any = None, frames_per_step: int = 1) -> Clock:
        """The clock at transition t. Without ``updates``, as many as the learning schedule makes before t."""
        made = self.learning.updates_before(t) if updates is None else updates
        return Clock(t, made, episodes, frames_per_step * t, self.learning.start_steps)

    def query(self, use: Use = "choose", key: PRNGKeyArray | None = None) -> Query:
        """A prediction's purpose, with the parts of the key that this agent's predictions need."""
        return Query(use, key if self.representation.random_levels else None, key if self.noisy else None)

    def predict(self, params: Network, obs: Shaped[Array, "batch *obs"], query: Query = DETERMINISTIC) -> ReturnDist:
        """Return distribution of every action: ``atoms[batch, actions, atoms]``."""
        return self.representation.predict(params.head, params.features(obs), query)

    def draw_act(self, key: PRNGKeyArray, n_actions: int) -> ActNoise:
        """The random numbers of one action."""
        criterion_key, choice_key = jax.random.split(key)
        return ActNoise(
            self.behaviour_criterion.draw(criterion_key),
            draw_choice(choice_key, n_actions),
            self.representation.draw_behaviour(jax.random.fold_in(key, 1)),
        )

    def init_actor(self, n_actions: int) -> ActorState:
        """Actor state before the first step."""
        held: Noise = ()
        if self.resample_noise_every == "episode":
            shape = jax.eval_shape(lambda: self.draw_act(jax.random.key(0), n_actions).criterion)
            held = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
        return ActorState(held, jnp.asarray(True), self.representation.init_memory())

    def act(
        self,
        params: Network,
        actor: ActorState,
        obs: Shaped[Array, "*obs"],
        mask: Bool[Array, "actions"] | None,
        noise: ActNoise,
        clock: Clock,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Int[Array, ""], ActorState, Noise, ActInfo]:
        """Choose an action in one environment; also returns the criterion's draw that was in force.

        ``key`` randomises the prediction of agents whose predictions are random.
        """
        drawn = noise.criterion
        if self.resample_noise_every == "episode":
            drawn = jax.tree.map(lambda new, old: jnp.where(actor.episode_start, new, old), drawn, actor.held)
        features = params.features(obs[None])
        dist = self.representation.predict(params.head, features, self.query("choose", key))[0]
        scores, memory = self.behaviour_criterion.score(dist, drawn, clock), actor.memory
        if self.chooser.use_representation:
            context = ActContext(
                params.head, features[0], dist, scores, memory, actor.episode_start, noise.behaviour, clock
            )
            scores, memory = self.representation.behave(context)
        action = self.chooser.choose(scores, mask, noise.choice, clock)
        info = ActInfo(jnp.argmax(scores) == jnp.argmax(dist.mean()))
        held = drawn if self.resample_noise_every == "episode" else ()
        return action, ActorState(held, jnp.asarray(False), memory), drawn, info

    def draw_learn(self, key: PRNGKeyArray) -> Noise:
        """The criterion's draws of one update: a leading axis of draws, then of samples if each has its own."""
        draw = self.target_criterion.draw
        if self.noise_per_sample:
            shape = (self.draws_per_update, self.learning.batch_size)
            return jax.vmap(jax.vmap(draw))(jax.random.split(key, shape))
        return jax.vmap(draw)(jax.random.split(key, self.draws_per_update))
