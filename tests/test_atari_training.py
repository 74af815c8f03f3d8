"""Training on Atari: points as returns, pictures stored once, checkpoints that write what changed, exact resume."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tremble
from tremble.agent import Agent
from tremble.core import Clock
from tremble.envs.gym import open_environment
from tremble.networks import ConvSpec, initialise
from tremble.optimisers import RMSProp
from tremble.replay import FrameReplay, NumpyReplay, frame_store
from tremble.settings import SettingsError
from tremble.training import checkpoint
from tremble.training.evaluation_env import evaluation_maker, evaluation_settings
from tremble.training.gym_loop import GymLoop
from tremble.training.spec import RunSpec

SMALL = {"layers": [[4, 8, 8], [4, 4, 4]], "widths": [8], "n_quantiles": 8, "batch_size": 8, "start_steps": 100}
HARD = {"memory_size": 150, "n_step": 3, "prioritised": True, "resample_noise_every": "episode", "update_interval": 4}
STEPS = 320


def small_run(env="atari/SpaceInvaders", steps=STEPS, **options):
    how = {"record_every": 80, "chunk": 40, "checkpoint_every": 80, "n_envs": 2}
    how["env_options"] = {"protocol": "dqn_zoo", "cap_frames": 400}  # an untrained agent may wait for ever
    return tremble.train("pqr", env, steps=steps, **(how | SMALL | HARD | options))


pytestmark = pytest.mark.slow  # a network with convolutions takes long to compile


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of pictures within a few hundred steps."""
    monkeypatch.setattr(frame_store, "BLOCK", 32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_store, "BLOCK", 32)
        directory = tmp_path_factory.mktemp("whole")
        messages: list[str] = []
        run = small_run(out=directory, on_message=messages.append, evaluate_every=320, evaluate_episodes=2)
    return run, directory, messages


def files(directory: Path) -> dict[str, bytes]:
    found = [
        p for p in directory.rglob("*") if p.is_file() and p.name not in ("timing.jsonl", "lock-1.json", "lock-2.json")
    ]
    return {str(p.relative_to(directory)): p.read_bytes() for p in found}


def test_frames_of_a_run_are_those_of_the_emulator(whole):
    assert whole[0].agent.counts.frames == 4 * STEPS == tremble.load(whole[1]).counts.frames
    options = {"protocol": "dopamine", "frame_skip_min": 2, "frame_skip_max": 2}
    assert open_environment("atari/Pong", options=options).frames_per_step == 2
    assert open_environment("atari/Pong", 2, options=options | {"engine": "vector"}).frames_per_step == 2


def test_a_run_learns_from_pictures_stored_once(whole):
    run, _, messages = whole
    assert run.rows[-1]["updates"] == (STEPS - 100) // 4 and np.isfinite(run.rows[-1]["loss"])
    # 150 items of 2 x 4 slots and 3 numbers, 4 bytes each; as many pictures and a few more; a tree of 512 sums.
    mib = float(messages[0].split("up to ")[1].split(" MiB")[0])
    assert messages[0].startswith("replay: 150 transitions")
    assert 150 * 7056 / 2**20 < mib < 1.2 * 150 * 7056 / 2**20
    assert run.agent.agent.network.padding == "valid" and run.agent.encoder.dtype == "uint8"


def test_only_blocks_that_changed_are_written(whole):
    _, directory, _ = whole
    kept = sorted((directory / "checkpoints").glob("step-*"))
    named = [checkpoint.read_meta(path)["blocks"] for path in kept]
    there = {path.stem for path in (directory / "checkpoints" / "blocks").iterdir()}
    assert there == set(named[0]) | set(named[1]), "nothing is missing, nothing is left over"
    shared = [a for a, b in zip(*named, strict=False) if a == b]
    # 80 steps change 80 pictures and some of episodes' starts: three or four blocks of 32, of five or six.
    assert 1 <= len(shared) <= 3 and len(named[1]) >= 5


