"""Whether the secondary takes messages, as far as this process knows: with a spool, a dead one costs no wait."""

from __future__ import annotations

from servicebus_pair.core.model.interfaces import Clock

__all__ = ["BacklogHealth"]


class BacklogHealth:
    """Down after a search for a backlog queue failed, until a link to one could be opened.

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
