"""What is installed on this machine, and what there is room for."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import jax

from tremble.replay import readable
from tremble.settings import SettingsError

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


THREAD_VARIABLE = "NPROC"
"""XLA reads from it how many threads to use."""
RESTORED_FLAGS = (
    "xla_cpu_multi_thread_eigen",
    "xla_force_host_platform_device_count",
    "xla_backend_optimization_level",
    "xla_llvm_disable_expensive_passes",
)
"""XLA flags that `restore_flags` takes from a run: those that change numbers, and no files (others write dumps)."""


@dataclass(frozen=True)
class MadeWith:
    """What the numbers of a run depend on besides its settings, from a step on."""

    from_step: int
    versions: dict[str, str | None]
    processor: str
    threads: int
    xla_flags: list[str]

    @staticmethod
    def here(from_step: int = 0) -> MadeWith:
        """This process; initialises no device."""
        flags = sorted(os.environ.get("XLA_FLAGS", "").split())
        return MadeWith(from_step, versions(), processor(), threads(), flags)

    def differences(self, now: MadeWith) -> list[str]:
        """What is different now, in words; empty where a run goes on bit for bit."""
        changed = []
        for name in sorted({*self.versions, *now.versions}):
            there, here = self.versions.get(name), now.versions.get(name)
            if there != here:
                changed.append(f"{name} {there} is now {here}")
        if self.processor != now.processor:
            changed.append(f"the processor {self.processor!r} is now {now.processor!r}")
        if self.threads != now.threads:
            changed.append(f"{self.threads} threads are now {now.threads}")
        if self.xla_flags != now.xla_flags:
            changed.append(f"the XLA flags {self.xla_flags} are now {now.xla_flags}")
        return changed


def restore_flags(before: MadeWith) -> None:
    """Use as many threads as a run did, and its XLA flags that are known to be harmless.

    Variables that the user set stay. Works until JAX first computes something.
    """
    os.environ.setdefault(THREAD_VARIABLE, str(before.threads))
    harmless = [
        flag
        for flag in before.xla_flags
        if (match := re.fullmatch(r"--(\w+)=(true|false|\d{1,4})", flag)) and match[1] in RESTORED_FLAGS
    ]
    if harmless:
        os.environ.setdefault("XLA_FLAGS", " ".join(harmless))


def threads() -> int:
    """Threads that XLA uses."""
    given = os.environ.get(THREAD_VARIABLE, "")
    return int(given) if given.isdecimal() else _cores()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """Its name, with a digest of its features: XLA compiles for them, and machines of one name may differ in them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    except OSError:
        return platform.processor() or platform.machine()
    features = hashlib.sha256(facts.get("flags", facts.get("Features", "")).encode()).hexdigest()[:8]
    return f"{facts.get('model name', platform.machine())} {features}"


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
    total, free = _memory()
    devices = tuple(f"{d.platform}: {d.device_kind}" for d in jax.devices())
    return Machine(
        f"{platform.system()} {platform.machine()}", _cores(), total, free, shutil.disk_usage(there).free, devices
    )


def too_large(memory_size: int, capacity: int, nbytes: int) -> SettingsError:
    """The error about a replay memory that there is no room for; ``capacity`` is what of it a run can fill."""
    total, _ = _memory()
    room = float(f"{min(capacity, capacity * (total / 2) / nbytes):.1g}")  # half of all memory is for everything else
    return SettingsError(
        f"memory_size={memory_size}: {capacity:,} transitions in replay need {readable(nbytes)}, and this machine has "
        f"{readable(total)} of memory; a memory_size of {max(room, 1):,.0f} would fit"
    )


def require_room(memory_size: int, capacity: int, nbytes: int) -> None:
    """Raise if replay can never fit: what is allocated lazily would end the process hours later."""
    if nbytes > _memory()[0]:
        raise too_large(memory_size, capacity, nbytes)


def free_memory() -> int:
    """Bytes that could be had now."""
    return _memory()[1]


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
