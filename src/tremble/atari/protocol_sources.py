"""Where each setting of a protocol was read: a file of a public repository, or a place in the paper."""

from __future__ import annotations

from tremble.atari.protocols import PROTOCOLS, AtariProtocol, find_protocol
from tremble.settings import SettingsError, nearest

TABLE = "Pitfall of Optimism, table of hyperparameters"
TEXT = "Pitfall of Optimism, section on Atari"
BASE = "toshikwa/fqf-iqn-qrdqn.pytorch (inferred: the paper's column repeats its settings)"
ZOO = "google-deepmind/dqn_zoo"
DOPAMINE = "google/dopamine"
EMULATOR = "Farama-Foundation/Arcade-Learning-Environment"

_FROM: dict[str, dict[str, str]] = {
    "paper": {
        f"{TABLE} (Atari column)": "gamma replay_capacity replay_start_steps batch_size update_every_steps "
        "target_update_steps epsilon_start epsilon_end epsilon_decay_steps evaluate_epsilon",
        f"{TEXT}: 30 no-ops, best score up to 50M frames": "no_op_max_frames published_score run_frames",
        f"{BASE}: fqf_iqn_qrdqn/env.py": "frame_skip_min frame_skip_max sticky_probability action_set game_mode "
        "no_op_min_frames fire_reset_training fire_reset_evaluation pool_frames pool_on missing_frames gray resize "
        "height width stack stack_padding reward_clip",
        f"{BASE}: train_qrdqn.py": "life_loss_training life_loss_evaluation",
        f"{BASE}: fqf_iqn_qrdqn/agent/base_agent.py": "cap_frames cap_counts_training cap_terminates epsilon_origin "
        "evaluate_every_steps evaluate_steps evaluate_ends evaluate_untrained published_returns",
        f"{BASE}: fqf_iqn_qrdqn/network.py": "padding torso_initialisation torso_bias dense_initialisation dense_bias",
    },
    "dqn_zoo": {
        f"{ZOO}: dqn_zoo/gym_atari.py": "sticky_probability action_set game_mode fire_reset_training "
        "fire_reset_evaluation",
        f"{ZOO}: dqn_zoo/processors.py": "life_loss_training life_loss_evaluation pool_frames pool_on missing_frames "
        "gray resize stack_padding reward_clip",
        f"{ZOO}: dqn_zoo/qrdqn/run_atari.py": "frame_skip_min frame_skip_max no_op_min_frames no_op_max_frames "
        "cap_frames height width stack gamma replay_capacity replay_start_steps batch_size update_every_steps "
        "target_update_steps epsilon_start epsilon_end epsilon_decay_steps epsilon_origin evaluate_every_steps "
        "evaluate_steps evaluate_untrained evaluate_epsilon run_frames",
        f"{ZOO}: dqn_zoo/parts.py": "cap_counts_training cap_terminates evaluate_ends",
        f"{ZOO}: README.md, results": "published_returns published_score",
        f"{ZOO}: dqn_zoo/networks.py": "padding torso_initialisation torso_bias dense_initialisation dense_bias",
    },
    "dopamine": {
        f"{DOPAMINE}: dopamine/discrete_domains/atari_lib.py": "frame_skip_min frame_skip_max sticky_probability "
        "action_set game_mode no_op_min_frames no_op_max_frames fire_reset_training fire_reset_evaluation "
        "life_loss_training life_loss_evaluation pool_frames pool_on missing_frames gray resize height width stack",
        f"{DOPAMINE}: dopamine/discrete_domains/run_experiment.py": "cap_frames cap_counts_training cap_terminates "
        "reward_clip evaluate_ends evaluate_untrained",
        f"{DOPAMINE}: dopamine/jax/agents/dqn/dqn_agent.py": "stack_padding epsilon_start epsilon_origin",
        f"{DOPAMINE}: dopamine/jax/agents/quantile/configs/quantile.gin": "gamma replay_capacity replay_start_steps "
        "batch_size update_every_steps target_update_steps epsilon_end epsilon_decay_steps evaluate_every_steps "
        "evaluate_steps evaluate_epsilon run_frames",
        f"{DOPAMINE}: baselines/atari/data (values are those of training)": "published_returns published_score",
        f"{DOPAMINE}: dopamine/jax/networks.py": "padding torso_initialisation torso_bias dense_initialisation "
        "dense_bias",
    },
    "paper_sticky": {f"{TEXT}: sticky actions with p = 0.25, version v0": "sticky_probability"},
    "paper_v4": {f"{TEXT}: “random frame skipping”; {EMULATOR}: src/ale/python/registration.py": "frame_skip_min"},
}

