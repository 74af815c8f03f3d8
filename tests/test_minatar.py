"""MinAtar in JAX beside the package it follows: the same decisions of chance, the same games."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from study_makers import ended

import tremble
from tremble.envs.jax_gym import JaxGymEnv
from tremble.hyperparameters import default_hyperparameters
from tremble.presets import make
from tremble.settings import SettingsError, override
from tremble.studies.kit import Options
from tremble.studies.minatar.study import STUDY, MinAtarResult
from tremble.sweeps.finished_run import FinishedRun
from tremble.training import xla_chunk as compiled
from tremble.training.xla_loop import encoder_of, iterate
from tremble.worlds.minatar import GAMES, MinAtar, MinAtarState, minatar
from tremble.worlds.nchain import NChain

reference = pytest.importorskip("minatar")
N, L, U, R, D, F = range(6)


class Decided:
    """Stands for NumPy's generator in the package: what it will draw is known beforehand."""

    def __init__(self) -> None:
        self.numbers: list[np.float32] = []

    def decide(self, numbers: np.ndarray) -> None:
        self.numbers = list(numbers)

    def rand(self, size: int | None = None) -> Any:
        return self.numbers.pop(0) if size is None else np.array([self.numbers.pop(0) for _ in range(size)])

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        low, high = (0, low) if high is None else (low, high)
        if size is not None:
            return np.array([self.randint(low, high) for _ in range(size)])
        return low + int(self.rand() * np.float32(high - low))


HARD: dict[str, dict[str, tuple[str, int]]] = {
    "asterix": {"spawn_speed": ("spawn_interval", 1), "move_speed": ("move_interval", 1)},
    "breakout": {},
    "freeway": {"terminate_timer": ("time", 400)},
    "seaquest": {"e_spawn_speed": ("spawn_interval", 1), "move_speed": ("move_interval", 2)},
    "space_invaders": {"enemy_move_interval": ("alien_interval", 6)},
}
"""Where the ramp ends, or shortly before the end: what the package and we call it, and the value."""


def seen(game: str, env: Any) -> dict[str, Any]:
    """The package's state, by our names; groups of objects as sets, in an order of their own."""
    match game:
        case "asterix":
            things = {(e[0], e[1], bool(e[2]), bool(e[3])) for e in env.entities if e is not None}
            return {
                "x": env.player_x,
                "y": env.player_y,
                "things": things,
                "spawn_interval": env.spawn_speed,
                "spawn_timer": env.spawn_timer,
                "move_interval": env.move_speed,
                "move_timer": env.move_timer,
                "ramp_timer": env.ramp_timer,
                "ramp_index": env.ramp_index,
            }
        case "breakout":
            return {
                "ball_x": env.ball_x,
                "ball_y": env.ball_y,
                "direction": env.ball_dir,
                "last_x": env.last_x,
                "last_y": env.last_y,
                "paddle": env.pos,
                "bricks": env.brick_map[1:4].tolist(),
                "strike": env.strike,
            }
        case "freeway":
            return {
                "y": env.pos,
                "move_timer": env.move_timer,
                "time": env.terminate_timer,
                "at": [c[0] for c in env.cars],
                "timer": [c[2] for c in env.cars],
                "speed": [c[3] for c in env.cars],
            }
        case "seaquest":
            return {
                "x": env.sub_x,
                "y": env.sub_y,
                "right": env.sub_or,
                "oxygen": env.oxygen,
                "crew": env.diver_count,
                "surfaced": env.surface,
                "shots": sorted(map(tuple, env.f_bullets)),
                "enemy shots": set(map(tuple, env.e_bullets)),
                "fish": sorted(map(tuple, env.e_fish)),
                "submarines": sorted(map(tuple, env.e_subs)),
                "divers": sorted(map(tuple, env.divers)),
                "spawn_interval": env.e_spawn_speed,
                "spawn_timer": env.e_spawn_timer,
                "diver_timer": env.d_spawn_timer,
                "move_interval": env.move_speed,
                "shot_timer": env.shot_timer,
                "ramp_index": env.ramp_index,
            }
        case _:
            return {
                "x": env.pos,
                "shots": env.f_bullet_map.tolist(),
                "alien_shots": env.e_bullet_map.tolist(),
                "aliens": env.alien_map.tolist(),
                "direction": env.alien_dir,
                "alien_interval": env.enemy_move_interval,
                "alien_timer": env.alien_move_timer,
                "alien_shot_timer": env.alien_shot_timer,
                "shot_timer": env.shot_timer,
                "ramp_index": env.ramp_index,
            }


