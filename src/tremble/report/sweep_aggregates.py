"""The section over environments: summaries, performance profiles, probability of improvement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np

from tremble.report import figures, svg
from tremble.report.improvement import improvements
from tremble.report.interval_coverage import about_summaries
from tremble.report.page import Block, Picture, Section, Table, Text, folded_if_long
from tremble.report.resampling import aggregate, profile
from tremble.report.run_figures import Look
from tremble.report.statistics import Interval
from tremble.report.sweep_looks import DRAWN, between, counted, grid, listed, short
from tremble.report.sweep_normalised import Normalised, normalised
from tremble.report.sweep_table import SweepTable

SUMMARIES = {"iqm": "interquartile mean", "mean": "mean", "median": "median", "optimality_gap": "optimality gap"}
ROWS = 30
"""Agents of the figure of summaries."""
ALL_PAIRS = 8
"""Up to so many agents, all pairs are compared; with more, each one with the first."""


def section(table: SweepTable, looks: Mapping[str, Look]) -> Section | None:
    """Summaries over environments; None if there is one environment only."""
    if len(table.panels) < 2:
        return None
    scores = normalised(table)
    if scores is None:
        text = "There are no summaries: no agent has a score on each of at least two environments."
        return Section("Over all environments", [Text(text, warning=True)])
    found = {agent: aggregate(lists) for agent, lists in scores.scores.items()}
    blocks: list[Block] = [Text(_about(scores)), *_warnings(table, scores)]
    blocks += [_summary_figure(found, looks), folded_if_long(_summary_table(table, scores, found))]
    filled = _with_diverged(table)
    if filled is not None:
        blocks.append(filled)
    blocks += [_profiles(scores, looks), *_improvements(scores)]
    return Section("Over all environments", blocks)


def _about(scores: Normalised) -> str:
    """How scores are brought to one scale."""
    fewest = min(len(x) for lists in scores.scores.values() for x in lists)
    if scores.human:
        scale = "Scores are human-normalised: 0 is random play, 1 the human (57 games of DQN Zoo's table)."
    else:
        scale = (
            "Scores are scaled by environment so that 0 is the worst run in this report and 1 the best. These numbers "
            "are relative to the runs of this report: with other agents or more seeds they change, and they do not "
            "compare with those of another report. (The optimality gap is then 1 − mean.)"
        )
    return (
        f"{scale} Intervals are 95 % percentile intervals of a bootstrap that draws runs within each environment; the "
        f"environments themselves are taken as given. {about_summaries(fewest)}"
    )


def _warnings(table: SweepTable, scores: Normalised) -> list[Block]:
    """What is not in the summaries, and unequal numbers of runs."""
    found: list[Block] = []
    if scores.left_out:
        text = f"Not summarised, because they have no score on some of the environments: {listed(scores.left_out)}."
        found.append(Text(text, warning=True))
    if scores.empty:
        found.append(Text(f"Environments that are not part of this: {listed(scores.empty)}.", warning=True))
    short_of = [
        f"{agent} on {panel} ({table.seeds(agent, panel)})"
        for agent in scores.scores
        for panel in scores.panels
        if not table.complete(agent, panel)
    ]
    if short_of:
        text = f"Seeds are missing: {listed(short_of)}."
        found.append(Text(f"{text} Each environment counts the same, however many runs it has.", warning=True))
    elif scores.unequal:
        found.append(Text("Numbers of runs differ. Each environment counts the same, however many runs it has."))
    return found


def _runs(table: SweepTable, agent: str, panels: Sequence[str]) -> str:
    """Runs of an agent, and how many were planned if some are missing."""
    scored = sum(len(table.scores(agent, panel)) for panel in panels)
    planned = sum(len(table.cells[agent, panel]) for panel in panels)
    return f"{scored:,}" if scored == planned else f"{scored:,} of {planned:,}"


def _summary_table(table: SweepTable, scores: Normalised, found: Mapping[str, Mapping[str, Interval]]) -> Table:
    header = ["agent", "runs", *SUMMARIES.values()]
    rows = [
        [agent, _runs(table, agent, scores.panels), *(found[agent][name].text(3) for name in SUMMARIES)]
        for agent in scores.scores
    ]
    caption = (
        f"Summaries over {counted(len(scores.panels), 'environment')}. The interquartile mean leaves out the lowest "
        "and the highest quarter of all runs; of the optimality gap, less is better."
    )
    return Table(caption, header, rows)


def _with_diverged(table: SweepTable) -> Block | None:
    """The interquartile mean with diverged runs at the bottom."""
    hurt = list(dict.fromkeys(agent for (agent, _), runs in table.cells.items() if any(e.diverged for e in runs)))
    filled = normalised(table, diverged_as_lowest=True)
    if not hurt or filled is None:
        return None
    parts = []
    for agent in hurt:
        if agent in filled.scores:
            found = aggregate(filled.scores[agent])
            parts.append(f"{agent}: interquartile mean {found['iqm'].text(3)}, mean {found['mean'].text(3)}")
    if not parts:
        return None
    return Text(
        f"With each diverged run as the lowest score of any run on its environment: {'; '.join(parts)}.", warning=True
    )


def _summary_figure(found: Mapping[str, Mapping[str, Interval]], looks: Mapping[str, Look]) -> Picture:
    """A row of panels, one for each summary, a line for each agent."""
    best = sorted(found, key=lambda agent: -found[agent]["iqm"].estimate)[:ROWS]
    agents = [agent for agent in found if agent in best]
    with matplotlib.rc_context(svg.STYLE):
        figure, axes = figures.new(1, len(SUMMARIES), 10, 0.9 + 0.3 * len(agents), sharey=True)
        for axis, (name, title) in zip(axes, SUMMARIES.items(), strict=True):
            for row, agent in enumerate(agents):
                interval = found[agent][name]
                if np.isfinite(interval.low):
                    axis.plot([interval.low, interval.high], [row, row], lw=6, alpha=0.35, color=looks[agent].colour)
                axis.plot([interval.estimate], [row], "D", ms=5, color=looks[agent].colour)
            axis.set_title(title, fontsize=10, loc="left")
            axis.set_ylim(len(agents) - 0.4, -0.6)
            axis.set_yticks(range(len(agents)), [short(agent, 30) for agent in agents], fontsize=9)
            axis.tick_params(axis="y", length=0)
            axis.grid(axis="y", visible=False)
            axis.xaxis.set_major_locator(figures.few_ticks(4))
        drawn = svg.drawn(figure)
    caption = "Summaries over environments with 95 % bootstrap intervals. All but the optimality gap: more is better."
    caption += f" The {ROWS} agents with the highest interquartile means." if len(found) > ROWS else ""
    return Picture("aggregates", drawn, caption, "Interquartile mean, mean, median and optimality gap of each agent.")


def _profiles(scores: Normalised, looks: Mapping[str, Look]) -> Picture:
    """Share of runs above each score."""
    every = np.concatenate([x for lists in scores.scores.values() for x in lists])
    low = min(0.0, float(np.quantile(every, 0.01)))
    high = float(np.quantile(every, 0.98)) if scores.human else 1.0  # a few human-normalised scores are very large
    thresholds = np.linspace(low, max(high, low + 1e-9), 101)
    means = {agent: float(np.mean([x.mean() for x in lists])) for agent, lists in scores.scores.items()}
    agents = [agent for agent in scores.scores if agent in sorted(means, key=lambda a: -means[a])[:DRAWN]]

    def draw(axis: Any, _: str) -> None:
        for agent in agents:
            found, look = profile(scores.scores[agent], thresholds), looks[agent]
            axis.plot(thresholds, found.share, look.style, lw=1.8, color=look.colour)
            if np.isfinite(found.low).all():
                axis.fill_between(thresholds, found.low, found.high, color=look.colour, alpha=0.15, lw=0)
        axis.set_ylim(-0.02, 1.02)

    drawn = grid(
        [""], draw, 3.6, [(agent, looks[agent]) for agent in agents], ("normalised score", "share of runs above it")
    )
    caption = "Performance profiles: share of runs whose normalised score is above a threshold, with 95 % bands."
    if len(scores.scores) > len(agents):
        caption += f" The {len(agents)} agents with the highest means."
    return Picture("profiles", drawn, caption, "Share of runs of each agent above every normalised score.")


def pairs_of(agents: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of agents that are compared: all of a few, else each one with the first."""
    if len(agents) <= ALL_PAIRS:
        return list(combinations(agents, 2))
    return [(agents[0], other) for other in agents[1:]]


def _improvements(scores: Normalised) -> list[Block]:
    """How often a run of one agent beats a run of another."""
    pairs = pairs_of(list(scores.scores))
    if not pairs:
        return []
    found = improvements(scores.scores, pairs)
    rows = []
    for (first, second), interval in found.items():
        towards = "–" if not np.isfinite(interval.low) else _towards(interval)
        rows.append([first, second, f"{interval.estimate:.3f}", between(interval, 3), towards])
    caption = (
        "Probability of improvement. How often a run of the first agent scores above a run of the second on the same "
        "environment (ties count half), mean over environments, with 95 % bootstrap intervals. Where all runs of one "
        "are above all runs of the other, the bootstrap sees no spread, and its interval has no width."
    )
    if len(scores.scores) > ALL_PAIRS:
        caption += " With this many agents, each one is compared with the first."
    header = ["first", "second", "P(first > second)", "95 %", "interval against ½"]
    return [folded_if_long(Table(caption, header, rows, 2))]


def _towards(interval: Interval) -> str:
    return "above" if interval.low > 0.5 else "below" if interval.high < 0.5 else "undecided"
