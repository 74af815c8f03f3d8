"""Finished runs of studies, with numbers chosen by hand: the files that an analysis reads, made without training."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from sweep_makers import VERSIONS, write_rows

from tremble.studies.kit import Options, Study
from tremble.sweep_records import Outcome, as_text
from tremble.sweeps.folder import PlannedRun


def finish(
    run: PlannedRun,
    evaluations: Sequence[tuple[int, float]] = (),
    episodes: Sequence[tuple[int, float]] = (),
    final: Sequence[float] = (),
    state: str = "finished",
    seconds: float = 10.0,
) -> None:
    """Write a run: (step, mean) of evaluations, (step, return) of training episodes, returns after training."""
    run.directory.mkdir(parents=True, exist_ok=True)
    spec = run.spec.as_json()
    (run.directory / "config.json").write_text(json.dumps({"spec": spec, "settings": {}, "env_name": run.spec.env}))
    write_rows(run.directory, "metrics", [{"step": run.spec.steps, "updates": 1.0, "episodes": 1.0}])
    write_rows(run.directory, "episodes", [{"step": s, "return": value, "length": 10} for s, value in episodes])
    rows = [{"step": s, "mean": mean, "std": 0.0, "returns": [mean], "lengths": [10]} for s, mean in evaluations]
    write_rows(run.directory, "evaluations", rows)
    write_rows(run.directory, "final", [final_row(run.spec.steps, final)] if len(final) else [])
    run.outcome_file.write_text(as_text(asdict(ended(run.spec.steps, state, seconds))))


def ended(step: int, state: str = "finished", seconds: float = 10.0) -> Outcome:
    """The outcome of a run."""
    return Outcome(state, "", step, seconds, seconds, "host", "worker-1", VERSIONS, None, 1)


def final_row(step: int, returns: Sequence[float], weights: str = "last", weights_step: int | None = None) -> dict:
    """A row of ``final.jsonl`` whose prediction is exact."""
    returns = [float(x) for x in returns]
    return {
        "step": step,
        "weights": weights,
        "weights_step": step if weights_step is None else weights_step,
        "mean": sum(returns) / len(returns),
        "std": 0.0,
        "returns": returns,
        "discounted": returns,
        "lengths": [10] * len(returns),
        "truncated": [False] * len(returns),
        "calibration": {"w1": 0.0, "w2": 0.0, "coverage": {"0.5": 0.5}, "truncated": 0.0},
        "predicted": [[x, x] for x in returns],
    }


def runs_of(study: Study, options: Options) -> dict[tuple[str, int], PlannedRun]:
    """The runs of a study by label and seed."""
    return {(label, run.spec.seed): run for label, run in study.runs(options)}
