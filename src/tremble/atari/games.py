"""The 57 games of the Atari benchmark, and what they are called where."""

from __future__ import annotations

from tremble.settings import SettingsError, nearest

GAMES: tuple[str, ...] = (
    "alien",
    "amidar",
    "assault",
    "asterix",
    "asteroids",
    "atlantis",
    "bank_heist",
    "battle_zone",
    "beam_rider",
    "berzerk",
    "bowling",
    "boxing",
    "breakout",
    "centipede",
    "chopper_command",
    "crazy_climber",
    "defender",
    "demon_attack",
    "double_dunk",
    "enduro",
    "fishing_derby",
    "freeway",
    "frostbite",
    "gopher",
    "gravitar",
    "hero",
    "ice_hockey",
    "jamesbond",
    "kangaroo",
    "krull",
    "kung_fu_master",
    "montezuma_revenge",
    "ms_pacman",
    "name_this_game",
    "phoenix",
    "pitfall",
    "pong",
    "private_eye",
    "qbert",
    "riverraid",
    "road_runner",
    "robotank",
    "seaquest",
    "skiing",
    "solaris",
    "space_invaders",
    "star_gunner",
    "surround",
    "tennis",
    "time_pilot",
    "tutankham",
    "up_n_down",
    "venture",
    "video_pinball",
    "wizard_of_wor",
    "yars_revenge",
    "zaxxon",
)
"""As the emulator's files are called."""
PAPER_GAMES = tuple(game for game in GAMES if game not in ("defender", "surround"))
"""The 55 games of the paper."""

NAMESPACE = "atari/"


def is_atari(env: str) -> bool:
    """Whether this names a game that is played under a protocol."""
    return env.startswith(NAMESPACE)


def id_of(rom: str) -> str:
    """The id under which Gymnasium makes a game: ``atari/MsPacman``."""
    return NAMESPACE + rom.title().replace("_", "")


def rom_of(game: str) -> str:
    """The file of a game, by that name, by its id, or by the id's last part."""
    names = {id_of(rom).removeprefix(NAMESPACE): rom for rom in GAMES} | {rom: rom for rom in GAMES}
    name = game.removeprefix(NAMESPACE)
    if name not in names:
        raise SettingsError(f"there is no game {name!r}; {nearest(name, names)}")
    return names[name]
