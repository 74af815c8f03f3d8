"""A replay memory that does not fit is one message, whoever notices: we, XLA, or NumPy."""

from __future__ import annotations

import subprocess
import sys

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import tremble
from tremble.cli.main import main
from tremble.envs.registry import register_jax_env
from tremble.settings import SettingsError
from tremble.worlds.probes import ConstantReward

SMALL = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}
MANY = 2_000_000_000
"""Passes as a whole number of 32 bits."""


class LargeProbe(ConstantReward):
    """Observations so large that no machine holds that many."""

    observation_table = None
    size: int = eqx.field(static=True, default=1000)

    def observe(self, state):
        return jnp.zeros((self.size, self.size))


class LargeEnv(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1000, 1000))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((1000, 1000), np.float32), {}


register_jax_env("large-probe", LargeProbe)


@pytest.mark.parametrize("env", ["large-probe", "test_memory:LargeEnv"])
@pytest.mark.parametrize("prioritised", [False, True])
def test_what_can_never_fit_is_refused_before_the_first_step(env, prioritised, tmp_path):
    with pytest.raises(SettingsError) as error:
        how = {"memory_size": MANY, "prioritised": prioritised, **SMALL}
        tremble.train("qrdqn", env, steps=MANY, out=tmp_path / "run", **how)
    said = str(error.value)
    assert said.startswith("memory_size=2000000000: 2,000,000,000 transitions in replay need 1") and " TiB" in said
    assert "this machine has" in said and said.endswith("would fit") and not (tmp_path / "run").exists()


def test_many_runs_at_once_are_added_up():
    with pytest.raises(SettingsError, match=r"memory_size=1000000000: .* need 1.* TiB"):
        tremble.train_many("qrdqn", "large-probe", steps=MANY, seeds=[0, 1], memory_size=10**9, **SMALL)


def test_on_the_command_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for size, message in (("2e9", "memory_size=2000000000: "), ("1e12", "memory_size must be at most 2147483647")):
        with pytest.raises(SystemExit) as ending:
            main(["train", "qrdqn", "--env", "large-probe", "--steps", "2e9", "--set", f"memory_size={size}"])
        assert ending.value.code == 1 and f"error: {message}" in capsys.readouterr().err


EXHAUSTED = """
import resource, sys
import jax, jax.numpy as jnp
import tremble
from tremble.training import run
jnp.zeros(3).block_until_ready()  # what JAX itself needs is there
small = dict(n_quantiles=4, widths=[8], batch_size=4, start_steps=20)
tremble.train("qrdqn", sys.argv[1], steps=30, prioritised=sys.argv[2] == "gym", **small)
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = 1024 * used + 2**30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
options = dict(memory_size=120_000_000, prioritised=sys.argv[2] == "gym")
tremble.train("qrdqn", sys.argv[1], steps=120_000_000, **options, **small)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
@pytest.mark.parametrize("loop", ["xla", "gym"])
def test_what_the_allocator_refuses_is_the_same_message(loop):
    command = [sys.executable, "-c", EXHAUSTED, "nchain", loop]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    last = result.stderr.strip().splitlines()[-1]
    assert "SettingsError: memory_size=120000000: 120,000,000 transitions in replay need" in last, result.stderr[-2000:]
