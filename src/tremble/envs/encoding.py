"""Observations of any Gymnasium space as arrays for a network."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from gymnasium import spaces


class UnsupportedSpaceError(ValueError):
    """A space that agents do not support; the message names it and the supported ones."""


@dataclass(frozen=True)
class Encoder:
    """Converts observations of a space, single or in batches, to arrays of one shape.

    A box keeps its shape: bytes stay bytes, or become truths if they can only be 0 and 1, and other numbers become
    float32. Discrete values become one-hot vectors. Dicts (in order of their keys) and tuples are flattened and
    concatenated. Unlike Gymnasium's `flatten`, this works on batches and can be saved as JSON.
    """

    kind: Literal["box", "choice", "dict", "tuple"]
    shape: tuple[int, ...]
    """Shape of an encoded observation."""
    dtype: Literal["float32", "uint8", "bool"] = "float32"
    sizes: tuple[int, ...] = ()
    """Number of values of each discrete component."""
    start: tuple[int, ...] = ()
    """Smallest value of each discrete component."""
    parts: dict[str, Encoder] = field(default_factory=dict)
    """Encoders of the components of a dict or tuple."""

    @staticmethod
    def of(space: spaces.Space[Any]) -> Encoder:
        """The encoder of a space."""
        match space:
            case spaces.Box():
                truths = bool((space.high <= 1).all())
                return Encoder(
                    "box", space.shape, "float32" if space.dtype != np.uint8 else "bool" if truths else "uint8"
                )
            case spaces.Discrete():
                return Encoder("choice", (int(space.n),), sizes=(int(space.n),), start=(int(space.start),))
            case spaces.MultiBinary():
                return Encoder("box", space.shape)
            case spaces.MultiDiscrete():
                sizes = tuple(int(n) for n in np.ravel(space.nvec))
                start = tuple(int(n) for n in np.broadcast_to(np.ravel(space.start), (len(sizes),)))
                return Encoder("choice", (sum(sizes),), sizes=sizes, start=start)
            case spaces.Dict():
                return _composed("dict", {key: Encoder.of(part) for key, part in space.spaces.items()})
            case spaces.Tuple():
                return _composed("tuple", {str(i): Encoder.of(part) for i, part in enumerate(space.spaces)})
        raise UnsupportedSpaceError(
            f"observations of {type(space).__name__} are not supported; Box, Discrete, MultiBinary, MultiDiscrete, "
            "Dict and Tuple are. Wrap the environment so that its observations are one of these."
        )

    def __call__(self, obs: Any, batch: tuple[int, ...] = ()) -> np.ndarray:
        """Encode one observation, or with ``batch=(n,)`` a container that holds n of them along a leading axis."""
        if self.kind == "dict" or self.kind == "tuple":
            chosen = obs if self.kind == "dict" else {str(i): part for i, part in enumerate(obs)}
            return np.concatenate(
                [np.reshape(part(chosen[key], batch), (*batch, -1)) for key, part in self.parts.items()],
                axis=-1,
                dtype=np.float32,
            )
        if self.kind == "box":
            array = np.asarray(obs, dtype=self.dtype)
            if array.shape != (*batch, *self.shape):
                raise ValueError(f"expected an observation of shape {(*batch, *self.shape)}, got {array.shape}")
            return array
        choices = np.reshape(np.asarray(obs), (*batch, -1)) - np.asarray(self.start)
        hot = [np.eye(n, dtype=np.float32)[choices[..., i]] for i, n in enumerate(self.sizes)]
        return hot[0] if len(hot) == 1 else np.concatenate(hot, axis=-1)

    def batch_of(self, obs: Any) -> int | None:
        """Number of observations along the leading axis; None for a single observation."""
        if self.kind == "dict" or self.kind == "tuple":
            key, part = next(iter(self.parts.items()))
            return part.batch_of(obs[key] if self.kind == "dict" else obs[0])
        extra = np.ndim(obs) - (len(self.shape) if self.kind == "box" else int(len(self.sizes) > 1))
        return int(np.shape(obs)[0]) if extra == 1 else None

    def describe(self) -> dict[str, Any]:
        """JSON-ready."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def __post_init__(self) -> None:
        """Check that shape and components fit together, because encoders are read from files too."""
        match self.kind:
            case "box":
                fits = not self.parts and self.shape == tuple(n for n in self.shape if n >= 0)
            case "choice":
                fits = self.shape == (sum(self.sizes),) and len(self.sizes) == len(self.start) > 0 < min(self.sizes)
            case _:
                fits = bool(self.parts) and self.shape == (sum(math.prod(part.shape) for part in self.parts.values()),)
        if not fits:
            raise ValueError(f"an encoder of kind {self.kind!r} and shape {self.shape} with other components")


def _composed(kind: Literal["dict", "tuple"], parts: dict[str, Encoder]) -> Encoder:
    if not parts:
        raise UnsupportedSpaceError(f"an empty {kind} is no observation")
    return Encoder(kind, (sum(math.prod(part.shape) for part in parts.values()),), parts=parts)


def count_actions(space: spaces.Space[Any], name: str) -> tuple[int, int]:
    """Number of actions and number of the first one; an error unless the space is discrete."""
    if isinstance(space, spaces.Discrete):
        return int(space.n), int(space.start)
    hint = (
        "its actions are continuous; make them a finite set with a gymnasium.ActionWrapper"
        if isinstance(space, spaces.Box)
        else "combine its choices into one Discrete space with a gymnasium.ActionWrapper"
    )
    raise UnsupportedSpaceError(f"{name} has action space {space}, but agents here choose among a finite set: {hint}")
