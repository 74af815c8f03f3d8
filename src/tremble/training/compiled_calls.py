"""What the Gymnasium loop calls compiled. Pytrees are passed as `Flat`, which costs Python little.

For the same reason whole numbers travel together in one array, and what stays the same during a run in one `Constants`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tremble.agent import ActNoise, ActorState, Agent, LearnerState
from tremble.core import Clock, Noise, RandomStream, Transition, split_key, stream_key
from tremble.dist import ReturnDist
from tremble.learn import bootstrap_target, learn, regress, update_target
from tremble.networks import Network
from tremble.replay import Rows, draw_sample, unpack
from tremble.training.diagnosis import diagnose

BLOCK = 256
"""Steps whose random numbers are drawn in one call."""
BURST_BYTES = 64_000_000
"""Batches of one call of `update_in_turn`."""
T = TypeVar("T")


class _Structure:
    """A tree structure, equal only to itself; `_shared` makes one per structure."""

    def __init__(self, treedef: Any):
        self.treedef = treedef


@lru_cache(maxsize=256)
def _shared(treedef: Any) -> _Structure:
    return _Structure(treedef)


@jax.tree_util.register_pytree_node_class
class Flat(Generic[T]):
    """A pytree as a list of leaves; `tree` puts it together again, inside or outside compiled functions.

    Equinox modules are flattened by Python code, field by field: for an agent, its parameters and its optimiser's state
    some 150 reads a call, which for a small network takes longer than the arithmetic. A `Flat` is flattened once;
    passing it hands JAX a list of arrays and a structure that is compared by identity.
    """

    __slots__ = ("leaves", "structure")

    def __init__(self, leaves: list[Any], structure: _Structure):
        """Use `Flat.of`."""
        self.leaves, self.structure = leaves, structure

    @staticmethod
    def of(tree: T) -> Flat[T]:
        """Flatten once."""
        leaves, treedef = jax.tree.flatten(tree)
        return Flat(leaves, _shared(treedef))

    def tree(self) -> T:
        """The pytree."""
        tree: T = jax.tree.unflatten(self.structure.treedef, self.leaves)
        return tree

    def tree_flatten(self) -> tuple[list[Any], _Structure]:
        """For JAX."""
        return self.leaves, self.structure

    @classmethod
    def tree_unflatten(cls, structure: _Structure, leaves: Any) -> Flat[Any]:
        """For JAX."""
        return cls(list(leaves), structure)


class Constants(eqx.Module):
    """What does not change during a run."""

    agent: Agent
    seed: jax.Array
    frames_per_step: int = eqx.field(static=True)
    layout: np.dtype[Any] | None = eqx.field(static=True)
    """Where the fields lie in the rows of a batch; None where batches are transitions."""


class Learner(NamedTuple):
    """A `LearnerState` in three parts, which calls need and consume apart."""

    params: Flat[Network]
    target_params: Flat[Network]
    opt_state: Flat[Any]

    @staticmethod
    def of(state: LearnerState) -> Learner:
        """The parts of a state."""
        return Learner(Flat.of(state.params), Flat.of(state.target_params), Flat.of(state.opt_state))

    def state(self) -> LearnerState:
        """All parameters and the optimiser's state."""
        return LearnerState(self.params.tree(), self.target_params.tree(), self.opt_state.tree())


class LearnNoise(eqx.Module):
    """The random numbers of updates along the leading axis."""

    criterion: Noise
    sample: jax.Array


@partial(jax.jit, static_argnums=(3, 4))
def draw_acts(agent: Agent, seed: jax.Array, t0: jax.Array, n_actions: int, length: int) -> Flat[ActNoise]:
    """The noise of the actions of ``length`` transitions from ``t0`` on."""
    draw = jax.vmap(lambda t: agent.draw_act(stream_key(seed, RandomStream.ACT, t), n_actions))
    return Flat.of(draw(t0 + jnp.arange(length, dtype=jnp.int32)))


