"""What importing the library must not do."""

import subprocess
import sys

import pytest

PROBE = """
import sys, tremble
heavy = [m for m in ("torch", "tensorflow", "matplotlib", "pandas") if m in sys.modules]
assert not heavy, heavy
import os
assert "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", "")
"""


def test_import_is_light_and_sets_no_flags():
    result = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_no_global_generator_is_used():
    code = """
import random, numpy, tremble
before = (random.getstate(), numpy.random.get_state()[1].tobytes())
tremble.train("pqr", "nchain", steps=150, n_quantiles=8, widths=[8], start_steps=50, batch_size=8, record_every=50)
assert before == (random.getstate(), numpy.random.get_state()[1].tobytes())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
