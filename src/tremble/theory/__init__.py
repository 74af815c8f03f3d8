"""The paper's theory on finite MDPs, where everything can be computed exactly."""

from tremble.theory.mdp import FiniteMDP, from_gymnasium, random_mdp
from tremble.theory.models import chain, deep_sea, risky_grid
from tremble.theory.operator import Grid, iterate, perturbed_step, random_draw, top_draw, worst_draw

__all__ = [
    "FiniteMDP",
    "Grid",
    "chain",
    "deep_sea",
    "from_gymnasium",
    "iterate",
    "perturbed_step",
    "random_draw",
    "random_mdp",
    "risky_grid",
    "top_draw",
    "worst_draw",
]
