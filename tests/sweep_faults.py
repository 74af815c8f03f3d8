"""Sweeps under injected faults must end with the files of an undisturbed sweep, and name every run that cannot succeed.

    python -m tests.sweep_faults --out docs/results/sweep-faults     all faults, and 10,000 claims
    python -m tests.sweep_faults --only Ray                          faults whose name contains this
    python -m tests.sweep_faults --claims 10000                      claims alone

Six runs of three agents (N-Chain inside XLA, CartPole, an environment of the tests) go undisturbed once. Then faults
are injected at random moments, the same command finishes the sweep, and every file of every healthy run is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests import sweep_fault_cases as cases
from tests.sweep_claims import race
from tests.sweep_fault_cases import Row, Setting
from tests.sweep_kit import ROOT, say

FAILED = "**failed**"
"""What happened where a fault could not be injected as it should be, or was not survived."""


def all_faults() -> dict[str, Callable[[Setting], Iterator[Row]]]:
    """Every kind by a name."""

    def one(case: Callable[..., Row], *more: Any) -> Callable[[Setting], Iterator[Row]]:
        return lambda setting: iter([case(setting, *more)])

    def driver(fault: str, strike: Any, code: int, times: int) -> Callable[[Setting], Iterator[Row]]:
        return one(cases.disturb_driver, fault, strike, (code,), times)

    killed = driver("SIGKILL of the command", cases.signalled(signal.SIGKILL), -signal.SIGKILL, 4)
    terminated = driver("SIGTERM for the command", cases.signalled(signal.SIGTERM), 143, 3)
    return {
        "workers killed": one(cases.kill_workers, 20),
        "command killed": killed,
        "command terminated": terminated,
        "command interrupted": driver("SIGINT for the command", cases.signalled(signal.SIGINT), 130, 3),
        "stop": driver("tremble sweep stop", cases.asked_to_stop, 0, 3),
        "suspended": one(cases.suspend_workers, 2),
        "left behind": one(cases.claims_left_behind),
        "race": one(cases.workers_race),
        "clock": one(cases.clock_jumps),
        "full disk": one(cases.full_disk),
        "environments": lambda setting: iter(cases.faulty_environments(setting)),
        "passing": one(cases.faults_that_pass),
        "Ray": cases.on_ray,
    }


def page(found: dict[str, Any]) -> str:
    """The page."""
    rows, claims = found.get("faults", []), found.get("claims")
    lines = ["# Faults of sweeps", ""]
    lines += ["Written by `python -m tests.sweep_faults --out docs/results/sweep-faults`.", ""]
    if rows:
        lines += [
            f"A sweep of {found['runs']} runs (N-Chain inside XLA, CartPole, an environment of the tests), disturbed "
            "at random moments and finished by the same command. Every file of every healthy run is compared, byte for "
            "byte, with that of an undisturbed sweep.",
            "",
            "| fault | injected | what happened | runs compared | runs that differ |",
            "|---|---:|---|---:|---:|",
        ]
        for row in rows:
            differ = len({"/".join(name.split(" ")[0].split("/")[:2]) for name in row["different"]})
            lines.append(f"| {row['fault']} | {row['times']} | {row['happened']} | {row['runs']} | {differ} |")
        total, runs = (sum(row[name] for row in rows) for name in ("times", "runs"))
        lines += ["", f"{total} faults in all; {runs} runs compared.", ""]
        lines += [f"- differs: `{name}` ({row['fault']})" for row in rows for name in row["different"][:5]]
    if claims:
        lines += ["## Claims", ""]
        lines += [
            f"{claims['taken']:,} claims of {claims['directories']} directories by {claims['processes']} processes, "
            f"{claims['refused']:,} more refused: **{claims['twice']}** times a directory was held by two at a time."
        ]
    return "\n".join(lines).rstrip() + "\n"


def inject(root: Path, only: str, steps: int, seed: int, keep: Callable[[list[Row], int], None]) -> list[Row]:
    """All faults whose name contains ``only``, one kind after the other."""
    say("undisturbed ...")
    setting = Setting(root, steps, seeds=2, seed=seed)
    say(f"{len(setting.runs)} runs, {len(setting.files)} files, {setting.seconds:.0f} s")
    rows: list[Row] = []
    for name, case in all_faults().items():
        if only not in name:
            continue
        begin = time.monotonic()
        try:
            for row in case(setting):
                rows.append(row)
                verdict = "equal" if not row.different else f"DIFFERENT: {', '.join(row.different[:5])}"
                say(f"{row.fault}: {row.times}, {row.happened}: {verdict} ({time.monotonic() - begin:.0f} s)")
        except Exception as error:  # the other faults are worth knowing too
            say(f"{name}: FAILED: {error}")
            rows.append(Row(name, 0, FAILED, 0, [f"{name}: {str(error)[:500]}"]))
        keep(rows, len(setting.runs))
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write README.md and faults.json there")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--steps", type=int, default=4000, help="length of the runs (4000)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--claims", type=int, help="only so many claims")
    options = parser.parse_args()
    os.chdir(ROOT)
    found: dict[str, Any] = {}
    path = options.out / "faults.json" if options.out else None
    if path is not None and path.exists():
        found = json.loads(path.read_text())

    def keep() -> None:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "faults.json").write_text(json.dumps(found, indent=2) + "\n")
            (options.out / "README.md").write_text(page(found))

    def keep_rows(rows: list[Row], runs: int) -> None:
        fresh = [asdict(row) for row in rows]
        names = {row["fault"] for row in fresh}
        failed = [row["fault"] for row in found.get("faults", []) if row["happened"] == FAILED]
        older = [row for row in found.get("faults", []) if options.only and row["fault"] not in [*names, *failed]]
        found.update(runs=runs, faults=[*older, *fresh])
        keep()

    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if options.claims is None:
            rows = inject(root, options.only, options.steps, options.seed, keep_rows)
        if options.claims or not options.only:
            found["claims"] = race(root / "claims", options.claims or 10_000)
            say(f"claims: {found['claims']}")
            keep()
    print(page(found))
    sys.exit(any(row.different for row in rows) or found.get("claims", {}).get("twice", 0) > 0)


if __name__ == "__main__":
    main()
