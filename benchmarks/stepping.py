"""One turn of training: so many steps, waited for. The same three ways in every part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def by_host_loop(loop: Any, steps: int) -> int:
    """Advance a `GymLoop`; the last update has ended too."""
    import jax

    before = loop.t
    loop.advance(before + steps)
    jax.block_until_ready(loop.learner)
    return int(loop.t - before)


def inside_xla(moments: Iterator[Any], steps: int) -> int:
    """Advance a compiled run (`tremble.training.xla_loop.iterate`), of one seed or several; chunks end there."""
    done = 0
    while done < steps:
        done += len(next(moments).log["reward"].T)
    return done


def by_sb3(model: Any, steps: int) -> int:
    """Advance an agent of Stable-Baselines3."""
    before = model.num_timesteps
    model.learn(steps, reset_num_timesteps=before == 0)
    return int(model.num_timesteps - before)
