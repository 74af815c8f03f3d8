"""Pytrees that are fast to pass to compiled functions from Python.

Equinox modules are flattened by Python code, field by field: for an agent, its parameters and its optimiser's state
some 150 reads a call, which for a small network takes longer than the arithmetic. A `Flat` is flattened once; passing
it hands JAX a list of arrays and a structure that is compared by identity.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Generic, TypeVar

import jax

T = TypeVar("T")


class _Structure:
    """A tree structure, equal only to itself; `_shared` makes one per structure."""

    def __init__(self, treedef: Any):
        self.treedef = treedef


@lru_cache(maxsize=256)
def _shared(treedef: Any) -> _Structure:
    return _Structure(treedef)


@jax.tree_util.register_pytree_node_class
class Flat(Generic[T]):
    """A pytree as a list of leaves; `tree` puts it together again, inside or outside compiled functions."""

    __slots__ = ("leaves", "structure")

    def __init__(self, leaves: list[Any], structure: _Structure):
        """Use `Flat.of`."""
        self.leaves, self.structure = leaves, structure

    @staticmethod
    def of(tree: T) -> Flat[T]:
        """Flatten once."""
        leaves, treedef = jax.tree.flatten(tree)
        return Flat(leaves, _shared(treedef))

    def tree(self) -> T:
        """The pytree."""
        tree: T = jax.tree.unflatten(self.structure.treedef, self.leaves)
        return tree

    def tree_flatten(self) -> tuple[list[Any], _Structure]:
        """For JAX."""
        return self.leaves, self.structure

    @classmethod
    def tree_unflatten(cls, structure: _Structure, leaves: Any) -> Flat[Any]:
        """For JAX."""
        return cls(list(leaves), structure)
