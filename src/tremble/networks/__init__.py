"""Torsos; heads belong to the representations."""

from tremble.networks.torsos import Mlp, MlpSpec

__all__ = ["Mlp", "MlpSpec"]
