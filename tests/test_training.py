"""Compiled training: same seed same numbers, chunks do not matter, interruption does not matter, it learns."""

import json

import gymnasium
import jax
import numpy as np
import pytest

import tremble
from tremble.records import CheckpointError
from tremble.settings import SettingsError
from tremble.training import checkpoint
from tremble.training.spec import RunSpec
from tremble.training.xla_loop import iterate
from tremble.worlds.nchain import NChain

SMALL = {"n_quantiles": 16, "widths": [16, 16], "batch_size": 16, "start_steps": 100, "learning_rate": 1e-3}
STEPS = 600


def small_run(agent="pqr", seed=0, steps=STEPS, **options):
    return tremble.train(agent, "nchain", steps=steps, seed=seed, record_every=200, **(SMALL | options))


def same(a, b):
    """Bit for bit: everything that happened, everything recorded, every parameter."""
    for name in a.log:
        np.testing.assert_array_equal(a.log[name], b.log[name], err_msg=name)
    np.testing.assert_array_equal(a.snapshots["atoms"], b.snapshots["atoms"])
    np.testing.assert_array_equal(a.snapshots["scores"], b.snapshots["scores"])
    assert json.dumps(a.rows) == json.dumps(b.rows) and a.episode_rows == b.episode_rows
    for x, y in zip(jax.tree.leaves(a.agent.params), jax.tree.leaves(b.agent.params), strict=True):
        np.testing.assert_array_equal(x, y)
    return True


@pytest.fixture(scope="module")
def base():
    return small_run()


def test_one_seed_repeats_bit_for_bit(base):
    assert same(base, small_run())


def test_seeds_differ(base):
    other = small_run(seed=1)
    assert not np.array_equal(base.log["action"], other.log["action"])
    assert not np.array_equal(base.snapshots["atoms"], other.snapshots["atoms"])


@pytest.mark.parametrize("chunk", [50, pytest.param(333, marks=pytest.mark.long)])
def test_chunk_length_does_not_change_results(base, chunk):
    assert same(base, small_run(chunk=chunk))


@pytest.mark.parametrize("stop_at", [100, 300, 450])
def test_interrupted_and_continued_equals_uninterrupted(tmp_path, base, stop_at):
    def interrupt(step, row):
        if step >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(out=tmp_path, chunk=50, on_progress=interrupt)
    newest = sorted((tmp_path / "checkpoints").iterdir())[-1]
    saved = checkpoint.read_meta(newest)["facts"]["t"]
    assert saved == stop_at, "whole chunks made before the interruption are kept"
    steps = []
    continued = small_run(out=tmp_path, chunk=50, on_progress=lambda step, row: steps.append(step))
    assert min(steps) > stop_at, "it went on instead of starting over"
    assert same(continued, base)


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = small_run(out=tmp_path)
    steps = []
    again = small_run(out=tmp_path, on_progress=lambda step, row: steps.append(step))
    assert steps == [] and same(first, again)


def test_files_of_two_equal_runs_are_equal(tmp_path):
    for name in ("a", "b"):
        small_run(out=tmp_path / name)
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert {path.name for path in files} > {"config.json", "metrics.jsonl", "weights.safetensors", "timing.jsonl"}
    for file in files:
        if not file.name.startswith(("timing", "lock")):
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_other_settings_in_the_same_directory_are_refused(tmp_path):
    small_run(out=tmp_path)
    with pytest.raises(CheckpointError, match=r"holds another run: delta_0 is 500.0 there and 3.0 here"):
        small_run(out=tmp_path, delta_0=3.0)


@pytest.mark.long
def test_vectorised_runs_match_single_ones():
    """The same transitions; parameters within float tolerance, because the arithmetic is batched differently."""
    many = tremble.train_many(
        "pqr", "nchain", steps=400, seeds=[0, 3], sweep={"delta_0": [500.0, 5.0]}, record_every=200, **SMALL
    )
    assert len(many) == 4
    assert all(r.episode_rows[-1]["step"] <= 400 and len(r.episode_rows) == r.rows[-1]["episodes"] for r in many)
    for r in many:
        single = small_run(steps=400, seed=r.spec.seed, delta_0=r.spec.agent_options["delta_0"])
        np.testing.assert_array_equal(r.log["action"][:100], single.log["action"][:100])
        agree = (r.log["action"] == single.log["action"]).mean()
        assert agree > 0.97, agree
        np.testing.assert_allclose(r.snapshots["atoms"][0], single.snapshots["atoms"][0], rtol=1e-3, atol=1e-3)
    assert len({tuple(r.log["action"]) for r in many}) == 4


