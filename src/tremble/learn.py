"""The one update: select with the criterion, evaluate with the unperturbed atoms, regress.

This is the perturbed Bellman operator of the paper, T_xi Z(s, a) = R + gamma Z(S', a*(xi)), for any criterion:

    a*_b    = argmax_a score(Z^-(s'_b, a), noise, clock)          selection, by the (random) criterion
    y_b     = r_b + discount_b * atoms of Z^-(s'_b, a*_b)         evaluation, all atoms from that one action
    loss    = mean_b w_b * loss(Z(s_b, a_b), y_b)
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from tremble.agent import Agent, LearnerState
from tremble.core import Clock, Enumerated, Noise, Transition, materialise, pick_rows, split_key
from tremble.dist import ReturnDist
from tremble.networks import Network
from tremble.representations.base import pick_action


class LearnInfo(eqx.Module):
    """Diagnostics of an update; XLA leaves out what the caller does not use."""

    loss: Float[Array, ""]
    losses: Float[Array, "batch"]
    """Unweighted loss per sample: the priorities of prioritised replay."""
    gradient_norm: Float[Array, ""]
    crossing_rate: Float[Array, ""]
    selection_changed: Float[Array, ""]
    """Share of bootstrap actions that differ from the greedy action of the mean."""
    metrics: dict[str, Float[Array, ""]]
    """The representation's own, averaged over the batch."""


def predict_taken(
    agent: Agent, params: Network, obs: Any, action: Int[Array, "batch"], key: PRNGKeyArray | None = None
) -> ReturnDist:
    """Distribution ``[batch, atoms]`` of the action taken at each observation."""
    query = agent.query("online", key)
    obs = materialise(obs) if agent.representation.random_levels else obs
    if not isinstance(obs, Enumerated):
        return agent.representation.predict_taken(params.head, params.features(obs), action, query)
    per_state = agent.predict(params, obs.table, query)
    n_states, n_actions, _ = per_state.atoms.shape
    flat: ReturnDist = jax.tree.map(lambda x: x.reshape(n_states * n_actions, -1), per_state)
    return pick_rows(flat, obs.index * n_actions + action)


def best_return(
    agent: Agent,
    state: LearnerState,
    obs: Shaped[Array, "batch *obs"],
    mask: Bool[Array, "batch actions"] | None,
    noise: Noise,
    clock: Clock,
    key: PRNGKeyArray | None = None,
) -> tuple[ReturnDist, Float[Array, "batch"]]:
    """Z^-(s, a*) per observation, and the share of draws in which the criterion's a* is not the mean's.

    ``noise`` has a leading axis of draws. Several draws are the expectation over xi in the paper's objective: their
    atoms ``[batch, draws * atoms]`` are concatenated, and the mean over target atoms is the mean over draws.
    Where predictions are random, the one that selects and the one that evaluates are independent.
    """
    evaluate_key, select_key = split_key(key)
    evaluator = agent.predict(state.target_params, obs, agent.query("target", evaluate_key))
    selector = evaluator
    if agent.double or agent.random_predictions:
        selecting = state.params if agent.double else state.target_params
        selector = agent.predict(selecting, obs, agent.query("choose", select_key))

    def best(scores: Float[Array, "batch actions"]) -> Int[Array, "batch"]:
        return jnp.argmax(scores if mask is None else jnp.where(mask, scores, -jnp.inf), -1)

    own = agent.representation.bootstrap(selector, evaluator, mask)
    if own is not None:
        future, taken = own
        return future, (taken != best(selector.mean())[:, None]).mean(-1)
    score = jax.vmap(agent.target_criterion.score, in_axes=(0, 0 if agent.noise_per_sample else None, None))
    actions = [
        best(score(selector, jax.tree.map(lambda x, k=k: x[k], noise), clock)) for k in range(agent.draws_per_update)
    ]
    changed = jnp.stack([a != best(selector.mean()) for a in actions]).mean(0)
    chosen = [pick_action(evaluator, a) for a in actions]
    atoms = jnp.concatenate([c.atoms for c in chosen], -1)
    if evaluator.equal_mass:
        return ReturnDist(atoms), changed
    return ReturnDist(atoms, jnp.concatenate([c.weights for c in chosen], -1) / len(chosen)), changed


def bootstrap_target(
    agent: Agent,
    state: LearnerState,
    batch: Transition,
    noise: Noise,
    clock: Clock,
    key: PRNGKeyArray | None = None,
) -> tuple[ReturnDist, Float[Array, ""]]:
    """r + discount * Z^-(s', a*), and the share of selections the criterion changed."""
    per_sample = agent.noise_per_sample or agent.representation.random_levels or batch.mask_t is not None
    obs = materialise(batch.obs_t) if per_sample else batch.obs_t
    if isinstance(obs, Enumerated):
        per_state, changed = best_return(agent, state, obs.table, None, noise, clock, key)
        future, changed = pick_rows(per_state, obs.index), changed[obs.index]
    else:
        future, changed = best_return(agent, state, obs, batch.mask_t, noise, clock, key)
    target = future.affine(batch.reward_t, batch.discount_t)
    return jax.lax.stop_gradient(target), changed.mean()


def learn(
    agent: Agent,
    state: LearnerState,
    batch: Transition,
    noise: Noise,
    clock: Clock,
    key: PRNGKeyArray | None = None,
) -> tuple[LearnerState, LearnInfo]:
    """One gradient step; ``key`` randomises predictions of agents that have random ones, online and target apart."""
    online_key, target_key = split_key(key)
    target, changed = bootstrap_target(agent, state, batch, noise, clock, target_key)
    return regress(agent, state, batch, target, changed, online_key)


def regress(
    agent: Agent,
    state: LearnerState,
    batch: Transition,
    target: ReturnDist,
    changed: Float[Array, ""],
    key: PRNGKeyArray | None = None,
) -> tuple[LearnerState, LearnInfo]:
    """A gradient step towards the target; ``changed`` goes into the diagnostics."""

    def objective(params: Network) -> tuple[Float[Array, ""], tuple[Float[Array, "batch"], ReturnDist]]:
        """mean_b w_b loss_b + auxiliary_b; and the losses and predictions it is made of."""
        predicted = predict_taken(agent, params, batch.obs_tm1, batch.action_tm1, key)
        losses = agent.representation.loss(predicted, target, batch.extra)
        shown = batch._replace(obs_tm1=materialise(batch.obs_tm1), obs_t=materialise(batch.obs_t))
        query = agent.query("online", key)
        auxiliary = agent.representation.auxiliary_loss(params, state.target_params, shown, predicted, query)
        assert batch.weight is not None, "samplers set the weight"
        return (batch.weight * losses).mean() + auxiliary.mean(), (losses, predicted)

    (loss, (losses, predicted)), gradient = jax.value_and_grad(objective, has_aux=True)(state.params)
    updates, opt_state = agent.transform().update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = jax.tree.map(jnp.mean, agent.representation.metrics(predicted, target))
    norm = optax.tree.norm(gradient)
    info = LearnInfo(loss, losses, norm, predicted.crossing_rate().mean(), changed, metrics)
    return LearnerState(params, state.target_params, opt_state), info


def update_target(agent: Agent, state: LearnerState) -> LearnerState:
    """theta^- <- tau theta + (1 - tau) theta^-; tau = 1 copies."""
    moved = optax.incremental_update(state.params, state.target_params, agent.target_tau)
    return LearnerState(state.params, moved, state.opt_state)
