"""Updates that run while the next actions are chosen by older parameters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tremble.training.compiled_calls import Calls, Leaves


class AsyncLearner:
    """Dispatches updates so that acting never waits for them.

    JAX runs the calls of one thread in order, so a second thread dispatches the gradient step. The first one dispatches
    the bootstrap target, which does not depend on the step before unless the agent is double.
    """

    def __init__(self, calls: Calls, params: Leaves, double: bool):
        """Before the first update."""
        self.late = params
        """The parameters from before the newest round of learning; actions are chosen by them."""
        self._calls, self._double, self._n = calls, double, len(params)
        self._thread = ThreadPoolExecutor(1, "tremble-learner")

    def begin_round(self, learner: Leaves) -> None:
        """From now on actions are chosen by the parameters before this round."""
        self.late = learner[: self._n]

    def update(
        self, agent: Leaves, learner: Leaves, batch: Any, noise: Any, numbers: Any, seed: Any, layout: Any
    ) -> tuple[Leaves, Any]:
        """As `Calls.update`."""
        n = self._n
        params, target_params, optimiser = learner[:n], learner[n : 2 * n], learner[2 * n :]
        selecting = params if self._double else self.late  # not read otherwise, and the newest would be waited for
        target, changed = self._calls.aim(agent, selecting, target_params, batch, noise, numbers, seed, layout)
        step = self._thread.submit(
            self._calls.regress, agent, params, target_params, optimiser, batch, target, changed, numbers, seed, layout
        )
        params, optimiser, losses = step.result()  # dispatched, not computed
        return [*params, *target_params, *optimiser], losses
