"""Several estimates of the expected return that disagree where little is known, as in Bootstrapped DQN."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from tremble.core import Clock, Noise, Scalar, Use
from tremble.dist import ReturnDist
from tremble.losses import huber
from tremble.networks import Head, NoisyLinear, make_head
from tremble.networks.noisy import linear


class ValueHead(eqx.Module):
    """One estimate: a hidden layer, then a value per action."""

    hidden: eqx.nn.Linear | NoisyLinear
    out: Head

    def __init__(self, key: PRNGKeyArray, n_features: int, n_hidden: int, n_actions: int, dueling: bool, noisy: bool):
        """Fresh layers."""
        hidden_key, out_key = jax.random.split(key)
        self.hidden = linear(hidden_key, n_features, n_hidden, noisy)
        self.out = make_head(out_key, n_hidden, n_actions, 1, dueling, noisy)

    def __call__(self, features: Float[Array, "features"], key: PRNGKeyArray | None = None) -> Float[Array, "actions"]:
        """The value of every action."""
        hidden_key, out_key = (None, None) if key is None else jax.random.split(key)
        return self.out(jax.nn.relu(self.hidden(features, key=hidden_key)), out_key)[:, 0]


class Ensemble(eqx.Module):
    """K trained heads, and K that stay as they were drawn; every array has a leading axis of heads."""

    trained: ValueHead
    prior: ValueHead


def scale_gradient(x: Float[Array, "*shape"], factor: float) -> Float[Array, "*shape"]:
    """x itself, with its gradient multiplied by a factor."""
    return factor * x + jax.lax.stop_gradient((1.0 - factor) * x)


class Bootstrapped(eqx.Module):
    """K estimates Q_k(s, a) = f_k(psi(s), a) + prior_scale * p_k(phi(s), a); phi and p_k are random and never trained.

    Each head has its own bootstrap, by its own action, and its own target head:

        y_k = r + gamma Q_k^-(s', argmax_a Q_k(s', a)),    loss = sum_k m_k H_kappa(y_k - Q_k(s, a)).

    The torso psi is shared; its gradient is divided by K. m_k ~ Bernoulli(mask_share) is drawn once per transition and
    stored with it. The atoms of the prediction are the heads' values: their spread is not that of the return, but what
    is not known of its mean. A criterion that follows one of them for an episode (`RandomAtom`) explores by it.
    """

    n_heads: int = eqx.field(static=True, default=10)
    kappa: float = eqx.field(static=True, default=1.0)
    prior_scale: Scalar = 3.0
    """How much of the random prior is in every estimate; 0 leaves the heads' own start as the only disagreement."""
    mask_share: float = eqx.field(static=True, default=1.0)
    """Probability that a head learns from a transition; 1 shows all of them to every head, and stores nothing."""
    n_hidden: int = eqx.field(static=True, default=0)
    """Width of each head's hidden layer; 0 means as wide as the features."""

    def __check_init__(self) -> None:
        """Refuse nonsense where it is made."""
        if self.n_heads < 1:
            raise ValueError(f"n_heads must be at least 1, got {self.n_heads}")
        if not 0 < self.mask_share <= 1:
            raise ValueError(f"mask_share is a probability above 0, got {self.mask_share}")

    @property
    def n_torsos(self) -> int:
        """The trained one, and that of the priors."""
        return 2

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Ensemble:
        """Twice K heads."""

        def draw(key: PRNGKeyArray, noisy: bool) -> ValueHead:
            keys = jax.random.split(key, self.n_heads)
            return jax.vmap(lambda k: ValueHead(k, n_features, self.n_hidden or n_features, n_actions, dueling, noisy))(
                keys
            )

        trained_key, prior_key = jax.random.split(key)
        return Ensemble(draw(trained_key, noisy), draw(prior_key, False))

    def predict(
        self,
        head: Ensemble,
        features: Float[Array, "features"],
        use: Use = "choose",
        level_key: PRNGKeyArray | None = None,
        layer_key: PRNGKeyArray | None = None,
    ) -> ReturnDist:
        """``atoms[actions, K]``: atom k is head k's value."""
        seen, frozen = jnp.split(features, 2)
        seen = scale_gradient(seen, 1.0 / self.n_heads)
        if layer_key is None:
            values = jax.vmap(lambda h: h(seen))(head.trained)
        else:
            values = jax.vmap(lambda h, k: h(seen, k))(head.trained, jax.random.split(layer_key, self.n_heads))
        prior = jax.vmap(lambda h: h(frozen))(head.prior)
        return ReturnDist((values + self.prior_scale * jax.lax.stop_gradient(prior)).T)

    def bootstrap(
        self, selector: ReturnDist, evaluator: ReturnDist, mask: Bool[Array, "actions"] | None
    ) -> tuple[ReturnDist, Int[Array, "K"]]:
        """Atom k of the action that head k selects; and those actions."""
        scores = selector.atoms if mask is None else jnp.where(mask[:, None], selector.atoms, -jnp.inf)
        action = jnp.argmax(scores, 0)
        pick = jax.nn.one_hot(action, scores.shape[0], axis=0, dtype=scores.dtype)
        return ReturnDist((evaluator.atoms * pick).sum(0)), action

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """sum_k H_kappa(y_k - Q_k)."""
        return huber(target.atoms - predicted.atoms, self.kappa).sum()

    def masked_divergence(self, predicted: ReturnDist, target: ReturnDist, extra: Bool[Array, "K"]) -> Float[Array, ""]:
        """The same over the heads that may learn from this transition."""
        return jnp.where(extra, huber(target.atoms - predicted.atoms, self.kappa), 0.0).sum()

    def report(self, predicted: ReturnDist, target: ReturnDist) -> dict[str, Float[Array, ""]]:
        """How much the heads disagree about what was done."""
        return {"disagreement": predicted.std()}

    def start_memory(self) -> Any:
        """The mask of the newest transition, if there are masks."""
        return () if self.mask_share == 1 else jnp.ones(self.n_heads, bool)

    def draw_behaviour(self, key: PRNGKeyArray) -> Noise:
        """m_k of this transition."""
        return () if self.mask_share == 1 else jax.random.bernoulli(key, self.mask_share, (self.n_heads,))

    def behave(
        self,
        head: Ensemble,
        features: Float[Array, "features"],
        dist: ReturnDist,
        scores: Float[Array, "actions"],
        memory: Any,
        fresh: Bool[Array, ""],
        noise: Noise,
        clock: Clock,
    ) -> tuple[Float[Array, "actions"], Any]:
        """The criterion's scores; the mask goes with the transition."""
        return scores, noise

    def behaviour_metrics(self, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Nothing changes over time."""
        return {}
