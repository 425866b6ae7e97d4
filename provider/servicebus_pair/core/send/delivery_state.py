"""The state of each message of one send (SPEC section 4: no message is lost to the caller).

However a send ends (an error, its deadline, cancellation), each message taken from the caller is accepted (with
route and id), pending and in doubt (possibly stored), or unsent. One batch is pending at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.events import MessageRef, Route
from servicebus_pair.core.model.results import SendResult

__all__ = ["DeliveryState"]


class DeliveryState:
    """What was accepted by one send, and what is pending. Messages are numbered within the pending batch."""

    def __init__(self) -> None:
        self._accepted: list[SendResult] = []
        self._pending: dict[int, AmqpAnnotatedMessage] = {}
        self._in_doubt: set[int] = set()

    def start_batch(self, messages: Sequence[AmqpAnnotatedMessage]) -> None:
        """Make ``messages`` the pending batch; the previous one was accepted."""
        self._pending = dict(enumerate(messages))
        self._in_doubt.clear()

    @property
    def pending(self) -> dict[int, AmqpAnnotatedMessage]:
        """The messages of the current batch that are not accepted, by number."""
        return dict(self._pending)

    @property
    def in_doubt_numbers(self) -> frozenset[int]:
        """The numbers of messages in doubt, to be restored if the next attempt is refused."""
        return frozenset(self._in_doubt)

    @property
    def in_doubt(self) -> tuple[AmqpAnnotatedMessage, ...]:
        """The pending messages that may be stored although no confirmation arrived."""
        return tuple(self._pending[number] for number in sorted(self._in_doubt))

    def mark_in_doubt(self, numbers: Iterable[int]) -> None:
        """Record that an attempt starts to send these messages."""
        self._in_doubt.update(numbers)

    def restore_in_doubt(self, before: frozenset[int]) -> None:
        """Record that the attempt was refused, so it stored nothing; ``before`` is still in doubt."""
        self._in_doubt = set(before)

    def mark_accepted(
        self, numbers: Iterable[int], *, route: Route, queue: str | None, refs: Sequence[MessageRef]
    ) -> None:
        """Record that the service confirmed these messages."""
        for number in numbers:
            del self._pending[number]
            self._in_doubt.discard(number)
        ids = tuple(ref.message_id for ref in refs)
        if route is Route.PRIMARY:
            part = SendResult(primary=len(ids), message_ids=ids, primary_ids=ids)
        else:
            queues = () if queue is None else (queue,)
            part = SendResult(diverted=len(ids), backlog_queues=queues, message_ids=ids, diverted_ids=ids)
        self._accepted.append(part)

    def result(self) -> SendResult:
        """Return what was accepted so far."""
        return SendResult.total(self._accepted)
