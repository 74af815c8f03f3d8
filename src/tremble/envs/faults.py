"""What an environment did wrong, as an error."""

from __future__ import annotations


class EnvironmentFaultError(RuntimeError):
    """The environment raised, or returned something that is not finite; the message names it and the step."""
