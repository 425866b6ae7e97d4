"""A client's receiver that waits for the next available session of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_emulator.amqp.session.link_registry import LinkHandler
from servicebus_emulator.engine.model.errors import BrokerError, OperationTimedOut
from servicebus_emulator.engine.namespace.entity_registry import deleted_error
from servicebus_emulator.engine.queue.limits import receive_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from proton import Link

    from servicebus_emulator.amqp.nodes.sender_link import SenderLink
    from servicebus_emulator.amqp.session.connection import AmqpConnection
    from servicebus_emulator.engine.model.session_locks import SessionLock
    from servicebus_emulator.engine.namespace.entities import QueueEntity
    from servicebus_emulator.engine.namespace.topics import SubscriptionEntity


class SessionWait(LinkHandler):
    """An unanswered attach, until a session is available, the timeout ends or the client detaches.

    :param timeout: how long the client waits, in milliseconds. Then the attach is refused; without an answer, clients
        would wait for minutes.
    :param accept: locks the next session and returns its lock, if there is one.
    :param make_link: makes the link for the session that was locked.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        *,
        entity: QueueEntity | SubscriptionEntity,
        timeout: int,
        accept: Callable[[], SessionLock | None],
        make_link: Callable[[SessionLock], SenderLink],
    ) -> None:
        self.entity = entity
        self.queue = entity.main
        self._connection = connection
        self._link = link
        self._accept = accept
        self._make_link = make_link
        self._timer = connection.broker.call_later(timeout, self._on_timeout)
        connection.broker.add_waiter(self)
        connection.broker.add_link(self)

    def try_session(self) -> bool:
        """Try to lock a session; return whether the wait is over."""
        session_lock = self._accept()
        if session_lock is None:
            return False
        self.on_closed()
        self._connection.complete_attach(self._link, self._make_link(session_lock))
        return True

    def on_closed(self) -> None:
        """Stop waiting."""
        self._timer.cancel()
        self.entity.touch()
        self._connection.broker.remove_waiter(self)
        self._connection.broker.remove_link(self)

    def closing_error(self) -> BrokerError | None:
        """Return why the link must close, if its entity was deleted or its status changed."""
        return deleted_error(self.entity) or receive_error(self.entity.description)

    def close_with_error(self, error: BrokerError) -> None:
        """Refuse the attach."""
        self._connection.refuse_attach(self._link, error=error)

    def _on_timeout(self) -> None:
        self.close_with_error(OperationTimedOut("no session had messages before the client's timeout"))
