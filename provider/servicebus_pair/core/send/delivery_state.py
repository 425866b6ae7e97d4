"""The account of one send (SPEC section 4): each message is in exactly one state, kept by its identity.

A message is queued, in flight, accepted by a route, or refused. A message whose attempt ended without an answer is in
doubt: it may be stored, and stays in doubt until it is accepted, which may then be a second copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.model.events import Route
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage


class MessageStatus(Enum):
    """State of one message of a send."""

    QUEUED = auto()
    IN_FLIGHT = auto()
    ACCEPTED = auto()
    REFUSED = auto()


class TrackedMessage:
    """One message of a send and its state; compared by identity, since a caller may send one object twice.

    :ivar may_be_stored: an attempt ended without an answer.
    :ivar verdict: why the service refused the message.
    """

    __slots__ = ("may_be_stored", "message", "status", "verdict")

    def __init__(self, message: AmqpMessage) -> None:
        self.message = message
        self.status = MessageStatus.QUEUED
        self.may_be_stored = False
        self.verdict: ServiceError | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the message may be stored although no confirmation arrived."""
        return self.may_be_stored or self.status is MessageStatus.IN_FLIGHT


class DeliveryState:
    """All messages of one send. Accepted messages are released; only their ids are kept.

    :ivar sequence_numbers: those that the primary assigned, in the order of acceptance.
    """

    def __init__(self) -> None:
        self.sequence_numbers: list[int] = []
        self._accepted: list[SendResult] = []
        # In the order in which they were taken from the caller.
        self._not_accepted: dict[TrackedMessage, None] = {}

    def take(self, message: AmqpMessage) -> TrackedMessage:
        """Take a message from the caller: it is queued."""
        tracked = TrackedMessage(message)
        self._not_accepted[tracked] = None
        return tracked

    def start_attempt(self, messages: Iterable[TrackedMessage]) -> None:
        """Record that the first byte of these messages is about to be sent."""
        for each in messages:
            each.status = MessageStatus.IN_FLIGHT

    def end_attempt(self, messages: Iterable[TrackedMessage], *, may_be_stored: bool) -> None:
        """Record that an attempt failed: the messages in flight are queued again.

        :param may_be_stored: no answer arrived, so that the messages are in doubt from now on.
        """
        for each in messages:
            if each.status is MessageStatus.IN_FLIGHT:
                each.status = MessageStatus.QUEUED
                each.may_be_stored = each.may_be_stored or may_be_stored

    def accept(
        self, messages: Sequence[TrackedMessage], *, route: Route, queue: str | None, ids: Iterable[str]
    ) -> None:
        """Record that the service confirmed these messages.

        :param ids: theirs, in the same order.
        """
        ids = tuple(ids)
        twice: tuple[str, ...] = ()
        for each, message_id in zip(messages, ids, strict=True):
            each.status = MessageStatus.ACCEPTED
            del self._not_accepted[each]
            if each.may_be_stored:
                twice += (message_id,)
        if route is Route.SPOOLED:
            part = SendResult(spooled=len(ids), message_ids=ids, spooled_ids=ids, duplicates_possible_ids=twice)
        elif route is Route.PRIMARY:
            part = SendResult(primary=len(ids), message_ids=ids, primary_ids=ids, duplicates_possible_ids=twice)
        else:
            part = SendResult(
                diverted=len(ids),
                backlog_queues=() if queue is None else (queue,),
                message_ids=ids,
                diverted_ids=ids,
                duplicates_possible_ids=twice,
            )
        self._accepted.append(part)

    def refuse(self, message: TrackedMessage, verdict: ServiceError) -> None:
        """Record that the service does not take this message, whichever others it takes."""
        message.status, message.verdict = MessageStatus.REFUSED, verdict

    @property
    def unsent(self) -> tuple[AmqpMessage, ...]:
        """The messages that were not accepted, refused ones included, in the order of the caller."""
        return tuple(each.message for each in self._not_accepted)

    @property
    def in_doubt(self) -> tuple[AmqpMessage, ...]:
        """The members of :attr:`unsent` that may be stored although no confirmation arrived."""
        return tuple(each.message for each in self._not_accepted if each.in_doubt)

    @property
    def refused(self) -> tuple[TrackedMessage, ...]:
        """The messages that the service refused, with their verdicts."""
        return tuple(each for each in self._not_accepted if each.status is MessageStatus.REFUSED)

    def result(self) -> SendResult:
        """Return what was accepted so far."""
        return self._accepted[0] if len(self._accepted) == 1 else SendResult.total(self._accepted)
