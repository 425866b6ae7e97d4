"""Where the messages of one send are, at any moment of it (SPEC section 4: the caller still has its message).

However a send ends, by an error, by its deadline or by cancellation, each message that was taken
from the caller is accepted (on which route, by id), or in hand and maybe stored (in doubt), or
not sent at all. One batch is in hand at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.events import MessageRef, Route
from servicebus_pair.core.results import SendResult

__all__ = ["Account"]


class Account:
    """The account of one send; its messages are numbered within the batch in hand."""

    def __init__(self) -> None:
        self._parts: list[SendResult] = []
        self._in_hand: dict[int, AmqpAnnotatedMessage] = {}
        self._doubted: set[int] = set()

    def take_in_hand(self, messages: Sequence[AmqpAnnotatedMessage]) -> None:
        """Begin to deliver a batch; the one before was accepted."""
        self._in_hand = dict(enumerate(messages))
        self._doubted.clear()

    @property
    def doubted(self) -> frozenset[int]:
        """The numbers of what is in doubt; kept before an attempt that may end with a clear no."""
        return frozenset(self._doubted)

    def doubt(self, numbers: Iterable[int]) -> None:
        """Note that an attempt begins to send these."""
        self._doubted.update(numbers)

    def refused(self, before: frozenset[int]) -> None:
        """The attempt ended with a clear no: what was in doubt ``before`` is so still, nothing else is."""
        self._doubted = set(before)

    def accept(self, numbers: Iterable[int], *, route: Route, queue: str | None, refs: Sequence[MessageRef]) -> None:
        """The service confirmed these."""
        for number in numbers:
            del self._in_hand[number]
            self._doubted.discard(number)
        ids = tuple(ref.message_id for ref in refs)
        if route is Route.PRIMARY:
            self._parts.append(SendResult(primary=len(ids), message_ids=ids, primary_ids=ids))
        else:
            queues = () if queue is None else (queue,)
            self._parts.append(SendResult(diverted=len(ids), backlog_queues=queues, message_ids=ids, diverted_ids=ids))

    @property
    def in_hand(self) -> dict[int, AmqpAnnotatedMessage]:
        """What is not accepted of the batch in hand, by number."""
        return dict(self._in_hand)

    @property
    def in_doubt(self) -> tuple[AmqpAnnotatedMessage, ...]:
        """What of the batch in hand may be stored although nobody confirmed it."""
        return tuple(self._in_hand[number] for number in sorted(self._doubted))

    def result(self) -> SendResult:
        """Answer what was accepted so far."""
        return SendResult.total(self._parts)
