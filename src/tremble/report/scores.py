"""Scores over many games of one protocol: human-normalised, and aggregated with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tremble.report.references import game_name, human_random
from tremble.report.statistics import Interval
from tremble.settings import SettingsError

Returns = Literal["evaluation", "training"]
COLUMNS = ("agent", "game", "seed", "score")


def human_normalised(score: Any, random: Any, human: Any) -> Any:
    """(score - random) / (human - random): 0 plays at random, 1 plays as well as the human."""
    return (score - random) / (human - random)


def mean(scores: Float[np.ndarray, "runs games"]) -> float:
    """Mean over games of the mean over runs; dominated by a few games with very large scores."""
    return float(scores.mean())


def median(scores: Float[np.ndarray, "runs games"]) -> float:
    """Median over games of the mean over runs; insensitive to the scores of most games."""
    return float(np.median(scores.mean(0)))


def iqm(scores: Float[np.ndarray, "runs games"]) -> float:
    """Interquartile mean over all runs of all games: floor(n / 4) of n are cut at either end."""
    return float(stats.trim_mean(scores, proportiontocut=0.25, axis=None))


def optimality_gap(scores: Float[np.ndarray, "runs games"]) -> float:
    """Mean shortfall from the human score: 1 - mean(min(score, 1)); less is better."""
    return float(1.0 - np.minimum(scores, 1.0).mean())


AGGREGATES: Mapping[str, Callable[[np.ndarray], float]] = MappingProxyType(
    {"mean": mean, "median": median, "iqm": iqm, "optimality_gap": optimality_gap}
)
"""Summaries of normalised scores by name."""


@dataclass(frozen=True)
class Wins:
    """Number of games in which the first agent is better, equal, worse; only games that both have."""

    wins: int
    ties: int
    losses: int

    @property
    def games(self) -> int:
        """Games that both have."""
        return self.wins + self.ties + self.losses

    @property
    def sign_test(self) -> float:
        """p-value of the two-sided sign test, without ties."""
        decided = self.wins + self.losses
        return float(stats.binomtest(self.wins, decided).pvalue) if decided else 1.0

    def text(self) -> str:
        """For a table."""
        return f"{self.wins} won, {self.ties} tied, {self.losses} lost"


def count_wins(first: pd.Series, second: pd.Series) -> Wins:
    """Compare two columns of scores, game by game."""
    both = pd.concat([first.rename("a"), second.rename("b")], axis=1, join="inner").dropna()
    if both.empty:
        raise SettingsError("there is no game that both have a score for")
    difference = both["a"] - both["b"]
    return Wins(int((difference > 0).sum()), int((difference == 0).sum()), int((difference < 0).sum()))


@dataclass(frozen=True)
class ScoreTable:
    """Raw scores of agents on games, one row for each run, all measured in the same way."""

    protocol: str
    returns: Returns
    scores: pd.DataFrame
    """Columns agent, game, seed, score."""

    def __post_init__(self) -> None:
        """Validate the scores, and spell games as the emulator does."""
        missing = [column for column in COLUMNS if column not in self.scores.columns]
        if missing:
            raise SettingsError(f"a table of scores needs the columns {', '.join(COLUMNS)}; it lacks {missing}")
        if self.returns not in ("evaluation", "training"):
            raise SettingsError(f"returns are those of 'evaluation' or of 'training', not {self.returns!r}")
        scores = self.scores.loc[:, list(COLUMNS)].copy()
        scores["game"] = [game_name(str(game)) for game in scores["game"]]
        scores["score"] = pd.to_numeric(scores["score"], errors="coerce").astype(float)
        if not np.isfinite(scores["score"]).all():
            row = scores[~np.isfinite(scores["score"])].iloc[0]
            raise SettingsError(f"the score of {row['agent']} on {row['game']}, seed {row['seed']}, is not a number")
        twice = scores.duplicated(["agent", "game", "seed"])
        if twice.any():
            row = scores[twice].iloc[0]
            raise SettingsError(f"{row['agent']} has two scores on {row['game']} with seed {row['seed']}")
        object.__setattr__(self, "scores", scores.reset_index(drop=True))

    @property
    def agents(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(self.scores["agent"]))

    def normalised(self) -> pd.DataFrame:
        """The same rows with a column ``normalised``: 0 is random play, 1 is the human."""
        reference = human_random().loc[self.scores["game"]]
        values = human_normalised(
            self.scores["score"].to_numpy(), reference["random"].to_numpy(), reference["human"].to_numpy()
        )
        return self.scores.assign(normalised=values)

    def matrix(self, agent: str) -> Float[np.ndarray, "runs games"]:
        """Normalised scores of an agent; every game needs the same number of runs."""
        rows = self.normalised()
        rows = rows[rows["agent"] == agent]
        if rows.empty:
            raise SettingsError(f"there are no scores of {agent!r}; there are: {', '.join(self.agents)}")
        runs = rows.groupby("game")["normalised"].apply(list)
        counts = runs.map(len)
        if counts.nunique() > 1:
            few, many = counts.idxmin(), counts.idxmax()
            raise SettingsError(
                f"{agent} has {counts[few]} runs of {few} but {counts[many]} of {many}: "
                "leave runs out until all games have the same number"
            )
        return np.array(runs.to_list()).T

    def aggregate(self, reps: int = 2000, level: float = 0.95, seed: int = 0) -> dict[tuple[str, str], Interval]:
        """Every summary of every agent, by (agent, summary), with stratified bootstrap intervals over runs.

        A single run per game has no interval.
        """
        matrices = {agent: self.matrix(agent) for agent in self.agents}
        return {
            (agent, name): stratified_bootstrap(scores, summary, reps, level, seed)
            for agent, scores in matrices.items()
            for name, summary in AGGREGATES.items()
        }


def stratified_bootstrap(
    scores: Float[np.ndarray, "runs games"],
    summary: Callable[[np.ndarray], float],
    reps: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """A summary with a percentile interval: runs are drawn with replacement, within each game (Agarwal et al., 2021).

    Written here because rliable needs a version of `arch` that cannot be imported together with pandas 3; tests compare
    the summaries with rliable's and the interval with SciPy's bootstrap.
    """
    runs, games = scores.shape
    if runs < 2:
        return Interval(summary(scores), -np.inf, np.inf, runs)
    drawn = np.random.default_rng(seed).integers(runs, size=(reps, runs, games))
    values = [summary(np.take_along_axis(scores, rows, axis=0)) for rows in drawn]
    low, high = np.percentile(values, [50 * (1 - level), 50 * (1 + level)])
    return Interval(summary(scores), float(low), float(high), runs)
