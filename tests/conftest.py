"""What every test runs under: checked shapes and types, and repeatable examples."""

from __future__ import annotations

import os
import sys

# Compiling is most of what these tests do, and unoptimised programs compile twice as fast. Set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import jaxtyping
from hypothesis import settings

# The hook rewrites modules as they are imported, so nothing of tremble may be loaded before it.
assert not any(name.split(".")[0] == "tremble" for name in sys.modules), "tremble was imported before its type checks"
jaxtyping.install_import_hook("tremble", "typechecks.checked")

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("repeatable")
