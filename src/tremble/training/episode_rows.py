"""Training episodes of a run in memory: a run may have millions, and a dictionary each would take 300 bytes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

Row = dict[str, Any]


class EpisodeRows(Sequence[Row]):
    """The rows of ``episodes.jsonl`` (``step``, ``return``, ``length``) as three arrays: 24 bytes an episode.

    A return that is not finite is None, as in the file.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        """Rows from the start of the run."""
        self._steps, self._returns, self._lengths = array("q"), array("d"), array("q")
        for row in rows:
            self.append(row)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add the newest episode."""
        self._steps.append(row["step"])
        self._returns.append(math.nan if row["return"] is None else row["return"])
        self._lengths.append(row["length"])

    def __len__(self) -> int:
        return len(self._steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        """One row, or several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        total = self._returns[index]
        return {
            "step": self._steps[index],
            "return": None if math.isnan(total) else total,
            "length": self._lengths[index],
        }
