"""Applies a fault to one operation on a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.faults import Armed, FaultKind, Operation, refusal_of

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.session.connection import AmqpConnection

_MILLISECONDS: Final = 1000

Reply = Callable[[], None]


def apply_fault(
    struck: Armed,
    *,
    connection: AmqpConnection,
    link: Link,
    execute: Callable[[], Reply],
    refuse: Callable[[BrokerError], Reply],
    is_open: Callable[[], bool],
) -> None:
    """Apply a fault to a message, a disposition or a request of the client.

    An operation that is refused, or that ends with its link or connection, is not executed. One whose reply is missing,
    late, or lost in a freeze is executed, as the client cannot know.

    :param execute: executes the operation and returns its reply.
    :param refuse: returns the reply that refuses it.
    :param is_open: returns whether the link is still open for a late reply.
    """
    kind = struck.fault.kind
    broker = connection.broker
    if broker.fault_injector.apply_to_connection(struck, connection=connection):
        return
    error = refusal_of(struck.fault)
    if error is not None:
        if kind is FaultKind.CLOSE_LINK:
            connection.detach(link, error=error)
        elif kind is FaultKind.CLOSE_CONNECTION:
            connection.close_with_error(error)
        else:
            broker.reply_when_durable(connection, refuse(error))
        return
    reply = execute()
    if kind is FaultKind.NO_DISPOSITION:
        return
    if struck.fault.delay is None:
        broker.reply_when_durable(connection, reply)
        return

    def reply_late() -> None:
        if is_open() and not connection.closed:
            broker.reply_when_durable(connection, reply)

    broker.call_later(round(struck.fault.delay * _MILLISECONDS), reply_late)


def apply_attach_fault(connection: AmqpConnection, link: Link, *, entity: str) -> bool:
    """Apply the fault that strikes an attach, if any; return whether the attach is never answered.

    :raises BrokerError: when the fault refuses the attach.
    """
    operation = Operation.OPEN_RECEIVER if link.is_sender else Operation.OPEN_SENDER
    fault_injector = connection.broker.fault_injector
    struck = fault_injector.strike(operation, entity=entity)
    if struck is None:
        return False
    if fault_injector.apply_to_connection(struck, connection=connection):
        return True
    error = refusal_of(struck.fault)
    if error is None:
        return False
    if struck.fault.kind is FaultKind.CLOSE_CONNECTION:
        connection.close_with_error(error)
        return True
    raise error


def apply_delivery_fault(struck: Armed, *, connection: AmqpConnection, link: Link) -> bool:
    """Apply a fault to the delivery of messages; return whether none are delivered."""
    if connection.broker.fault_injector.apply_to_connection(struck, connection=connection):
        return True
    error = refusal_of(struck.fault)
    if error is None:
        # The fault may have frozen the connection.
        return connection.congested
    if struck.fault.kind is FaultKind.CLOSE_CONNECTION:
        connection.close_with_error(error)
    else:
        connection.detach(link, error=error)
    return True
