"""Updates that run while the next actions are chosen by older parameters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tremble.networks import Network
from tremble.training import compiled_calls
from tremble.training.compiled_calls import Constants, Flat, Learner


class AsyncLearner:
    """Dispatches updates so that acting never waits for them.

    JAX runs the calls of one thread in order, so a second thread dispatches the gradient step. The first one dispatches
    the bootstrap target, which does not depend on the step before unless the agent is double.
    """

    def __init__(self, params: Flat[Network], double: bool):
        """Before the first update."""
        self.late = params
        """The parameters from before the newest round of learning; actions are chosen by them."""
        self._double = double
        self._thread = ThreadPoolExecutor(1, "tremble-learner")

    def begin_round(self, learner: Learner) -> None:
        """From now on actions are chosen by the parameters before this round."""
        self.late = learner.params

    def update(
        self, run: Flat[Constants], learner: Learner, batch: Any, noise: Any, numbers: Any
    ) -> tuple[Learner, Any]:
        """As `compiled_calls.update`."""
        params, target_params, opt_state = learner
        selecting = params if self._double else self.late  # not read otherwise, and the newest would be waited for
        target = compiled_calls.compute_target(run, selecting, target_params, batch, noise, numbers)
        step = self._thread.submit(
            compiled_calls.regress_towards, run, (params, target_params), opt_state, batch, target, numbers
        )
        params, opt_state, losses = step.result()  # dispatched, not computed
        return Learner(params, target_params, opt_state), losses
