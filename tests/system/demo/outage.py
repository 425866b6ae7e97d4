"""When the primary dies, and when it may come back."""

from __future__ import annotations

__all__ = ["KILL_AT", "restart_is_due"]

KILL_AT = 1 / 3
"""The part of all messages that is accepted before the primary is killed."""

SHORTEST = 30.0
LONGEST = 60.0


def restart_is_due(*, dead_for: float, recovery_waits: bool) -> bool:
    """Tell whether the outage has lasted long enough.

    It lasts half a minute at least, and then until Airflow has noticed: the recovery's first task waits in a trigger
    for the primary's answer. After a minute it ends in any case.

    :param dead_for: seconds since the primary was killed.
    :param recovery_waits: whether that task is deferred.
    """
    return dead_for >= LONGEST or (dead_for >= SHORTEST and recovery_waits)