def ours(game: str, state: Any) -> dict[str, Any]:
    """The same of our state."""
    fields = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    plain = {name: value.tolist() for name, value in fields.items() if isinstance(value, np.ndarray | np.generic)}
    if game == "asterix":
        rows = range(1, 9)
        columns = (plain.pop(name) for name in ("there", "at", "rightwards", "gold"))
        plain["things"] = {
            (x, y, right, gold) for y, there, x, right, gold in zip(rows, *columns, strict=True) if there
        }
    if game == "seaquest":
        enemies, divers, shots = state.enemies, state.divers, state.shots
        groups = {
            "shots": (shots, shots.there, "x y right"),
            "divers": (divers, divers.there, "x y right timer"),
            "fish": (enemies, enemies.there & ~enemies.submarine, "x y right timer"),
            "submarines": (enemies, enemies.there & enemies.submarine, "x y right timer shot_timer"),
        }
        for name, (group, there, parts) in groups.items():
            columns = [getattr(group, part)[there].tolist() for part in parts.split()]
            plain[name] = sorted(zip(*columns, strict=True))
        left, right = np.asarray(plain.pop("shots_left")), np.asarray(plain.pop("shots_right"))
        plain["enemy shots"] = {(x, y + 1, False) for y, x in np.argwhere(left).tolist()} | {
            (x, y + 1, True) for y, x in np.argwhere(right).tolist()
        }
    return plain


def at_random(env: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(6))


def cautiously(env: Any, rng: np.random.Generator) -> int:
    """Play well enough to get far, by looking into the package's state."""
    if hasattr(env, "brick_map"):
        return L if env.ball_x < env.pos else R if env.ball_x > env.pos else N
    if hasattr(env, "cars"):
        return U if rng.random() < 0.9 else D
    if hasattr(env, "entities"):

        def danger(x: int, y: int) -> float:
            e = env.entities[y - 1]
            if e is None:
                return 0.1 * abs(y - 5)
            ahead = x - e[0] if e[2] else e[0] - x
            near = 10 - ahead if ahead >= 0 else 0
            return -near if e[3] else 5 * near

        places = {
            N: (env.player_x, env.player_y),
            L: (max(0, env.player_x - 1), env.player_y),
            R: (min(9, env.player_x + 1), env.player_y),
            U: (env.player_x, max(1, env.player_y - 1)),
            D: (env.player_x, min(8, env.player_y + 1)),
        }
        return min(places, key=lambda a: danger(*places[a]) + 0.01 * rng.random())
    if hasattr(env, "sub_x"):
        if (env.oxygen < 40 and env.diver_count > 0) or env.diver_count == 6:
            return U
        if rng.random() < 0.3:
            return F
        if env.sub_y < 2:
            return D
        if env.divers and rng.random() < 0.8:
            x, y = env.divers[0][:2]
            return D if y > env.sub_y else U if y < env.sub_y else R if x > env.sub_x else L
        return int(rng.integers(6))
    above = env.e_bullet_map[5:, env.pos].any()
    if above:
        return L if env.pos > 5 or (env.pos > 0 and rng.random() < 0.5) else R
    return F if rng.random() < 0.5 else int(rng.choice([L, R]))


@dataclasses.dataclass
class Played:
    """A sequence of games by the package, and what they were decided by."""

    actions: np.ndarray
    noise: np.ndarray
    starts: np.ndarray
    states: list[dict[str, Any]]
    pictures: np.ndarray
    rewards: np.ndarray
    over: np.ndarray


def play_reference(
    game: str, steps: int, seed: int, policy: Callable[..., int], hard: bool, ghost: bool, sticky: float = 0.1
) -> Played:
    """``ghost``: the end of a game is noted and the game goes on, so that everything gets very crowded."""
    rules = GAMES[game]
    rng = np.random.default_rng(seed)
    noise = rng.random((steps, 1 + rules.step_numbers), np.float32)
    starts = rng.random((steps + 1, rules.start_numbers), np.float32)
    env = reference.Environment(game, sticky_action_prob=sticky)
    env.random, env.env.random = Decided(), Decided()

    def reset(t: int) -> None:
        env.env.random.decide(starts[t])
        env.reset()
        env.last_action = 0  # the package would remember the last episode's
        for name, (_, value) in HARD[game].items() if hard else ():
            setattr(env.env, name, value)

    reset(0)
    actions, states, pictures, rewards, overs = [], [], [], [], []
    for t in range(steps):
        actions.append(policy(env.env, rng))
        env.random.decide(noise[t, :1])
        numbers = noise[t, 1:]
        # Without a new enemy the package asks for the numbers of the diver first.
        env.env.random.decide(numbers[3:] if game == "seaquest" and env.env.e_spawn_timer else numbers)
        reward, over = env.act(actions[-1])
        states.append(seen(game, env.env))
        pictures.append(env.state())
        rewards.append(reward)
        overs.append(over)
        env.env.terminal = False
        if over and not ghost:
            reset(t + 1)
    return Played(np.array(actions), noise, starts, states, np.array(pictures), np.array(rewards), np.array(overs))


