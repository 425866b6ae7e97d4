"""Acceptance of incoming messages by a queue or topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from servicebus_emulator.engine.model.descriptions import QueueDescription, TopicDescription
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.model.queue_settings import milliseconds
from servicebus_emulator.engine.queue.duplicate_detection import DuplicateDetector
from servicebus_emulator.engine.queue.limits import check_send
from servicebus_emulator.engine.runtime.context import Context


class Ingress:
    """Checks incoming messages and drops pings and duplicates.

    :param entity: the entity's key in the journal.
    :ivar duplicate_detector: None when the entity does not detect duplicates.
    :ivar accepted: the number of messages accepted since the process started.
    :ivar duplicates: how many of these were dropped as duplicates.
    """

    __slots__ = ("_context", "_description", "accepted", "duplicate_detector", "duplicates")

    def __init__(self, entity: int, *, description: QueueDescription | TopicDescription, context: Context) -> None:
        self._description = description
        self._context = context
        self.accepted = 0
        self.duplicates = 0
        self.duplicate_detector: DuplicateDetector | None = None
        if description.requires_duplicate_detection:
            self.duplicate_detector = DuplicateDetector(entity, window=_window_of(description), context=context)

    def update(self, description: QueueDescription | TopicDescription) -> None:
        """Use a new description. Whether duplicates are detected cannot change."""
        self._description = description
        if self.duplicate_detector is not None:
            self.duplicate_detector.window = _window_of(description)

    def check(self, contents: Sequence[Content], *, size_in_bytes: int) -> None:
        """Check that messages would be accepted.

        :param size_in_bytes: the current size of the entity.
        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`check_send`.
        """
        detector = self.duplicate_detector
        fresh = contents if detector is None else detector.without_duplicates(contents)
        check_send(fresh, description=self._description, size_in_bytes=size_in_bytes)

    def accept(self, contents: Sequence[Content], *, size_in_bytes: int | None) -> Sequence[Content]:
        """Accept messages, all or none, and return those to store: all but pings and duplicates.

        :param size_in_bytes: the current size of the entity; None = the messages are checked already.
        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`check_send`.
        """
        detector = self.duplicate_detector
        fresh = contents if detector is None else detector.without_duplicates(contents)
        if size_in_bytes is not None:
            check_send(fresh, description=self._description, size_in_bytes=size_in_bytes)
        self.accepted += len(contents)
        if detector is not None:
            detector.remember(fresh)
            self.duplicates += len(contents) - len(fresh)
        return fresh if self._context.deliver_pings else [content for content in fresh if not content.ping]

    def schedule(
        self, contents: Sequence[Content], *, size_in_bytes: int, add: Callable[[Content, int], int]
    ) -> list[int]:
        """Accept messages for a later time; return the sequence number of each, 0 for those that were dropped.

        :param size_in_bytes: the current size of the entity.
        :param add: stores a message until its due time and returns its sequence number.
        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`check_send`.
        """
        pending = deque(self.accept(contents, size_in_bytes=size_in_bytes))
        now = self._context.clock.now()
        numbers = []
        for content in contents:
            if len(pending) > 0 and pending[0] is content:
                pending.popleft()
                numbers.append(add(content, now if content.scheduled_for is None else content.scheduled_for))
            else:
                numbers.append(0)
        return numbers


def _window_of(description: QueueDescription | TopicDescription) -> int:
    window = milliseconds(description.duplicate_detection_history_time_window)
    if window is None:
        raise ValueError("the duplicate detection window is unlimited, although descriptions are validated")
    return window
