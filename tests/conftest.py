"""What every test runs under: checked shapes and types, and repeatable examples."""

from __future__ import annotations

import sys

import jaxtyping
from hypothesis import settings

# The hook rewrites modules as they are imported, so nothing of tremble may be loaded before it.
assert not any(name.split(".")[0] == "tremble" for name in sys.modules), "tremble was imported before its type checks"
jaxtyping.install_import_hook("tremble", "typechecks.checked")

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("repeatable")
