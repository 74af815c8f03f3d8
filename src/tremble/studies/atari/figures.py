"""Figures of the audit."""

from __future__ import annotations

import pandas as pd

from tremble.report import figures
from tremble.report.scores import count_wins
from tremble.studies.atari.claims import AGENTS, NAMES, NO_OPS, QUOTA, STICKY, percent
from tremble.studies.kit import Options

COLOURS = figures.COLOURS | {"iqn": "#588157", "quota": "#b5838d", "qrdqn_zoo": "#6b7280", "qrdqn_zhang": "#a3a3a3"}
AGREES, DIFFERS, TIE = "#2a6f97", "#d1495b", "#9ca3af"
SETTINGS = {NO_OPS: "30 no-ops", STICKY: "sticky actions"}


def leaving_out(table: str, count: int) -> tuple[list[str], pd.DataFrame]:
    """Means as the games with the largest scores (of any agent) are left out, one after another."""
    normalised = percent(table, repaired=True)
    order = list(normalised.max(axis=1).sort_values(ascending=False).index[:count])
    rows = [normalised.drop(index=order[:k]).mean() for k in range(count + 1)]
    return order, pd.DataFrame(rows)


def draw_leaving_out(options: Options, count: int = 8) -> None:
    """Mean scores as the games with the largest scores are left out."""
    figure, axes = figures.new(1, 3, 12.5, 4.3, sharey=True)
    titles = {NO_OPS: "30 no-ops, 50M frames", STICKY: "sticky actions, 50M frames", QUOTA: "30 no-ops, 40M frames"}
    for ax, (table, title) in zip(axes, titles.items(), strict=True):
        order, means = leaving_out(table, count)
        for agent in AGENTS[table]:
            style = {"ms": 5, "lw": 2.6, "zorder": 4} if agent == "pqr" else {"ms": 4, "lw": 1.4, "zorder": 3}
            ax.plot(means[agent].to_numpy(), "o-", color=COLOURS[agent], label=NAMES[agent], **style)
        left_out = ["all games", *(f"− {game}" for game in order)]
        ax.set_xticks(range(count + 1), left_out, rotation=50, ha="right", fontsize=8)
        ax.set_title(title)
        ax.set_ylim(0)
        ax.legend(fontsize=8)
    axes[0].set_ylabel("mean human-normalised score, %")
    figure.suptitle("The mean as its largest games are left out, one after another", fontsize=11)
    figures.save(figure, options.out / "leaving_out")


def draw_games(table: str, options: Options) -> None:
    """Difference between PQR and each rival, by game."""
    normalised = percent(table, repaired=True) / 100
    rivals = ["qrdqn", "iqn", "rainbow"]
    order = (normalised["pqr"] - normalised["qrdqn"]).sort_values().index
    figure, axes = figures.new(1, 3, 10.5, 11.5, sharey=True)
    for ax, rival in zip(axes, rivals, strict=True):
        difference = (normalised["pqr"] - normalised[rival])[order].to_numpy()
        colours = [AGREES if d > 0 else DIFFERS if d < 0 else TIE for d in difference]
        ax.hlines(range(len(order)), 0, difference, color=colours, lw=2.2)
        ax.scatter(difference, range(len(order)), color=colours, s=18, zorder=3)
        ax.set_xscale("symlog", linthresh=0.1, linscale=0.6)
        ax.axvline(0, color="#374151", lw=0.8)
        ax.set_xticks([-100, -10, -1, 0, 1, 10, 100], ["−100", "−10", "−1", "0", "1", "10", "100"])
        ax.set_xlim(-600, 600)
        found = count_wins(normalised["pqr"], normalised[rival])
        ax.set_title(f"against {NAMES[rival]}\n{found.text()}", fontsize=10)
        ax.set_ylim(-1, len(order))
        ax.grid(axis="y", alpha=0.5)
    axes[0].set_yticks(range(len(order)), order, fontsize=8)
    axes[1].set_xlabel("PQR minus the other, in units of the human's lead over random play")
    figure.suptitle(f"PQR game by game, {SETTINGS[table]}, best up to 50M frames", fontsize=12)
    figures.save(figure, options.out / f"games_{'no_ops' if table == NO_OPS else 'sticky'}")


def write_games(options: Options) -> None:
    """Normalised scores of every game, agent and table, for other programs."""
    tidy = [
        percent(table)
        .rename_axis("game")
        .reset_index()
        .melt("game", var_name="agent", value_name="percent")
        .assign(table=table)
        for table in (NO_OPS, STICKY, QUOTA)
    ]
    games = pd.concat(tidy)[["table", "game", "agent", "percent"]].round(3)
    games.to_csv(options.out / "games.csv", index=False, lineterminator="\n")
