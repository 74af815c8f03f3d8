"""What the host loop calls compiled, on plain lists of arrays.

Equinox modules are taken apart and put together by Python code, field by field. For an agent, its parameters and their
optimiser that is some 150 reads a call, which beside a small network takes longer than the arithmetic; lists are taken
apart by JAX itself. So a run keeps its learner and actors as leaves, and tells their structures once. For the same
reason whole numbers travel together in one array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tremble.agent import ActNoise, ActorState, Agent, LearnerState
from tremble.core import Clock, Noise, RandomStream, Transition, stream_key
from tremble.dist import ReturnDist
from tremble.learn import bootstrap_target, learn, regress, split_key, update_target
from tremble.replay import Rows, draw_sample, unpack
from tremble.training.diagnosis import Diagnosis, diagnose

BLOCK = 256
"""Steps whose random numbers are drawn in one call."""
Leaves = list[jax.Array]


class LearnNoise(eqx.Module):
    """The random numbers of updates, one after another along the leading axis."""

    criterion: Noise
    sample: jax.Array


@partial(jax.jit, static_argnums=(3,))
def draw_acts(agent: Agent, seed: jax.Array, t0: jax.Array, n_actions: int) -> Leaves:
    """Numbers for the actions of `BLOCK` transitions from ``t0`` on: leaves of an `ActNoise`."""
    draw = jax.vmap(lambda t: jax.tree.leaves(agent.draw_act(stream_key(seed, RandomStream.ACT, t), n_actions)))
    return draw(t0 + jnp.arange(BLOCK, dtype=jnp.int32))


@partial(jax.jit, static_argnums=(3,))
def draw_learns(agent: Agent, seed: jax.Array, t0: jax.Array, length: int) -> LearnNoise:
    """Numbers for ``length`` steps with a round of learning each; a round has its updates in a row."""
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
    """Fresh parameters."""
    return agent.init(stream_key(seed, RandomStream.PARAMETERS), obs_shape, n_actions)


@jax.jit
def look(agent: Agent, learner: LearnerState, seed: Any, obs: Any, batch: Any, clock: Clock) -> Diagnosis:
    """A look inside, for the metrics."""
    return diagnose(agent, learner, seed, obs, batch, clock)


class Calls(NamedTuple):
    """The calls of every step; agent, parameters, learner and actors are leaves of the structures they are made for."""

    act: Callable[..., tuple[jax.Array, Leaves, Noise]]
    """(agent, params, actors, obs[n], mask[n], noise block, numbers, seed) -> choices[2, n], actors, drawn.

    ``numbers`` are the episodes so far, then per environment the row of the block and the number of its transition.
    ``choices`` are the actions, and whether the mean agrees; ``drawn`` is what the criterion drew, if updates share it.
    """
    update: Callable[..., tuple[Leaves, jax.Array | None]]
    """(agent, learner, batch, noise block, numbers, seed, layout) -> learner, losses.

    The learner passed in is consumed. ``batch`` is a `Transition`, or `Rows` of the static ``layout``.
    ``numbers`` are the row of the block, the step, the updates and episodes so far, and which update of the round it
    is. Where `always_fresh`, the target is refreshed before. Losses are for the priorities; where there are none they
    are not computed, for their value costs as much as their gradient.
    """
    refresh: Callable[[Leaves, Leaves, Leaves], Leaves]
    """(agent, params, target params) -> target params, refreshed."""
    aim: Callable[..., tuple[ReturnDist, jax.Array]]
    """(agent, params, target params, batch, noise block, numbers, seed, layout) -> target, share of changed selections.

    `aim` and `regress` are `update` in two parts, for acting and learning at a time: the first does not need the newest
    parameters (except where the agent is double), so it can run while the update before is still at work.
    """
    regress: Callable[..., tuple[Leaves, Leaves, jax.Array | None]]
    """(agent, params, target params, optimiser, batch, target, changed, numbers, seed, layout) -> params, optimiser,
    losses. Only the optimiser's state is consumed: acting may still need the parameters.
    """


def always_fresh(agent: Agent) -> bool:
    """Whether every update begins with a refresh of the target that is part of it.

    Otherwise it is a call of its own: a branch inside the update would copy all parameters at every one.
    """
    return agent.learning.target_update_interval == agent.learning.updates_per_round == 1 and not agent.async_learning


@lru_cache(maxsize=64)
def calls_for(
    agent_structure: Any, learner_structure: Any, actors_structure: Any, noise_structure: Any, frames_per_step: int = 1
) -> Calls:
    """The calls for agents, learners, actors and their noise of one structure; compiled once in a process."""
    network_structure = _params_structure(learner_structure)

    def without_optimiser(params: Leaves, target_params: Leaves) -> LearnerState:
        online, target = (jax.tree.unflatten(network_structure, x) for x in (params, target_params))
        return LearnerState(online, target, ())

    def act(agent: Leaves, params: Leaves, actors: Leaves, obs, mask, block: Leaves, numbers, seed):  # type: ignore[no-untyped-def]
        made: Agent = jax.tree.unflatten(agent_structure, agent)
        network = jax.tree.unflatten(network_structure, params)
        episodes, (rows, steps) = numbers[0], numbers[1:].reshape(2, -1)

        def one(actor: ActorState, obs: jax.Array, mask: Any, row: jax.Array, t: jax.Array) -> Any:
            clock = made.clock(t, episodes, frames_per_step=frames_per_step)
            noise: ActNoise = jax.tree.unflatten(noise_structure, [x[row] for x in block])
            key = stream_key(seed, RandomStream.PREDICT_TO_ACT, t) if made.random_predictions else None
            action, actor, drawn, info = made.act(network, actor, obs, mask, noise, clock, key)
            return jnp.stack([action, info.greedy.astype(action.dtype)]), actor, drawn if made.share_noise else ()

        over = (0, 0, None if mask is None else 0, 0, 0)
        before = jax.tree.unflatten(actors_structure, actors)
        choices, after, drawn = jax.vmap(one, over, (1, 0, 0))(before, obs, mask, rows, steps)
        return choices, jax.tree.leaves(after), drawn

    def update(  # type: ignore[no-untyped-def]
        agent: Leaves, learner: Leaves, batch: Transition | Rows, block, numbers, seed, layout: np.dtype[Any] | None
    ):
        made: Agent = jax.tree.unflatten(agent_structure, agent)
        state: LearnerState = jax.tree.unflatten(learner_structure, learner)
        if always_fresh(made):
            state = update_target(made, state)
        noise, clock, key = _of_update(made, block, numbers, seed, frames_per_step)
        state, info = learn(made, state, _unpacked(batch, layout), noise, clock, key)
        return jax.tree.leaves(state), info.losses if made.replay.prioritised else None

    def aim(agent: Leaves, params: Leaves, target_params: Leaves, batch, block, numbers, seed, layout):  # type: ignore[no-untyped-def]
        made: Agent = jax.tree.unflatten(agent_structure, agent)
        state = without_optimiser(params, target_params)
        noise, clock, key = _of_update(made, block, numbers, seed, frames_per_step)
        return bootstrap_target(made, state, _unpacked(batch, layout), noise, clock, split_key(key)[1])

    def regress_alone(  # type: ignore[no-untyped-def]
        agent: Leaves,
        params: Leaves,
        target_params: Leaves,
        optimiser: Leaves,
        batch,
        target,
        changed,
        numbers,
        seed,
        layout,
    ):
        made: Agent = jax.tree.unflatten(agent_structure, agent)
        state: LearnerState = jax.tree.unflatten(learner_structure, [*params, *target_params, *optimiser])
        _, _, key = _of_update(made, [], numbers, seed, frames_per_step)
        state, info = regress(made, state, _unpacked(batch, layout), target, changed, split_key(key)[0])
        return (
            jax.tree.leaves(state.params),
            jax.tree.leaves(state.opt_state),
            info.losses if made.replay.prioritised else None,
        )

    def refresh(agent: Leaves, params: Leaves, target_params: Leaves) -> Leaves:
        made: Agent = jax.tree.unflatten(agent_structure, agent)
        return jax.tree.leaves(update_target(made, without_optimiser(params, target_params)).target_params)

    return Calls(
        jax.jit(act),
        jax.jit(update, donate_argnums=(1,), static_argnums=(6,)),
        jax.jit(refresh, donate_argnums=(2,)),
        jax.jit(aim, static_argnums=(7,)),
        jax.jit(regress_alone, donate_argnums=(3,), static_argnums=(9,)),
    )


def _of_update(
    agent: Agent, block: Noise, numbers: Any, seed: jax.Array, frames_per_step: int
) -> tuple[Noise, Clock, jax.Array | None]:
    """The criterion's draws, the clock and the key of an update."""
    row, t, updates, episodes, number = numbers
    key = None
    if agent.random_predictions:
        key = stream_key(seed, RandomStream.PREDICT_TO_LEARN, t)
        key = key if agent.learning.updates_per_round == 1 else jax.random.fold_in(key, number)
    return jax.tree.map(lambda x: x[row], block), agent.clock(t, episodes, updates, frames_per_step), key


def _unpacked(batch: Transition | Rows, layout: np.dtype[Any] | None) -> Transition:
    """A batch as learning wants it."""
    if not isinstance(batch, Rows):
        return batch
    assert layout is not None, "rows need a layout"
    return unpack(batch, layout)


def _params_structure(learner_structure: Any) -> Any:
    """That of the online parameters, which come first."""
    dummy: LearnerState = jax.tree.unflatten(learner_structure, [0] * learner_structure.num_leaves)
    return jax.tree.structure(dummy.params)
