"""What importing the library must not do."""

import json
import subprocess
import sys

import pytest

REPORT = """
import json, sys
print(json.dumps([m for m in ("jax", "equinox", "scipy", "torch", "tensorflow", "matplotlib", "pandas")
                  if m in sys.modules]))
"""


def in_a_process(code: str) -> str:
    """The last line that a program prints."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import tremble; tremble.list_envs()",
        "from tremble.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from tremble.cli.main import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass",
        "import tremble.settings, tremble.trackers",
        "from tremble.worlds import MINATAR_IDS; from tremble.atari.protocols import PROTOCOLS",
    ],
)
def test_the_front_door_imports_nothing_large(code):
    assert json.loads(in_a_process(code + REPORT)) == []


def test_training_needs_neither_figures_nor_tables_and_sets_no_flags():
    code = """
import os, tremble
tremble.train, tremble.evaluate, tremble.load, tremble.make("pqr")
assert "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", "")
"""
    assert set(json.loads(in_a_process(code + REPORT))) <= {"jax", "equinox", "scipy"}


def test_public_names_are_found_on_first_use():
    code = """
import tremble
for name in [*tremble.__all__, "__version__"]:
    assert getattr(tremble, name) is not None and name in dir(tremble), name
assert tremble.train.__module__ == "tremble.training.run" and tremble.losses.__name__ == "tremble.losses"
try: tremble.trian
except AttributeError as error: print(error)
"""
    assert "no attribute 'trian'" in in_a_process(code)


def test_gymnasium_knows_the_environments_after_an_import_and_once():
    code = """
import gymnasium, tremble, warnings, importlib, tremble.worlds, tremble.atari, sys
assert sum(name.startswith("atari/") for name in gymnasium.registry) == 57
before = dict(gymnasium.registry)
warnings.simplefilter("error")  # Gymnasium warns of an id that is registered twice
tremble.worlds._register(), tremble.atari._register()
assert gymnasium.registry == before and "jax" not in sys.modules
env = gymnasium.make("tremble/NChain-v0")
print(env.spec.id, gymnasium.make("tremble:tremble/MinAtar-SpaceInvaders-v0").spec.id)
"""
    assert in_a_process(code) == "tremble/NChain-v0 tremble/MinAtar-SpaceInvaders-v0"


def test_registered_games_are_those_of_minatar():
    from tremble.worlds import MINATAR_GAMES
    from tremble.worlds.minatar import GAMES

    assert list(MINATAR_GAMES) == list(GAMES)


@pytest.mark.slow
def test_no_global_generator_is_used():
    code = """
import random, numpy, tremble
train = tremble.train  # imports JAX and others, one of which draws from numpy's generator
before = (random.getstate(), numpy.random.get_state()[1].tobytes())
train("pqr", "nchain", steps=150, n_quantiles=8, widths=[8], start_steps=50, batch_size=8, record_every=50)
assert before == (random.getstate(), numpy.random.get_state()[1].tobytes())
print("done")
"""
    assert in_a_process(code) == "done"
