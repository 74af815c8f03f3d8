"""Estimated cost of a study on Atari before it starts, from `tremble.atari.cost`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from tremble.atari.checks import atari_versions, complaints
from tremble.atari.cost import measure_frames_per_second, run_cost
from tremble.atari.protocols import find_protocol
from tremble.replay import readable
from tremble.settings import SettingsError
from tremble.studies.kit import Options, seconds_of
from tremble.training.machine import machine
from tremble.training.spec import RunSpec

FINISHED = "of finished runs"


def frames_of(spec: RunSpec) -> int:
    """Frames of a run."""
    return spec.steps * find_protocol(str(spec.protocol)).frame_skip_max


def speed_of(agent: str, protocol: str, finished: Sequence[RunSpec], options: Options) -> tuple[float | None, str]:
    """Frames per second of one run, and its source: given, measured now, or from finished runs of the study."""
    said = options.choices.get("speed", "unknown")
    if said == "measure":
        return measure_frames_per_second(agent, protocol), "measured now"
    if said != "unknown":
        if isinstance(said, bool) or not isinstance(said, int | float) or said <= 0:
            raise SettingsError(f"speed is a positive number of frames per second, or measure; got {said!r}")
        return float(said), "as given"
    alike = [spec for spec in finished if spec.agent == agent] or list(finished)
    known = [(frames_of(spec), taken) for spec in alike for taken in seconds_of(options.store, [spec])]
    frames, seconds = sum(frames for frames, _ in known), sum(taken for _, taken in known)
    return (frames / seconds, FINISHED) if seconds else (None, "")


def cost_estimate(missing: Sequence[RunSpec], finished: Sequence[RunSpec], options: Options) -> RenderableType:
    """Memory, disk and hours of the missing runs, by agent and in total."""
    if problems := complaints(atari_versions()):
        raise SettingsError(problems[0])
    jobs = min(options.jobs or os.cpu_count() or 1, len(missing))
    title = f"{len(missing)} runs to train, {jobs} at a time, under {missing[0].protocol}"
    table = Table("agent", "runs", "frames", "updates", "replay", "frames/s", "hours of a run", title=title)
    replays: list[int] = []
    disks: list[int] = []
    hours: float | None = 0.0
    how = ""
    for agent in dict.fromkeys(spec.agent for spec in missing):
        specs = [spec for spec in missing if spec.agent == agent]
        spec, frames = specs[0], frames_of(specs[0])
        speed, known = speed_of(agent, str(spec.protocol), finished, options)
        one = run_cost(agent, str(spec.protocol), frames, speed, spec.n_envs, **spec.agent_options)
        how = known or how
        replays += [one.replay_bytes] * len(specs)
        disks += [one.disk_bytes] * len(specs)
        hours = None if hours is None or one.hours is None else hours + one.hours * len(specs)
        amounts = [f"{frames:,}", f"{one.updates:,}", readable(one.replay_bytes)]
        times = ["?" if speed is None else f"{speed:,.0f}", "?" if one.hours is None else f"{one.hours:,.1f}"]
        table.add_row(agent, f"{len(specs)}", *amounts, *times)
    memory, disk = (sum(sorted(sizes)[-jobs:]) for sizes in (replays, disks))
    lines = [f"memory for replay: {readable(memory)} at a time; disk for checkpoints: up to {readable(disk)}"]
    if hours is None:
        lines.append("hours: not known; give --set speed=FRAMES_PER_SECOND or --set speed=measure")
    else:
        without = "" if how == FINISHED else ", evaluations not counted"
        lines.append(f"hours at these speeds ({how}{without}): {hours / jobs:,.1f} ({hours / jobs / 24:,.1f} days)")
    return Group(table, *lines, *shortages(memory, disk, options))


def shortages(memory: int, disk: int, options: Options) -> list[Any]:
    """Warnings about missing memory and disk."""
    here = machine(options.store)
    found = []
    if memory > here.free_memory:
        found.append(
            f"[bold red]not enough memory:[/] {readable(here.free_memory)} are free; fewer --jobs, or --set memory_size=200000 "
            "(the report will say that it is not the protocol's)"
        )
    if disk > here.free_disk:
        found.append(f"[bold red]not enough disk:[/] {readable(here.free_disk)} are free at {options.store}")
    return found
