"""Action masks as environments give them, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tremble.envs.encoding import Actions
from tremble.envs.faults import EnvironmentFaultError

INFO_ACTION_MASK = "action_mask"


def stack_masks(masks: Sequence[Any], actions: Actions) -> np.ndarray | None:
    """Masks of n environments, ``bool[n, actions]``; None if no environment gives one."""
    given = [mask is not None for mask in masks]
    if not any(given):
        return None
    if not all(given):
        raise EnvironmentFaultError(
            f"environment {given.index(False)} of {len(given)} gives no info[{INFO_ACTION_MASK!r}], and others do: it "
            "must be there with every observation, from the first reset on, or never"
        )
    return np.stack([as_mask(mask, actions) for mask in masks])


def as_mask(mask: Any, actions: Actions) -> np.ndarray:
    """A mask as ``bool[actions]``; an error unless it has one entry of 0 or 1 for each action.

    Where an action is made of several choices it may be a tuple with a mask for each, as Gymnasium's spaces take it:
    permitted are the combinations of what each permits.
    """
    if isinstance(mask, tuple) and actions.shape:
        parts = [np.asarray(part) for part in _parts(mask)]
        if tuple(part.shape for part in parts) != tuple((n,) for n in actions.sizes):
            raise EnvironmentFaultError(
                f"info[{INFO_ACTION_MASK!r}] is a tuple and must have a mask for each of the {len(actions.sizes)} "
                f"choices, of sizes {list(actions.sizes)}; got shapes {[list(part.shape) for part in parts]}"
            )
        permitted = [_checked(part, n) for part, n in zip(parts, actions.sizes, strict=True)]
        return reduce(np.logical_and.outer, permitted).ravel()
    return _checked(np.asarray(mask), actions.n)


def check_masks(masks: np.ndarray | None, expected: bool, name: str, step: str) -> None:
    """Raise unless masks are there from the first reset on or never, and permit something.

    ``masks[n, actions]`` are those of observations to act on; ``step`` says when, such as "at step 3".
    """
    if (masks is not None) != expected:
        when = "no more" if masks is None else "only now"
        raise EnvironmentFaultError(
            f"{name} gives an action mask {step} {when}: info[{INFO_ACTION_MASK!r}] must be there with every "
            "observation, from the first reset on, or never"
        )
    if masks is not None and not masks.any(-1).all():
        raise EnvironmentFaultError(
            f"{name} permits no action {step}: its mask is false everywhere. End the episode there, or permit an "
            "action that does nothing."
        )


def _parts(mask: tuple[Any, ...]) -> Iterator[Any]:
    """Masks of choices in a tuple, or in tuples in it where choices have several axes."""
    for part in mask:
        if isinstance(part, tuple) and any(isinstance(inner, np.ndarray | tuple) for inner in part):
            yield from _parts(part)
        else:
            yield part


def _checked(mask: np.ndarray, n: int) -> np.ndarray:
    if mask.shape != (n,) or mask.dtype == object or not np.isin(mask, (0, 1)).all():
        raise EnvironmentFaultError(
            f"info[{INFO_ACTION_MASK!r}] must have one entry, 0 or 1, for each of the {n} actions; "
            f"got {mask.dtype}{list(mask.shape)}"
        )
    return mask.astype(bool)
