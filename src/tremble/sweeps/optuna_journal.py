"""Trials that Optuna chooses, in a journal file that all workers of a sweep share; no database.

Optuna's own journal is the record: a trial's settings are read from it and never drawn again, so a search continues
where it was, on whichever machine. Only who holds the lease of the search's folder writes to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tremble import escape
from tremble.records import CheckpointError
from tremble.settings import import_optional
from tremble.sweeps.sweep import Search
from tremble.training.checkpoint import open_log

if TYPE_CHECKING:
    from optuna.storages import JournalStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

STUDY = "tremble"
JOURNAL = "journal.log"
_CHOICE = "\u2063choice"
"""Behind the name of a setting whose value is the number of an entry of its list: entries may be lists themselves."""


class _Held:
    """In place of Optuna's lock: the caller holds the lease of the folder."""

    def acquire(self) -> bool:
        """Nothing to do."""
        return True

    def release(self) -> None:
        """Nothing to do."""


class OptunaJournal:
    """The trials of one cell's search."""

    def __init__(self, folder: Path, search: Search, space: Mapping[str, Any], entropy: int):
        """``space`` is the part of the search's that the agent has; ``entropy`` tells cells apart."""
        import_optional("optuna", "search")
        self._path, self._search, self._space, self._entropy = folder / JOURNAL, search, space, entropy

    def settings(self) -> dict[int, dict[str, Any]]:
        """The settings of every trial so far, by number. A trial that was never asked to its end has none."""
        names = len(self._space)
        return {t.number: self._as_settings(t.params) for t in self._trials() if len(t.params) == names}

    def told(self) -> set[int]:
        """Numbers of trials whose scores Optuna knows."""
        return {trial.number for trial in self._trials() if trial.state.is_finished()}

    def ask(self) -> None:
        """Add a trial; only for the holder of the lease."""
        study = self._open(seed=self._entropy + len(self._trials()))
        study.ask(self._distributions())

    def tell(self, number: int, score: float | None) -> None:
        """Add the score of a trial, None if one of its runs failed; only for the holder of the lease."""
        from optuna.trial import TrialState

        if score is None:
            self._open().tell(number, state=TrialState.FAIL)
        else:
            self._open().tell(number, score)

    def _trials(self) -> list[FrozenTrial]:
        if not self._path.exists() and not self._path.is_symlink():
            return []
        os.close(open_log(self._path, os.O_RDONLY))
        try:
            storage = self._storage()
            studies = storage.get_all_studies()
            trials = storage.get_all_trials(studies[0]._study_id) if studies else []
        except Exception as error:  # whatever Optuna makes of a file that it did not write
            raise CheckpointError(f"{escape.plain(self._path)} is no journal of Optuna's: {error}") from error
        known = self._distributions()
        if any(known.get(name) != found for trial in trials for name, found in trial.distributions.items()):
            raise CheckpointError(f"{escape.plain(self._path)} is of a search in another space")
        return trials

    def _open(self, seed: int = 0) -> Study:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._cut_unfinished_line()
        sampler = optuna.samplers.TPESampler(seed=seed % 2**32)
        return optuna.create_study(
            storage=self._storage(), sampler=sampler, study_name=STUDY, direction="maximize", load_if_exists=True
        )

    def _storage(self) -> JournalStorage:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        held: Any = _Held()
        return JournalStorage(JournalFileBackend(str(self._path), lock_obj=held))

    def _cut_unfinished_line(self) -> None:
        """Remove what a process that was killed left of a line: the next one would be joined to it."""
        if self._path.exists() or self._path.is_symlink():
            with open(open_log(self._path, os.O_RDWR), "r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)

    def _distributions(self) -> dict[str, Any]:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        found: dict[str, Any] = {}
        for name, domain in self._space.items():
            if not isinstance(domain, Mapping):
                found[name + _CHOICE] = CategoricalDistribution(list(range(len(domain))))
            else:
                kind = IntDistribution if domain.get("whole") else FloatDistribution
                found[name] = kind(domain["low"], domain["high"], log=bool(domain.get("log")))
        return found

    def _as_settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """As the sweep writes them; values of lists by their place."""
        return {
            name: self._space[name][params[name + _CHOICE]] if name + _CHOICE in params else params[name]
            for name in self._space
        }
