"""The study of the whole family: every preset is in it, rates come from other seeds, both loops can be counted."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from study_makers import ended

import tremble
from tremble.criteria import Criterion
from tremble.envs.jax_gym import JaxGymEnv
from tremble.presets import PRESETS
from tremble.studies.kit import Options
from tremble.studies.nchain import family as nchain_family
from tremble.studies.nchain.result import NChainResult, load_result
from tremble.sweeps.finished_run import FinishedRun
from tremble.sweeps.sweep import spec_of
from tremble.training.evaluation import evaluate
from tremble.training.spec import RunSpec
from tremble.worlds.nchain import NChain

TINY = {"n_quantiles": 4, "widths": [4], "batch_size": 4, "start_steps": 20}


def options_in(directory, **changes):
    return dataclasses.replace(Options(directory / "out", directory / "store", 2, 60), **changes)


@pytest.mark.slow
def test_every_preset_is_in_it(tmp_path):
    options = options_in(tmp_path, steps=10_000)
    cells = nchain_family.cells(options)
    assert [cell.label for cell in cells] == list(PRESETS)
    assert all(cell.agent_options["learning_rate"] == nchain_family.RATES[0] for cell in cells), "nothing searched yet"
    assert len(nchain_family.search_cells(options)) == len(PRESETS) * len(nchain_family.RATES)
    reported = {run.spec.seed for _, run in nchain_family.STUDY.runs(options)}
    searched = {run.spec.seed for _, run in nchain_family.SEARCH.runs(options)}
    assert not reported & searched
    for cell in cells:
        agent = spec_of(cell, 0, 10_000).build_agent()
        bins = getattr(agent.criterion, "n_bins", None)
        if bins is not None and type(agent.representation).__name__ in ("Quantile", "Particles"):
            assert bins in (getattr(agent.representation, n, None) for n in ("n_quantiles", "n_particles")), cell.label


def test_pairs():
    pairs = nchain_family.pairs()
    assert pairs[0] == ("pqr", "qrdqn")
    assert {("pqr_c51", "c51"), ("pqr_iqn", "iqn"), ("pqr_rainbow", "rainbow")} <= set(pairs)
    assert all(one in PRESETS and other in PRESETS for one, other in pairs)


def made(count, seed=0, w2=0.5):
    """What a run with so many optimal actions would leave."""
    steps = np.array([100])
    return NChainResult(seed, steps, np.array([count]), steps, np.zeros((6, 1)), w2, NChain(), 0.9)


def test_the_best_rate_is_chosen(monkeypatch, tmp_path):
    found = {
        "dqn | 0.001": [made(50), made(40)],
        "dqn | 5e-05": [made(10), made(80)],
        "dqn | 0.0002": [made(1), made(2)],
    }
    monkeypatch.setattr(nchain_family, "agents", lambda options: ["dqn", "pqr"])
    monkeypatch.setattr(nchain_family, "searched", lambda options: found)
    assert nchain_family.chosen(options_in(tmp_path)) == {"dqn": 5e-5, "pqr": 5e-5}, "of equals the lower"


def test_the_report(monkeypatch, tmp_path):
    """Counts made up so that PQR's criterion helps QR-DQN, hurts C51, and does nothing to IQN."""
    noise = (-3, 1, 2, 0, -1, 1)
    base = {"qrdqn": 40, "pqr": 60, "c51": 50, "pqr_c51": 30, "iqn": 45, "pqr_iqn": 45, "dqn": 20}
    shake = {name: (1 if name in ("iqn", "dqn") else 0) for name in base}
    results = {
        name: [
            made(count + (1 + shake[name]) * x * (-1) ** (i % 2), seed, np.nan if name == "dqn" else 0.5)
            for seed, x in enumerate(noise)
        ]
        for i, (name, count) in enumerate(base.items())
    }
    found = {f"{name} | {5e-5 if name == 'qrdqn' else 2e-4:g}": [made(1, 1_000)] for name in base}
    results["qrdqn at 0.0002"] = [made(60 + x, seed) for seed, x in enumerate(noise)]  # at PQR's rate, as good as PQR
    monkeypatch.setattr(nchain_family, "searched", lambda options: found)
    monkeypatch.setattr(nchain_family, "agents", lambda options: list(base))
    options = options_in(tmp_path, seeds=6, steps=100)
    options.out.mkdir()
    report = nchain_family.analyse(results, options)
    verdicts, alike = (
        {line.split("|")[1].strip(): line.split("|")[k].strip() for line in report.splitlines() if "| pqr" in line}
        for k in (3, 6)
    )
    assert verdicts["pqr − qrdqn"] == "**helps**" and verdicts["pqr_c51 − c51"] == "**hurts**"
    assert verdicts["pqr_iqn − iqn"] == "no difference shown"
    assert alike == verdicts | {"pqr − qrdqn": "no difference shown"}
    assert "helps in 1 and hurts in 1 if each" in report and "helps in 0 and hurts in 1 if both" in report
    assert "6 times 0.0002" in report
    assert {p.name for p in options.out.iterdir()} == {
        "family.csv",
        "family.png",
        "family.svg",
        "search.csv",
    }
    rows = (options.out / "family.csv").read_text().splitlines()
    assert len(rows) == 1 + 8 * 6 and rows[1].startswith("qrdqn,5e-05,0,")
    assert next(row for row in rows if row.startswith("dqn")).endswith(","), "a mean has no distribution to be far from"


