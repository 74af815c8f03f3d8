"""Learning beside acting: updates run while the next actions are chosen by the parameters before them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tremble.training.compiled_calls import Calls, Leaves


class AsyncLearner:
    """Dispatches updates so that nothing acting needs stands behind them.

    JAX runs what one thread asks for in the order of asking, so a second thread asks for the gradient step. The target
    of the step is asked for by the first: it does not depend on the step before, unless the agent is double.
    """

    def __init__(self, calls: Calls, params: Leaves, double: bool):
        """Before the first update."""
        self.late = params
        """The parameters from before the newest round of learning, by which actions are chosen."""
        self._calls, self._double, self._n = calls, double, len(params)
        self._thread = ThreadPoolExecutor(1, "tremble-learner")

    def begin_round(self, learner: Leaves) -> None:
        """Actions from now on are chosen by what the rounds before this one learned."""
        self.late = learner[: self._n]

    def update(
        self, agent: Leaves, learner: Leaves, batch: Any, noise: Any, numbers: Any, seed: Any, layout: Any
    ) -> tuple[Leaves, Any]:
        """As `Calls.update`."""
        n = self._n
        params, target_params, optimiser = learner[:n], learner[n : 2 * n], learner[2 * n :]
        selecting = params if self._double else self.late  # else not read at all; and the newest would be waited for
        target, changed = self._calls.aim(agent, selecting, target_params, batch, noise, numbers, seed, layout)
        step = self._thread.submit(
            self._calls.regress, agent, params, target_params, optimiser, batch, target, changed, numbers, seed, layout
        )
        params, optimiser, losses = step.result()  # asked for, not done
        return [*params, *target_params, *optimiser], losses
