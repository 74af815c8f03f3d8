"""Training inside XLA, for environments written in JAX.

A run is a sequence of compiled chunks, each a scan over environment steps; between chunks its state is an ordinary
pytree on the host, which can be shown, saved and continued. All randomness is a function of (seed, stream, step), so
neither the chunk length nor an interruption changes a number.

The order within step t: act; step the environment; learn from the transitions before t. Transition t becomes available
to the update of step t + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from tremble.agent import ActorState, Agent, LearnerState
from tremble.core import Enumerated, JaxEnv, RandomStream, Transition, stream_key
from tremble.learn import learn, update_target
from tremble.replay import Replay, draw_sample

T = TypeVar("T")


class TrainState(eqx.Module):
    """Everything a run needs to go on, besides its seed, its settings and the number of steps made."""

    learner: LearnerState
    replay: Replay
    env_state: PyTree
    actor: ActorState
    episodes: Int[Array, "*batch"]


class StepLog(eqx.Module):
    """What happened at each step; kept where the environment lists its observations (`xla_loop.Record`)."""

    state_index: Int[Array, "*steps"]
    """Row of the observation table before the step (-1 where the environment has no table)."""
    action: Int[Array, "*steps"]
    reward: Float[Array, "*steps"]
    done: Int[Array, "*steps"]
    """0 within an episode, 1 terminated, 2 truncated."""
    optimal: Bool[Array, "*steps"]
    """Whether the environment counts the action as optimal; false where it cannot tell (`core.knows_optimal`)."""
    greedy: Bool[Array, "*steps"]
    """Whether the criterion agreed with the mean about the best action."""


def observation(env: JaxEnv, env_state: PyTree) -> Any:
    """What replay stores of a state: the row number where observations are listed, else the observation."""
    return env.observe(env_state) if env.observation_table is None else env.index(env_state)


def as_batch(env: JaxEnv, sampled: Transition) -> Transition:
    """A batch from replay with its row numbers turned into `Enumerated` observations."""
    table = env.observation_table
    if table is None:
        return sampled
    return eqx.tree_at(
        lambda b: (b.obs_tm1, b.obs_t),
        sampled,
        (Enumerated(table, sampled.obs_tm1), Enumerated(table, sampled.obs_t)),
    )


def init(agent: Agent, env: JaxEnv, seed: Int[Array, ""], capacity: int) -> TrainState:
    """State before the first step."""
    env_state = env.reset(stream_key(seed, RandomStream.RESET))
    obs_shape = env.observe(env_state).shape
    return TrainState(
        agent.init(stream_key(seed, RandomStream.PARAMETERS), obs_shape, env.n_actions),
        init_replay(agent, env, env_state, capacity),
        env_state,
        agent.init_actor(env.n_actions),
        jnp.zeros((), jnp.int32),
    )


def init_replay(agent: Agent, env: JaxEnv, env_state: PyTree, capacity: int) -> Replay:
    """An empty memory for the transitions of this environment."""
    stored, zero = observation(env, env_state), jnp.zeros((), jnp.float32)
    extra = agent.init_actor(env.n_actions).extra
    return Replay.init(capacity, Transition(stored, jnp.zeros((), jnp.int32), zero, zero, stored, extra=extra))


def run_chunk(
    agent: Agent,
    env: JaxEnv,
    seed: Int[Array, ""],
    state: TrainState,
    t0: Int[Array, ""],
    length: int,
    learning: bool,
) -> tuple[TrainState, StepLog]:
    """Steps ``t0 .. t0 + length - 1``, all of them before learning starts or all of them after."""
    steps = t0 + jnp.arange(length, dtype=jnp.int32)
    # Drawn in bulk, outside the scan: inside it, sampling the perturbation would take a third of a step.
    act_noise = jax.vmap(lambda t: agent.draw_act(stream_key(seed, RandomStream.ACT, t), env.n_actions))(steps)
    learn_noise = jax.vmap(lambda t: agent.draw_learn(stream_key(seed, RandomStream.LEARN, t)))(steps)
    env_noise = jax.vmap(lambda t: env.draw(stream_key(seed, RandomStream.STEP, t)))(steps)
    batch_size = agent.learning.batch_size
    sample_noise = jax.vmap(lambda t: draw_sample(stream_key(seed, RandomStream.SAMPLE, t), batch_size))(steps)
    reset_keys = jax.vmap(lambda t: stream_key(seed, RandomStream.RESET, t + 1))(steps)

    def step(state: TrainState, inputs: Any) -> tuple[TrainState, StepLog]:
        t, act_noise, learn_noise, env_noise, sample_noise, reset_key = inputs
        clock = agent.clock(t, state.episodes)

        obs = env.observe(state.env_state)
        act_key, learn_key = (
            stream_key(seed, stream, t) if agent.random_predictions else None
            for stream in (RandomStream.PREDICT_TO_ACT, RandomStream.PREDICT_TO_LEARN)
        )
        action, actor, drawn, act_info = agent.act(
            state.learner.params, state.actor, obs, None, act_noise, clock, act_key
        )
        next_env_state, reward, terminated, truncated = env.step(state.env_state, action, env_noise)

        transition = Transition(
            observation(env, state.env_state),
            action,
            reward,
            agent.gamma * (1.0 - terminated),
            observation(env, next_env_state),
            extra=actor.extra,
        )
        replay = state.replay.insert(t, transition)

        learner = state.learner
        if learning:
            # Read behind a branch: otherwise XLA fuses the write above into every read, and copies the whole memory.
            sampled = jax.lax.cond(
                agent.learning.learns_at(t),
                lambda r: r.sample(sample_noise, t),
                lambda r: jax.tree.map(jnp.zeros_like, jax.eval_shape(r.sample, sample_noise, t)),
                replay,
            )
            batch = as_batch(env, sampled)
            noise = jax.tree.map(lambda x: x[None], drawn) if agent.share_noise else learn_noise
            learner = _when(agent.learning.updates_target_at(t), partial(update_target, agent), learner)
            learner = _when(
                agent.learning.learns_at(t),
                lambda s: learn(agent, s, batch, noise, clock, learn_key)[0],
                learner,
                always=agent.learning.update_interval == 1,
            )

        done = terminated | truncated
        env_state = jax.tree.map(lambda new, old: jnp.where(done, new, old), env.reset(reset_key), next_env_state)
        optimal = env.is_optimal(state.env_state, action)
        log = StepLog(
            jnp.asarray(-1, jnp.int32) if env.observation_table is None else env.index(state.env_state),
            action.astype(jnp.int8),
            reward.astype(jnp.float32),
            (terminated + 2 * truncated).astype(jnp.int8),
            jnp.asarray(False) if optimal is None else optimal,
            act_info.greedy,
        )
        actor = eqx.tree_at(lambda a: a.episode_start, actor, done)
        new = TrainState(learner, replay, env_state, actor, state.episodes + done)
        return new, log

    return jax.lax.scan(step, state, (steps, act_noise, learn_noise, env_noise, sample_noise, reset_keys))


def _when(
    condition: Bool[Array, ""],
    change: Callable[[LearnerState], LearnerState],
    state: LearnerState,
    always: bool = False,
) -> LearnerState:
    """Apply a change if the condition holds; ``always`` says at compile time that it does."""
    return change(state) if always else jax.lax.cond(condition, change, lambda s: s, state)


@partial(jax.jit, static_argnums=(3,))
def jit_init(agent: Agent, env: JaxEnv, seed: Int[Array, "*runs"], capacity: int) -> TrainState:
    """`init`, compiled; `over_runs` with a vector of seeds."""
    return over_runs(seed, lambda a, e, s: init(a, e, s, capacity))(agent, env, seed)


@partial(jax.jit, static_argnums=(5, 6), donate_argnums=(3,))
def jit_chunk(
    agent: Agent,
    env: JaxEnv,
    seed: Int[Array, "*runs"],
    state: TrainState,
    t0: Int[Array, ""],
    length: int,
    learning: bool,
) -> tuple[TrainState, StepLog]:
    """`run_chunk`, compiled; `over_runs` with a vector of seeds. The state passed in is consumed."""
    function = over_runs(seed, lambda a, e, s, x: run_chunk(a, e, s, x, t0, length, learning))
    return function(agent, env, seed, state)


def over_runs(seed: Int[Array, "*runs"], function: Callable[..., T]) -> Callable[..., T]:
    """The function for one run; with a vector of seeds, for as many stacked runs, in step with one another.

    Of stacked runs every traced field of agent, environment and state has a leading axis.
    """
    return jax.vmap(function) if seed.ndim else function
