"""Facts about the machine and the versions, without anything that names it."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

OWN = ("tremble", "jax", "jaxlib", "equinox", "optax", "gymnasium", "numpy")
PEERS = ("rlax", "torch", "stable-baselines3", "sb3-contrib", "tianshou")


def facts() -> dict[str, Any]:
    """What a reader needs to place the numbers."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu_model(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": round(load(), 2),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in OWN + PEERS},
    }


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """Processes that wanted a core, on average over the last minute."""
    return os.getloadavg()[0]


class Others:
    """How many cores programs other than this one, and its ended children, keep busy (Linux; elsewhere unknown)."""

    def __init__(self) -> None:
        """Start counting."""
        self._start = self._now()

    def busy_cores(self) -> float | None:
        """Average since the start."""
        now = self._now()
        if now is None or self._start is None:
            return None
        seconds, all_busy, own = (b - a for a, b in zip(self._start, now, strict=True))
        return max(all_busy - own, 0.0) / seconds

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        listing = Path("/proc/stat")
        if not listing.exists():
            return None
        # user nice system idle iowait irq softirq steal, in ticks; guests are already counted as user.
        ticks = [int(number) for number in listing.read_text().split("\n", 1)[0].split()[1:9]]
        all_busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), all_busy, sum(usage.ru_utime + usage.ru_stime for usage in usages)


def cpu_model() -> str:
    """Name of the processor, as the system gives it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = (line.partition(":") for line in listing.read_text().splitlines())
        model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), "")
        if model:
            return model
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        model = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if model:
            return model
    return platform.processor() or "unknown"


def matrix_speed(side: int = 1536) -> float:
    """Operations per second of a large product of matrices: what the machine gives to whoever uses it best."""
    import jax
    import jax.numpy as jnp

    product, x = jax.jit(jnp.matmul), jnp.ones((side, side))
    jax.block_until_ready(product(x, x))
    taken = []
    for _ in range(10):
        begin = time.perf_counter()
        jax.block_until_ready(product(x, x))
        taken.append(time.perf_counter() - begin)
    return 2 * side**3 / min(taken)