def interrupted_and_continued(directory: Path, stop_at: int, **options) -> dict[str, bytes]:
    def interrupt(step, row):
        if step >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(out=directory, on_progress=interrupt, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tremble.resume(directory, chunk=40, checkpoint_every=80)
    return files(directory)


def test_with_overlap_too_interrupted_and_continued_equals_uninterrupted(tmp_path):
    small_run(out=tmp_path / "whole", async_learning=True)
    assert interrupted_and_continued(tmp_path / "halves", 200, async_learning=True) == files(tmp_path / "whole")


@pytest.mark.parametrize("stop_at", [40, 200])
def test_interrupted_and_continued_equals_uninterrupted(whole, tmp_path, stop_at):
    ours = interrupted_and_continued(tmp_path, stop_at, evaluate_every=320, evaluate_episodes=2)
    theirs = files(whole[1])
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_checkpoint_with_a_bad_block_is_reported_and_the_one_before_it_used(whole, tmp_path, how):
    for name, content in files(whole[1]).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    old, new = (checkpoint.read_meta(p)["blocks"] for p in sorted((tmp_path / "checkpoints").glob("step-*")))
    victim = tmp_path / "checkpoints" / "blocks" / f"{next(b for b in new if b not in old)}.safetensors"
    if how == "missing":
        victim.unlink()
    else:
        content = bytearray(victim.read_bytes())
        content[-1] ^= 1
        victim.write_bytes(content)
    with pytest.warns(UserWarning, match=f"{how}.*Using the checkpoint before it"):
        tremble.resume(tmp_path, chunk=40, checkpoint_every=80)
    assert files(tmp_path) == files(whole[1]), "the last quarter was made again"


def test_returns_are_points_of_whole_games():
    # Under the paper's protocol every life is an episode and rewards are signs; a shot alien is worth 5 to 30 points.
    env = open_environment("atari/SpaceInvaders", options={"protocol": "paper", "cap_frames": 4000})
    loop = GymLoop(tremble.make("pqr", "atari", start_steps=10**6, **SMALL_NETWORK), env, 0, 2000)
    stored = 0.0
    while not loop.finished and loop.t < 1500:
        loop.advance(loop.t + 25)
    step, points, length = loop.finished[0]
    items, _ = NumpyReplay.sample(loop.replay, np.arange(loop.replay.size, dtype=np.uint32), 0.4)
    stored = float(items.reward_t.sum())
    assert loop.episodes >= 3, "lives are episodes to the agent"
    assert length == step and points % 5 == 0 and points >= 5 * stored > 0
    assert set(np.unique(items.reward_t)) == {0.0, 1.0}


SMALL_NETWORK = {name: SMALL[name] for name in ("layers", "widths", "n_quantiles", "batch_size")}


def test_a_lost_life_cuts_the_return_but_not_the_episode():
    env = open_environment("atari/Breakout", options={"protocol": "dqn_zoo"})
    loop = GymLoop(tremble.make("pqr", "atari", start_steps=10**6, **SMALL_NETWORK), env, 0, 2000)
    loop.advance(150)
    items, _ = NumpyReplay.sample(loop.replay, (149 - np.arange(150)).astype(np.uint32), 0.4)
    cuts = np.flatnonzero(np.asarray(items.discount_t) == 0)
    assert len(cuts) > loop.episodes, "five lives to a game"
    inside = [k for k in cuts if k + 1 < 150 and np.array_equal(items.obs_t[k], items.obs_tm1[k + 1])]
    assert len(inside) == len(cuts) - loop.episodes, "the stack of pictures runs on where only a life was lost"


def test_evaluation_follows_the_protocol(whole):
    run, _, _ = whole
    spec = RunSpec("pqr", "atari/Breakout", 100, env_options={"protocol": "dqn_zoo"})
    env = evaluation_maker(spec, spec.env)()
    assert env.unwrapped.training is False and evaluation_settings(spec)["epsilon"] == 0.001
    assert "epsilon" not in evaluation_settings(RunSpec("pqr", "CartPole-v1", 100))
    zoo = RunSpec("pqr", "atari/Pong", 100, env_options={"protocol": "dqn_zoo"})
    assert evaluation_settings(zoo)["ends"] == "cut" and evaluation_settings(spec)["ends"] == "cut"
    paper = RunSpec("dqn", "atari/Pong", 100)
    assert evaluation_settings(paper) == {"episodes": 10, "steps": 0, "ends": "whole_episode", "epsilon": 0.001}
    old = RunSpec("dqn", "atari/Pong", 100, env_options={"protocol": "dqn_zoo"})
    assert evaluation_settings(old)["epsilon"] == 0.05, "DQN's own"
    assert len(run.evaluation_rows[0]["returns"]) == 2 and min(run.evaluation_rows[0]["returns"]) >= 0


def test_a_protocol_brings_its_settings():
    zoo = tremble.make("qrdqn", "atari", protocol="dqn_zoo")
    assert zoo.representation.n_quantiles == 201 and zoo.optimiser.max_grad_norm == 10.0
    assert zoo.chooser.epsilon_origin == "learning_start" and zoo.chooser.epsilon_decay_steps == 1_000_000
    clock = Clock(*[np.int32(50_000 + 500_000)] * 4, start_transitions=50_000)
    np.testing.assert_allclose(zoo.chooser.epsilon(clock), (1.0 + 0.01) / 2, rtol=1e-5)
    dqn = tremble.make("dqn", "atari", protocol="dqn_zoo")
    assert dqn.optimiser == RMSProp(2.5e-4, 0.95, 0.01 / 32**2, centred=True) and dqn.chooser.epsilon_end == 0.1
    assert tremble.make("dqn", "atari", protocol="dqn_zoo", learning_rate=1e-3).optimiser.learning_rate == 1e-3
    rainbow = tremble.make("rainbow", "atari", protocol="dqn_zoo")
    assert (rainbow.replay.n_step, rainbow.replay.priority_exponent, rainbow.learning.start_steps) == (3, 0.5, 20_000)
    assert tremble.make("c51", "atari", protocol="paper").optimiser.learning_rate == 2.5e-4, (
        "unpublished there: DQN Zoo's"
    )
    dopamine = tremble.make("pqr", "atari", protocol="dopamine")
    assert dopamine.network.padding == "same" and dopamine.network.initialisation == "variance_scaling"
    assert (dopamine.learning.start_steps, dopamine.learning.target_update_interval) == (20_000, 8_000)
    paper = tremble.make("pqr", "atari", protocol="paper")
    assert isinstance(paper.network, ConvSpec) and paper.network.initialisation == "he_convolutions"
    with pytest.raises(SettingsError, match="protocols are about Atari"):
        tremble.make("pqr", "nchain", protocol="paper")
    with pytest.raises(SettingsError, match="did you mean 'dopamine'"):
        RunSpec("pqr", "atari/Pong", 10, env_options={"protocol": "dopamin"}).build_agent()


@pytest.mark.parametrize(
    ("law", "conv_limit", "dense_limit"),
    [
        # fan-in of the convolution 8 x 8 x 4 = 256, fan-out 8 x 8 x 32; of the dense layer 512 and 100.
        ("fan_in_uniform", 1 / 16, 512**-0.5),
        ("he_convolutions", (6 / 256) ** 0.5, 512**-0.5),
        ("variance_scaling", (3**0.5 / 256) ** 0.5, (3**0.5 / 512) ** 0.5),
        ("xavier_uniform", (6 / (256 + 2048)) ** 0.5, (6 / 612) ** 0.5),
    ],
)
def test_layers_start_as_named(law, conv_limit, dense_limit):
    torso, _ = ConvSpec(((32, 8, 4),), (100,)).init(jax.random.key(0), (12, 28, 4))
    assert torso.dense.layers[0].weight.shape == (100, 2 * 6 * 32)
    torso, _ = ConvSpec(((32, 8, 4),), (100,)).init(jax.random.key(0), (20, 20, 4))
    torso = initialise(torso, law, jax.random.key(1))
    conv, dense = torso.convolutions[0], torso.dense.layers[0]
    assert dense.weight.shape == (100, 512)
    for layer, limit, started in (
        (conv, conv_limit, law != "fan_in_uniform"),
        (dense, dense_limit, law not in ("fan_in_uniform", "he_convolutions")),
    ):
        assert 0.98 * limit < float(jnp.abs(layer.weight).max()) <= limit
        np.testing.assert_allclose(layer.weight.std(), limit / 3**0.5, rtol=0.03)
        assert bool((layer.bias == 0).all()) == started


def test_an_environment_that_stacks_no_pictures_has_the_plain_memory():
    loop = GymLoop(Agent(), open_environment("CartPole-v1"), 0, 10)
    assert type(loop.replay) is NumpyReplay and loop.blocks is None
    network = ConvSpec(((4, 8, 8),), (8,))
    loop = GymLoop(Agent(network=network), open_environment("atari/Pong"), 0, 10)
    assert isinstance(loop.replay, FrameReplay)


# --- killed at any moment ---------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import jax
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
import tremble
from tremble.replay import frame_store
frame_store.BLOCK = 128
print("ready", flush=True)
tremble.train(
    "pqr", "atari/Breakout", steps=4000, out=sys.argv[1], chunk=20, record_every=200, checkpoint_every=100,
    env_options={"protocol": "paper_sticky"}, layers=[[4, 8, 8], [4, 4, 4]], widths=[8], n_quantiles=8, batch_size=8,
    start_steps=400, memory_size=3000, n_step=3, prioritised=True, n_envs=2,
)
"""


@pytest.mark.long
def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    def start(directory):
        command = [sys.executable, "-c", SCRIPT, str(directory), str(tmp_path / "cache")]
        env = os.environ | {"JAX_PLATFORMS": "cpu"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)

    assert start(tmp_path / "whole").wait(timeout=1200) == 0
    rng, kills, directory = random.Random(0), 0, tmp_path / "run"
    while True:
        process = start(directory)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        begin, newest = time.monotonic(), sorted((directory / "checkpoints").glob("step-*"))
        while process.poll() is None and sorted((directory / "checkpoints").glob("step-*")) == newest:
            assert time.monotonic() < begin + 600
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 1.5))
        if kills < 6 and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.wait(timeout=1200) == 0
        break
    assert kills == 6
    ours, theirs = files(directory), files(tmp_path / "whole")
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name] == theirs[name], name
    steps = [json.loads(line)["step"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
