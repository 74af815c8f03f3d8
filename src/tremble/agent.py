"""The agent: a record that names one point in the three axes, and the pure functions that follow from it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree, Shaped

from tremble.choosers import ChoiceNoise, Chooser, draw_choice
from tremble.core import Behaviour, Clock, Criterion, Noise, Representation, Scalar, Use
from tremble.criteria import Mean, Perturbed
from tremble.dist import ReturnDist
from tremble.networks import (
    ConvSpec,
    ConvTorso,
    Mlp,
    MlpSpec,
    SideBySide,
    deepen_streams,
    initialise,
    side_by_side,
)
from tremble.optimisers import Adam, RMSProp
from tremble.replay import ReplaySpec
from tremble.representations import Quantile


class Network(eqx.Module):
    """Parameters: torso and head."""

    torso: Mlp | ConvTorso | SideBySide
    head: PyTree


class LearnerState(eqx.Module):
    """Parameters, their delayed copy, and the optimiser's moments."""

    params: PyTree
    target_params: PyTree
    opt_state: PyTree


class ActNoise(eqx.Module):
    """All randomness of one action, drawn before the observation is known."""

    criterion: Noise
    choice: ChoiceNoise
    behaviour: Noise = ()


class ActorState(eqx.Module):
    """What acting remembers within an episode."""

    held: Noise
    """The draw in force when noise is held for an episode."""
    fresh: Bool[Array, ""]
    """Whether an episode has just begun."""
    memory: Any = ()
    """What the representation's own behaviour remembers; it is stored with the transition."""

    @property
    def extra(self) -> Any:
        """The memory as a transition carries it: None where nothing is remembered."""
        return self.memory if jax.tree.leaves(self.memory) else None


class ActInfo(eqx.Module):
    """What a choice reports."""

    greedy: Bool[Array, ""]
    """Whether the criterion agrees with the mean about the best action."""


def _drawn(criterion: Criterion, key: PRNGKeyArray, clock: Clock | None) -> Noise:
    """A draw of the criterion, with what depends on the clock computed if it is known and the criterion offers it."""
    settle = None if clock is None else getattr(criterion, "settle", None)
    noise = criterion.draw(key)
    return noise if settle is None else settle(noise, clock)


