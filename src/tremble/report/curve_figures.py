"""Figures of learning curves, published ones and one's own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tremble import escape
from tremble.report import figures
from tremble.settings import SettingsError

LINES = {"evaluation": "-", "training": "--"}
PALETTE = ("#2a6f97", "#d1495b", "#588157", "#e09f3e", "#7b5ea7", "#6b7280", "#b5838d", "#111111")


def draw_curves(curves: pd.DataFrame, path: Path) -> None:
    """Mean and range over seeds, one line for each agent, protocol and kind of return.

    Evaluation returns are solid, training returns dashed; the legend names the protocol and the kind, because they are
    different measurements.
    """
    games = curves["game"].unique()
    if len(games) == 0:
        raise SettingsError("there are no curves to draw")
    columns = min(len(games), 4)
    rows = -(-len(games) // columns)
    figure, axes = figures.new(rows, columns, 4.6 * columns, 3.4 * rows, squeeze=False)
    names = list(curves[["agent", "source"]].drop_duplicates().itertuples(index=False, name=None))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    for ax, game in zip(axes.flat, games, strict=False):
        here = curves[curves["game"] == game]
        for (agent, source, protocol, returns), lines in here.groupby(
            ["agent", "source", "protocol", "returns"], sort=False
        ):
            by_seed = lines.pivot_table(index="frame", columns="seed", values="value")
            colour, millions = colours[agent, source], by_seed.index / 1e6
            label = f"{agent}: {returns}, {protocol}" + ("" if source == protocol else f" ({source})")
            label = escape.figure(label)
            alone = "o" if len(by_seed) == 1 else None  # a line through one point is invisible
            ax.plot(
                millions,
                by_seed.mean(axis=1),
                LINES[returns],
                color=colour,
                lw=1.8,
                marker=alone,
                label=label,
            )
            if by_seed.shape[1] > 1:
                ax.fill_between(millions, by_seed.min(axis=1), by_seed.max(axis=1), color=colour, alpha=0.15, lw=0)
        ax.set_title(escape.figure(game))
        ax.set_xlabel("million frames")
        ax.legend(fontsize=7)
    for ax in list(axes.flat)[len(games) :]:
        ax.set_visible(False)
    axes[0, 0].set_ylabel("return")
    figures.save(figure, path)
