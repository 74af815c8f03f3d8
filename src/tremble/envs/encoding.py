"""Observations of any Gymnasium space as arrays for a network, and actions of finite spaces as numbers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from gymnasium import spaces

MAX_COMBINATIONS = 4096
"""Most actions that a space of several choices may have: the network has outputs for every combination."""


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
                return _composed("dict", _encoders_of(space.spaces))
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
        if (choices < 0).any() or (choices >= np.asarray(self.sizes)).any():
            raise ValueError(f"the observation {obs} is not in the space: {list(self.sizes)} values from {self.start}")
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


def _encoders_of(parts: Mapping[str, spaces.Space[Any]]) -> dict[str, Encoder]:
    """The encoder of each part of a dict; an error names the parts that have none, and how to leave them out."""
    encoders, refused = {}, {}
    for key, part in parts.items():
        try:
            encoders[key] = Encoder.of(part)
        except UnsupportedSpaceError as error:
            refused[key] = error
    if not refused:
        return encoders
    if not encoders:
        raise next(iter(refused.values()))
    lost = " and ".join(f"{key!r} ({type(parts[key]).__name__})" for key in refused)
    raise UnsupportedSpaceError(
        f"the part {lost} of the observations is not supported. To leave it out: "
        f"gymnasium.wrappers.FilterObservation(env, {list(encoders)}), in a function that makes the environment"
    )


def _composed(kind: Literal["dict", "tuple"], parts: dict[str, Encoder]) -> Encoder:
    if not parts:
        raise UnsupportedSpaceError(f"an empty {kind} is no observation")
    return Encoder(kind, (sum(math.prod(part.shape) for part in parts.values()),), parts=parts)


Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Start = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Integer = Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@dataclass(frozen=True)
class Actions:
    """The actions of a finite space, numbered from 0: agents choose a number, the environment gets its own action.

    Where an action is made of several choices (multi-discrete, multi-binary), every combination has a number; the last
    choice changes fastest, as in `numpy.ravel_multi_index`.
    """

    sizes: tuple[Size, ...]
    """Number of values of each choice."""
    start: tuple[Start, ...]
    """Smallest value of each choice."""
    shape: tuple[Size, ...] = ()
    """Shape of the environment's own action; () for a discrete space."""
    dtype: Integer = "int64"

    @staticmethod
    def of(space: spaces.Space[Any], name: str) -> Actions:
        """The actions of a space; an error that names the environment unless they are a finite set of workable size."""
        match space:
            case spaces.Discrete():
                return Actions((int(space.n),), (int(space.start),), dtype=space.dtype.name)  # type: ignore[arg-type]
            case spaces.MultiDiscrete() if math.prod(space.shape):
                sizes, start = ([int(n) for n in np.ravel(array)] for array in (space.nvec, space.start))
            case spaces.MultiBinary() if math.prod(space.shape):
                sizes, start = [2] * math.prod(space.shape), [0] * math.prod(space.shape)
            case _:
                raise UnsupportedSpaceError(f"{name} has action space {space}, but agents here {_finite(space)}")
        if (combinations := math.prod(sizes)) > MAX_COMBINATIONS:
            listed = " x ".join(map(str, sizes[:12])) + (" x ..." if len(sizes) > 12 else "")
            raise UnsupportedSpaceError(
                f"{name} has action space {space}: {listed} = {combinations:,} combinations, and agents here choose "
                f"among at most {MAX_COMBINATIONS:,}. Leave out or tie together choices with a "
                "gymnasium.ActionWrapper."
            )
        return Actions(tuple(sizes), tuple(start), space.shape, space.dtype.name)  # type: ignore[arg-type]

    @staticmethod
    def numbered(n: int) -> Actions:
        """The actions 0 to n - 1."""
        return Actions((n,), (0,))

    @property
    def n(self) -> int:
        """Number of actions."""
        return math.prod(self.sizes)

    def decode(self, numbers: Any) -> np.ndarray:
        """The environment's own actions ``[*batch, *shape]`` of ``numbers[*batch]``."""
        numbers = np.asarray(numbers, np.int64)
        if not self.shape:  # at every step of vector environments
            return (numbers + self.start[0]).astype(self.dtype)
        choices = np.stack(np.unravel_index(numbers, self.sizes), axis=-1) + np.asarray(self.start)
        return choices.astype(self.dtype).reshape(*numbers.shape, *self.shape)

    def own(self, number: Any) -> Any:
        """The environment's own action, as its space samples it: a whole number, or an array of several choices."""
        return int(number) + self.start[0] if self.shape == () else self.decode(number)

    def encode(self, actions: Any) -> np.ndarray:
        """Numbers ``[*batch]`` of the environment's own actions ``[*batch, *shape]``; the inverse of `decode`."""
        actions = np.asarray(actions)
        batch = actions.shape[: actions.ndim - len(self.shape)]
        choices = actions.reshape(*batch, len(self.sizes)) - np.asarray(self.start)
        return np.asarray(np.ravel_multi_index(tuple(np.moveaxis(choices, -1, 0)), self.sizes))

    def describe(self) -> dict[str, Any]:
        """JSON-ready."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def __post_init__(self) -> None:
        """Check that the parts fit together, because they are read from files too."""
        fits = len(self.sizes) == len(self.start) == math.prod(self.shape)
        if not fits or (self.shape and self.n > MAX_COMBINATIONS):
            raise ValueError(f"actions of sizes {self.sizes}, starts {self.start} and shape {self.shape}")


def _finite(space: spaces.Space[Any]) -> str:
    """What agents do instead of acting in a space that is no finite set, and how to make one of it."""
    hint = (
        "its actions are continuous; make them a finite set with gymnasium.wrappers.DiscretizeAction or a wrapper of "
        "your own, a gymnasium.ActionWrapper"
        if isinstance(space, spaces.Box)
        else "make one Discrete, MultiDiscrete or MultiBinary space of it with a gymnasium.ActionWrapper"
    )
    return f"choose among a finite set: {hint}"
