"""How long one send looks for a backlog queue that answers (SPEC section 4).

A secondary that refuses does so at once, and every queue is asked. One that is silent answers
nobody: asking each queue in turn for as long as a call may take would hold a send for minutes. So
the silence of all queues together is bounded, by the failover interval, and once a search has
ended in silence the next ones are short until the secondary has taken something again.
"""

from __future__ import annotations

from typing import Final

from servicebus_pair.core.deadline import Deadline
from servicebus_pair.core.patience import LONGEST_ATTEMPT
from servicebus_pair.core.ports import Clock

__all__ = ["Search", "search_seconds"]

_SHORTEST_SEARCH: Final = 10.0
_LONGEST_SEARCH: Final = 20.0
_SILENT_SEARCH: Final = 4.0
_SHORTEST_ATTEMPT: Final = 1.0
# What a call is given that begins when its attempt is over already.
_LAST_MOMENT: Final = 0.1


def search_seconds(failover_interval: float, *, silent: bool) -> float:
    """Answer how long the queues may stay silent together: the failover interval, within 10 to 20 s.

    :param failover_interval: seconds.
    :param silent: the last search of this pair ended in silence; then 4 s.
    """
    return _SILENT_SEARCH if silent else min(_LONGEST_SEARCH, max(_SHORTEST_SEARCH, failover_interval))


class Search:
    """The attempts of one send on backlog queues: each may use half of what is left, at least 1 s, at most 10 s.

    :param seconds: for all that fail; what succeeds costs nothing.
    :param deadline: the caller's, which comes first.
    """

    def __init__(self, clock: Clock, *, seconds: float, deadline: Deadline) -> None:
        self._clock = clock
        self.deadline = deadline
        self._left = seconds
        self._began = clock.now()

    @property
    def over(self) -> bool:
        """True when no further attempt is to be made."""
        return self._left <= 0

    def begin(self) -> None:
        """An attempt begins, or made progress."""
        self._began = self._clock.now()

    def failed(self) -> None:
        """The attempt came to nothing."""
        self._left -= self._clock.now() - self._began

    def seconds(self) -> float:
        """Answer how long the next call of this attempt may take.

        :raises SendTimeoutError: the caller's time is over.
        """
        share = min(LONGEST_ATTEMPT, max(_SHORTEST_ATTEMPT, self._left / 2))
        left = max(_LAST_MOMENT, share - (self._clock.now() - self._began))
        return min(left, self.deadline.left())