class LearningSchedule(eqx.Module):
    """When an agent learns. Steps are transitions, counted from 0; both training loops ask `learns_at`."""

    batch_size: int = eqx.field(static=True, default=32)
    start_steps: int = eqx.field(static=True, default=50_000)
    """Transitions before learning starts."""
    update_interval: int = eqx.field(static=True, default=1)
    """Transitions between two rounds of learning."""
    updates_per_round: int = eqx.field(static=True, default=1)
    """Updates in a round. 256 with an interval of 256 learns as often as 1 with 1, in bursts."""
    target_update_interval: int = eqx.field(static=True, default=10_000)
    """Transitions between two updates of the target parameters."""

    def __check_init__(self) -> None:
        """Validate fields."""
        for name in ("batch_size", "update_interval", "target_update_interval", "updates_per_round"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.start_steps < 0:
            raise ValueError(f"start_steps must not be negative, got {self.start_steps}")

    @property
    def first_step(self) -> int:
        """The first step that may learn: one transition at least is needed."""
        return max(self.start_steps, 1)

    def learns_at(self, t: int | Int[Array, ""]) -> Any:
        """Whether step t has a round of learning, which learns from the t transitions before it."""
        return (t >= self.first_step) & (t % self.update_interval == 0)

    def updates_target_at(self, t: int | Int[Array, ""]) -> Any:
        """Whether step t updates the target parameters, before its round of learning."""
        return t % self.target_update_interval == 0

    def updates_before(self, t: int | Int[Array, ""]) -> Int[Array, ""]:
        """How many updates were made before step t."""

        def rounds(n: Any) -> Any:
            return -(-n // self.update_interval)

        return self.updates_per_round * jnp.maximum(rounds(t) - rounds(self.first_step), 0)


class Agent(eqx.Module):
    """Everything that defines an agent. Array-like fields are traced, so a sweep over them compiles once."""

    representation: Representation = Quantile()
    """Axis A."""
    criterion: Criterion = Perturbed()
    """Axis B."""
    chooser: Chooser = Chooser()
    """How scores become actions."""
    network: MlpSpec | ConvSpec = MlpSpec()
    """The torso."""
    optimiser: Adam | RMSProp = Adam()
    """The optimiser."""

    gamma: Scalar = 0.99
    """Discount."""
    target_tau: Scalar = 1.0
    """How far the target parameters move at each refresh; 1 is a hard copy."""
    learning: LearningSchedule = LearningSchedule()
    """When updates are made, and from how many samples."""
    memory_size: int = eqx.field(static=True, default=1_000_000)
    """Transitions kept in replay."""
    replay: ReplaySpec = ReplaySpec()
    """What replay hands out: how many steps an item spans, and by which law items are sampled."""
    async_learning: bool = eqx.field(static=True, default=False)
    """Act by the parameters from before the newest round of learning, so that acting and learning share the cores
    instead of waiting for each other (host loop only); priorities, where there are any, come one update later. Pays
    where an update takes long, as on Atari."""

    criterion_for: Literal["both", "behaviour", "target"] = eqx.field(static=True, default="both")
    """Where the criterion applies; the other place uses the mean."""
    share_noise: bool = eqx.field(static=True, default=False)
    """Whether the update of a step uses the very draw its action used."""
    noise_per_sample: bool = eqx.field(static=True, default=False)
    """One draw per sample of the batch instead of one for all (the theory has one for all)."""
    draws_per_update: int = eqx.field(static=True, default=1)
    """Draws over which the objective's expectation is taken."""
    resample_noise_every: Literal["step", "episode"] = eqx.field(static=True, default="step")
    """How long behaviour keeps a draw."""
    double: bool = eqx.field(static=True, default=False)
    """Select the bootstrap action with the online parameters instead of the target ones."""
    dueling: bool = eqx.field(static=True, default=False)
    """Split the head into a value and advantages (`tremble.networks.Dueling`)."""
    stream_width: int = eqx.field(static=True, default=0)
    """Units of a hidden layer in each of the two, noisy where the head is; 0 has none. Rainbow has its dense layer
    there and not in the torso."""
    noisy: bool = eqx.field(static=True, default=False)
    """Learned noise in the head's weights (`tremble.networks.NoisyLinear`), drawn anew for every prediction."""

    def __check_init__(self) -> None:
        """Refuse contradictions where they are made."""
        if self.memory_size < 1 or self.draws_per_update < 1:
            name = "memory_size" if self.memory_size < 1 else "draws_per_update"
            raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.stream_width and not self.dueling:
            raise ValueError("stream_width is about the streams of a dueling head: it needs dueling=True")
        if self.replay.rollout and self.learning.updates_per_round > 1:
            raise ValueError("a rollout is learned from once: updates_per_round needs to be 1")
        if self.share_noise and self.criterion_for != "both":
            raise ValueError("share_noise needs criterion_for='both': only then is there one criterion to share")
        if self.share_noise and (self.noise_per_sample or self.draws_per_update > 1):
            raise ValueError(
                "share_noise uses the action's single draw: noise_per_sample and draws_per_update need it off"
            )

    def fitted_to(self, n_envs: int) -> Agent:
        """The agent beside so many environments: a rollout of them is its batch, its memory and its interval."""
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
        """Fresh parameters; the target starts as their copy."""
        torso_key, head_key = jax.random.split(key)
        n_torsos = getattr(self.representation, "n_torsos", 1)
        torso: Mlp | ConvTorso | SideBySide
        torso, n_features = (
            self.network.init(torso_key, obs_shape)
            if n_torsos == 1
            else side_by_side(self.network, torso_key, obs_shape, n_torsos)
        )
        head = self.representation.init_head(head_key, n_features, n_actions, self.dueling, self.noisy)
        if self.stream_width:
            head = deepen_streams(head, self.stream_width, jax.random.fold_in(key, 2))
        params = Network(torso, head)
        params = initialise(params, self.network.initialisation, jax.random.fold_in(key, 1))
        return LearnerState(params, params, self.transform().init(params))

    @property
    def behaves(self) -> bool:
        """Whether the representation has a say in acting."""
        return isinstance(self.representation, Behaviour)

    @property
    def remembers(self) -> bool:
        """Whether acting has to know where episodes begin."""
        return self.resample_noise_every == "episode" or self.behaves

    @property
    def random_levels(self) -> bool:
        """Whether every prediction draws levels of its own."""
        return bool(getattr(self.representation, "random_levels", False))

    @property
    def random_predictions(self) -> bool:
        """Whether predictions want a key."""
        return self.noisy or self.random_levels

    def transform(self) -> optax.GradientTransformation:
        """The optimiser of all parameters; a representation may keep some of its own apart."""
        main = self.optimiser.transform()
        owner: Any = self.representation
        if not hasattr(owner, "owned"):
            return main

        def label(params: Network) -> PyTree:
            marks = Network(jax.tree.map(lambda _: False, params.torso), owner.owned(params.head))
            return jax.tree.map(lambda own: "own" if own else "main", marks)

        return optax.multi_transform({"main": main, "own": owner.own_optimiser()}, label)

    def predict(
        self,
        params: Network,
        obs: Shaped[Array, "*obs"],
        use: Use = "choose",
        key: PRNGKeyArray | None = None,
        sample: int | Int[Array, ""] = 0,
    ) -> ReturnDist:
        """Return distribution of every action, ``atoms[actions, atoms]``.

        With a key, noisy layers are the same for all samples of a batch, and random levels differ between them.
        """
        layer_key = key if self.noisy else None
        level_key = jax.random.fold_in(key, sample) if self.random_levels and key is not None else None
        return self.representation.predict(params.head, params.torso(obs), use, level_key, layer_key)

    def draw_act(self, key: PRNGKeyArray, n_actions: int, clock: Clock | None = None) -> ActNoise:
        """The random numbers of one action, settled where its clock is known and no draw is held."""
        criterion_key, choice_key = jax.random.split(key)
        own: Any = self.representation
        return ActNoise(
            _drawn(self.behaviour_criterion, criterion_key, None if self.resample_noise_every == "episode" else clock),
            draw_choice(choice_key, n_actions),
            own.draw_behaviour(jax.random.fold_in(key, 1)) if self.behaves else (),
        )

    def init_actor(self, n_actions: int) -> ActorState:
        """Actor state at the start of a run."""
        shape = jax.eval_shape(lambda: self.draw_act(jax.random.key(0), n_actions).criterion)
        held = (
            jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape) if self.resample_noise_every == "episode" else ()
        )
        own: Any = self.representation
        return ActorState(held, jnp.asarray(True), own.start_memory() if self.behaves else ())

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
        """Choose an action; also returns the criterion's draw that was in force.

        ``key`` randomises the prediction of agents that have random ones.
        """
        drawn = noise.criterion
        if self.resample_noise_every == "episode":
            drawn = jax.tree.map(lambda new, old: jnp.where(actor.fresh, new, old), drawn, actor.held)
        dist = self.predict(params, obs, "choose", key)
        scores, memory = self.behaviour_criterion.score(dist, drawn, clock), actor.memory
        if self.behaves:
            own: Any = self.representation
            features = params.torso(obs)  # computed once: XLA sees that the prediction has the same
            scores, memory = own.behave(
                params.head, features, dist, scores, memory, actor.fresh, noise.behaviour, clock
            )
        action = self.chooser.choose(scores, mask, noise.choice, clock)
        info = ActInfo(jnp.argmax(scores) == jnp.argmax(dist.mean()))
        held = drawn if self.resample_noise_every == "episode" else ()
        return action, ActorState(held, jnp.asarray(False), memory), drawn, info

    def draw_learn(self, key: PRNGKeyArray, clock: Clock | None = None) -> Noise:
        """The criterion's draws of one update: a leading axis of draws, then of samples if each has its own."""

        def draw(key: PRNGKeyArray) -> Noise:
            return _drawn(self.target_criterion, key, clock)

        if self.noise_per_sample:
            shape = (self.draws_per_update, self.learning.batch_size)
            return jax.vmap(jax.vmap(draw))(jax.random.split(key, shape))
        return jax.vmap(draw)(jax.random.split(key, self.draws_per_update))

    def foreseen(self, t: Int[Array, ""]) -> Clock:
        """The clock at step t, as far as it is known before the run comes there: without the number of episodes."""
        return Clock(t, self.learning.updates_before(t), -1, t, self.learning.start_steps)
