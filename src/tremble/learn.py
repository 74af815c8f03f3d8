"""The one update: select with the criterion, evaluate with the unperturbed atoms, regress.

This is the perturbed Bellman operator of the paper, T_xi Z(s, a) = R + gamma Z(S', a*(xi)), for any criterion:

    a*_b    = argmax_a score(Z^-(s'_b, a), noise, clock)          selection, by the (random) criterion
    y_b     = r_b + discount_b * atoms of Z^-(s'_b, a*_b)         evaluation, all atoms from that one action
    loss    = mean_b w_b * divergence(Z(s_b, a_b), y_b)
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from tremble.agent import Agent, LearnerState
from tremble.core import Clock, Enumerated, Noise, Transition, Use
from tremble.dist import ReturnDist
from tremble.networks import Answered, Plain


class LearnInfo(eqx.Module):
    """What an update reports; whatever the caller does not use is never computed."""

    loss: Float[Array, ""]
    losses: Float[Array, "batch"]
    """Unweighted loss per sample: what prioritised replay would rank by."""
    gradient_norm: Float[Array, ""]
    crossing_rate: Float[Array, ""]
    selection_changed: Float[Array, ""]
    """Share of bootstrap actions that differ from the greedy action of the mean."""
    reported: dict[str, Float[Array, ""]]
    """What the representation has to say about its predictions and targets."""


def predict_each(
    agent: Agent,
    params: PyTree,
    obs: Shaped[Array, "batch *obs"],
    use: Use = "choose",
    key: PRNGKeyArray | None = None,
) -> ReturnDist:
    """Predicted distributions ``[batch, actions, atoms]``; with a key, each has levels of its own."""
    if key is None:
        return jax.vmap(lambda o: agent.predict(params, o, use))(obs)
    return jax.vmap(lambda o, i: agent.predict(params, o, use, key, i))(obs, jnp.arange(obs.shape[0]))


def pick_rows(dist: ReturnDist, row: Int[Array, "batch"]) -> ReturnDist:
    """``[rows, atoms] -> [batch, atoms]``, by a product with a one-hot matrix.

    Exact, and its gradient is a matrix product too, where that of an indexed read would be a slow scatter.
    """
    pick = jax.nn.one_hot(row, dist.atoms.shape[0], dtype=dist.atoms.dtype)
    return dist.select(lambda x: jnp.matmul(pick, x, precision=jax.lax.Precision.HIGHEST))


def pick_action(dist: ReturnDist, action: Int[Array, "batch"]) -> ReturnDist:
    """``[batch, actions, atoms] -> [batch, atoms]``: all atoms come from the one action.

    An indexed read on purpose. By a product with a mask, XLA fuses the loss's gradient into the product and computes it
    once per *action*.
    """
    return dist.select(lambda x: jnp.take_along_axis(x, action[:, None, None], 1)[:, 0])


def as_seen(agent: Agent, obs: Any) -> Any:
    """Observations as the agent's predictions want them: one by one where every sample has levels of its own."""
    return obs.materialise() if isinstance(obs, Enumerated) and agent.random_levels else obs


