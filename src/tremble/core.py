"""The vocabulary of the library: clock, random streams, transitions, and environments written in JAX.

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
from tremble.settings import check_ranges

TimeUnit = Literal["transitions", "updates", "episodes", "frames"]
TimeOrigin = Literal["zero", "learning_start"]
Scalar = float | Float[Array, ""]
"""A setting that may be traced: a Python number, or an array of no axes."""
Use = Literal["choose", "target", "online"]
"""What a prediction is for: choosing an action, the bootstrap target, or the trained (online) prediction."""
Noise = Any
"""What a criterion drew; empty for a deterministic one."""


class Settings(eqx.Module):
    """A record whose numbers are checked when it is made, against the ranges in the types of its fields."""

    def __check_init__(self) -> None:
        """Validate the numbers."""
        check_ranges(self)


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


def split_key(key: PRNGKeyArray | None, n: int = 2) -> tuple[PRNGKeyArray | None, ...]:
    """``n`` independent keys of a key; none of them where there is none, which stands for no randomness."""
    return (None,) * n if key is None else tuple(jax.random.split(key, n))


class Clock(eqx.Module):
    """The counters a schedule may read. Published protocols differ in which of them their ``t`` is.

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
    Arrays are NumPy's in the Gymnasium loop, JAX's where compiled.
    A tuple and no module, because the Gymnasium loop makes one at every step, and a module is ten times slower to make.
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
    """Per-step array from acting that the loss needs (the option in force, a mask of heads); None for most agents."""


class Enumerated(eqx.Module):
    """Observations given as rows of a small table that lists all of them.

    A network can then be evaluated once per *state* instead of once per sample, with the same mathematics: for a
    chain of five states and a batch of 64 that removes almost the whole cost of the network.
    """

    table: Float[Array, "states *obs"]
    index: Int[Array, "*batch"]


def materialise(obs: Any) -> Any:
    """Observations one per sample, also where they were given as `Enumerated`."""
    return obs.table[obs.index] if isinstance(obs, Enumerated) else obs


def pick_rows(dist: ReturnDist, row: Int[Array, "batch"]) -> ReturnDist:
    """``[rows, atoms] -> [batch, atoms]``, by a product with a one-hot matrix.

    Exact, and its gradient is a matrix product too, where that of an indexed read would be a slow scatter.
    """
    pick = jax.nn.one_hot(row, dist.atoms.shape[0], dtype=dist.atoms.dtype)
    return dist.select(lambda x: jnp.matmul(pick, x, precision=jax.lax.Precision.HIGHEST))


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

    def is_optimal(self, state: PyTree, action: Int[Array, ""]) -> Bool[Array, ""] | None:
        """Whether the environment counts this action as optimal here; None, in all states, if it cannot tell."""
        ...


def knows_optimal(env: JaxEnv) -> bool:
    """Whether the environment can tell which actions are optimal. Its functions are traced, nothing is computed."""
    state = jax.eval_shape(env.reset, jax.random.key(0))
    return jax.eval_shape(env.is_optimal, state, jnp.zeros((), jnp.int32)) is not None
