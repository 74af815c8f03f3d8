"""The vocabulary of the library: clock, keys, transitions, and the signature of every part an agent is made of.

Shapes are written for a single environment and a single transition; batching is `jax.vmap` at the call site.
"""

from __future__ import annotations

import enum
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from tremble.dist import ReturnDist

TimeUnit = Literal["transitions", "updates", "episodes", "frames"]
TimeOrigin = Literal["zero", "learning_start"]
Scalar = float | Float[Array, ""]
"""A setting that may be traced: a Python number, or an array of no axes."""
Use = Literal["choose", "target", "online"]
"""What a prediction is for: to choose an action, to bootstrap from, or to be trained."""
Noise = Any
"""What a criterion drew; empty for a deterministic one."""


class RandomStream(enum.IntEnum):
    """Independent sources of randomness. The numbers are part of the file format: append, never renumber."""

    PARAMETERS = 0
    RESET = 1
    STEP = 2
    ACT = 3
    LEARN = 4
    SAMPLE = 5
    DIAGNOSE = 6
    EVALUATE = 7
    PREDICT_TO_ACT = 8
    PREDICT_TO_LEARN = 9


def stream_key(seed: ArrayLike, stream: RandomStream, counter: ArrayLike = 0) -> PRNGKeyArray:
    """Key number ``counter`` of a stream: fold_in(fold_in(seed, stream), counter).

    No generator carries state, so work can be drawn in bulk, overlapped, or resumed anywhere with the same numbers.
    """
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), int(stream)), counter)


class Clock(eqx.Module):
    """Everything a schedule may read. Published protocols differ in which of these their ``t`` is.

    ``start_transitions`` is where learning starts, so that a schedule can count from there.
    """

    transitions: Int[ArrayLike, "*batch"]
    updates: Int[ArrayLike, "*batch"]
    episodes: Int[ArrayLike, "*batch"]
    frames: Int[ArrayLike, "*batch"]
    start_transitions: int = eqx.field(static=True, default=0)

    def time(self, unit: TimeUnit, origin: TimeOrigin = "zero") -> Float[Array, "*batch"]:
        """t >= 1 in the given unit: 1 + max(0, count - origin), so the first step is t = 1.

        Updates only ever count from the start of learning; for episodes and frames the origin is the run's start.
        """
        count = jnp.asarray(getattr(self, unit))
        if origin == "learning_start" and unit == "transitions":
            count = jnp.maximum(count - self.start_transitions, 0)
        return 1.0 + count.astype(jnp.float32)


class Transition(NamedTuple):
    """One step as the learner sees it; suffixes _tm1 (before) and _t (after) make off-by-one errors visible.

    ``discount_t`` is gamma, or 0 where the environment *terminated* (a time limit does not zero it).
    ``obs`` fields hold observations, or row numbers into a table of them (see `Enumerated`).
    Arrays are NumPy's beside Gymnasium, JAX's where compiled.
    A tuple and no module: beside Gymnasium one is made and read at every step, which a module makes ten times slower.
    """

    obs_tm1: Any
    action_tm1: Int[Any, "*batch"]
    reward_t: Float[Any, "*batch"]
    discount_t: Float[Any, "*batch"]
    obs_t: Any
    weight: Float[Any, "*batch"] | None = None
    """Importance weight of the sample in the loss, set by the sampler (1 under uniform replay)."""
    mask_t: Bool[Any, "*batch actions"] | None = None
    """Actions permitted after the step, where the environment says; the bootstrap selects among them only."""
    extra: Any = None
    """What acting left for learning, one array: the option in force, the heads that may learn. Most agents: nothing."""


class Enumerated(eqx.Module):
    """Observations given as rows of a small table that lists all of them.

    A network can then be evaluated once per *state* instead of once per sample, with the same mathematics: for a
    chain of five states and a batch of 64 that removes almost the whole cost of the network.
    """

    table: Float[Array, "states *obs"]
    index: Int[Array, "*batch"]

    def materialise(self) -> Float[Array, "*batch *obs"]:
        """The observations themselves."""
        return self.table[self.index]


