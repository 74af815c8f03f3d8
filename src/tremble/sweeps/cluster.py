"""A script that starts a sweep on a SLURM cluster: an array of jobs that share the sweep's directory."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tremble.settings import SettingsError
from tremble.sweeps.folder import SweepFolder

SCRIPT = """\
#!/bin/bash
# {n} jobs that share one directory; each run is claimed by one of them, and one whose job died is taken over.
# Adapt time, cores and memory to your cluster (`tremble sweep {file} --dry-run` says what a run needs), then:
#   sbatch THIS_FILE          and again whenever you want to go on: finished runs are not made twice
#SBATCH --job-name=tremble-{name}
#SBATCH --array=1-{n}
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=2G
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output={out}/slurm-%A_%a.log

cd {cwd} || exit 1
# exec: SIGTERM, which comes 120 seconds before the end, must reach tremble, which then saves its runs.
exec {python} -m tremble.cli.main sweep {file} --out {out} \\
  --shard "$SLURM_ARRAY_TASK_ID/{n}" --jobs "$SLURM_CPUS_PER_TASK" --no-measure
"""


def sbatch_script(file: Path, folder: SweepFolder, n: int, cwd: str) -> str:
    """The script for so many jobs. PBS arrays and indexed jobs of Kubernetes need its last line only."""
    if n < 1:
        raise SettingsError(f"--sbatch needs at least one job, got {n}")
    out = folder.directory.absolute()
    return SCRIPT.format(
        n=n,
        name="".join(c if c.isalnum() or c in "-_" else "-" for c in folder.directory.name),
        file=shlex.quote(str(file.absolute())),
        out=shlex.quote(str(out)),
        cwd=shlex.quote(cwd),
        python=shlex.quote(sys.executable),
    )
