"""What is installed on this machine, and what there is room for."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import jax

PACKAGES = ("tremble", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium")


def versions() -> dict[str, str | None]:
    """Versions of what is installed; None where it is not."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


@dataclass(frozen=True)
class Machine:
    """What there is to run on."""

    system: str
    cores: int
    """Cores this process may use."""
    memory: int
    """Bytes in all, or what a container allows."""
    free_memory: int
    """Bytes that could be had now."""
    free_disk: int
    """Bytes free where runs go."""
    devices: tuple[str, ...]
    """What JAX computes on."""


def machine(directory: Path) -> Machine:
    """This machine, and the disk that a directory is or would be on."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    total, free = _memory()
    devices = tuple(f"{d.platform}: {d.device_kind}" for d in jax.devices())
    return Machine(
        f"{platform.system()} {platform.machine()}", cores, total, free, shutil.disk_usage(there).free, devices
    )


def _memory() -> tuple[int, int]:
    """Memory in all and to be had, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = total
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass  # not Linux: what is free is not known
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        total, free = min(total, limit), min(free, limit - used)
    except (OSError, ValueError):
        pass  # no container, or one without a limit
    return total, max(free, 0)
