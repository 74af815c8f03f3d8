"""What every test runs under: checked shapes and types, and repeatable examples."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

# Compiling is most of what these tests do, and unoptimised programs compile twice as fast. Set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# What one test process has compiled, the others need not: they inherit this, and the first one clears it away.
MINE = "JAX_COMPILATION_CACHE_DIR" not in os.environ
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"tremble-tests-{os.getpid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# A shell lets what it starts in the background ignore Ctrl-C, and processes inherit that; tests press it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jaxtyping  # noqa: E402
from hypothesis import settings  # noqa: E402

# The hook rewrites modules as they are imported, so nothing of tremble may be loaded before it.
assert not any(name.split(".")[0] == "tremble" for name in sys.modules), "tremble was imported before its type checks"
jaxtyping.install_import_hook("tremble", "typechecks.checked")

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("repeatable")


def pytest_runtest_teardown():
    """A process that compiles for hundreds of tests would run out of memory mappings, and XLA would end it."""
    from tremble.sweeps.worker import forget_programs

    forget_programs()


def pytest_sessionfinish():
    if MINE:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
