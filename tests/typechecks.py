"""The type checker of the tests: beartype, with whole numbers welcome where a float is asked for (as PEP 484 says)."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
