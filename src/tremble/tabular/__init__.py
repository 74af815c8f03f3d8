"""The paper's theory on finite MDPs, where everything can be computed exactly."""

from tremble.tabular.mdp import FiniteMDP, from_gymnasium, random_mdp
from tremble.tabular.operator import Grid, iterate, perturbed_step, random_draw, top_draw, worst_draw

__all__ = [
    "FiniteMDP",
    "Grid",
    "from_gymnasium",
    "iterate",
    "perturbed_step",
    "random_draw",
    "random_mdp",
    "top_draw",
    "worst_draw",
]
