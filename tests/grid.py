"""Every point of the agents' grid, and every preset: ``python -m tests.grid``.

Points learn as in `grid_learning`, presets by the library's own loops; all of them with at least 200 updates, judged by
`fork.Findings`. Results go to a CSV as they come; what is there is not run again, so an interrupted grid goes on. A
table by representation and criterion is written at the end.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import sys
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

# Compiling is most of what is done here, and unoptimised programs compile twice as fast. Set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
from agent_helpers import batch_losses, predict_each
from fork import STATES, Findings, Fork, Memory, clear_choice, findings
from grid_axes import AXES, PROGRAM, Point, all_points, name_of
from grid_learning import FAINT, START, STEPS, TINY, distributional, fitting, judge, keep_noise_apart, small

from tremble.agent import Agent, LearnerState
from tremble.core import Clock, Transition
from tremble.envs.gym import open_environment
from tremble.envs.jax_gym import JaxGymEnv
from tremble.learn import bootstrap_target
from tremble.presets import PRESETS, make
from tremble.report import tables
from tremble.settings import describe, override
from tremble.training.gym_loop import GymLoop
from tremble.training.xla_loop import XlaLoop

CLOCK = Clock(STEPS, STEPS - START, STEPS // 2, STEPS, START)
ITEMS = ("obs_tm1", "action_tm1", "reward_t", "discount_t", "obs_t")
OUT = Path("runs/grid")


REMEMBERING = tuple(name for name in PRESETS if not make(name, "nchain").replay.rollout)
"""Presets with a memory, which is the truth they are compared with. `test_probes.py` has the others too."""


def preset_of(name: str) -> Agent:
    """A preset, made small; what it switches on stays on, except that all explore by epsilon as well."""
    agent = override(make(name, "nchain", n_quantiles=16), {"widths": (16,)})
    lasts = describe(agent.criterion).get("schedule.kind", "power") != "power"
    faint = FAINT | ({"delta_0": 0.1} if lasts else {})  # what does not fade is small from the beginning
    agent = replace(agent, representation=small(agent.representation), criterion=fitting(agent.criterion, faint))
    return fitting(agent, TINY)


def train(agent: Agent, seed: int = 0) -> tuple[LearnerState, list[np.ndarray], int]:
    """A run by the loop that `tremble.train` would take: what it learned, what its memory holds, how many updates."""
    plain = agent.replay.n_step == 1 and not agent.replay.prioritised and agent.learning.updates_per_round == 1
    if plain:
        inside = XlaLoop(agent, Fork(), seed, STEPS)
        inside.advance(STEPS)
        assert inside.train_state is not None
        store = inside.train_state.replay.store
        items = [np.asarray(getattr(store, name))[:STEPS] for name in ITEMS]
        return inside.train_state.learner, items, int(inside.record()["updates"])
    beside = GymLoop(agent, open_environment(JaxGymEnv(Fork(), seed)), seed, STEPS)
    beside.advance(STEPS)
    state = beside.replay.state()
    return beside.learner, [state[name] for name in ITEMS], beside.updates


@jax.jit
def loss_of(agent: Agent, params: Any, state: LearnerState, batch: Transition, key: jax.Array) -> jax.Array:
    """The loss of some parameters on the targets of a state, which move while one learns."""
    online_key, target_key = jax.random.split(key) if agent.random_predictions else (None, None)
    target, _ = bootstrap_target(agent, state, batch, agent.draw_learn(key), CLOCK, target_key)
    return batch_losses(agent, params, batch, target, online_key)[0].mean()


def measure(agent: Agent, seed: int = 0) -> Findings:
    """Train, and compare with what there was to know."""
    learner, items, updates = train(agent, seed)
    obs, action, reward, discount, _ = items
    memory = Memory(obs.argmax(-1), action, reward, discount)
    dist = jax.jit(predict_each)(agent, learner.params, jnp.asarray(STATES))
    key, n = jax.random.key(seed), agent.learning.batch_size
    batch = Transition(*(jnp.asarray(item[:n]) for item in items), jnp.ones(n))
    untrained = jax.jit(lambda a, k: a.init(k, (2,), 2).params)(agent, key)
    losses = [float(loss_of(agent, params, learner, batch, key)) for params in (untrained, learner.params)]
    choice = clear_choice(agent.target_criterion, distributional(agent), CLOCK, memory)
    return findings(dist, memory, choice, losses[0], losses[1], updates)


AXIS_NAMES = ("preset", *AXES)
COLUMNS = (*AXIS_NAMES, *(field.name for field in fields(Findings)), "faults", "seconds")


Row = dict[str, str]


def everything() -> list[Row]:
    """What is to be run, as text: the presets by their names, then every point."""
    named = [{"preset": name} for name in REMEMBERING]
    return [{axis: str(job.get(axis, "")) for axis in AXIS_NAMES} for job in named + all_points()]


def as_point(row: Row) -> Point:
    """The values behind the words."""
    return {axis: next(v for v in AXES[axis] if str(v) == row[axis]) for axis in AXES}


def as_row(job: Row, found: Findings, faults: list[str], seconds: float) -> Row:
    """A row of the results."""
    return (
        job | {k: str(v) for k, v in asdict(found).items()} | {"faults": "; ".join(faults), "seconds": f"{seconds:.1f}"}
    )


def run_preset(name: str) -> Row:
    """A preset, by the loop that `tremble.train` would take."""
    begin, agent = time.process_time(), preset_of(name)
    found = measure(agent)
    seconds = time.process_time() - begin
    return as_row(dict.fromkeys(AXIS_NAMES, "") | {"preset": name}, found, found.faults(distributional(agent)), seconds)


def run(jobs: list[Row]) -> list[Row]:
    """The results of a preset, or of points that share a program; an error is a fault, not the end."""
    rows: list[Row] = []
    try:
        if jobs[0]["preset"]:
            return [run_preset(jobs[0]["preset"])]
        for job, result in zip(jobs, judge([as_point(job) for job in jobs]), strict=True):
            rows.append(as_row(job, result.findings, result.faults, result.seconds))
    except Exception as error:
        fault = {"faults": f"{type(error).__name__}: {error}".splitlines()[0], "seconds": "0"}
        rows += [job | fault for job in jobs[len(rows) :]]
    finally:
        jax.clear_caches()
    return rows


def together(rows: list[Row]) -> list[list[Row]]:
    """Presets one by one, points by the program they share; the longest programs first."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["preset"], *(row[axis] for axis in PROGRAM)), []).append(row)
    return sorted(groups.values(), key=len, reverse=True)


