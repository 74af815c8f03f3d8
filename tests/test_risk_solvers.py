"""Exact solutions under CVaR, against enumeration of policies; and the risky grid as environment and as MDP."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tremble.envs.registry import make_jax_env
from tremble.settings import SettingsError
from tremble.theory import FiniteMDP, from_gymnasium, risky_grid
from tremble.theory.lattice import Lattice, first_best
from tremble.theory.risk_greedy import acting_only, fixed_point, mean_greedy
from tremble.theory.static_cvar import static_cvar
from tremble.worlds.risky_grid import RiskyGrid

END = 9
"""As a next state: the episode ends."""


def cvar_of(outcomes: dict[float, float], eta: float) -> float:
    """Mean of the worst eta share, by going through the outcomes in order."""
    left, total = eta, 0.0
    for value in sorted(outcomes):
        taken = min(outcomes[value], left)
        total, left = total + taken * value, left - taken
    return total / eta


def table_of(generator: np.random.Generator, n_states: int = 3) -> dict:
    """A random problem without loops: from state s only to later states; rewards are multiples of 1/2."""
    table: dict = {}
    for s in range(n_states):
        table[s] = {}
        for a in (0, 1):
            odds = generator.dirichlet(np.ones(3))
            later = [int(x) for x in generator.integers(s + 1, n_states + 1, 3)]
            table[s][a] = [
                (p, min(t, n_states - 1), float(generator.integers(-6, 7)) / 2, t == n_states)
                for p, t in zip(odds, later, strict=True)
            ]
    return table


def outcomes_of(table: dict, policy, state: int = 0, history: tuple = ()) -> dict[float, float]:
    """The law of the return, by walking through the tree; ``policy(state, history)`` says what to do."""
    law: dict[float, float] = {}
    for p, following, reward, done in table[state][policy(state, history)]:
        after = {0.0: 1.0} if done else outcomes_of(table, policy, following, (*history, (state, reward)))
        for value, odds in after.items():
            law[round(reward + value, 9)] = law.get(round(reward + value, 9), 0.0) + p * odds
    return law


def small_lattice(table: dict) -> Lattice:
    return Lattice.of(from_gymnasium(table, gamma=1.0), unit=0.5, low=-20, high=20)


def situations(table: dict, state: int = 0, won: float = 0.0) -> set[tuple[int, float]]:
    """What a policy of state and winnings can find itself in."""
    found = {(state, round(won, 9))}
    for outcomes in table[state].values():
        for _, following, reward, done in outcomes:
            if not done:
                found |= situations(table, following, won + reward)
    return found


TABLES = [table_of(np.random.default_rng(seed)) for seed in range(6)]


@pytest.mark.parametrize("table", TABLES)
def test_returns_of_every_policy(table):
    lattice = small_lattice(table)
    for actions in itertools.product((0, 1), repeat=3):
        z = lattice.returns(np.array([*actions, 0]))
        law = outcomes_of(table, lambda s, h, actions=actions: actions[s])
        mass = z[0, actions[0]]
        assert mass.sum() == pytest.approx(1)
        for value, odds in law.items():
            assert mass[round(value / 0.5) - lattice.lowest] == pytest.approx(odds, abs=1e-6)
        assert float(lattice.mean(mass)) == pytest.approx(sum(v * p for v, p in law.items()), abs=1e-5)
        for eta in (0.1, 0.25, 1.0):
            assert float(lattice.cvar(mass, eta)) == pytest.approx(cvar_of(law, eta), abs=1e-4)


@pytest.mark.parametrize("eta", [0.1, 0.3])
@pytest.mark.parametrize("table", TABLES)
def test_acting_only_and_the_fixed_point(table, eta):
    """Without loops both follow from the last state backwards, one decision at a time."""
    lattice = small_lattice(table)
    means = {p: outcomes_of(table, lambda s, h, p=p: p[s]) for p in itertools.product((0, 1), repeat=3)}
    best = max(means, key=lambda p: sum(v * q for v, q in means[p].items()))
    neutral = mean_greedy(lattice)
    assert float(lattice.mean(neutral.experienced[0])) == pytest.approx(
        sum(v * q for v, q in means[best].items()), abs=1e-5
    )

    def look(later, s, a):
        """CVaR of one action and a policy from there on."""
        return cvar_of(outcomes_of(table, lambda x, h: a if not h else later[x], s), eta)

    acting, settled = acting_only(lattice, eta), fixed_point(lattice, eta)
    expected = [int(np.argmax([look(neutral.policy, s, a) for a in (0, 1)])) for s in range(3)]
    assert acting.policy[:3].tolist() == expected
    law = outcomes_of(table, lambda s, h: expected[s])
    assert float(lattice.cvar(acting.experienced[0], eta)) == pytest.approx(cvar_of(law, eta), abs=1e-4)

    greedy = [0, 0, 0]
    for s in (2, 1, 0):
        greedy[s] = int(np.argmax([look(greedy, s, a) for a in (0, 1)]))
    assert settled.converged and settled.period == 1
    assert settled.found.policy[:3].tolist() == greedy
    own = lattice.returns(settled.found.policy)
    np.testing.assert_allclose(settled.found.predicted[:3], own[:3], atol=1e-9, err_msg="predicted is experienced")


@pytest.mark.parametrize("eta", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("table", TABLES[:3])
def test_static_cvar_is_the_best_of_all_policies_of_state_and_winnings(table, eta):
    """Brute force over every deterministic policy that may look at what was won so far."""
    found = sorted(situations(table))
    free = [x for x in found if x[0] < 3]
    if len(free) > 12:
        free = free[:12]  # 4,096 policies; the rest would only add more
    best = -np.inf
    for actions in itertools.product((0, 1), repeat=len(free)):
        chosen = dict(zip(free, actions, strict=True))
        law = outcomes_of(table, lambda s, h, c=chosen: c.get((s, round(sum(r for _, r in h), 9)), 0))
        best = max(best, cvar_of(law, eta))
    lattice = small_lattice(table)
    solved = static_cvar(lattice, eta)
    if len(sorted(situations(table))) <= 12:
        assert solved.cvar == pytest.approx(best, abs=1e-4)
    assert solved.cvar >= best - 1e-4
    assert float(lattice.cvar(solved.returns, eta)) == pytest.approx(solved.cvar, abs=1e-6), "its policy attains it"
    assert solved.returns.sum() == pytest.approx(1)
    for policy in (acting_only(lattice, eta), fixed_point(lattice, eta).found, mean_greedy(lattice)):
        assert float(lattice.cvar(policy.experienced[0], eta)) <= solved.cvar + 1e-6


def test_the_three_differ():
    """A coin of +-2 first, which decides nothing; then 0 for sure, or -1 or +1.5.

    By itself the second coin has a CVaR of -1 at one half, so a policy of the state alone leaves it. But the worst half
    of the whole return is having lost the first, and within that half only the mean counts: static CVaR gambles then.
    """
    table = {
        0: {a: [(0.5, 1, 2.0, False), (0.5, 1, -2.0, False)] for a in (0, 1)},
        1: {0: [(1.0, 1, 0.0, True)], 1: [(0.5, 1, -1.0, True), (0.5, 1, 1.5, True)]},
    }
    lattice = small_lattice(table)
    assert mean_greedy(lattice).policy[1] == 1
    settled, acting, solved = fixed_point(lattice, 0.5).found, acting_only(lattice, 0.5), static_cvar(lattice, 0.5)
    assert settled.policy[1] == acting.policy[1] == 0
    assert float(lattice.cvar(settled.experienced[0], 0.5)) == pytest.approx(-2.0)
    assert solved.cvar == pytest.approx(-1.75)
    missing = solved.threshold + 2.0
    assert solved.policy[1, np.abs(lattice.values - missing).argmin()] == 1
    # Acting alone believes that it will gamble, and does not.
    assert float(lattice.cvar(acting.predicted[0, acting.policy[0]], 0.5)) == pytest.approx(-1.75)
    assert float(lattice.cvar(acting.experienced[0], 0.5)) == pytest.approx(-2.0)


def test_cycles_are_said_to_be_cycles():
    """Random problems with loops: what is called a fixed point is one, and what is not is not."""
    generator = np.random.default_rng(0)
    seen = []
    for _ in range(12):
        law = generator.dirichlet(np.full(6, 0.4), (2, 2)).reshape(2, 2, 3, 2)
        full = np.zeros((3, 3, 2, 3))
        full[:, :2, :, :2] = np.transpose(law, (2, 0, 1, 3)) * 0.85
        full[0, :2, :, 2] = 0.15
        full[0, 2, :, 2] = 1.0
        mdp = FiniteMDP(jnp.asarray(full), jnp.array([0.0, -0.5, 0.5]), jnp.array([False, False, True]), 1.0)
        result = fixed_point(Lattice.of(mdp, 0.5, -40, 40), 0.3, most=300)
        seen.append(result)
        if result.converged:
            rows = np.arange(3)
            z = result.found.predicted
            again = Lattice.of(mdp, 0.5, -40, 40).backup(z[rows, result.found.policy])
            np.testing.assert_allclose(again, z, atol=1e-9)
        else:
            assert result.iterations == 300 and result.period != 1
    assert any(result.converged for result in seen)


def test_a_cycle_on_the_grid():
    """With more slips and less to win the greedy policies repeat for ever; every eighth is the same."""
    lattice = Lattice.of(risky_grid(RiskyGrid(loss=-0.02, slip=0.2), gamma=1.0))
    result = fixed_point(lattice, 0.25, most=400)
    assert not result.converged and result.period == 8


def test_mistakes_are_explained():
    with pytest.raises(SettingsError, match="gamma = 1"):
        Lattice.of(risky_grid())
    with pytest.raises(SettingsError, match="multiples of the unit"):
        Lattice.of(risky_grid(RiskyGrid(loss=0.021), gamma=1.0), unit=0.02)
    with pytest.raises(ValueError, match="width must be at least 3"):
        RiskyGrid(width=2)
    assert first_best(np.array([[1.0, 1.0 + 1e-12, 0.0]])).tolist() == [0]


def written_out(env):
    """The rules of the grid as a table, without the environment's `step`."""
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    bottom, goal = env.height - 1, env.width - 1

    def outcomes(row, column, action):
        found = []
        for turn, probability in ((0, 1 - env.slip), (1, env.slip / 2), (3, env.slip / 2)):
            down, right = moves[(action + turn) % 4]
            r, c = min(max(row + down, 0), bottom), min(max(column + right, 0), goal)
            done = r == bottom and c == goal
            gambles = r == bottom and 0 < c < goal and (r, c) != (row, column)
            mean = -env.step_cost + (1.0 if done else 0.0) - (env.loss if gambles else 0.0)
            for sign in (-1, 1):
                reward = round(mean + gambles * sign * env.stake, 6)
                found.append((probability / 2, r * env.width + c, reward, done))
        return found

    return {
        row * env.width + column: {a: outcomes(row, column, a) for a in range(4)}
        for row in range(env.height)
        for column in range(env.width)
    }


@pytest.mark.parametrize(
    "env", [RiskyGrid(), RiskyGrid(1.0, 0.2), RiskyGrid(0.7, -0.01, 0.02, 0.3, width=3, height=4)], ids=str
)
def test_the_environment_is_the_mdp(env):
    """The MDP, which is enumerated from the environment, has the rules that are written out."""
    mdp, expected = risky_grid(env, gamma=1.0), from_gymnasium(written_out(env), 1.0)
    assert int(mdp.start) == env.start == int(env.reset(jax.random.key(0)))
    np.testing.assert_allclose(mdp.rewards, expected.rewards, atol=1e-6)
    np.testing.assert_array_equal(mdp.terminal, expected.terminal)
    goal = env.n_cells - 1  # never left, because entering it ends the episode
    live = [s for s in range(env.n_cells) if s != goal]
    np.testing.assert_allclose(mdp.law[:, live], expected.law[:, live], atol=1e-6)


def test_the_noise_of_the_environment_is_uniform():
    env = RiskyGrid()
    assert make_jax_env("risky-grid", {}) == env
    drawn = jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 4000))
    assert all(abs(float(x.mean()) - 0.5) < 5 * np.sqrt(1 / 12 / 4000) for x in drawn)