NOTES: dict[str, dict[str, str]] = {
    "paper": {
        "cap_frames": "27,001 steps there: the loop's condition is <=",
        "cap_counts_training": "a life is an episode in training, and the cap counts the steps of an episode",
        "fire_reset_training": "FIRE and the action after it are played for one repeat each, after every lost life too",
        "life_loss_training": "the game goes on: the next episode starts where the life was lost",
        "stack_padding": "the stack starts anew after a lost life",
        "epsilon_end": "for the baselines; PQR and DLTV explore by their criterion alone after the random start",
        "torso_initialisation": "uniform in +-sqrt(6 / fan-in)",
        "published_returns": "not said in the paper; the code base reports evaluations",
    },
    "dqn_zoo": {
        "life_loss_training": "no reset: the stack is kept",
        "replay_start_steps": "20,000 for IQN and Rainbow",
        "target_update_steps": "30,000 for Double and Prioritised, 8,000 for Rainbow",
        "epsilon_end": "0.1 for DQN; Rainbow explores by noisy layers alone",
        "evaluate_epsilon": "0.05 for DQN, 0.01 for Double and Prioritised, 0 for Rainbow, whose noise stays on",
        "evaluate_ends": "the mean is over whole episodes, or the unfinished one if none was finished",
        "epsilon_decay_steps": "4M frames there: 0.02 of 200M",
        "stack_padding": "the newest picture moves: A000, AB00, ABC0, ABCD, BCDE",
    },
    "dopamine": {
        "cap_terminates": "in the JAX agents; in the TensorFlow ones, such as its DQN, the cap is a true end",
        "evaluate_steps": "the JAX configurations train only; the TensorFlow ones evaluate too",
        "torso_initialisation": "uniform of variance 1/(sqrt(3) fan-in); Xavier uniform for DQN",
        "dense_initialisation": "uniform of variance 1/(sqrt(3) fan-in); Xavier uniform for DQN",
        "evaluate_epsilon": "published values are training returns, at epsilon 0.01",
        "padding": "11 x 11 x 64 features instead of 7 x 7 x 64",
    },
    "paper_sticky": {
        "no_op_max_frames": "the code base plays no-ops whatever the version; Dopamine plays none",
        "target_update_steps": "the paper has one Atari column; Dopamine's own is 8,000",
    },
    "paper_v4": {
        "frame_skip_min": "2, 3 or 4 frames with equal chance, at every step",
        "pool_frames": "our reading; the emulator skips by itself there and shows the last frame only",
    },
}
"""What a value alone does not say."""


def source_of(protocol: AtariProtocol | str, setting: str) -> str:
    """Where the value of a setting was read; variants inherit from the protocol they vary."""
    rules = find_protocol(protocol)
    if setting not in rules.settings():
        raise SettingsError(f"there is no setting {setting!r}; {nearest(setting, rules.settings())}")
    for place in (rules.name, "paper"):
        for source, settings in _FROM[place].items():
            if setting in settings.split():
                return source
    raise AssertionError(f"{setting} of {rules.name} has no source")  # a test asks for all of them


def note_of(protocol: AtariProtocol | str, setting: str) -> str:
    """What there is to say beside the value, or nothing."""
    name = find_protocol(protocol).name
    inherited = NOTES["paper"] if name.startswith("paper") else {}
    return (inherited | NOTES[name]).get(setting, "")


assert set(_FROM) == set(PROTOCOLS) == set(NOTES)
