"""When the primary dies, and when it may come back."""

from __future__ import annotations

__all__ = ["KILL_AT", "restart_is_due"]

KILL_AT = 1 / 3
"""The part of all messages that is accepted before the primary is killed."""

RETURN_AT = 2 / 3
"""The part that is accepted before it comes back, where nothing else is waited for."""

LONGEST = 60.0


def restart_is_due(*, dead_for: float, shortest: float, awaited: bool) -> bool:
    """Tell whether the outage has lasted long enough. After a minute it ends in any case.

    :param dead_for: seconds since the primary was killed.
    :param shortest: seconds that it lasts at least.
    :param awaited: whether what else is to happen meanwhile has happened.
    """
    return dead_for >= LONGEST or (dead_for >= shortest and awaited)
