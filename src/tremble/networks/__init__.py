"""Torsos and heads; what a head's outputs mean is the representation's business."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from tremble.networks.conv import MINATAR, ConvSpec
from tremble.networks.heads import Dueling, Head, HiddenBranch, batch_outputs, deepen_streams, make_head
from tremble.networks.implicit import ImplicitHead, embed_levels
from tremble.networks.initialisation import initialise
from tremble.networks.layers import NoisyLinear, batch_linear, linear
from tremble.networks.network import Network, SideBySide, init_torso, started
from tremble.networks.own import NetworkSpec, OwnTorso, require_hashable
from tremble.networks.pictures import AutoSpec, choice_in_words
from tremble.networks.torsos import Mlp, MlpSpec
from tremble.settings import SettingsError, import_named, nearest, reference

NETWORKS: dict[str, tuple[Callable[[], NetworkSpec], str]] = {
    "auto": (AutoSpec, "fully connected layers, and convolutions by their size for pictures: the default"),
    "mlp": (MlpSpec, "fully connected layers for everything"),
    "nature": (partial(ConvSpec, scale=None), "the convolutions of DQN, for pictures of 36 pixels and more"),
    "minatar": (partial(ConvSpec, MINATAR, scale=None), "the one of MinAtar: 16 filters of 3x3, for small pictures"),
}
"""Constructors by name, and a line about each; `Hyperparameters.widths` are the layers behind convolutions."""


def make_network(network: Any) -> NetworkSpec:
    """A network from its name, from ``module:Class``, from a class, or one that is there."""
    made = network
    if isinstance(made, str):
        if ":" not in made and made not in NETWORKS:
            raise SettingsError(f"there is no network {made!r}; {nearest(made, NETWORKS)}")
        made = import_named(made) if ":" in made else NETWORKS[made][0]()
    # Looked at before it is called: a name in somebody's file may be that of any function.
    if not (issubclass(made, NetworkSpec) if isinstance(made, type) else isinstance(made, NetworkSpec)):
        raise SettingsError(
            f"{reference(made)} is no network: it needs a method init(key, obs_shape) that returns a torso and how "
            "many features it gives (tremble.networks.NetworkSpec)"
        )
    made = _instance(made) if isinstance(made, type) else made
    require_hashable(made, reference(made))
    return made


@cache
def _instance(kind: type[NetworkSpec]) -> NetworkSpec:
    """One for each class, because an object that does not define equality is equal to itself only."""
    try:
        return kind()
    except TypeError as error:
        raise SettingsError(f"{reference(kind)} cannot be made: all its settings need a default ({error})") from error


__all__ = [
    "MINATAR",
    "NETWORKS",
    "AutoSpec",
    "ConvSpec",
    "Dueling",
    "Head",
    "HiddenBranch",
    "ImplicitHead",
    "Mlp",
    "MlpSpec",
    "Network",
    "NetworkSpec",
    "NoisyLinear",
    "OwnTorso",
    "SideBySide",
    "batch_linear",
    "batch_outputs",
    "choice_in_words",
    "deepen_streams",
    "embed_levels",
    "init_torso",
    "initialise",
    "linear",
    "make_head",
    "make_network",
    "started",
]
