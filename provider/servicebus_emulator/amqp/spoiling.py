"""What a fault makes of one operation on a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.errors import BrokerError
from servicebus_emulator.faults import Armed, FaultKind, Operation, refusal_of

if TYPE_CHECKING:
    from proton import Link

    from servicebus_emulator.amqp.connection import AmqpConnection

__all__ = ["spoil", "spoil_attach", "spoil_receive"]

_MILLISECONDS: Final = 1000

Action = Callable[[], None]


def spoil(
    struck: Armed,
    *,
    connection: AmqpConnection,
    link: Link,
    carry_out: Callable[[], Action],
    refuse: Callable[[BrokerError], Action],
    is_open: Callable[[], bool],
) -> None:
    """Let a fault have its way with a delivery, a settlement or a request.

    What is refused, or ends with its link or connection, is not carried out. What is not answered, or late, or
    on a connection that freezes, is carried out, and stays so: the client cannot know.

    :param carry_out: does what was asked for, and returns what answers it.
    :param refuse: returns what refuses it.
    :param is_open: whether the link is still there to be answered on.
    """
    kind = struck.fault.kind
    broker = connection.broker
    if broker.trouble.break_connection(struck, connection=connection):
        return
    error = refusal_of(struck.fault)
    if error is not None:
        _refuse(kind, error, connection=connection, link=link, refuse=refuse)
        return
    answer = carry_out()
    if kind is FaultKind.NO_DISPOSITION:
        return
    if struck.fault.delay is None:
        broker.answer(connection, answer)
        return

    def answer_late() -> None:
        if is_open() and not connection.closed:
            broker.answer(connection, answer)

    broker.call_later(round(struck.fault.delay * _MILLISECONDS), answer_late)


def spoil_attach(connection: AmqpConnection, link: Link, *, entity: str) -> bool:
    """Let a fault have its way with an attach; return whether the attach gets no answer.

    :raises BrokerError: when it is to be refused.
    """
    operation = Operation.OPEN_RECEIVER if link.is_sender else Operation.OPEN_SENDER
    struck = connection.broker.trouble.strike(operation, entity=entity)
    if struck is None:
        return False
    if connection.broker.trouble.break_connection(struck, connection=connection):
        return True
    error = refusal_of(struck.fault)
    if error is None:
        return False
    if struck.fault.kind is FaultKind.CLOSE_CONNECTION:
        connection.close_with(error)
        return True
    raise error


def spoil_receive(struck: Armed, *, connection: AmqpConnection, link: Link) -> bool:
    """Let a fault have its way with the handing out of messages; return whether none are."""
    if connection.broker.trouble.break_connection(struck, connection=connection):
        return True
    error = refusal_of(struck.fault)
    if error is None:
        # A connection that froze takes no messages now.
        return connection.congested
    if struck.fault.kind is FaultKind.CLOSE_CONNECTION:
        connection.close_with(error)
    else:
        connection.detach(link, error=error)
    return True


def _refuse(
    kind: FaultKind,
    error: BrokerError,
    *,
    connection: AmqpConnection,
    link: Link,
    refuse: Callable[[BrokerError], Action],
) -> None:
    if kind is FaultKind.CLOSE_LINK:
        connection.detach(link, error=error)
    elif kind is FaultKind.CLOSE_CONNECTION:
        connection.close_with(error)
    else:
        connection.broker.answer(connection, refuse(error))
