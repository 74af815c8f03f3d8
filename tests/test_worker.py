"""A worker that trains many different runs does not run out of memory mappings."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tremble.sweeps.worker import MAX_MEMORY_MAPPINGS, forget_programs

MAPS = Path("/proc/self/maps")


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="needs Linux")
def test_dropping_programs_gives_their_mappings_back():
    def count():
        return MAPS.read_bytes().count(b"\n")

    functions = [jax.jit(lambda x, k=k: jnp.sort(jnp.sin(k * x)) @ jnp.cos(x)) for k in range(8)]
    x = jnp.arange(64.0)
    before = [float(f(x)) for f in functions]
    full = count()
    assert not forget_programs(more_than=full + 1_000)
    assert forget_programs(more_than=full // 2)
    assert count() < full
    assert [float(f(x)) for f in functions] == before
    assert MAX_MEMORY_MAPPINGS < 65_530 / 2