@partial(jax.jit, static_argnums=(3,))
def draw_learns(agent: Agent, seed: jax.Array, t0: jax.Array, length: int) -> LearnNoise:
    """The noise of ``length`` steps with a round of learning each, update by update."""
    rounds = agent.learning.updates_per_round

    def draw(t: jax.Array) -> LearnNoise:
        def one(j: jax.Array) -> LearnNoise:
            def key(stream: RandomStream) -> jax.Array:
                first = stream_key(seed, stream, t)
                return first if rounds == 1 else jax.random.fold_in(first, j)

            return LearnNoise(
                agent.draw_learn(key(RandomStream.LEARN)),
                draw_sample(key(RandomStream.SAMPLE), agent.learning.batch_size),
            )

        return jax.vmap(one)(jnp.arange(rounds))

    drawn = jax.vmap(draw)(t0 + jnp.arange(length, dtype=jnp.int32))
    return jax.tree.map(lambda x: x.reshape(length * rounds, *x.shape[2:]), drawn)


@partial(jax.jit, static_argnums=(2, 3))
def init(agent: Agent, seed: jax.Array, obs_shape: tuple[int, ...], n_actions: int) -> LearnerState:
    """Initial parameters."""
    return agent.init(stream_key(seed, RandomStream.PARAMETERS), obs_shape, n_actions)


diagnose_learner = jax.jit(diagnose)
"""Diagnostics for the metrics."""


@partial(jax.jit, static_argnums=(2,))
def draw_diagnosis(seed: jax.Array, t: jax.Array, batch_size: int) -> jax.Array:
    """Random numbers to sample the batch of `diagnose_learner` by."""
    return draw_sample(stream_key(seed, RandomStream.DIAGNOSE, t), batch_size)


@jax.jit
def act(
    run: Flat[Constants],
    params: Flat[Network],
    actors: Flat[ActorState],
    obs: jax.Array,
    mask: jax.Array | None,
    noise: Flat[ActNoise],
    numbers: jax.Array,
) -> tuple[jax.Array, Flat[ActorState], Noise]:
    """Actions in n environments.

    ``numbers`` are the episodes so far, then per environment the row of the noise and the number of its transition.
    Returns ``[2, n]``, the actions and whether the mean agrees; the actor states; and the criterion's draws, if updates
    share them.
    """
    constants, network, block = run.tree(), params.tree(), noise.tree()
    agent, (episodes, (rows, steps)) = constants.agent, (numbers[0], numbers[1:].reshape(2, -1))

    def one(actor: ActorState, obs: jax.Array, mask: Any, row: jax.Array, t: jax.Array) -> Any:
        clock = agent.clock(t, episodes, frames_per_step=constants.frames_per_step)
        noise = jax.tree.map(lambda x: x[row], block)
        key = stream_key(constants.seed, RandomStream.PREDICT_TO_ACT, t) if agent.random_predictions else None
        action, actor, drawn, info = agent.act(network, actor, obs, mask, noise, clock, key)
        return jnp.stack([action, info.greedy.astype(action.dtype)]), actor, drawn if agent.share_noise else ()

    over = (0, 0, None if mask is None else 0, 0, 0)
    choices, after, drawn = jax.vmap(one, over, (1, 0, 0))(actors.tree(), obs, mask, rows, steps)
    return choices, Flat.of(after), drawn


@partial(jax.jit, donate_argnums=(1,))
def update(
    run: Flat[Constants], learner: Learner, batch: Transition | Rows, noise: Noise, numbers: jax.Array
) -> tuple[Learner, jax.Array | None]:
    """One update, which consumes the learner passed in. Where `updates_target_always`, the target is updated before.

    ``numbers`` are the row of the noise, the step, the updates and episodes so far, and which update of the round it
    is. Losses are for the priorities; without priorities they are not computed, because their value costs as much as
    their gradient.
    """
    constants, state = run.tree(), learner.state()
    if updates_target_always(constants.agent):
        state = update_target(constants.agent, state)
    drawn, clock, key = _of_update(constants, noise, numbers)
    state, info = learn(constants.agent, state, _transitions(batch, constants), drawn, clock, key)
    return Learner.of(state), info.losses if constants.agent.replay.prioritised else None


