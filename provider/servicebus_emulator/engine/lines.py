"""Who is next: the sequence numbers of the messages that wait to be received."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

__all__ = ["Line", "SessionLines"]

_SLACK = 1024


class Line:
    """Waiting messages, lowest sequence number first; one that comes back keeps its place."""

    __slots__ = ("_arrived", "_gone", "_returned")

    def __init__(self) -> None:
        # In order: almost all messages arrive so, and a heap would sort them again as they leave.
        self._arrived: deque[int] = deque()
        self._returned: list[int] = []
        self._gone: set[int] = set()

    def __len__(self) -> int:
        return len(self._arrived) + len(self._returned) - len(self._gone)

    def push(self, number: int) -> None:
        """Let a message wait that does not wait yet."""
        if len(self._arrived) == 0 or number > self._arrived[-1]:
            self._arrived.append(number)
        else:
            heappush(self._returned, number)

    def extend(self, numbers: Sequence[int]) -> None:
        """Let new messages wait, whose numbers ascend and are higher than all before."""
        self._arrived.extend(numbers)

    def pop(self) -> int | None:
        """Remove and return the first number, or None when nothing waits."""
        arrived, returned = self._arrived, self._returned
        while arrived or returned:
            comes_back = returned and (not arrived or returned[0] < arrived[0])
            number = heappop(returned) if comes_back else arrived.popleft()
            if number not in self._gone:
                return number
            self._gone.remove(number)
        return None

    def discard(self, number: int) -> None:
        """Take out a message that waits, wherever it stands."""
        self._gone.add(number)
        if len(self._gone) > (len(self._arrived) + len(self._returned)) // 2 + _SLACK:
            self._arrived = deque(each for each in self._arrived if each not in self._gone)
            self._returned = [each for each in self._returned if each not in self._gone]
            heapify(self._returned)
            self._gone.clear()


class SessionLines:
    """One line per session, and the sessions that wait for a receiver, first come first served."""

    __slots__ = ("_held", "_lines", "_unheld")

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        # An OrderedDict, because taking the first of a plain dict slows down as its front is emptied.
        self._unheld: OrderedDict[str, None] = OrderedDict()
        self._held: set[str] = set()

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    @property
    def is_empty(self) -> bool:
        """Whether no message of any session waits."""
        return len(self._lines) == 0

    def waiting(self, session_id: str) -> int:
        """Return how many messages of the session wait."""
        line = self._lines.get(session_id)
        return 0 if line is None else len(line)

    def push(self, number: int, *, session_id: str) -> None:
        """Let a message of the session wait."""
        line = self._lines.get(session_id)
        if line is None:
            line = self._lines[session_id] = Line()
        line.push(number)
        if session_id not in self._held:
            self._unheld.setdefault(session_id)

    def pop(self, session_id: str) -> int | None:
        """Remove and return the first number of the session, or None when nothing waits."""
        line = self._lines.get(session_id)
        number = None if line is None else line.pop()
        self._forget_if_empty(session_id)
        return number

    def discard(self, number: int, *, session_id: str) -> None:
        """Take out a waiting message of the session."""
        self._lines[session_id].discard(number)
        self._forget_if_empty(session_id)

    def next_unheld(self) -> str | None:
        """Return the session that has waited longest for a receiver, or None."""
        return next(iter(self._unheld), None)

    def hold(self, session_id: str) -> None:
        """Note that a receiver has the session."""
        self._held.add(session_id)
        self._unheld.pop(session_id, None)

    def unhold(self, session_id: str) -> None:
        """Note that the session is free; it waits again when it has messages."""
        self._held.discard(session_id)
        if session_id in self._lines:
            self._unheld.setdefault(session_id)

    def _forget_if_empty(self, session_id: str) -> None:
        line = self._lines.get(session_id)
        if line is not None and len(line) == 0:
            del self._lines[session_id]
            self._unheld.pop(session_id, None)
