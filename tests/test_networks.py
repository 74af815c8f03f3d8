"""Networks of users, and what is made of pictures."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import tremble
from tremble.agent import Agent
from tremble.cli.main import main
from tremble.criteria import CVaR
from tremble.envs.encoding import Encoder
from tremble.networks import AutoSpec, ConvSpec, MlpSpec, OwnTorso, choice_in_words
from tremble.networks.conv import MINATAR, NATURE
from tremble.networks.pictures import MIDDLE, as_picture
from tremble.optimisers import RMSProp
from tremble.presets import PRESETS, make, resolve
from tremble.records import CheckpointError
from tremble.settings import SettingsError, describe
from tremble.training.consent import code_of_agent
from tremble.training.spec import RunSpec

SMALL = {"n_quantiles": 4, "batch_size": 4, "start_steps": 20}


class Skip(eqx.Module):
    """The observation, and a layer of it behind an activation function, which is no array."""

    layer: eqx.nn.Linear
    activation: Any

    def __call__(self, obs):
        x = obs.reshape(-1)
        return jnp.concatenate([x, self.activation(self.layer(x))])


class SkipSpec(eqx.Module):
    """Its field is not marked as static: a user need not know."""

    width: int = 6

    def init(self, key, obs_shape):
        n = int(np.prod(obs_shape))
        return Skip(eqx.nn.Linear(n, self.width, key=key), jax.nn.tanh), n + self.width


@dataclasses.dataclass(frozen=True)
class FrozenSpec:
    """A frozen dataclass of Python."""

    width: int = 6
    kind: str = "relu"

    def init(self, key, obs_shape):
        return eqx.nn.MLP(
            obs_shape[0], self.width, 5, 1, final_activation=getattr(jax.nn, self.kind), key=key
        ), self.width


class PlainSpec:
    """An object like any other, equal to itself only."""

    def init(self, key, obs_shape):
        return jax.tree_util.Partial(lambda w, obs: jax.nn.relu(w @ obs), jax.random.normal(key, (3, obs_shape[0]))), 3


def small(name: str, **changes: Any) -> Agent:
    return make(name, "control", **SMALL, **changes)


# --- a network of one's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network", [SkipSpec, SkipSpec(), FrozenSpec, PlainSpec, PlainSpec(), "test_networks:SkipSpec"]
)
def test_an_object_a_class_and_a_name_are_taken(network):
    agent = small("qrdqn", network=network)
    params = agent.init(jax.random.key(0), (4,), 2).params
    assert agent.predict(params, jnp.ones((3, 4))).atoms.shape == (3, 2, 4)
    assert isinstance(params.torso, OwnTorso) and len(jax.tree.leaves(params.torso)) >= 1


def test_settings_by_name():
    assert small("qrdqn", network=SkipSpec, width=9).network == SkipSpec(9)
    assert small("qrdqn", network="test_networks:FrozenSpec", width=9, kind="tanh").network == FrozenSpec(9, "tanh")
    assert small("qrdqn", network="mlp", widths=[3]).network == MlpSpec((3,), layer_norm=True)
    assert small("qrdqn", network="nature").network == ConvSpec(NATURE, (64, 64), scale=None)
    with pytest.raises(SettingsError, match="did you mean 'width'"):
        small("qrdqn", network=SkipSpec, widths=[3])
    with pytest.raises(SettingsError, match="kind must be text, got 3"):
        small("qrdqn", network=FrozenSpec, kind=3)


class NoInit:
    pass


class NeedsArguments(PlainSpec):
    def __init__(self, width):
        self.width = width


@dataclasses.dataclass
class NotHashable:
    width: int = 3

    def init(self, key, obs_shape):
        return lambda obs: obs, 3


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("natur", "there is no network 'natur'; did you mean 'nature'"),
        ("os:abort", "os:abort is no network|posix:abort is no network"),  # found, and not called
        (NoInit, "test_networks:NoInit is no network: it needs a method init"),
        (eqx.nn.MLP, "MLP is no network"),
        (3, "is no network"),
        (NeedsArguments, "test_networks:NeedsArguments cannot be made: all its settings need a default"),
        (NotHashable, "test_networks:NotHashable cannot be hashed .*frozen=True"),
    ],
)
def test_what_is_no_network_is_refused_at_once(network, message):
    with pytest.raises(SettingsError, match=message):
        small("qrdqn", network=network)


def spec_of(init):
    return type("Made", (), {"init": lambda self, key, obs_shape: init(key, obs_shape)})()


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (lambda key, shape: eqx.nn.Linear(4, 3, key=key), r"must return \(torso, n_features\).* it returned Linear"),
        (lambda key, shape: (eqx.nn.Linear(4, 3, key=key), "3"), r"it returned \(Linear, str\)"),
        (lambda key, shape: (eqx.nn.Linear(4, 3, key=key), 5), r"a vector of 5 features.* it returns float32\[3\]"),
        (lambda key, shape: (eqx.nn.Linear(9, 3, key=key), 3), r"the torso of .*Made fails for observations \(4,\)"),
        (lambda key, shape: (lambda obs: obs[:, None], 4), r"fails for observations|returns float32"),
        (lambda key, shape: (lambda obs: (obs, obs), 4), "returns "),
        (lambda key, shape: (lambda obs: obs.astype(int), 4), "int32"),
        (lambda key, shape: 1 / 0, "init fails for observations .*ZeroDivisionError: division by zero"),
        (
            lambda key, shape: (jax.tree_util.Partial(lambda i, obs: obs[i], jnp.arange(4)), 4),
            r"holds an array int32\[4\], which cannot be learned",
        ),
    ],
)
def test_wrong_torsos_are_one_message_before_the_first_step(init, message, tmp_path):
    agent = small("qrdqn", network=spec_of(init))
    for env in ("CartPole-v1", "risky-grid"):
        with pytest.raises(SettingsError, match=message if env == "CartPole-v1" else "Made"):
            tremble.train(agent, env, steps=30, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", PRESETS)
def test_every_agent_takes_it(name):
    """Every representation: several torsos, dueling and noisy heads."""
    agent, key = make(name, "control", n_quantiles=4, network=SkipSpec), jax.random.key(0)

    def shapes(key):
        params, obs = agent.init(key, (4,), 2).params, jnp.ones((1, 4))
        return params.features(obs), agent.predict(params, obs, agent.query("choose", key)).atoms

    features, atoms = jax.eval_shape(shapes, key)
    assert features.shape == (1, 10 * agent.representation.n_torsos) and atoms.shape[:2] == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pqr_rainbow", "rainbow", "bootstrapped_dqn", "ndqfn", "fqf", "quota"])
def test_agents_learn_with_it_and_the_frozen_torso_stays(name):
    agent = small(name, network=SkipSpec)
    run = tremble.train(agent, "CartPole-v1", steps=26)
    before = agent.init(jax.random.key(0), (4,), 2).params.torso
    assert jax.tree.structure(before) == jax.tree.structure(run.agent.params.torso)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(run.agent.params))


@pytest.mark.slow
@pytest.mark.parametrize("network", [SkipSpec, FrozenSpec, PlainSpec])
def test_runs_inside_xla_and_many_at_once(network):
    runs = tremble.train_many(
        "pqr", "nchain", steps=60, seeds=[0, 1], sweep={"delta_0": [1.0, 5.0]}, network=network, **SMALL
    )
    single = tremble.train("pqr", "nchain", steps=60, seed=1, network=network, delta_0=1.0, **SMALL)
    assert len(runs) == 4 and runs[1].log["action"].tolist() == single.log["action"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("env", ["nchain", "CartPole-v1"])
def test_a_run_is_saved_continued_and_loaded_with_consent(tmp_path, env):
    how = {"network": SkipSpec, "width": 5, "record_every": 20, **SMALL}
    whole = tremble.train("pqr", env, steps=60, out=tmp_path / "whole", **how)
    tremble.train("pqr", env, steps=40, out=tmp_path / "parts", **how)
    named = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert named["spec"]["agent_options"]["network"] == "test_networks:SkipSpec"
    assert named["settings"]["network"] == "test_networks:SkipSpec"
    assert named["settings"]["agent_settings"]["network.width"] == 5
    for read in (tremble.load, tremble.resume):
        with pytest.raises(CheckpointError, match="names code to import: network=test_networks:SkipSpec"):
            read(tmp_path / "whole")
    loaded = tremble.load(tmp_path / "whole", trust_code=True)
    obs = np.ones(loaded.encoder.shape, np.float32)
    np.testing.assert_array_equal(loaded.distribution(obs).atoms, whole.agent.distribution(obs).atoms)
    parts = tremble.resume(tmp_path / "parts", steps=60, trust_code=True)
    for a, b in zip(jax.tree.leaves(parts.agent.params), jax.tree.leaves(whole.agent.params), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_an_object_is_saved_as_its_class_and_its_settings(tmp_path):
    run = tremble.train("pqr", "nchain", steps=30, out=tmp_path / "run", network=SkipSpec(4), **SMALL)
    loaded = tremble.load(tmp_path / "run", trust_code=True)
    assert loaded.agent.network == SkipSpec(4) and describe(loaded.agent) == describe(run.agent.agent)
    with pytest.raises(SettingsError, match="has no name to be saved by"):
        tremble.train("pqr", "nchain", steps=30, network=NeedsArguments(3), **SMALL)
    agent = make("pqr", network=NeedsArguments(3), **SMALL)
    tremble.train(agent, "nchain", steps=30, out=tmp_path / "other")
    assert tremble.load(tmp_path / "other", agent).agent.network is agent.network


def test_parts_given_as_objects_are_written_in_words():
    """Not only networks: a class by its name, the fields of the object beside it, and what else was changed."""
    options = {"kappa": 0.5, "criterion": CVaR(0.25), "optimiser": RMSProp(1e-3), "network": MlpSpec((7,))}
    spec = RunSpec("qrdqn", "nchain", 30, agent_options=options)
    words = spec.as_json()["agent_options"]
    assert words["criterion"] == "tremble.criteria.distortion:CVaR" and words["network.widths"] == [7]
    again, agent = RunSpec(**spec.as_json()).build_agent(), spec.build_agent()
    assert describe(again) == describe(agent) and again.network == agent.network
    assert [type(again.criterion), type(again.optimiser)] == [CVaR, RMSProp]


def test_a_network_that_only_recorded_settings_name_is_code_too():
    spec = RunSpec("pqr", "nchain", 30)
    assert code_of_agent(spec, describe(spec.build_agent()) | {"network": "evil:Net"}) == {"network": "evil:Net"}


def test_lists_and_explanations_show_it(capsys, monkeypatch, tmp_path):
    _, trace = resolve("pqr", "atari", changes={"network": PlainSpec})
    said = [(one.layer, one.value) for one in trace["network"]]
    assert said == [
        ("default", "auto"),
        ("table", "tremble.networks.conv:ConvSpec"),
        ("yours", "test_networks:PlainSpec"),
    ]
    monkeypatch.chdir(tmp_path)
    main(["list", "--settings", "pqr", "--set", "network=test_networks:SkipSpec", "--set", "width=7"])
    shown = capsys.readouterr().out
    assert "test_networks:SkipSpec" in shown and "network.width" in shown
    main(["list", "--settings", "qrdqn", "--hyperparameters", "control", "--explain", "pictures"])
    assert "convolve" in capsys.readouterr().out
    main(["list"])
    assert "nature" in capsys.readouterr().out


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((84, 84, 4), (84, 84, 4, False)),
        ((210, 160, 3), (210, 160, 3, False)),
        ((7, 7, 3), (7, 7, 3, False)),
        ((10, 10, 7), (10, 10, 7, False)),
        ((3, 3, 9), (3, 3, 9, False)),
        ((4, 4, 16), (4, 4, 16, False)),  # a board with sixteen planes
        ((4, 13, 6), (4, 13, 6, False)),
        ((5, 5, 3), (5, 5, 3, False)),
        ((4, 84, 84), (84, 84, 4, True)),
        ((12, 84, 96), (84, 96, 12, True)),
        ((3, 210, 160), (210, 160, 3, True)),
        ((3, 7, 7), (7, 7, 3, True)),
        ((2, 5, 3), None),
        ((36, 36), None),
        ((5,), None),
        ((), None),
        ((0, 5, 5), None),
    ],
)
def test_what_an_observation_shows(shape, picture):
    assert as_picture(shape) == picture


def test_convolutions_fit_pictures_of_every_size():
    assert [as_picture((n, n, 1)).layers for n in (3, 11, 12, 35, 36, 400)] == [
        MINATAR,
        MINATAR,
        MIDDLE,
        MIDDLE,
        NATURE,
        NATURE,
    ]
    for side in [*range(3, 14), 35, 36, 37, 84, 97]:
        for shape in ((side, side, 3), (3 * side, side, 2)):

            def features(key, obs):
                return AutoSpec((8,)).init(key, obs.shape)[0](obs)

            assert jax.eval_shape(features, jax.random.key(0), jnp.zeros(shape, jnp.uint8)).shape == (8,)


def test_channels_first_are_the_same_pictures():
    picture = jax.random.randint(jax.random.key(1), (40, 44, 3), 0, 255).astype(jnp.uint8)
    spec, key = AutoSpec((8,), layer_norm=True), jax.random.key(0)
    last, first = spec.init(key, (40, 44, 3))[0], spec.init(key, (3, 40, 44))[0]
    np.testing.assert_allclose(first(jnp.moveaxis(picture, -1, 0)), last(picture), rtol=1e-5)
    normalised = np.asarray(last(255 * picture.astype(jnp.float32)))
    assert np.linalg.norm(normalised) <= np.sqrt(8) + 1e-3, "layer_norm is in force behind the convolutions"


@pytest.mark.parametrize("network", ["auto", "mlp", "nature", "minatar"])
def test_bytes_of_pictures_are_scaled_and_floats_are_not(network):
    torso, _ = make("qrdqn", "control", network=network).network.init(jax.random.key(0), (40, 40, 3))
    picture = jax.random.randint(jax.random.key(1), (40, 40, 3), 0, 255).astype(jnp.uint8)
    np.testing.assert_allclose(torso(picture), torso(picture / 255), rtol=1e-4, atol=1e-5)
    truths = picture > 100
    np.testing.assert_allclose(torso(truths), torso(truths.astype(jnp.float32)), rtol=1e-5)


@pytest.mark.parametrize(("high", "dtype"), [(255, "uint8"), (1, "bool")])
def test_bytes_that_can_only_be_zero_and_one_are_truths(high, dtype):
    encoder = Encoder.of(spaces.Box(0, high, (5, 5, 2), np.uint8))
    assert encoder.dtype == dtype == encoder(np.ones((5, 5, 2), np.uint8)).dtype.name


def test_a_vector_of_bytes_stays_as_it_is():
    torso, _ = AutoSpec((8,)).init(jax.random.key(0), (5,))
    codes = jnp.arange(5, dtype=jnp.uint8)
    np.testing.assert_array_equal(torso(codes), torso(codes.astype(jnp.float32)))


def test_the_rule_can_be_switched_off_and_is_said():
    flat = [make("qrdqn", "control", **off).network for off in ({"network": "mlp"}, {"pictures": "flatten"})]
    shapes = [[x.shape for x in jax.tree.leaves(spec.init(jax.random.key(0), (9, 9, 2))[0])] for spec in flat]
    assert shapes[0] == shapes[1] and shapes[0][0] == (64, 162)
    assert [choice_in_words(spec, (9, 9, 2)) for spec in flat] == [None, None]
    assert describe(make("qrdqn", "control"))["network.pictures"] == "convolve"
    said = choice_in_words(AutoSpec(), (9, 9, 2))
    assert "9x9 with 2 channels (last axis)" in said and "16 of 3x3 every 1" in said and "network=mlp" in said
    assert choice_in_words(AutoSpec(), (4,)) is None


def test_vectors_have_the_network_they_had():
    key = jax.random.key(3)
    auto, mlp = (kind((8, 7), layer_norm=True).init(key, (5,))[0] for kind in (AutoSpec, MlpSpec))
    assert jax.tree.structure(auto) == jax.tree.structure(mlp)
    for a, b in zip(jax.tree.leaves(auto), jax.tree.leaves(mlp), strict=True):
        np.testing.assert_array_equal(a, b)
    for table in ("nchain", "minatar", "atari"):
        assert "network.pictures" not in describe(make("pqr", table))


class Dots(gymnasium.Env):
    """Small pictures of bytes: which side is the dot on?"""

    action_space = spaces.Discrete(2)

    def __init__(self, high: int = 255):
        self.high = high
        self.observation_space = spaces.Box(0, high, (5, 6, 3), np.uint8)

    def _show(self):
        self.side = int(self.np_random.integers(2))
        obs = np.zeros((5, 6, 3), np.uint8)
        obs[2, 5 * self.side] = self.high
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        reward = float(action == self.side)
        return self._show(), reward, False, self.np_random.random() < 0.1, {}


@pytest.mark.slow
@pytest.mark.parametrize("high", [255, 1])
def test_a_run_on_pictures_says_what_it_does_and_can_be_loaded(tmp_path, high):
    said: list[str] = []
    how = {"env_options": {"high": high}, "widths": [8], "on_message": said.append, **SMALL}
    run = tremble.train("qrdqn", "test_networks:Dots", steps=40, out=tmp_path / "run", **how)
    assert any("pictures of 5x6 with 3 channels" in text for text in said)
    assert run.agent.encoder.dtype == ("uint8" if high == 255 else "bool")
    loaded = tremble.load(tmp_path / "run")
    obs = Dots(high).reset(seed=0)[0]
    np.testing.assert_array_equal(loaded.distribution(obs).atoms, run.agent.distribution(obs).atoms)


@pytest.mark.slow
def test_where_the_dot_is_can_be_learned():
    how = {"n_quantiles": 8, "batch_size": 32, "start_steps": 100, "epsilon_decay_steps": 500, "gamma": 0.5}
    agent = tremble.train("qrdqn", "test_networks:Dots", steps=1200, **how).agent
    env, right = Dots(), 0
    obs, _ = env.reset(seed=1)
    for _ in range(50):
        action = agent.act(obs)
        right += action == env.side
        obs, *_ = env.step(action)
    assert right >= 45


@pytest.mark.slow
def test_both_loops_see_truths_as_truths():
    """Bytes of 0 and 1 are not scaled, and a run inside XLA and one beside it predict alike."""
    how = {"hyperparameters": "control", "widths": [8], **SMALL}
    inside = tremble.train("qrdqn", "minatar/breakout", steps=21, **how)
    beside = tremble.train("qrdqn", "minatar/breakout", steps=21, async_learning=True, **how)
    assert inside.agent.encoder == beside.agent.encoder and inside.agent.encoder.dtype == "bool"
    obs = np.random.default_rng(0).random((10, 10, 4)) < 0.2
    agent = inside.agent
    np.testing.assert_allclose(
        agent.distribution(obs.astype(np.uint8)).atoms,
        agent.agent.predict(agent.params, jnp.asarray(obs, jnp.float32)[None]).atoms[0],
        rtol=1e-5,
    )


class FloatsOnly(eqx.Module):
    """A torso that takes floating-point observations only, as convolutions of Equinox do."""

    def init(self, key, obs_shape):
        conv = eqx.nn.Conv2d(obs_shape[-1], 2, 3, key=key)
        return lambda obs: conv(jnp.moveaxis(obs, -1, 0)).mean((1, 2)), 2


class Bytes(gymnasium.Env):
    """Pictures of bytes."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)


def test_a_torso_that_cannot_take_what_replay_stores_is_refused_before_the_first_step():
    with pytest.raises(SettingsError, match=r"fails for observations uint8\[8, 8, 3\].*obs.astype"):
        tremble.train("pqr", Bytes, steps=30, network=FloatsOnly())