@partial(jax.jit, donate_argnums=(1,))
def update_in_turn(
    run: Flat[Constants], learner: Learner, batches: Transition | Rows, noise: Noise, numbers: jax.Array
) -> Learner:
    """Several updates one after another in one call: a scan over the leading axis of ``batches`` and ``numbers``."""
    constants = run.tree()

    def one(state: LearnerState, inputs: tuple[Transition | Rows, jax.Array]) -> tuple[LearnerState, None]:
        batch, numbers = inputs
        drawn, clock, key = _of_update(constants, noise, numbers)
        state, _ = learn(constants.agent, state, _transitions(batch, constants), drawn, clock, key)
        return state, None

    state, _ = jax.lax.scan(one, learner.state(), (batches, numbers))
    return Learner.of(state)


@partial(jax.jit, donate_argnums=(2,))
def move_target(run: Flat[Constants], params: Flat[Network], target_params: Flat[Network]) -> Flat[Network]:
    """The target parameters, updated."""
    state = LearnerState(params.tree(), target_params.tree(), ())
    return Flat.of(update_target(run.tree().agent, state).target_params)


@jax.jit
def compute_target(
    run: Flat[Constants],
    params: Flat[Network],
    target_params: Flat[Network],
    batch: Transition | Rows,
    noise: Noise,
    numbers: jax.Array,
) -> tuple[ReturnDist, jax.Array]:
    """The bootstrap target, and the share of changed selections.

    This and `regress_towards` are `update` in two parts, for asynchronous learning: the target does not need the newest
    parameters (unless the agent is double), so it can be computed while the update before still runs.
    """
    constants = run.tree()
    state = LearnerState(params.tree(), target_params.tree(), ())
    drawn, clock, key = _of_update(constants, noise, numbers)
    batch = _transitions(batch, constants)
    return bootstrap_target(constants.agent, state, batch, drawn, clock, split_key(key)[1])


@partial(jax.jit, donate_argnums=(2,))
def regress_towards(
    run: Flat[Constants],
    params_and_target: tuple[Flat[Network], Flat[Network]],
    opt_state: Flat[Any],
    batch: Transition | Rows,
    target: tuple[ReturnDist, jax.Array],
    numbers: jax.Array,
) -> tuple[Flat[Network], Flat[Any], jax.Array | None]:
    """A gradient step towards the target: parameters, optimiser's state, losses.

    Only the optimiser's state is consumed: acting may still need the parameters.
    """
    constants = run.tree()
    state = Learner(*params_and_target, opt_state).state()
    _, _, key = _of_update(constants, (), numbers)
    batch = _transitions(batch, constants)
    state, info = regress(constants.agent, state, batch, *target, split_key(key)[0])
    losses = info.losses if constants.agent.replay.prioritised else None
    return Flat.of(state.params), Flat.of(state.opt_state), losses


def updates_target_always(agent: Agent) -> bool:
    """Whether every update begins with an update of the target, which is then part of it.

    Otherwise it is a call of its own: a branch inside the update would copy all parameters at every one.
    """
    return agent.learning.target_update_interval == agent.learning.updates_per_round == 1 and not agent.async_learning


def _of_update(constants: Constants, noise: Noise, numbers: Any) -> tuple[Noise, Clock, jax.Array | None]:
    """The criterion's draws, the clock and the key of an update."""
    agent, (row, t, updates, episodes, number) = constants.agent, numbers
    key = None
    if agent.random_predictions:
        key = stream_key(constants.seed, RandomStream.PREDICT_TO_LEARN, t)
        key = key if agent.learning.updates_per_round == 1 else jax.random.fold_in(key, number)
    clock = agent.clock(t, episodes, updates, constants.frames_per_step)
    return jax.tree.map(lambda x: x[row], noise), clock, key


def _transitions(batch: Transition | Rows, constants: Constants) -> Transition:
    """A batch as learning takes it."""
    if not isinstance(batch, Rows):
        return batch
    assert constants.layout is not None, "rows need a layout"
    return unpack(batch, constants.layout)
