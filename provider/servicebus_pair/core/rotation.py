"""Which backlog queue a sender uses (SPEC section 4): random, kept, pulled for all when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from random import Random

__all__ = ["BacklogRotation"]


class BacklogRotation:
    """The backlog queues that all senders of a pair share.

    :param queues: paths of the backlog queues.
    :param random: source of the choice; injected so that a test can repeat it.
    :ivar silent: the last send that looked for a queue found none that answered in time.
    """

    def __init__(self, queues: Sequence[str], *, random: Random) -> None:
        self._queues = tuple(queues)
        self._usable = list(queues)
        self._random = random
        self.silent = False

    def choose(self, kept: str | None, *, without: AbstractSet[str] = frozenset()) -> str | None:
        """Answer the queue to use: ``kept`` while it is usable, else a random one.

        When every queue is pulled, all come back and are tried again.

        :param kept: the queue that the sender used before.
        :param without: queues this send has tried already.
        :returns: ``None`` when this send has tried every queue.
        """
        if not self._usable:
            self._usable = list(self._queues)
        if kept in self._usable and kept not in without:
            return kept
        open_queues = [queue for queue in self._usable if queue not in without]
        if not open_queues:
            open_queues = [queue for queue in self._queues if queue not in without]
        return self._random.choice(open_queues) if open_queues else None

    def is_pulled(self, queue: str) -> bool:
        """Answer whether ``queue`` is out for all senders."""
        return queue not in self._usable

    def pull(self, queue: str) -> bool:
        """Take ``queue`` out for all senders; answer False when it was out already."""
        if queue not in self._usable:
            return False
        self._usable.remove(queue)
        return True