def read(path: Path) -> list[Row]:
    """The rows there are."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def key_of(row: Row) -> tuple[str, ...]:
    """What tells rows apart."""
    return tuple(row[axis] for axis in AXIS_NAMES)


def report(rows: list[Row], wanted: int) -> str:
    """How many learn, by representation and criterion, and every fault."""
    points = [row for row in rows if not row["preset"]]

    def cell(representation: str, criterion: str) -> str:
        here = [r for r in points if (r["representation"], r["criterion"]) == (representation, criterion)]
        return f"{sum(not r['faults'] for r in here)}/{len(here)}" if here else ""

    body = [[c, *(cell(r, c) for r in AXES["representation"])] for c in AXES["criterion"]]
    presets = [[r["preset"], r["faults"] or "learns"] for r in rows if r["preset"]]
    faulty = [[name_of(as_point(r)), r["faults"]] for r in points if r["faults"]]
    seconds = sum(float(r["seconds"]) for r in rows)
    return f"""# Every combination

{len(rows)} of {wanted} runs, {seconds / 60:.0f} minutes of one core, by `make test-grid`. Every representation with
every criterion, and for each of these every pair of values of double, dueling, noisy, prioritised, n_step (1 or 3) and
criterion_for: eight runs a cell. A run *learns* if it makes 200 updates or more, its loss falls, every mean is right to
0.12, and (where there is a distribution) the coin of 0 or 2 is one: W1 at most 0.3, where a single value would have 1.

{tables.markdown(["criterion", *AXES["representation"]], body)}
## Presets

{tables.markdown(["preset", "result"], presets, 2)}
Presets without a memory ({", ".join(name for name in PRESETS if name not in REMEMBERING)}) have nothing to be compared
with here; they are tried on the probes.

## Faults

{tables.markdown(["combination", "what is wrong"], faulty, 2) if faulty else "None."}

Raw data: `grid.csv`.
"""


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.grid",
        description="Train every combination of parts on a problem with exact answers. Interrupt at will: it goes on.",
        epilog="About 800 runs, which share some sixty programs: half an hour on two quiet cores.",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--only", default="", help="only jobs in which this word occurs, e.g. 'implicit' or 'cvar'")
    parser.add_argument("--every", type=int, default=1, help="only every n-th job: a sample")
    parser.add_argument("--again", action="store_true", help="run those with faults once more")
    parser.add_argument("--out", type=Path, default=OUT, help="where grid.csv and README.md go")
    options = parser.parse_args()
    path = options.out / "grid.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for row in read(path) if not (options.again and row["faults"])]
    tables.write_csv(path, COLUMNS, [[row.get(name, "") for name in COLUMNS] for row in rows])
    done = {key_of(row) for row in rows}
    jobs = [job for job in everything() if options.only in " ".join(job.values())][:: options.every]
    missing = [job for job in jobs if key_of(job) not in done]
    print(f"{len(jobs)} runs, {len(jobs) - len(missing)} already there", flush=True)
    # One thread each; and a process is replaced now and then, because compiled programs take memory.
    os.environ |= {"NPROC": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    context = multiprocessing.get_context("spawn")
    pool = context.Pool(options.jobs, keep_noise_apart, maxtasksperchild=8)
    with pool, path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        for group in pool.imap_unordered(run, together(missing)):
            writer.writerows(group)
            file.flush()
            rows += group
            seconds = sum(float(row["seconds"]) for row in group)
            what = group[0]["preset"] or name_of({axis: as_point(group[0])[axis] for axis in PROGRAM})
            bad = [row for row in group if row["faults"]]
            print(
                f"{len(rows)}/{len(jobs)}  {seconds:.0f} s  {what}: {len(group) - len(bad)} of {len(group)}", flush=True
            )
            for row in bad:
                print(f"    {row['preset'] or name_of(as_point(row))}: {row['faults']}", flush=True)
    (options.out / "README.md").write_text(report(rows, len(everything())), encoding="utf-8")
    faulty = sum(bool(row["faults"]) for row in rows)
    print(f"{len(rows) - faulty} learn, {faulty} do not; {options.out / 'README.md'}")
    sys.exit(bool(faulty))


if __name__ == "__main__":
    main()