@pytest.mark.long
def test_both_loops_can_be_counted(monkeypatch, tmp_path):
    """The same agent inside XLA and beside it is the same run, so what is read of both must be the same."""
    loaded = {}
    for inside in (True, False):
        monkeypatch.setattr(RunSpec, "compiled", lambda spec, agent, inside=inside: inside)
        options = {"env_options": {"time_limit": 30}, "record_every": 20, "out": tmp_path / str(inside)}
        run = tremble.train("qrdqn", "nchain", steps=60, seed=3, **options, **TINY)
        loaded[inside] = load_result(FinishedRun(3, run.spec, tmp_path / str(inside), ended(60)))
    one, two = loaded[True], loaded[False]
    assert one.run.snapshots.keys() == {"atoms", "scores"} and not two.run.snapshots
    np.testing.assert_array_equal(one.steps, two.steps)
    np.testing.assert_array_equal(one.optimal, two.optimal)
    np.testing.assert_array_equal(one.left, two.left)
    np.testing.assert_allclose(one.atoms, two.atoms, rtol=1e-4, atol=1e-5)
    assert two.w2_left == pytest.approx(one.w2_left, rel=1e-4)


class Waiting(Criterion):
    """Action 2, which on N-Chain stays where it is."""

    def score(self, dist, noise, clock):
        return jax.nn.one_hot(2, dist.atoms.shape[-2])


@pytest.mark.slow
def test_a_policy_that_never_ends_an_episode_is_cut():
    """Untrained agents may well prefer a no-op of N-Chain, which by itself has no time limit."""
    run = tremble.train("qrdqn", "nchain", steps=20, record_every=20, **TINY)
    made = evaluate(run.agent, lambda: JaxGymEnv(NChain()), episodes=3, criterion=Waiting(), max_steps=7)
    assert made.lengths.tolist() == [7, 7, 7] and made.truncated.all() and not made.returns.any()


def test_steps_taken_survive_a_way_back():
    env = JaxGymEnv(NChain(), 0)
    env.reset()
    for action in (0, 1, 0):
        env.step(action)
    saved = env.save_state()
    env.step(5)
    env.load_state(saved)
    assert env.step_log()["action"].tolist() == [0, 1, 0]
    assert env.step_log()["optimal"].tolist() == [True, False, True]
    other = JaxGymEnv(NChain())
    other.reset(seed=1)
    other.step(0)
    assert len(other.step_log()["action"]) == 0, "only a run's own world remembers"
