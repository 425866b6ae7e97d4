"""The sequence numbers of the messages that are ready to be received, in delivery order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

_MIN_DISCARDED = 1024


class ReadyQueue:
    """Ready messages, lowest sequence number first. A returned message regains its place."""

    __slots__ = ("_discarded", "_new", "_returned")

    def __init__(self) -> None:
        # Sorted, because almost all messages arrive in order. A heap would have to sort them again on removal.
        self._new: deque[int] = deque()
        self._returned: list[int] = []
        self._discarded: set[int] = set()

    def __len__(self) -> int:
        return len(self._new) + len(self._returned) - len(self._discarded)

    def push(self, number: int) -> None:
        """Add a message that is not in the queue."""
        if len(self._new) == 0 or number > self._new[-1]:
            self._new.append(number)
        else:
            heappush(self._returned, number)

    def extend(self, numbers: Sequence[int]) -> None:
        """Add new messages whose sequence numbers ascend and are higher than all before."""
        self._new.extend(numbers)

    def pop(self) -> int | None:
        """Remove and return the lowest sequence number, or None when the queue is empty."""
        new, returned = self._new, self._returned
        while new or returned:
            from_returned = returned and (not new or returned[0] < new[0])
            number = heappop(returned) if from_returned else new.popleft()
            if number not in self._discarded:
                return number
            self._discarded.remove(number)
        return None

    def discard(self, number: int) -> None:
        """Remove a message that is in the queue."""
        self._discarded.add(number)
        if len(self._discarded) > (len(self._new) + len(self._returned)) // 2 + _MIN_DISCARDED:
            self._new = deque(each for each in self._new if each not in self._discarded)
            self._returned = [each for each in self._returned if each not in self._discarded]
            heapify(self._returned)
            self._discarded.clear()


class SessionReadyQueues:
    """One ready queue per session, and the unlocked sessions with ready messages in order of arrival."""

    __slots__ = ("_available", "_locked", "_queues")

    def __init__(self) -> None:
        self._queues: dict[str, ReadyQueue] = {}
        # An OrderedDict, because removing the first item of a plain dict gets slower with every removal.
        self._available: OrderedDict[str, None] = OrderedDict()
        self._locked: set[str] = set()

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    @property
    def is_empty(self) -> bool:
        """Whether no session has ready messages."""
        return len(self._queues) == 0

    def ready_count(self, session_id: str) -> int:
        """Return the number of ready messages in a session."""
        queue = self._queues.get(session_id)
        return 0 if queue is None else len(queue)

    def push(self, number: int, *, session_id: str) -> None:
        """Add a message to a session."""
        queue = self._queues.get(session_id)
        if queue is None:
            queue = self._queues[session_id] = ReadyQueue()
        queue.push(number)
        if session_id not in self._locked:
            self._available.setdefault(session_id)

    def pop(self, session_id: str) -> int | None:
        """Remove and return the lowest sequence number of a session, or None when it has no ready messages."""
        queue = self._queues.get(session_id)
        number = None if queue is None else queue.pop()
        self._remove_if_empty(session_id)
        return number

    def discard(self, number: int, *, session_id: str) -> None:
        """Remove a message that is in a session."""
        self._queues[session_id].discard(number)
        self._remove_if_empty(session_id)

    def next_available(self) -> str | None:
        """Return the session that has been available longest, or None."""
        return next(iter(self._available), None)

    def lock(self, session_id: str) -> None:
        """Mark a session as locked by a receiver."""
        self._locked.add(session_id)
        self._available.pop(session_id, None)

    def unlock(self, session_id: str) -> None:
        """Mark a session as unlocked. It becomes available if it has ready messages."""
        self._locked.discard(session_id)
        if session_id in self._queues:
            self._available.setdefault(session_id)

    def _remove_if_empty(self, session_id: str) -> None:
        queue = self._queues.get(session_id)
        if queue is not None and len(queue) == 0:
            del self._queues[session_id]
            self._available.pop(session_id, None)