@pytest.mark.slow
def test_many_runs_of_any_kind():
    """Settings that are fixed at compile time and Gymnasium environments: each run is trained by itself."""
    small = SMALL | {"start_steps": 20}
    static = tremble.train_many(
        "pqr",
        "nchain",
        steps=60,
        seeds=[0],
        sweep={"batch_size": [4, 8]},
        **{k: v for k, v in small.items() if k != "batch_size"},
    )
    assert [run.agent.agent.learning.batch_size for run in static] == [4, 8]
    how = {"steps": 60, "seeds": [0, 1], "sweep": {"delta_0": [5.0, 50.0]}} | small
    runs = tremble.train_many("pqr", "CartPole-v1", **how)
    assert [(run.spec.seed, run.spec.agent_options["delta_0"]) for run in runs] == [(0, 5), (1, 5), (0, 50), (1, 50)]
    with pytest.raises(SettingsError, match="give an id or a function"):
        tremble.train_many("pqr", gymnasium.make("CartPole-v1"), steps=60, seeds=[0])
    with pytest.raises(SettingsError, match="at least one seed"):
        tremble.train_many("pqr", "nchain", steps=60, seeds=[])


def test_metrics_are_a_table(base):
    table = base.metrics
    assert list(table["step"]) == [200, 400, 600]
    assert list(table["updates"]) == [100, 300, 500]
    for name in ("loss", "gradient_norm", "crossing_rate", "selection_changed", "xi_effective_share", "delta"):
        assert np.isfinite(table[name]).all(), name
    assert (table["delta"].diff().dropna() < 0).all()


def test_episode_bookkeeping(base):
    ended = base.log["done"] > 0
    assert base.metrics["episodes"].iloc[-1] == ended.sum() > 10
    starts = base.log["state_index"][1:][ended[:-1]]
    assert (starts == 2).all(), "every episode starts in the middle"
    assert (base.log["reward"][~ended] == 0).all() and (base.log["reward"][ended] > 3).all()
    assert set(base.log["state_index"][ended]) <= {0, 4}
    assert [e["step"] for e in base.episode_rows] == (np.flatnonzero(ended) + 1).tolist()
    assert [e["return"] for e in base.episode_rows] == base.log["reward"][ended].tolist(), "only the last step pays"
    assert np.cumsum([e["length"] for e in base.episode_rows]).tolist() == [e["step"] for e in base.episode_rows]
    for row, since in zip(base.rows, (0, 200, 400), strict=True):
        returns = [e["return"] for e in base.episode_rows if since < e["step"] <= row["step"]]
        assert row["return"] == pytest.approx(np.mean(returns))


@pytest.mark.slow
def test_evaluations_do_not_change_a_run(tmp_path):
    """It stays inside XLA, with the same steps and parameters; interrupted and continued, too."""

    def interrupt(step, row):
        if step >= 250:
            raise KeyboardInterrupt

    limited = {"env_options": {"time_limit": 20}}  # an untrained agent may walk to and fro for ever
    how = {"evaluate_every": 250, "evaluate_episodes": 3, **limited}
    base, evaluated = small_run(**limited), small_run(**how)
    assert same(evaluated, base), "also the snapshots, which only runs inside XLA have"
    assert [row["step"] for row in evaluated.evaluation_rows] == [250, 500, 600]
    assert evaluated.best is not None and evaluated.best.counts.transitions in (250, 500, 600)
    with pytest.raises(KeyboardInterrupt):
        small_run(out=tmp_path, on_progress=interrupt, **how)
    continued = small_run(out=tmp_path, **how)
    assert same(continued, base) and continued.evaluation_rows == evaluated.evaluation_rows
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == base.episode_rows
    assert tremble.load(tmp_path, weights="best").counts == evaluated.best.counts
    with pytest.raises(CheckpointError, match="evaluate_every is 250 there and 100 here"):
        small_run(out=tmp_path, **(how | {"evaluate_every": 100}))


