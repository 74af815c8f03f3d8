"""The one update: select with the criterion, evaluate with the unperturbed atoms, regress.

This is the perturbed Bellman operator of the paper, T_xi Z(s, a) = R + gamma Z(S', a*(xi)), for any criterion:

    a*_b    = argmax_a score(Z^-(s'_b, a), noise, clock)          selection, by the (random) criterion
    y_b     = r_b + discount_b * atoms of Z^-(s'_b, a*_b)         evaluation, all atoms from that one action
    loss    = mean_b w_b * divergence(Z(s_b, a_b), y_b)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from tremble.core import Clock, Enumerated, Noise, Scalar, Transition
from tremble.dist import ReturnDist

if TYPE_CHECKING:
    from tremble.agent import Agent


class Adam(eqx.Module):
    """Adam as the published agents use it: epsilon 0.01 / batch size by default in the presets."""

    learning_rate: Scalar = 5e-5
    adam_epsilon: Scalar = 1e-8
    max_grad_norm: float | None = eqx.field(static=True, default=None)
    """Clip the gradient's global norm to this; None does not."""
    decay_updates: int = eqx.field(static=True, default=0)
    """Lower the learning rate in a straight line to zero over so many updates; 0 keeps it."""

    def transform(self) -> optax.GradientTransformation:
        """The optax optimiser; its hyperparameters may be traced."""
        rate = self.learning_rate
        if self.decay_updates:
            rate = optax.linear_schedule(self.learning_rate, 0.0, self.decay_updates)
        adam = optax.adam(rate, eps=self.adam_epsilon)
        if self.max_grad_norm is None:
            return adam
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), adam)


class LearnerState(eqx.Module):
    """Parameters, their delayed copy, and the optimiser's moments."""

    params: PyTree
    target_params: PyTree
    opt_state: PyTree


class LearnInfo(eqx.Module):
    """What an update reports; whatever the caller does not use is never computed."""

    loss: Float[Array, ""]
    losses: Float[Array, "batch"]
    """Unweighted loss per sample: what prioritised replay would rank by."""
    gradient_norm: Float[Array, ""]
    crossing_rate: Float[Array, ""]
    selection_changed: Float[Array, ""]
    """Share of bootstrap actions that differ from the greedy action of the mean."""


def predict_each(agent: Agent, params: PyTree, obs: Float[Array, "batch *obs"]) -> ReturnDist:
    """Predicted distributions ``[batch, actions, atoms]``."""
    return jax.vmap(lambda o: agent.predict(params, o))(obs)


def pick_rows(dist: ReturnDist, row: Int[Array, "batch"]) -> ReturnDist:
    """``[rows, atoms] -> [batch, atoms]``, by a product with a one-hot matrix.

    Exact, and its gradient is a matrix product too, where that of an indexed read would be a slow scatter.
    """
    pick = jax.nn.one_hot(row, dist.atoms.shape[0], dtype=dist.atoms.dtype)
    exact = jax.lax.Precision.HIGHEST
    atoms = jnp.matmul(pick, dist.atoms, precision=exact)
    if dist.equal_mass:
        return ReturnDist(atoms)
    return ReturnDist(atoms, jnp.matmul(pick, dist.weights, precision=exact))


def pick_action(dist: ReturnDist, action: Int[Array, "batch"]) -> ReturnDist:
    """``[batch, actions, atoms] -> [batch, atoms]``: all atoms come from the one action."""
    mask = jax.nn.one_hot(action, dist.atoms.shape[1], dtype=dist.atoms.dtype)[:, :, None]
    atoms = (dist.atoms * mask).sum(1)
    return ReturnDist(atoms) if dist.equal_mass else ReturnDist(atoms, (dist.weights * mask).sum(1))


