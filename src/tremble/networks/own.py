"""Networks of users: what they must offer, and how their torsos become parameters of an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree, Shaped

from tremble.settings import SettingsError, reference


@runtime_checkable
class NetworkSpec(Protocol):
    """What an agent takes as its network: anything that makes a torso. There is nothing to inherit.

    It is compared and hashed, because programs are compiled for it: an `equinox.Module` or a frozen dataclass is equal
    to another one with the same fields, which are its settings; any other object is equal to itself.
    """

    def init(self, key: PRNGKeyArray, obs_shape: tuple[int, ...]) -> tuple[Any, int]:
        """A torso with fresh parameters, and how many features it gives.

        A torso is a pytree that is called with one observation: ``torso(obs[*obs]) -> features[n_features]``. It gets
        the observation as replay stores it: bytes are bytes.
        """
        ...


class Fixed(NamedTuple):
    """What a torso consists of besides its parameters; JAX compiles it in."""

    leaves: tuple[Any, ...]
    structure: Any

    def tree(self) -> PyTree:
        """The torso without its parameters."""
        return jax.tree.unflatten(self.structure, self.leaves)


class OwnTorso(eqx.Module):
    """A torso of a user's: its arrays are learned, and everything else in it stays as it is.

    Modules hold activation functions and plain numbers among their parameters, which can be neither differentiated nor
    passed to compiled functions.
    """

    learned: PyTree
    fixed: Fixed = eqx.field(static=True)

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Any:
        """Features of one observation; `own_torso` has checked that they are a vector."""
        return eqx.combine(self.learned, self.fixed.tree())(obs)


def own_torso(spec: NetworkSpec, key: PRNGKeyArray, obs_shape: tuple[int, ...]) -> tuple[Any, int]:
    """A fresh torso of any spec, checked: what does not fit is one message that names the spec."""
    name = reference(spec)
    made = _without_faults(lambda: spec.init(key, obs_shape), f"{name}.init fails for observations {obs_shape}")
    match made:
        case (torso, int(n_features)) if callable(torso) and n_features >= 1:
            pass
        case _:
            raise SettingsError(
                f"{name}.init must return (torso, n_features): something to be called with one observation, and how "
                f"many features that gives; it returned {_kind(made)}"
            )
    own = OwnTorso(eqx.filter(torso, eqx.is_inexact_array), _fixed(torso, name))
    out = _without_faults(
        # Through a function of its own: JAX looks up what it traces, and a module with parameters cannot be compared.
        lambda: jax.eval_shape(lambda obs: own(obs), jax.ShapeDtypeStruct(obs_shape, jnp.float32)),
        f"the torso of {name} fails for observations {obs_shape}",
    )
    shape, kind = getattr(out, "shape", None), getattr(out, "dtype", None)
    if shape != (n_features,) or kind not in (jnp.float32, jnp.bfloat16, jnp.float16):
        raise SettingsError(
            f"the torso of {name} must turn one observation {obs_shape} into a vector of {n_features} features, as "
            f"its init says; it returns {_kind(out) if shape is None else f'{kind}{list(shape)}'}"
        )
    return own, n_features


def _fixed(torso: PyTree, name: str) -> Fixed:
    leaves, structure = jax.tree.flatten(eqx.filter(torso, eqx.is_inexact_array, inverse=True))
    for leaf in leaves:
        if eqx.is_array(leaf):
            raise SettingsError(
                f"the torso of {name} holds an array {leaf.dtype}{list(leaf.shape)}, which cannot be learned: make it "
                "where the torso is called, or make it of floating-point numbers"
            )
    fixed = Fixed(tuple(leaves), structure)
    require_hashable(fixed, f"the torso of {name}")
    return fixed


def require_hashable(thing: Any, name: str) -> None:
    """Raise unless compiled programs can be found again by this."""
    try:
        hash(thing)
    except TypeError as error:
        raise SettingsError(
            f"{name} cannot be hashed ({error}): make it an equinox.Module or a @dataclass(frozen=True), with tuples "
            "in place of lists and no arrays in its fields"
        ) from error


def _without_faults(make: Callable[[], Any], what: str) -> Any:
    """The result, or one message about an exception of somebody else's code."""
    try:
        return make()
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(f"{what}: {type(error).__name__}: {error}") from error


def _kind(thing: Any) -> str:
    if isinstance(thing, tuple):
        return f"({', '.join(type(part).__name__ for part in thing)})"
    return type(thing).__name__