def predict_taken(
    agent: Agent, params: PyTree, obs: Any, action: Int[Array, "batch"], key: PRNGKeyArray | None = None
) -> ReturnDist:
    """Distribution ``[batch, atoms]`` of the action taken at each observation."""
    obs = as_seen(agent, obs)
    if not isinstance(obs, Enumerated):
        if key is None and isinstance(params.head, Plain) and getattr(agent.representation, "actions_apart", False):
            features = jax.vmap(params.torso)(obs)
            outputs = params.head.answers(features, action)
            if outputs is not None:
                answer = jax.vmap(lambda f, x: agent.representation.predict(Answered(x), f, "online", None, None))
                return answer(features, outputs[:, None]).select(lambda x: x[:, 0])
        return pick_action(predict_each(agent, params, obs, "online", key), action)
    per_state = predict_each(agent, params, obs.table, "online", key)
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
    atoms ``[batch, draws * atoms]`` stand side by side, and the mean over target atoms is the mean over draws.
    Where predictions are random, the one that selects and the one that evaluates are independent.
    A representation with a ``bootstrap`` of its own decides itself which return follows.
    """
    evaluate_key, select_key = (None, None) if key is None else jax.random.split(key)
    evaluator = predict_each(agent, state.target_params, obs, "target", evaluate_key)
    if agent.double:
        selector = predict_each(agent, state.params, obs, "choose", select_key)
    elif agent.random_predictions:
        selector = predict_each(agent, state.target_params, obs, "choose", select_key)
    else:
        selector = evaluator

    def best(scores: Float[Array, "batch actions"]) -> Int[Array, "batch"]:
        return jnp.argmax(scores if mask is None else jnp.where(mask, scores, -jnp.inf), -1)

    own: Any = agent.representation
    if hasattr(own, "bootstrap"):
        future, taken = jax.vmap(own.bootstrap, in_axes=(0, 0, None if mask is None else 0))(selector, evaluator, mask)
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
    obs = as_seen(agent, batch.obs_t)
    if isinstance(obs, Enumerated) and (agent.noise_per_sample or batch.mask_t is not None):
        obs = obs.materialise()
    if isinstance(obs, Enumerated):
        per_state, changed = best_return(agent, state, obs.table, None, noise, clock, key)
        future, changed = pick_rows(per_state, obs.index), changed[obs.index]
    else:
        future, changed = best_return(agent, state, obs, batch.mask_t, noise, clock, key)
    target = future.affine(batch.reward_t, batch.discount_t)
    return jax.lax.stop_gradient(target), changed.mean()


def batch_losses(
    agent: Agent, params: PyTree, batch: Transition, target: ReturnDist, key: PRNGKeyArray | None = None
) -> tuple[Float[Array, "batch"], ReturnDist]:
    """Divergence of each sample, and the predictions they are about."""
    predicted = predict_taken(agent, params, batch.obs_tm1, batch.action_tm1, key)
    masked = getattr(agent.representation, "masked_divergence", None)
    if masked is not None and batch.extra is not None:
        return jax.vmap(masked)(predicted, target, batch.extra), predicted
    return jax.vmap(agent.representation.divergence)(predicted, target), predicted


def auxiliary_loss(agent: Agent, params: PyTree, target_params: PyTree, batch: Transition) -> Float[Array, ""]:
    """The batch mean of what the representation learns besides its divergence; most learn nothing."""
    auxiliary = getattr(agent.representation, "auxiliary", None)
    if auxiliary is None:
        return jnp.zeros(())
    obs = tuple(x.materialise() if isinstance(x, Enumerated) else x for x in (batch.obs_tm1, batch.obs_t))
    shown = batch._replace(obs_tm1=obs[0], obs_t=obs[1])
    return jax.vmap(lambda transition: auxiliary(params, target_params, transition))(shown).mean()


def learn(
    agent: Agent,
    state: LearnerState,
    batch: Transition,
    noise: Noise,
    clock: Clock,
    key: PRNGKeyArray | None = None,
) -> tuple[LearnerState, LearnInfo]:
    """One gradient step; ``key`` randomises predictions of agents that have random ones."""
    online_key, target_key = keys_of(key)
    target, changed = bootstrap_target(agent, state, batch, noise, clock, target_key)
    return regress(agent, state, batch, target, changed, online_key)


def keys_of(key: PRNGKeyArray | None) -> tuple[PRNGKeyArray | None, PRNGKeyArray | None]:
    """The keys of an update's two parts: of the trained prediction, and of what it is trained towards."""
    if key is None:
        return None, None
    online, target = jax.random.split(key)
    return online, target


def regress(
    agent: Agent,
    state: LearnerState,
    batch: Transition,
    target: ReturnDist,
    changed: Float[Array, ""],
    key: PRNGKeyArray | None = None,
) -> tuple[LearnerState, LearnInfo]:
    """A gradient step towards the target; ``changed`` is passed on."""

    def objective(params: PyTree) -> tuple[Float[Array, ""], tuple[Float[Array, "batch"], ReturnDist]]:
        losses, predicted = batch_losses(agent, params, batch, target, key)
        assert batch.weight is not None, "samplers set the weight"
        further = auxiliary_loss(agent, params, state.target_params, batch)
        return (batch.weight * losses).mean() + further, (losses, predicted)

    (loss, (losses, predicted)), gradient = jax.value_and_grad(objective, has_aux=True)(state.params)
    updates, opt_state = agent.transform().update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    report = getattr(agent.representation, "report", None)
    reported = {} if report is None else jax.tree.map(jnp.mean, jax.vmap(report)(predicted, target))
    norm = optax.tree.norm(gradient)
    info = LearnInfo(loss, losses, norm, predicted.crossing_rate().mean(), changed, reported)
    return LearnerState(params, state.target_params, opt_state), info


def refresh_target(agent: Agent, state: LearnerState) -> LearnerState:
    """Move the delayed copy towards the parameters: theta^- <- tau theta + (1 - tau) theta^-; tau = 1 copies."""
    moved = optax.incremental_update(state.params, state.target_params, agent.target_tau)
    return LearnerState(state.params, moved, state.opt_state)
