"""A function of the user's that is called while a run trains: own metrics, early stop.

    def until_solved(progress):
        if progress.kind == "evaluation" and progress.row["mean"] >= 475:
            progress.stop("solved")
        return {"episodes_so_far": len(progress.episodes)}

    run = tremble.train("pqr", "CartPole-v1", steps=50_000, evaluate_every=2000, callback=until_solved)

It is called with every row of metrics and of evaluations, before the row is written; the numbers it returns are added
to the row. A resumed run calls it again for the rows it makes again, so what it does should depend on its argument
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tremble.settings import SettingsError
from tremble.training.trained import TrainedAgent

Kind = Literal["metrics", "evaluation"]
Rows = Sequence[Mapping[str, Any]]


@dataclass
class Progress:
    """What a callback sees: the row that is about to be written, those so far, and the agent as it is now."""

    kind: Kind
    """Which log the row belongs to."""
    row: Mapping[str, Any]
    """``step``, and the numbers of this row: ``return``, ``loss``, ...; of an evaluation ``mean``, ``returns``, ..."""
    metrics: Rows
    """Rows of metrics so far, the present one included."""
    evaluations: Rows
    """Rows of evaluations before this one."""
    episodes: Rows
    """Training episodes so far: ``step``, ``return``, ``length``."""
    agent: Callable[[], TrainedAgent]
    """``progress.agent()`` is the agent with its present parameters."""
    reason: str | None = None
    """Why the run is to stop; None where it goes on."""

    @property
    def step(self) -> int:
        """Transitions made."""
        return int(self.row["step"])

    def stop(self, reason: str = "stopped by the callback") -> None:
        """End the run after this row; it is saved and returned, and the reason is kept with it."""
        self.reason = reason


Callback = Callable[[Progress], Mapping[str, float] | None]


@dataclass(frozen=True)
class Stopped:
    """Where a callback ended a run, and why."""

    step: Annotated[int, msgspec.Meta(ge=0)]
    reason: str


def added_metrics(added: Mapping[str, Any] | None, row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers a callback returned; an error if they are none, or have the name of one that the row has."""
    numbers: dict[str, float] = {}
    for name, value in (added or {}).items():
        if name in row:
            raise SettingsError(f"the callback returned {name!r}, which the row has already: choose another name")
        array = np.asarray(value)
        if array.shape != () or array.dtype.kind not in "biuf":
            raise SettingsError(f"the callback returned {value!r} as {name!r}; metrics are numbers")
        numbers[str(name)] = array.item()
    return numbers
