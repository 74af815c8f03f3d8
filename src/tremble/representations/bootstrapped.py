"""Several estimates of the expected return that disagree where little is known, as in Bootstrapped DQN."""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from tremble.core import Noise, Scalar
from tremble.dist import ReturnDist
from tremble.losses import huber
from tremble.networks import HiddenBranch, linear, make_head
from tremble.representations.base import DETERMINISTIC, ActContext, Query, Representation
from tremble.settings import NON_NEGATIVE, POSITIVE_SHARE, SIZE


class Ensemble(eqx.Module):
    """K trained heads, and K that stay as they were drawn; every array has a leading axis of heads.

    A head is one estimate: a hidden layer, then a value per action.
    """

    trained: HiddenBranch
    prior: HiddenBranch


def scale_gradient(x: Float[Array, "*shape"], factor: float) -> Float[Array, "*shape"]:
    """x itself, with its gradient multiplied by a factor."""
    return factor * x + jax.lax.stop_gradient((1.0 - factor) * x)


class Bootstrapped(Representation):
    """K estimates Q_k(s, a) = f_k(psi(s), a) + prior_scale * p_k(phi(s), a); phi and p_k are random and never trained.

    Each head has its own bootstrap, by its own action, and its own target head:

        y_k = r + gamma Q_k^-(s', argmax_a Q_k(s', a)),    loss = sum_k m_k H_kappa(y_k - Q_k(s, a)).

    The torso psi is shared; its gradient is divided by K. m_k ~ Bernoulli(mask_share) is drawn once per transition and
    stored with it. The atoms of the prediction are the heads' values: their spread is not that of the return, but what
    is not known of its mean. A criterion that follows one of them for an episode (`RandomAtom`) explores by it.
    """

    n_heads: Annotated[int, SIZE] = eqx.field(static=True, default=10)
    """K: trained heads, each an estimate of the value."""
    kappa: Annotated[float, NON_NEGATIVE] = eqx.field(static=True, default=1.0)
    """Threshold of the Huber loss: quadratic below, linear above."""
    prior_scale: Annotated[Scalar, NON_NEGATIVE] = 3.0
    """How much of the random prior is in every estimate; 0 leaves the heads' own start as the only disagreement."""
    mask_share: Annotated[float, POSITIVE_SHARE] = eqx.field(static=True, default=1.0)
    """Probability that a head learns from a transition; 1 shows all of them to every head, and stores nothing."""
    n_hidden: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Width of each head's hidden layer; 0 means as wide as the features."""

    @property
    def n_torsos(self) -> int:
        """The trained one, and that of the priors."""
        return 2

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Ensemble:
        """Twice K heads."""

        def value_head(key: PRNGKeyArray, noisy: bool) -> HiddenBranch:
            hidden_key, out_key = jax.random.split(key)
            width = self.n_hidden or n_features
            out = make_head(out_key, width, n_actions, 1, dueling, noisy)
            return HiddenBranch(linear(hidden_key, n_features, width, noisy), out)

        trained_key, prior_key = jax.random.split(key)
        trained = jax.vmap(lambda k: value_head(k, noisy))(jax.random.split(trained_key, self.n_heads))
        prior = jax.vmap(lambda k: value_head(k, False))(jax.random.split(prior_key, self.n_heads))
        return Ensemble(trained, prior)

    def predict(
        self, head: Ensemble, features: Float[Array, "batch features"], query: Query = DETERMINISTIC
    ) -> ReturnDist:
        """``atoms[batch, actions, K]``: atom k is the value of head k."""

        def one(features: Float[Array, "features"]) -> ReturnDist:
            trained, frozen = jnp.split(features, 2)
            trained = scale_gradient(trained, 1.0 / self.n_heads)
            keys = None if query.layer_key is None else jax.random.split(query.layer_key, self.n_heads)
            values = jax.vmap(lambda h, k: h(trained, key=k)[:, 0])(head.trained, keys)
            prior = jax.vmap(lambda h: h(frozen)[:, 0])(head.prior)
            return ReturnDist((values + self.prior_scale * jax.lax.stop_gradient(prior)).T)

        return jax.vmap(one)(features)

    def bootstrap(
        self, selector: ReturnDist, evaluator: ReturnDist, mask: Bool[Array, "batch actions"] | None
    ) -> tuple[ReturnDist, Int[Array, "batch K"]]:
        """Atom k of the action that head k selects; and those actions."""
        scores = selector.atoms if mask is None else jnp.where(mask[..., None], selector.atoms, -jnp.inf)
        action = jnp.argmax(scores, 1)
        pick = jax.nn.one_hot(action, scores.shape[1], axis=1, dtype=scores.dtype)
        return ReturnDist((evaluator.atoms * pick).sum(1)), action

    def loss(
        self, predicted: ReturnDist, target: ReturnDist, extra: Bool[Array, "batch K"] | None = None
    ) -> Float[Array, "batch"]:
        """sum_k m_k H_kappa(y_k - Q_k); without masks all heads learn."""
        errors = huber(target.atoms - predicted.atoms, self.kappa)
        return (errors if extra is None else jnp.where(extra, errors, 0.0)).sum(-1)

    def metrics(self, predicted: ReturnDist, target: ReturnDist) -> dict[str, Float[Array, "batch"]]:
        """Standard deviation over the heads for the taken action."""
        return {"disagreement": predicted.std()}

    def init_memory(self) -> Any:
        """The mask of the newest transition, if there are masks."""
        return () if self.mask_share == 1 else jnp.ones(self.n_heads, bool)

    def draw_behaviour(self, key: PRNGKeyArray) -> Noise:
        """m_k of this transition."""
        return () if self.mask_share == 1 else jax.random.bernoulli(key, self.mask_share, (self.n_heads,))

    def behave(self, context: ActContext) -> tuple[Float[Array, "actions"], Any]:
        """The criterion's scores; the mask is stored with the transition."""
        return context.scores, context.noise
