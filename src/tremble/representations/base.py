"""Axis A: what a representation is. It predicts return distributions and says which loss trains them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from tremble.core import Clock, Noise, Settings, Transition, Use
from tremble.dist import ReturnDist
from tremble.networks import Head, Network, batch_outputs, make_head


class Query(eqx.Module):
    """What a prediction is for, and its randomness. Without keys a prediction is deterministic."""

    use: Use = eqx.field(static=True, default="choose")
    level_key: PRNGKeyArray | None = None
    """For random levels: all those of a batch are drawn from it, for every sample its own."""
    layer_key: PRNGKeyArray | None = None
    """For noisy layers: the same noise for all samples of a batch."""


DETERMINISTIC = Query()


class ActContext(eqx.Module):
    """What a representation that overrides action selection gets to see, in one environment."""

    head: PyTree
    features: Float[Array, "features"]
    dist: ReturnDist
    """``atoms[actions, atoms]``."""
    scores: Float[Array, "actions"]
    """The criterion's."""
    memory: Any
    """What the step before returned."""
    episode_start: Bool[Array, ""]
    noise: Noise
    clock: Clock


class Representation(Settings):
    """How the return is predicted, and which loss trains it.

    A new one defines `init_head`, `predict` and `loss`; the other hooks have defaults. Predictions and losses take a
    batch axis, so that a head may compute a batch in one product; `jax.vmap` makes them from code for one sample.
    """

    random_levels: ClassVar[bool] = False
    """Whether predictions draw levels, so that every sample needs a prediction of its own."""

    @property
    def n_torsos(self) -> int:
        """How many torsos it needs; features are then theirs, concatenated."""
        return 1

    @abstractmethod
    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> PyTree:
        """Parameters that turn features into a distribution per action."""

    @abstractmethod
    def predict(
        self, head: PyTree, features: Float[Array, "batch features"], query: Query = DETERMINISTIC
    ) -> ReturnDist:
        """``atoms[batch, actions, atoms]``."""

    def predict_taken(
        self,
        head: PyTree,
        features: Float[Array, "batch features"],
        action: Int[Array, "batch"],
        query: Query,
    ) -> ReturnDist:
        """``atoms[batch, atoms]`` of one action per sample."""
        return pick_action(self.predict(head, features, query), action)

    @abstractmethod
    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """Loss of each sample: ``predicted.atoms[batch, N]`` of the taken action, ``target.atoms[batch, M]``.

        ``extra`` is what acting stored with the transitions (`Transition.extra`).
        """

    def auxiliary_loss(
        self, params: Network, target_params: Network, batch: Transition, predicted: ReturnDist, query: Query
    ) -> Float[Array, "batch"]:
        """A further loss of each sample, added to the first. Importance weights are not applied to it.

        ``predicted`` is what the first loss trains, ``[batch, atoms]`` of the actions taken, predicted by ``query``.
        """
        return jnp.zeros(batch.reward_t.shape)

    def bootstrap(
        self, selector: ReturnDist, evaluator: ReturnDist, mask: Bool[Array, "batch actions"] | None
    ) -> tuple[ReturnDist, Int[Array, "batch draws"]] | None:
        """The return ``[batch, atoms]`` to bootstrap from and the actions it is made of.

        None, the default, means all atoms of the criterion's best action.
        """
        return None

    def separate_optimiser(self) -> tuple[optax.GradientTransformation, Any] | None:
        """An optimiser for a part of the head, and a function that marks that part: head -> pytree of booleans."""
        return None

    def metrics(self, predicted: ReturnDist, target: ReturnDist) -> dict[str, Float[Array, "batch"]]:
        """Named numbers of each sample for the log."""
        return {}

    def init_memory(self) -> Any:
        """What acting remembers before the first step: one array, or ``()`` for nothing.

        The memory after a step is stored with its transition as `Transition.extra`.
        """
        return ()

    def draw_behaviour(self, key: PRNGKeyArray) -> Noise:
        """The random numbers of one step of `behave`; ``()`` if there are none."""
        return ()

    def behave(self, context: ActContext) -> tuple[Float[Array, "actions"], Any]:
        """Scores to act by, and the new memory. The default acts by the criterion's scores."""
        return context.scores, context.memory

    def behaviour_metrics(self, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Named scalars about acting for the log."""
        return {}


class OutputRepresentation(Representation):
    """A head with `n_outputs` numbers per action, from which the action's distribution follows by `from_outputs`."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Outputs of the head per action."""

    @abstractmethod
    def from_outputs(self, outputs: Float[Array, "*batch n"]) -> ReturnDist:
        """The distribution that outputs stand for."""

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Head:
        """`n_outputs` numbers per action."""
        return make_head(key, n_features, n_actions, self.n_outputs, dueling, noisy)

    def predict(self, head: Head, features: Float[Array, "batch features"], query: Query = DETERMINISTIC) -> ReturnDist:
        """``atoms[batch, actions, atoms]``."""
        return self.from_outputs(batch_outputs(head, features, query.layer_key))

    def predict_taken(
        self, head: Head, features: Float[Array, "batch features"], action: Int[Array, "batch"], query: Query
    ) -> ReturnDist:
        """``atoms[batch, atoms]``; a large head computes the outputs of the taken actions only."""
        outputs = head.taken(features, action) if query.layer_key is None else None
        if outputs is None:
            return pick_action(self.predict(head, features, query), action)
        return self.from_outputs(outputs)


def pick_action(dist: ReturnDist, action: Int[Array, "batch"]) -> ReturnDist:
    """``[batch, actions, atoms] -> [batch, atoms]``: all atoms come from the one action.

    An indexed read on purpose. By a product with a mask, XLA fuses the loss's gradient into the product and computes it
    once per *action*.
    """
    return dist.select(lambda x: jnp.take_along_axis(x, action[:, None, None], 1)[:, 0])