@runtime_checkable
class Criterion(Protocol):
    """From a distribution to one score per action: a risk attitude, or a way to explore.

    Split in two, so that noise can be drawn in bulk, shared between behaviour and target, held for an episode, shown
    in a viewer. Implementations are frozen `eqx.Module`s: array-like fields are traced, the rest is static.

    A criterion may offer ``settle(noise, clock)``: a draw in which all that depends on the clock alone is computed
    already, and which its ``score`` takes as well. Compiled loops ask for it in bulk, before the number of episodes at
    that clock is known.
    """

    def draw(self, key: PRNGKeyArray) -> Noise:
        """Draw what randomises the criterion (any pytree of arrays; ``()`` if nothing)."""
        ...

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """Score ``dist.atoms[*actions, atoms]``; larger is better."""
        ...

    def metrics(self, noise: Noise, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Named scalars worth logging now: the size of a perturbation, the coefficient of a bonus."""
        ...


@runtime_checkable
class Representation(Protocol):
    """How the return is predicted, and what divergence trains it.

    A representation may offer more, which the agent and the learner ask for by name:

    - ``random_levels``: true if predictions draw levels;
    - ``n_torsos``: how many networks of the observation it wants side by side (a frozen twin, a predictor); features
      are then those of all of them, one after another;
    - ``actions_apart``: True if the prediction of an action needs only the head's outputs of that action, so that an
      update may ask a large head for nothing else;
    - ``report(predicted, target)``: named numbers for the metrics;
    - ``auxiliary(params, target_params, transition)``: a further loss of one transition;
    - ``own_optimiser()`` with ``owned(head)``: parts of the head with an optimiser of their own;
    - ``bootstrap(selector, evaluator, mask)``: the return to bootstrap from and the actions it is made of, in place of
      all atoms of the criterion's best action;
    - ``masked_divergence(predicted, target, extra)``: the divergence where transitions carry an extra it depends on;
    - what a `Behaviour` has, to act by more than the distribution.
    """

    def init_head(self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool, noisy: bool) -> PyTree:
        """Parameters that turn features into a distribution per action."""
        ...

    def predict(
        self,
        head: PyTree,
        features: Float[Array, "features"],
        use: Use,
        level_key: PRNGKeyArray | None,
        layer_key: PRNGKeyArray | None,
    ) -> ReturnDist:
        """``atoms[actions, atoms]`` for one observation.

        The keys are for random levels and for noisy layers; without them a prediction is not random.
        """
        ...

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """Loss of one transition: ``predicted.atoms[N]`` of the taken action against ``target.atoms[M]``."""
        ...


@runtime_checkable
class Behaviour(Protocol):
    """A representation with a say in acting: it needs more of the network than its distribution, or remembers things.

    What it remembers is stored with the transition too (`Transition.extra`), so that learning knows it.
    """

    def start_memory(self) -> Any:
        """What is remembered before the first step: one array, or ``()`` for nothing."""
        ...

    def draw_behaviour(self, key: PRNGKeyArray) -> Noise:
        """The random numbers of one step (``()`` if none)."""
        ...

    def behave(
        self,
        head: PyTree,
        features: Float[Array, "features"],
        dist: ReturnDist,
        scores: Float[Array, "actions"],
        memory: Any,
        fresh: Bool[Array, ""],
        noise: Noise,
        clock: Clock,
    ) -> tuple[Float[Array, "actions"], Any]:
        """Scores to act by, given the criterion's, and the new memory; ``fresh`` says that an episode begins."""
        ...

    def behaviour_metrics(self, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Named scalars worth logging now."""
        ...


@runtime_checkable
class JaxEnv(Protocol):
    """An environment written in JAX. State is a pytree; the observation is a function of it."""

    @property
    def n_actions(self) -> int:
        """Number of discrete actions."""
        ...

    @property
    def observation_table(self) -> Float[Array, "states *obs"] | None:
        """All observations, if there are few enough to list; `index` then says which one a state shows."""
        ...

    def reset(self, key: PRNGKeyArray) -> PyTree:
        """First state of an episode."""
        ...

    def draw(self, key: PRNGKeyArray) -> Noise:
        """The random numbers of one step, drawn before state and action are known (the key itself will do)."""
        ...

    def step(
        self, state: PyTree, action: Int[Array, ""], noise: Noise
    ) -> tuple[PyTree, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Next state (before any reset), reward, terminated, truncated."""
        ...

    def observe(self, state: PyTree) -> Shaped[Array, "*obs"]:
        """What the agent sees of a state, in the type that replay stores: truths or bytes where they are enough."""
        ...

    def index(self, state: PyTree) -> Int[Array, ""]:
        """Row of `observation_table` that `observe` returns."""
        ...

    def is_optimal(self, state: PyTree, action: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the environment counts this action as optimal here (false where it cannot tell)."""
        ...
