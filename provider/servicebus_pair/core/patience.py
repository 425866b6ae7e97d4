"""How long one attempt on the primary may take, and how long to pause before the next. Pure.

From the first failing send to the first message in the backlog may take the failover interval and
2 s more, whatever the primary does. So an attempt ends with the interval, and one that begins at
its end is cut off after 1 s: what remains is for the divert, whose link is opened beside an attempt
that is late.
"""

from __future__ import annotations

from typing import Final

from servicebus_pair.core.health import EntityHealth, State

__all__ = ["FIRST_PAUSE", "LONGEST_ATTEMPT", "attempt_seconds", "interval_left", "late_seconds", "next_pause"]

# Seconds one call may take when nothing else bounds it.
LONGEST_ATTEMPT: Final = 10.0
FIRST_PAUSE: Final = 0.25
_LATE_ATTEMPT: Final = 0.3
# What opening a link may take.
_OPENING: Final = 3.0
_SHORTEST_ATTEMPT: Final = 1.0
_LAST_ATTEMPT: Final = 0.7
_LONGEST_PAUSE: Final = 5.0


def interval_left(health: EntityHealth, *, interval: float, now: float, failing_since: float | None = None) -> float:
    """Answer the seconds until the entity fails over if nothing succeeds; all of them while nothing failed.

    Below 0 when that is over, and one more attempt is due all the same: a lost connection was forgiven.

    :param interval: the failover interval, seconds.
    :param failing_since: when this send began to fail, if health does not know it yet.
    """
    since = health.since if health.state is State.SUSPECT else failing_since
    return interval if since is None else since + interval - now


def attempt_seconds(left: float) -> float:
    """Answer the longest an attempt may take when the interval ends in ``left`` seconds."""
    if left < 0:
        return max(_LAST_ATTEMPT, _SHORTEST_ATTEMPT + left)
    return min(LONGEST_ATTEMPT, max(_SHORTEST_ATTEMPT, left))


def late_seconds(attempt: float) -> float:
    """Answer after how many seconds of an attempt of at most ``attempt`` a divert is to be prepared beside it."""
    return max(_LATE_ATTEMPT, attempt - _OPENING)


def next_pause(pause: float) -> float:
    """Answer the pause that follows ``pause``: twice as long, at most 5 s."""
    return min(pause * 2, _LONGEST_PAUSE)
