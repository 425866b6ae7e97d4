"""A client's receiver that waits for any session of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_emulator.engine.admission import receive_obstacle
from servicebus_emulator.engine.errors import BrokerError, EntityNotFound, OperationTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from proton import Link

    from servicebus_emulator.amqp import proton
    from servicebus_emulator.amqp.connection import AmqpConnection
    from servicebus_emulator.amqp.outlet import Outlet
    from servicebus_emulator.engine.entities import QueueEntity, SubscriptionEntity
    from servicebus_emulator.engine.sessions import SessionHold

__all__ = ["SessionWait"]


class SessionWait:
    """An attach without an answer yet: a session turns up, the client's time ends, or the client goes.

    :param timeout: how long the client waits, in milliseconds. It is answered with an error then; a
        client without any answer would wait for minutes.
    :param accept: takes the next session, if there is one.
    :param make_outlet: makes this side of the link for the session that was granted.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        *,
        entity: QueueEntity | SubscriptionEntity,
        timeout: int,
        accept: Callable[[], SessionHold | None],
        make_outlet: Callable[[SessionHold], Outlet],
    ) -> None:
        self.entity = entity
        self.queue = entity.main
        self._connection = connection
        self._link = link
        self._accept = accept
        self._make_outlet = make_outlet
        self._timer = connection.broker.call_later(timeout, self._give_up)
        connection.broker.add_waiter(self)
        connection.broker.add(self)

    def try_session(self) -> bool:
        """Try to attach to a session; return whether the wait is over."""
        hold = self._accept()
        if hold is None:
            return False
        self.closed()
        self._connection.complete_attach(self._link, self._make_outlet(hold))
        return True

    def opened(self) -> None:
        """Nothing: the link is not open while this end stands for it."""

    def delivered(self, delivery: proton.Handle) -> None:
        """Nothing: nothing was delivered."""

    def flowed(self) -> None:
        """Nothing: credit counts once a session is found."""

    def closed(self) -> None:
        """Stop waiting."""
        self._timer.cancel()
        self.entity.touch()
        self._connection.broker.remove_waiter(self)
        self._connection.broker.remove(self)

    def obstacle(self) -> BrokerError | None:
        """Return why waiting is of no use."""
        if self.entity.deleted:
            return EntityNotFound(
                f"the messaging entity {self.entity.description.path!r} could not be found: it was deleted"
            )
        return receive_obstacle(self.entity.description)

    def refuse(self, error: BrokerError) -> None:
        """Answer the attach with an error."""
        self._connection.refuse_attach(self._link, error=error)

    def _give_up(self) -> None:
        self.refuse(OperationTimedOut("no session had messages in the time the client was ready to wait"))