@eqx.filter_jit
def play_ours(env: MinAtar, played: Any, hard: jax.Array, ghost: jax.Array, ramp_ends: dict[str, int]) -> Any:
    def start(numbers: jax.Array) -> MinAtarState:
        game = env.game.start(numbers)
        for name, value in ramp_ends.items():
            changed = jnp.where(hard, value, getattr(game, name)).astype(jnp.int32)
            game = eqx.tree_at(lambda g, name=name: getattr(g, name), game, changed)
        return MinAtarState(game, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def step(state: MinAtarState, inputs: Any) -> Any:
        action, noise, next_start = inputs
        after, reward, over, truncated = env.step(state, action, noise)
        again = over & ~ghost
        state = jax.tree.map(lambda new, old: jnp.where(again, new, old), start(next_start), after)
        return state, (after.game, env.observe(after), reward, over, truncated)

    actions, noise, starts = played
    return jax.lax.scan(step, start(starts[0]), (actions, noise, starts[1:]))[1]


def compare(game: str, steps: int, seed: int, policy: Callable[..., int], hard: bool, ghost: bool) -> Played:
    played = play_reference(game, steps, seed, policy, hard, ghost)
    env = dataclasses.replace(minatar(game), time_limit=None)
    inputs = (played.actions.astype(np.int32), played.noise, played.starts)
    ends = {name: value for name, value in HARD[game].values()}
    made = play_ours(env, inputs, jnp.asarray(hard), jnp.asarray(ghost), ends)
    states, pictures, rewards, over, truncated = jax.device_get(made)
    np.testing.assert_array_equal(rewards, played.rewards)
    np.testing.assert_array_equal(over, played.over)
    np.testing.assert_array_equal(pictures, played.pictures)
    assert not truncated.any()
    for t in range(steps):
        mine = ours(game, jax.tree.map(lambda x, t=t: x[t], states))
        assert mine == played.states[t], f"step {t}"
    return played


WAYS = [(at_random, False, False), (cautiously, False, False), (cautiously, False, True), (at_random, True, True)]


def ways(game: str) -> list[tuple[Callable[..., int], bool, bool]]:
    """A lost ball leaves the screen, so Breakout cannot go on."""
    return WAYS[:2] if game == "breakout" else WAYS


@pytest.mark.parametrize("game", GAMES)
def test_every_step_is_the_packages(game: str):
    """Whole episodes at random and played well; then games that go on after their end, up the ramp and at its end."""
    for number, (policy, hard, ghost) in enumerate(ways(game)):
        played = compare(game, 800, number, policy, hard, ghost)
        assert played.rewards.sum() > 0 or policy is at_random
        assert played.over.any() or game == "freeway"
    assert played.over.any()


@pytest.mark.long
@pytest.mark.parametrize("game", GAMES)
def test_every_one_of_a_hundred_thousand_steps_is_the_packages(game: str):
    reached = []
    for number, (policy, hard, ghost) in enumerate(ways(game)):
        for part in range(5):
            played = compare(game, 5000, 100 + 10 * number + part, policy, hard, ghost)
            reached += played.states
    # The rare cases were among them.
    if game == "breakout":
        bricks = np.array([np.sum(state["bricks"]) for state in reached])
        assert ((bricks[:-1] == 0) & (bricks[1:] == 30)).any()
    if game == "seaquest":
        assert max(len(s["fish"]) + len(s["submarines"]) for s in reached) > 20
        assert {s["spawn_interval"] for s in reached} >= set(range(1, 21))
        assert {-1, 6} <= {s["crew"] for s in reached}
    if game == "asterix":
        assert {s["spawn_interval"] for s in reached} >= set(range(1, 11))
    if game == "space_invaders":
        assert {s["alien_interval"] for s in reached} >= set(range(6, 13))


def test_actions_stick_and_time_runs_out():
    env = MinAtar(GAMES["breakout"](), actions="minimal", time_limit=3)
    assert (env.n_actions, env.action_names) == (3, ("wait", "left", "right"))
    step, state = jax.jit(env.step), env.reset(jax.random.key(0))
    paddle, ends = [], []
    for action, number in [(2, 0.5), (1, 0.09), (1, 0.11)]:  # right; left, but right sticks; left
        state, _, over, truncated = step(state, jnp.asarray(action), jnp.asarray([number]))
        paddle.append(int(state.game.paddle))
        ends.append((bool(over), bool(truncated)))
    assert paddle == [5, 6, 5]
    assert ends == [(False, False), (False, False), (False, True)]
    with pytest.raises(ValueError, match="time_limit must be at least 1"):
        MinAtar(GAMES["breakout"](), time_limit=0)
    with pytest.raises(SettingsError, match="actions cannot be 'some'"):
        override(minatar("breakout"), {"actions": "some"})


@pytest.mark.parametrize("game", GAMES)
def test_actions_and_channels_are_those_of_the_package(game: str):
    theirs = reference.Environment(game)
    env = minatar(game)
    assert env.n_actions == theirs.num_actions()
    assert env.game.minimal_actions == tuple(theirs.minimal_action_set())
    assert tuple(jax.eval_shape(lambda: env.observe(env.reset(jax.random.key(0)))).shape) == tuple(theirs.state_shape())
    channels = env.game.picture(env.reset(jax.random.key(0)).game)
    assert [name.replace("gauge", "guage") for name in channels] == list(theirs.env.channels)


def test_starts_follow_their_law():
    keys = jax.random.split(jax.random.key(0), 4000)
    sides = jax.vmap(minatar("breakout").reset)(keys).game.ball_x
    assert set(np.unique(sides).tolist()) == {0, 9}
    assert abs(np.mean(np.asarray(sides) == 0) - 0.5) < 4 * 0.5 / 4000**0.5
    speeds = np.asarray(jax.vmap(minatar("freeway").reset)(keys).game.speed)
    values, counts = np.unique(speeds, return_counts=True)
    assert values.tolist() == [-5, -4, -3, -2, -1, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(counts / speeds.size, 0.1, atol=4 * (0.09 / speeds.size) ** 0.5)


def test_gymnasium_finds_nothing_to_complain_about():
    env = gymnasium.make("tremble/MinAtar-Breakout-v0", render_mode="rgb_array", sticky=0.0, actions="minimal")
    check_env(env.unwrapped, skip_render_check=True)
    obs, _ = env.reset(seed=3)
    assert (obs.shape, obs.dtype, env.action_space.n) == ((10, 10, 4), np.uint8, 3)
    frame = env.render()
    assert frame.shape == (320, 320, 3) and frame.dtype == np.uint8
    paddle, ball = frame[9 * 32 + 16, 4 * 32 + 16], frame[3 * 32 + 16, [16, 9 * 32 + 16]]
    assert tuple(paddle) == (242, 177, 52) and (209, 73, 91) in {tuple(x) for x in ball}
    with pytest.raises(SettingsError, match="there is no setting 'stickyness'; did you mean 'sticky'"):
        gymnasium.make("tremble/MinAtar-Breakout-v0", stickyness=1.0)
    with pytest.raises(SettingsError, match="NChain cannot be rendered"):
        JaxGymEnv(NChain(), render_mode="rgb_array")


def test_the_column_goes_with_the_names():
    names = ("minatar/breakout", "tremble/MinAtar-Breakout-v0", "MinAtar/Breakout-v1")
    assert {default_hyperparameters(name) for name in names} == {"minatar"}
    agent = make("qrdqn", "minatar", widths=64)
    assert agent.network.layers == ((16, 3, 1),) and agent.network.widths == (64,) and agent.network.scale == 1.0


SMALL = {
    "n_quantiles": 4,
    "widths": 8,
    "layers": [[4, 3, 1]],
    "batch_size": 4,
    "start_steps": 50,
    "memory_size": 300,
    "learning_rate": 1e-3,
    "target_update_interval": 20,
}


@pytest.mark.slow
def test_replay_holds_truths_and_is_written_in_place():
    """A step must not copy the memory: the program's own memory is far smaller than that of the pictures it changes."""
    agent, env, capacity = make("qrdqn", "minatar", **SMALL), minatar("breakout"), 100_000
    whole = jax.ShapeDtypeStruct((), jnp.int32)
    state = jax.eval_shape(lambda: compiled.init(agent, env, jnp.asarray(0), capacity))
    assert state.replay.store.obs_tm1.dtype == state.replay.store.obs_t.dtype == jnp.bool_
    needs = compiled.jit_chunk.lower(agent, env, whole, state, whole, 8, True).compile().memory_analysis()
    pictures = 2 * capacity * 400
    assert needs.alias_size_in_bytes > pictures > 20 * needs.temp_size_in_bytes


@pytest.mark.long
def test_both_loops_make_the_same_run():
    inside = tremble.train("pqr", "minatar/breakout", steps=400, **SMALL)
    chunks = list(iterate(tremble.make("pqr", "minatar", **SMALL), minatar("breakout"), 0, 400, 400))
    log = {name: np.concatenate([chunk.log[name] for chunk in chunks]) for name in ("action", "reward", "done")}

    class Spy(JaxGymEnv):
        rows: list = []  # noqa: RUF012

        def step(self, action):
            outcome = super().step(action)
            Spy.rows.append((int(action), outcome[1], outcome[2] + 2 * outcome[3]))
            return outcome

    beside = tremble.train(
        "pqr", lambda: Spy(minatar("breakout"), run_seed=0), steps=400, hyperparameters="minatar", **SMALL
    )
    actions, rewards, done = zip(*Spy.rows, strict=True)
    np.testing.assert_array_equal(actions, log["action"])
    np.testing.assert_array_equal(rewards, log["reward"])
    np.testing.assert_array_equal(done, log["done"])
    assert inside.agent.encoder == beside.agent.encoder == encoder_of(minatar("breakout"))
    for x, y in zip(jax.tree.leaves(inside.agent.params), jax.tree.leaves(beside.agent.params), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)
    assert inside.episode_rows == beside.episode_rows


@pytest.mark.long
def test_a_run_of_the_study_has_its_final_evaluation(tmp_path):
    settings = {"seed": 3, "record_every": 100, "final_episodes": 100}
    run = tremble.train("qrdqn", "minatar/breakout", steps=200, out=tmp_path / "run", **settings, **SMALL)
    career = STUDY.load(FinishedRun(3, run.spec, tmp_path / "run", ended(200)))
    assert career.returns.shape == (100,) and career.curve.shape == (40,)
    again = tremble.evaluate(tremble.load(tmp_path / "run"), lambda: JaxGymEnv(minatar("breakout")), seed=1_000_003)
    np.testing.assert_array_equal(again.returns, career.returns)


def test_the_study_judges_by_intervals(tmp_path):
    options = Options(tmp_path, tmp_path, 3, 1000, choices={"games": ("breakout",), "agents": ("pqr", "qrdqn", "dltv")})
    ends, curve = np.linspace(25, 1000, 40), np.full(40, np.nan)
    curve[4:] = 1.0

    def careers(*scores: float) -> list[MinAtarResult]:
        return [MinAtarResult(seed, ends, curve, np.full(100, score)) for seed, score in enumerate(scores)]

    results = {
        "breakout | pqr": careers(5.0, 6.0, 7.0),
        "breakout | qrdqn": careers(3.0, 4.1, 4.9),  # differences 2, 1.9, 2.1: 2 +- 0.25
        "breakout | dltv": careers(9.0, 2.0, 7.5),
    }
    report = STUDY.analyse(results, options)
    assert "2.00 [1.75, 2.25]: supported" in report
    assert "*PQR is better than DLTV*: inconclusive on breakout." in report
    assert {p.name for p in tmp_path.iterdir()} == {"curves.png", "curves.svg", "final.csv", "curves.csv"}
    rows = (tmp_path / "final.csv").read_text().splitlines()
    assert len(rows) == 10 and rows[1].startswith("breakout,pqr,0,5.000,0.000,5 5 5 ")
    curves = (tmp_path / "curves.csv").read_text().splitlines()
    assert curves[0] == "game,agent,seed,step,mean_return" and len(curves) == 1 + 9 * 40
    assert curves[1] == "breakout,pqr,0,25," and curves[5] == "breakout,pqr,0,125,1.000"


def test_choices_of_the_study_are_checked(tmp_path):
    chosen = STUDY.chosen({"games": "[breakout,seaquest]", "update_interval": 4})
    assert chosen["games"] == ("breakout", "seaquest") and chosen["update_interval"] == 4
    cells = STUDY.cells(Options(tmp_path, tmp_path, 1, 1_000_000, choices=chosen))
    assert len(cells) == 14 and cells[0].agent_options["update_interval"] == 4
    with pytest.raises(SettingsError, match="no choice 'game'; did you mean 'games'"):
        STUDY.chosen({"game": "breakout"})
    with pytest.raises(SettingsError, match="update_interval must be a whole number"):
        STUDY.chosen({"update_interval": "often"})
    with pytest.raises(SettingsError, match="there is no game 'pong'"):
        STUDY.cells(Options(tmp_path, tmp_path, 1, 1000, choices={"games": ("pong",)}))
