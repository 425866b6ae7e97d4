"""The door through which messages enter a queue or a topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Several

from servicebus_emulator.engine.admission import admit
from servicebus_emulator.engine.context import Context
from servicebus_emulator.engine.descriptions import QueueDescription, TopicDescription
from servicebus_emulator.engine.history import History
from servicebus_emulator.engine.message import Content
from servicebus_emulator.engine.settings import milliseconds

__all__ = ["Reception", "number_each"]

_NO_NUMBER = 0


class Reception:
    """Decides which messages are stored.

    :param entity: the entity's key in the journal.
    :ivar history: which messages were taken in lately; None where duplicates are not detected.
    :ivar accepted: how many messages senders were told to be accepted since the process began.
    :ivar duplicates: how many of these were dropped.
    """

    __slots__ = ("_deliver_pings", "_description", "accepted", "duplicates", "history")

    def __init__(self, entity: int, *, description: QueueDescription | TopicDescription, context: Context) -> None:
        self._description = description
        self._deliver_pings = context.deliver_pings
        self.accepted = 0
        self.duplicates = 0
        self.history: History | None = None
        if description.requires_duplicate_detection:
            self.history = History(entity, window=_window_of(description), context=context)

    def describe(self, description: QueueDescription | TopicDescription) -> None:
        """Go by a new description. Whether duplicates are detected is fixed when the entity is created."""
        self._description = description
        if self.history is not None:
            self.history.window = _window_of(description)

    def take_in(self, contents: Several[Content], *, size_in_bytes: int) -> Several[Content]:
        """Return the messages that are to be stored, in order: all are accepted, pings and duplicates are dropped.

        :param size_in_bytes: what the entity holds now.
        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`admit`; then none is taken in.
        """
        fresh = contents if self.history is None else self.history.fresh(contents)
        admit(fresh, description=self._description, size_in_bytes=size_in_bytes)
        self.accepted += len(contents)
        if self.history is not None:
            self.history.remember(fresh)
            self.duplicates += len(contents) - len(fresh)
        return fresh if self._deliver_pings else [content for content in fresh if not content.ping]


def number_each(
    contents: Several[Content], *, taken_in: Several[Content], schedule: Callable[[Content], int]
) -> list[int]:
    """Schedule what was taken in; return a sequence number for each message, 0 for a duplicate."""
    left = deque(taken_in)
    return [schedule(left.popleft()) if len(left) > 0 and left[0] is content else _NO_NUMBER for content in contents]


def _window_of(description: QueueDescription | TopicDescription) -> int:
    window = milliseconds(description.duplicate_detection_history_time_window)
    if window is None:
        raise ValueError("a duplicate detection window has an end: descriptions are checked when they are made")
    return window
