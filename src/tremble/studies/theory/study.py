"""Numerical checks of the paper's theorems: convergence and bounds, schedules, counter-examples, regret."""

from __future__ import annotations

import numpy as np

from tremble.studies.kit import Options, Results, Study
from tremble.studies.theory import examples, operator, regret, speed

VERDICTS = """## Verdicts

| statement | verdict | because |
| --- | --- | --- |
| Closure: E\\|T_ξ Z\\| ≤ V_max | **holds** | for any selection; `closure` |
| Two lemmas on suprema | **hold** | the second is used in a stronger form, at the same point, which also holds |
| Uniform convergence of E T_ξ if ξ → 1 in probability | **false as stated, repaired** | on the class E\\|Z\\| ≤ V_max it fails for every n (below); for \\|Z\\| ≤ V_max, which all returns satisfy, it holds |
| Theorem 3.2, E T_ξn ⋯ T_ξ1 Z converges, with a bound | **holds, and more** | Δ_n → 0 suffices; the bound is loose by orders of magnitude, and its statement has γ^(k−1) where its proof gives γ^k |
| “Weaker contraction” | **a name only** | E T_ξ is no contraction; what holds is e_n ≤ γ e_(n−1) + 2γ Δ_n |
| Theorem 3.3, the limit is the one solution of Bellman's equation | **holds, its proof has a gap** | “Δ_n → 0 implies ξ_n → 1” is false and not needed: 0 ≤ E T Z − E T_ξ Z ≤ 2γΔ gives the limit directly |
| Uniqueness | **of the mean only** | where greedy actions tie, the distribution of the return has no limit (below) |
| The condition ΣΔ_n < ∞ is “quite tight” | **not for the operator** | constant sizes fail; √(log t / t), which cannot be summed, converges, also with optimistic ξ |

"""


def analyse(results: Results, options: Options) -> str:
    """Compute everything; there are no runs."""
    per_pair = 12 if options.quick else 112
    paths = operator.walk(per_pair)
    operator.write_data(paths, options)
    operator.draw_bounds(paths, options)
    operator.draw_schedules(paths, options)
    examples.draw(options)
    regrets = regret.run(options)
    regret.write_data(regrets, options)
    regret.draw(regrets, options)
    proof, statement = (bound[49] for bound in operator.theorem_bounds())
    sharp = float(np.median(paths["random", "t^-1.001"].bounds[:, 49]))
    return f"""# Numerical checks of the theory

Finite MDPs on which everything can be computed: the paper's operator with the same return distributions, criteria and perturbations as the deep
agents. What the statements mean and how they are proved is on the page about the [theory](../../theory.md).

{"" if options.quick else VERDICTS}## Convergence and bounds

![bounds](bounds.png)

{3 * 3 * per_pair:,} random MDPs, γ = {operator.GAMMA}, {operator.ITERATIONS:,} iterations from Z = 0, one ξ per iteration with its gap at the bound Δ_n. At n = 50 the
theorem allows an error of {proof:,.0f} V_max in the form of its proof and {statement:,.0f} V_max as stated, though no error can exceed 2 V_max; the recursive bound allows {sharp:.2g} V_max (median).

{operator.summary(paths)}
A violation would be an iteration in which 0 ≤ E T Z − E T_ξ Z ≤ 2γΔ_n fails with the measured gap, or the error exceeds the recursive bound. The next column
is the largest ratio of the two sides of the first inequality.

![schedules](schedules.png)

Iteration converges if the sizes vanish, summable or not, and with random, optimistic and worst-case ξ. With constant sizes it does not.

## Where statements end

![counterexamples](counterexamples.png)

*Left*: a sure 0 against +1 or −1.5. With sets of constant size, optimism gambles for ever and random ξ now and then. *Middle*: two actions of equal mean. ξ_n = 1 ± 1/n
tends to 1, every mean is right from the start, and the return alternates between a sure 0 and a coin. *Right*: ξ is 2 on the top share 1/n of the levels and tends to 1 in
probability. On a Z whose mass sits there, of E|Z| ≤ V_max, T_ξ loses 0.15 V_max for every n; over bounded returns the gap vanishes.

{examples.searched(options)}

## What a projection does to the mean

The grid splits atoms between neighbours and keeps means; so do exact atoms, also when capped. Quantiles do not, and iteration adds it up (risky grid, γ = 0.95):

{operator.projections(options)}
## Learning from samples

None of the theorems is about samples. These are tables of {regret.N_QUANTILES} quantiles learned by quantile regression, scored by the criteria of the deep agents with their settings;
*held* keeps one draw for an episode. RLSVI and UCB plan with an empirical model, and know the scale of rewards and the largest return. {options.steps:,} steps at most, seeds 0 to {options.seeds - 1}. Settings
were not tuned, except that three scales of RLSVI and two of the UCB were tried on N-Chain, partly on the same seeds.

![regret](regret.png)

{regret.summary(regrets, options)}
*Solved*: the last tenth of the episodes costs less than 1 % of the size of a reward each.

## Speed

{speed.write(*speed.measure(options), options)}

![scaling](scaling.png)

Raw data: `operator.csv`, `regret.csv` (per seed), `scaling.csv`.
"""


STUDY = Study(
    "theory",
    "the theorems on finite MDPs: bounds, schedules, counter-examples, regret; trains no network",
    lambda options: [],
    analyse,
    seeds=20,
    quick_seeds=3,
    steps=20_000,
    quick_steps=2_000,
)
