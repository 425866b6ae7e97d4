"""Choice of the backlog queue (SPEC section 4): random, then kept; a failing queue is removed for all senders.

With a spool, a secondary that takes nothing costs no wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from random import Random

from servicebus_pair.core.model.interfaces import Clock


class QueueSelector:
    """The backlog queues that all senders of a pair share.

    :param queues: paths of the backlog queues.
    :param random: source of the choice; injected so that a test can repeat it.
    :ivar unresponsive: the last search for a backlog queue ran out of time.
    """

    def __init__(self, queues: Sequence[str], *, random: Random) -> None:
        self._queues = tuple(queues)
        self._usable = list(queues)
        self._random = random
        self.unresponsive = False

    def select(self, preferred: str | None, *, exclude: AbstractSet[str] = frozenset()) -> str | None:
        """Return ``preferred`` while it is usable, else a random usable queue.

        When every queue was removed, all of them become usable again.

        :param preferred: the queue that the sender used before.
        :param exclude: queues that this send has already tried.
        :returns: ``None`` when every queue is excluded.
        """
        if not self._usable:
            self._usable = list(self._queues)
        if preferred in self._usable and preferred not in exclude:
            return preferred
        candidates = [queue for queue in self._usable if queue not in exclude]
        if not candidates:
            candidates = [queue for queue in self._queues if queue not in exclude]
        return self._random.choice(candidates) if candidates else None

    def is_removed(self, queue: str) -> bool:
        """Return whether ``queue`` is unusable for all senders."""
        return queue not in self._usable

    def remove(self, queue: str) -> bool:
        """Make ``queue`` unusable for all senders; return False if it already was."""
        if queue not in self._usable:
            return False
        self._usable.remove(queue)
        return True


class BacklogHealth:
    """Whether the secondary takes messages, as far as this process knows.

    Down after a search for a backlog queue failed, until a link to one could be opened.

    :param retry_seconds: how long after a failure, and after each trial, the next one is due.
    """

    def __init__(self, *, clock: Clock, retry_seconds: float) -> None:
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._next_trial_at: float | None = None

    @property
    def is_down(self) -> bool:
        """Whether the last search failed and nothing was accepted since."""
        return self._next_trial_at is not None

    def failed(self) -> None:
        """Record that no backlog queue took a message or a link."""
        self._next_trial_at = self._clock.now() + self._retry_seconds

    def worked(self) -> None:
        """Record that a backlog queue took a message or a link."""
        self._next_trial_at = None

    def claim_trial(self) -> bool:
        """Return whether the caller is to try to open a link now; the others are not, until the next one is due."""
        if self._next_trial_at is None or self._clock.now() < self._next_trial_at:
            return False
        self.failed()
        return True