def predict_taken(agent: Agent, params: PyTree, obs: Any, action: Int[Array, "batch"]) -> ReturnDist:
    """Distribution ``[batch, atoms]`` of the action taken at each observation."""
    if not isinstance(obs, Enumerated):
        return pick_action(predict_each(agent, params, obs), action)
    per_state = predict_each(agent, params, obs.table)
    n_states, n_actions, _ = per_state.atoms.shape
    flat: ReturnDist = jax.tree.map(lambda x: x.reshape(n_states * n_actions, -1), per_state)
    return pick_rows(flat, obs.index * n_actions + action)


def best_return(
    agent: Agent,
    state: LearnerState,
    obs: Float[Array, "batch *obs"],
    mask: Bool[Array, "batch actions"] | None,
    noise: Noise,
    clock: Clock,
) -> tuple[ReturnDist, Float[Array, "batch"]]:
    """Z^-(s, a*) per observation, and the share of draws in which the criterion's a* is not the mean's.

    ``noise`` has a leading axis of draws. Several draws are the expectation over xi in the paper's objective: their
    atoms ``[batch, draws * atoms]`` stand side by side, and the mean over target atoms is the mean over draws.
    """
    evaluator = predict_each(agent, state.target_params, obs)
    selector = predict_each(agent, state.params, obs) if agent.double else evaluator
    score = jax.vmap(agent.target_criterion.score, in_axes=(0, 0 if agent.noise_per_sample else None, None))

    def best(scores: Float[Array, "batch actions"]) -> Int[Array, "batch"]:
        return jnp.argmax(scores if mask is None else jnp.where(mask, scores, -jnp.inf), -1)

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
    agent: Agent, state: LearnerState, batch: Transition, noise: Noise, clock: Clock
) -> tuple[ReturnDist, Float[Array, ""]]:
    """r + discount * Z^-(s', a*), and the share of selections the criterion changed."""
    obs = batch.obs_t
    if isinstance(obs, Enumerated) and (agent.noise_per_sample or batch.mask_t is not None):
        obs = obs.materialise()
    if isinstance(obs, Enumerated):
        per_state, changed = best_return(agent, state, obs.table, None, noise, clock)
        future, changed = pick_rows(per_state, obs.index), changed[obs.index]
    else:
        future, changed = best_return(agent, state, obs, batch.mask_t, noise, clock)
    target = future.affine(batch.reward_t, batch.discount_t)
    return jax.lax.stop_gradient(target), changed.mean()


def batch_losses(
    agent: Agent, params: PyTree, batch: Transition, target: ReturnDist
) -> tuple[Float[Array, "batch"], ReturnDist]:
    """Divergence of each sample, and the predictions they are about."""
    predicted = predict_taken(agent, params, batch.obs_tm1, batch.action_tm1)
    return jax.vmap(agent.representation.divergence)(predicted, target), predicted


def learn(
    agent: Agent, state: LearnerState, batch: Transition, noise: Noise, clock: Clock
) -> tuple[LearnerState, LearnInfo]:
    """One gradient step."""
    target, changed = bootstrap_target(agent, state, batch, noise, clock)

    def objective(params: PyTree) -> tuple[Float[Array, ""], tuple[Float[Array, "batch"], ReturnDist]]:
        losses, predicted = batch_losses(agent, params, batch, target)
        assert batch.weight is not None, "samplers set the weight"
        return (batch.weight * losses).mean(), (losses, predicted)

    (loss, (losses, predicted)), gradient = jax.value_and_grad(objective, has_aux=True)(state.params)
    updates, opt_state = agent.optimiser.transform().update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    info = LearnInfo(loss, losses, optax.tree.norm(gradient), predicted.crossing_rate().mean(), changed)
    return LearnerState(params, state.target_params, opt_state), info


def refresh_target(agent: Agent, state: LearnerState) -> LearnerState:
    """Move the delayed copy towards the parameters: theta^- <- tau theta + (1 - tau) theta^-; tau = 1 copies."""
    moved = optax.incremental_update(state.params, state.target_params, agent.target_tau)
    return LearnerState(state.params, moved, state.opt_state)
