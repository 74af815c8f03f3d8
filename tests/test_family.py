"""The study of the whole family: every preset is in it, rates come from other seeds, both loops can be counted."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from rich.console import Console

import tremble
from tremble.criteria import Criterion
from tremble.envs.jax_gym import JaxGymEnv
from tremble.presets import PRESETS
from tremble.studies import worker
from tremble.studies.kit import Cell, Options, Study, run_study, seconds_of, stored
from tremble.studies.nchain import family as nchain_family
from tremble.studies.nchain.result import NChainResult, load_result
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
    reported = {stored(tmp_path, cell.spec(seed, 100)) for cell in cells for seed in range(10)}
    searched = {
        stored(tmp_path, cell.spec(seed, 100))
        for cell in nchain_family.search_cells(options)
        for seed in range(1_000, 1_000 + nchain_family.SEARCH_SEEDS)
    }
    assert not reported & searched
    for cell in cells:
        agent = cell.spec(0, 10_000).build_agent()
        bins = getattr(agent.criterion, "n_bins", None)
        if bins is not None and type(agent.representation).__name__ in ("Quantile", "Particles"):
            assert bins in (getattr(agent.representation, n, None) for n in ("n_quantiles", "n_particles")), cell.label


def test_pairs():
    pairs = nchain_family.pairs()
    assert pairs[0] == ("pqr", "qrdqn")
    assert {("pqr_c51", "c51"), ("pqr_iqn", "iqn"), ("pqr_rainbow", "rainbow")} <= set(pairs)
    assert all(one in PRESETS and other in PRESETS for one, other in pairs)


def made(count, seed=0):
    """What a run with so many optimal actions would leave."""
    steps = np.array([100])
    atoms = np.zeros((1, 6, 1))
    return NChainResult(seed, steps, np.array([count]), steps, atoms, np.zeros((1, 6)), 0.5, NChain(), 0.9)


def test_the_best_rate_is_chosen(monkeypatch, tmp_path):
    found = {"dqn": {1e-3: [made(50), made(40)], 5e-5: [made(10), made(80)], 2e-4: [made(1), made(2)]}, "pqr": {}}
    monkeypatch.setattr(nchain_family, "searched", lambda options: found)
    assert nchain_family.chosen(options_in(tmp_path)) == {"dqn": 5e-5, "pqr": 5e-5}, "of equals the lower"


def test_the_report(monkeypatch, tmp_path):
    """Counts made up so that PQR's criterion helps QR-DQN, hurts C51, and does nothing to IQN."""
    noise = (-3, 1, 2, 0, -1, 1)
    base = {"qrdqn": 40, "pqr": 60, "c51": 50, "pqr_c51": 30, "iqn": 45, "pqr_iqn": 45, "dqn": 20}
    shake = {name: (1 if name in ("iqn", "dqn") else 0) for name in base}
    results = {
        name: [made(count + (1 + shake[name]) * x * (-1) ** (i % 2), seed) for seed, x in enumerate(noise)]
        for i, (name, count) in enumerate(base.items())
    }
    found = {name: {2e-4: [made(1, 1_000)]} for name in base} | {"qrdqn": {5e-5: [made(1, 1_000)]}}
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
        "seconds.csv",
    }
    rows = (options.out / "family.csv").read_text().splitlines()
    assert len(rows) == 1 + 8 * 6 and rows[1].startswith("qrdqn,5e-05,0,")
    assert next(row for row in rows if row.startswith("dqn")).endswith(","), "a mean has no distribution to be far from"


@pytest.mark.long
def test_both_loops_can_be_counted(monkeypatch, tmp_path):
    """The same agent inside XLA and beside it is the same run, so the host loop's file must say the same."""
    inside, beside = (
        RunSpec("qrdqn", "nchain", 60, 3, None, TINY, {"time_limit": 30}, 20, evaluate_every=every, evaluate_episodes=1)
        for every in (0, 60)
    )
    assert inside.compiled(inside.build_agent()), "this agent is trained inside XLA"
    monkeypatch.setattr(RunSpec, "compiled", lambda spec, agent: spec == inside)
    for spec, train in ((inside, worker.train_inside), (beside, worker.train_and_evaluate)):
        train(spec, spec.build_agent(), tmp_path / f"{train.__name__}.safetensors", lambda step: None)
    one, two = (
        load_result(tmp_path / f"{name}.safetensors", 3, spec)
        for name, spec in (("train_inside", inside), ("train_and_evaluate", beside))
    )
    np.testing.assert_array_equal(one.steps, two.steps)
    np.testing.assert_array_equal(one.optimal, two.optimal)
    np.testing.assert_array_equal(one.left, two.left)
    np.testing.assert_allclose(one.atoms[-1], two.atoms[-1], rtol=1e-4, atol=1e-5)
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


@pytest.mark.long
def test_a_search_comes_first_and_seconds_are_kept_apart(tmp_path):
    def cells(rate):
        return lambda options: [Cell(f"{rate}", "dqn", TINY | {"learning_rate": rate})]

    search = Study("search", "", cells(1e-3), lambda results, options: "", seeds=1, first_seed=7)
    study = Study("main", "", cells(1e-4), lambda results, options: str(len(results["0.0001"])), search=search)
    options = options_in(tmp_path, jobs=1)
    assert run_study(study, options, Console(quiet=True)).read_text() == "2"
    kept = sorted(path.name for path in options.store.glob("*/*.safetensors"))
    assert kept == ["seed-0000.safetensors", "seed-0001.safetensors", "seed-0007.safetensors"]
    specs = [study.cells(options)[0].spec(seed, 60) for seed in (0, 1, 9)]
    taken = seconds_of(options.store, specs)
    assert len(taken) == 2 and all(0 < seconds < 600 for seconds in taken)
    assert seconds_of(tmp_path, specs) == []