@pytest.mark.long
def test_time_limits_truncate_and_still_bootstrap():
    r = small_run(env_options={"time_limit": 4})
    assert (r.log["done"] == 2).any()
    state_steps = np.diff(np.flatnonzero(np.concatenate([[True], r.log["done"] > 0])))
    assert state_steps.max() <= 4


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {"resample_noise_every": "episode", "share_noise": True, "order": "sorted", "t_unit": "updates"},
        {"noise_per_sample": True, "draws_per_update": 2, "criterion_for": "target", "double": True},
        {"criterion_for": "behaviour", "alpha": "theory", "update_interval": 3, "target_tau": 0.1, "kappa": 0.0},
    ],
    ids=lambda o: "-".join(o),
)
def test_documented_options_work_together_and_change_the_run(base, options):
    """Each option alone has its unit test; here they meet in the compiled loop."""
    r = small_run(**options)
    assert np.isfinite(r.snapshots["atoms"]).all()
    assert not np.array_equal(r.snapshots["atoms"], base.snapshots["atoms"])


def test_distribution_of_the_trained_agent(base):
    dist = base.agent.distribution([0, 0, 1, 0, 0])
    assert isinstance(dist, tremble.ReturnDist) and dist.atoms.shape == (6, 16)
    np.testing.assert_allclose(dist.atoms, base.snapshots["atoms"][-1], rtol=1e-5, atol=1e-5)
    assert base.agent.act([0, 0, 1, 0, 0]) == int(np.argmax(dist.mean()))
    with pytest.raises(ValueError, match="shape"):
        base.agent.distribution([1.0, 2.0])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: tremble.train("pqrr", "nchain", steps=10), "did you mean 'pqr'"),
        (lambda: tremble.train("pqr", "nchian", steps=10), "did you mean 'nchain'"),
        (lambda: tremble.train("pqr", "nchain", steps=0), "steps"),
        (lambda: tremble.train("pqr", "nchain", steps=10, seed=-1), "seed"),
        (lambda: tremble.train("pqr", "nchain", steps=10, env_options={"lenght": 7}), "did you mean 'length'"),
        (lambda: tremble.train("pqr", "nchain", steps=10, env_options={"length": 4}), "odd"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def learned(**env_options):
    """QR-DQN that acts at random throughout, so that both ends are seen equally often."""
    return tremble.train(
        "qrdqn",
        "nchain",
        steps=12_000,
        seed=0,
        record_every=2000,
        n_quantiles=32,
        widths=[32, 32],
        learning_rate=5e-4,
        epsilon_end=1.0,
        start_steps=200,
        env_options=env_options,
    )


@pytest.mark.long
def test_values_are_learned_with_the_right_powers_of_gamma():
    """Both ends without the mixture: 10 gamma^2 and 9 gamma^2, and a falling loss."""
    r = learned(right_low=9.0, right_high=9.0)
    dist = r.agent.distribution([0, 0, 1, 0, 0])
    for action, mean in ((0, 8.1), (1, 7.29)):
        truth = NChain(right_low=9.0, right_high=9.0).committed_return(2, action, 0.9)
        assert truth.mean() == pytest.approx(mean)
        assert truth.w2(dist.atoms[action]) < 0.35, action
    assert r.metrics["loss"].iloc[-1] < r.metrics["loss"].iloc[0]


@pytest.mark.long  # before a merge, the covering set of `test_grid.py` has the coin
def test_the_distribution_is_learned_not_only_the_mean():
    """The safe end narrow; the risky one wide, and closer to the true mixture than any single value could be."""
    dist = learned().agent.distribution([0, 0, 1, 0, 0])
    left, right = (NChain().committed_return(2, action, 0.9) for action in (0, 1))
    assert left.w2(dist.atoms[0]) < 0.35
    assert right.w2(dist.atoms[1]) < 0.7 * right.std()
    assert float(dist[1].std()) > 5 * float(dist[0].std())


@pytest.mark.long
def test_chunks_split_where_learning_starts():
    agent, env = RunSpec("pqr", "nchain", 300, 0, None, SMALL).build()
    ends = [m.t for m in iterate(agent, env, 0, 300, record_every=250, stops=(120,))]
    assert ends == [100, 120, 240, 250, 300]


@pytest.mark.parametrize("env", ["nchain", "CartPole-v1"])
def test_a_run_may_be_asked_to_stop_before_its_first_step(env, tmp_path):
    """A worker of a sweep whose driver died at once: nothing is made yet, and nothing is wrong."""
    from tremble.training.run import run_loop
    from tremble.training.spec import RunSpec

    spec = RunSpec("pqr", env, 60, agent_options=dict(SMALL))
    stopped = run_loop(spec, spec.build_agent(), env, tmp_path, should_stop=lambda: True)
    assert stopped.agent.counts.transitions == 0 and stopped.rows == []
    whole = run_loop(spec, spec.build_agent(), env, tmp_path)
    assert whole.rows == run_loop(spec, spec.build_agent(), env, None).rows
