"""The section of differences: agents compared seed by seed, and what this number of seeds could have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tremble.report.page import Block, Section, Table, Text, folded_if_long
from tremble.report.seeds import MOST_SEEDS, POWER, holm, minimal_difference, paired_p_value, seeds_needed
from tremble.report.statistics import Interval, difference_interval, direction
from tremble.report.sweep_aggregates import ALL_PAIRS, pairs_of
from tremble.report.sweep_looks import counted, digits_of, shown
from tremble.report.sweep_table import SweepTable

ALPHA = 0.05


@dataclass(frozen=True)
class Difference:
    """Two agents on one environment."""

    panel: str
    first: str
    second: str
    interval: Interval
    """Of first - second, paired by seed."""
    values: np.ndarray
    p_value: float

    @property
    def spread(self) -> float:
        """Standard deviation of the differences."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else math.nan


def differences(table: SweepTable) -> list[Difference]:
    """Pairs of agents on each environment, over the seeds that both have."""
    found = []
    for panel in table.panels:
        for first, second in pairs_of(table.here(panel)):
            ours, theirs = table.scores(first, panel), table.scores(second, panel)
            values = np.array([ours[seed] - theirs[seed] for seed in ours if seed in theirs], float)
            interval = difference_interval(ours, theirs)
            found.append(Difference(panel, first, second, interval, values, paired_p_value(values)))
    return found


def section(table: SweepTable) -> Section | None:
    """Differences with verdicts; None for a single agent."""
    found = differences(table)
    if not found:
        return None
    adjusted = holm([each.p_value for each in found])
    tests = sum(not math.isnan(each.p_value) for each in found)
    blocks: list[Block] = [Text(_about(tests))]
    if any(len(table.here(panel)) > ALL_PAIRS for panel in table.panels):
        blocks.append(Text("With this many agents, each one is compared with the first of its environment."))
    alone = sum(each.interval.n < 2 for each in found)
    if alone:
        text = f"{counted(alone, 'comparison has', 'comparisons have')} fewer than two seeds in common, so no verdict."
        blocks.append(Text(text, warning=True))
    blocks.append(Text(_counts(found, adjusted)))
    rows = [_row(each, p) for each, p in zip(found, adjusted, strict=True)]
    header = ["environment", "first", "second", "seeds", "first − second [95 %]", "verdict"]
    header += ["p", "p (Holm)", "after Holm"]
    caption = f"Differences, paired by seed. Holm's correction is over all {tests:,} tests of this table."
    blocks.append(folded_if_long(Table(caption, header, rows, 3), 45))
    if tests:
        blocks += [Text(_about_power()), folded_if_long(_power_table(found), 12)]
    return Section("Differences, seed by seed", blocks)


def _about(tests: int) -> str:
    chance = 1 - (1 - ALPHA) ** tests
    text = (
        "Runs of one seed share initial parameters, start states and noise as far as agents allow, so differences are "
        "taken seed by seed: their mean with Student's t interval. Above and below: the whole interval is on that side "
        "of 0. Undecided: it contains 0."
    )
    if tests < 2:
        return text
    return (
        f"{text} If no agents differed at all, one or more of {tests:,} independent comparisons would be above or "
        f"below by luck with probability {100 * chance:.0f} %; the last columns hold for all of them together."
    )


def _counts(found: Sequence[Difference], adjusted: Sequence[float]) -> str:
    """How many comparisons came out either way."""
    decided = sum(each.interval.n > 1 and each.interval.sign != 0 for each in found)
    kept = sum(p < ALPHA for each, p in zip(found, adjusted, strict=True) if each.interval.n > 1 and each.interval.sign)
    text = f"Of {counted(len(found), 'comparison')}, {decided:,} came out above or below"
    return f"{text}, {kept:,} of these also after Holm's correction." if len(found) > 1 else f"{text}."


def _row(each: Difference, adjusted: float) -> list[str]:
    digits = digits_of(each.values)
    verdict = direction(each.interval, quick=each.interval.n < 2)
    after = "no verdict" if math.isnan(adjusted) else verdict if adjusted < ALPHA else "undecided"
    shown_p = [f"{p:.3f}" if p >= 0.001 else "< 0.001" for p in (each.p_value, adjusted) if not math.isnan(p)]
    interval = each.interval.text(digits)
    names = [each.panel, each.first, each.second, str(each.interval.n)]
    return [*names, interval, verdict, *(shown_p or ["–", "–"]), after]


def _about_power() -> str:
    return (
        "What this number of seeds could have shown: the smallest difference that would come out above or below with "
        f"probability {100 * POWER:.0f} %, if differences between seeds spread as they did here (paired t test at 5 %, "
        "without Holm's correction), and how many seeds a true difference of the observed size would need for that. "
        "The spread is estimated from the same few seeds, so both are rough."
    )


def _power_table(found: Sequence[Difference]) -> Table:
    rows = []
    for each in found:
        if each.interval.n < 2:
            continue
        digits = digits_of([*each.values, each.spread])
        smallest = minimal_difference(each.spread, each.interval.n)
        seeds = seeds_needed(each.interval.estimate, each.spread)
        row = [each.panel, each.first, each.second, str(each.interval.n), shown(each.interval.estimate, digits)]
        needed = f"more than {MOST_SEEDS:,}" if seeds is None else f"{seeds:,}"
        rows.append([*row, shown(each.spread, digits), shown(smallest, digits), needed])
    header = ["environment", "first", "second", "seeds", "observed difference", "spread"]
    header += [f"shown with {100 * POWER:.0f} %", "seeds for the observed"]
    return Table("What the seeds could have shown.", header, rows, 3)
