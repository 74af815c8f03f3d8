"""How many operations a JAX function asks for: products of matrices, and everything else that calculates.

Counted in the function as traced, without what nobody uses; what is written twice is counted once, because XLA does it
once. XLA's own count would take the body of a loop once, however often it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOVES = {
    *("broadcast_in_dim", "concatenate", "convert_element_type", "copy", "dynamic_slice", "dynamic_update_slice"),
    *("gather", "iota", "optimization_barrier", "pad", "platform_index", "reshape", "rev", "scatter", "select_n"),
    *("slice", "sort", "split", "squeeze", "transpose"),
}
"""Primitives that move numbers, or choose among them."""
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
"""Primitives that are a function of their own, and where it is."""


@dataclass
class Count:
    """Operations so far: multiplications and additions in products of matrices, and single ones elsewhere."""

    products: float = 0.0
    others: float = 0.0
    """An exponential is one."""
    _done: dict[Any, list[Any]] = field(default_factory=dict)
    """What was counted, and the names of its results."""

    @property
    def total(self) -> float:
        """Of both kinds."""
        return self.products + self.others

    def add(self, program: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Count a program whose inputs have these names; the names of its results."""
        names = dict(zip(program.constvars, map(_name_of_constant, constants), strict=True))
        names |= zip(program.invars, inputs, strict=True)

        def name(x: Any) -> Any:
            return str(x) if hasattr(x, "val") else names[x]  # a number stands for itself

        for equation in program.eqns:
            names |= zip(equation.outvars, self._add(equation, [name(x) for x in equation.invars]), strict=True)
        return [name(x) for x in program.outvars]

    def _add(self, equation: Any, inputs: list[Any]) -> list[Any]:
        kind = equation.primitive.name
        if kind == "stop_gradient":
            return inputs
        if kind in CALLS:
            inner = equation.params[CALLS[kind]]
            return self.add(inner.jaxpr, inner.consts, inputs)
        says = (kind, str(equation.params), *inputs)
        if says not in self._done:
            self._done[says] = [object() for _ in equation.outvars]
            self._add_once(equation)
        return self._done[says]

    def _add_once(self, equation: Any) -> None:
        import jax.numpy as jnp

        kind, result = equation.primitive.name, equation.outvars[0].aval
        if kind == "scan":
            self._add_all(_alone(equation.params["jaxpr"]), equation.params["length"])
        elif kind == "while":  # nobody knows how often
            self._add_all(_alone(equation.params["body_jaxpr"]))
        elif kind == "cond":  # platforms have forms of their own, which do the same
            self._add_all(max(map(_alone, equation.params["branches"]), key=lambda count: count.total))
        elif kind == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            self.products += 2.0 * result.size * math.prod(equation.invars[0].aval.shape[i] for i in contracted)
        elif kind not in MOVES and jnp.issubdtype(result.dtype, jnp.floating):
            reduces = kind.startswith(("reduce", "cum"))
            self.others += equation.invars[0].aval.size if reduces else result.size

    def _add_all(self, other: Count, times: int = 1) -> None:
        self.products += times * other.products
        self.others += times * other.others


def count(function: Callable[..., Any], *arguments: Any) -> Count:
    """The operations of a call."""
    import jax
    from jax.interpreters.partial_eval import dce_jaxpr

    traced = jax.make_jaxpr(function)(*arguments)
    used, _ = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True)
    counted = Count()
    counted.add(used, traced.consts, used.invars)
    return counted


def _alone(closed: Any) -> Count:
    """The operations of a body or a branch."""
    counted = Count()
    counted.add(closed.jaxpr, closed.consts, closed.jaxpr.invars)
    return counted


def _name_of_constant(x: Any) -> Any:
    """Equal for equal arrays."""
    array = np.asarray(x)
    return array.dtype.str, array.shape, array.tobytes()
