"""The study of the whole family: every preset is in it, rates come from other seeds, both loops can be counted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from rich.console import Console

from tremble.envs import JaxGymEnv, NChain
from tremble.presets import PRESETS
from tremble.studies import nchain_family
from tremble.studies.runner import Cell, Options, Outcome, Study, load_outcome, run_study, seconds_of, stored
from tremble.training import worker
from tremble.training.spec import RunSpec

TINY = {"n_quantiles": 4, "widths": [4], "batch_size": 4, "start_steps": 20}


def options_in(directory, **changes):
    return dataclasses.replace(Options(directory / "out", directory / "store", 2, 60), **changes)


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


def test_the_best_rate_is_chosen(monkeypatch, tmp_path):
    def made(count):
        steps = np.array([100])
        return Outcome(0, steps, np.array([count]), steps, np.zeros((1, 6, 1)), np.zeros((1, 6)), 0.0, NChain(), 0.9)

    found = {"dqn": {1e-3: [made(50), made(40)], 5e-5: [made(10), made(80)], 2e-4: [made(1), made(2)]}, "pqr": {}}
    monkeypatch.setattr(nchain_family, "searched", lambda options: found)
    assert nchain_family.chosen(options_in(tmp_path)) == {"dqn": 5e-5, "pqr": 5e-5}, "of equals the lower"


@pytest.mark.slow
def test_both_loops_can_be_counted(tmp_path):
    """The same agent inside XLA and beside it is the same run, so the host loop's file must say the same."""
    inside, beside = (
        RunSpec("qrdqn", "nchain", 60, 3, None, TINY, {}, 20, evaluate_every=every, evaluate_episodes=1)
        for every in (0, 60)
    )
    assert inside.compiled(inside.build_agent()) and not beside.compiled(beside.build_agent())
    for spec, train in ((inside, worker.train_inside), (beside, worker.train_beside)):
        train(spec, spec.build_agent(), tmp_path / f"{train.__name__}.safetensors", lambda step: None)
    one, two = (
        load_outcome(tmp_path / f"{name}.safetensors", 3, spec)
        for name, spec in (("train_inside", inside), ("train_beside", beside))
    )
    np.testing.assert_array_equal(one.steps, two.steps)
    np.testing.assert_array_equal(one.optimal, two.optimal)
    np.testing.assert_array_equal(one.left, two.left)
    np.testing.assert_allclose(one.atoms[-1], two.atoms[-1], rtol=1e-4, atol=1e-5)
    assert two.w2_left == pytest.approx(one.w2_left, rel=1e-4)


def test_steps_taken_survive_a_way_back():
    env = JaxGymEnv(NChain(), 0)
    env.reset()
    for action in (0, 1, 0):
        env.step(action)
    saved = env.save_state()
    env.step(5)
    env.load_state(saved)
    assert env.log()["action"].tolist() == [0, 1, 0]
    assert env.log()["optimal"].tolist() == [True, False, True]
    other = JaxGymEnv(NChain())
    other.reset(seed=1)
    other.step(0)
    assert len(other.log()["action"]) == 0, "only a run's own world remembers"


@pytest.mark.slow
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
