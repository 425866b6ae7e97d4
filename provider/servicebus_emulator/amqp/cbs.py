"""Claims-based security: the node ``$cbs`` to which clients bring their tokens."""

from __future__ import annotations

from servicebus_emulator.amqp.requests import Answer, Request
from servicebus_emulator.amqp.values import Int
from servicebus_emulator.engine.errors import BrokerError, OperationNotSupported

__all__ = ["put_token", "refuse_token"]


def put_token(request: Request) -> Answer:
    """Accept a token, unread: the embedded Service Bus is open to whoever reaches its port.

    :raises OperationNotSupported: for any other operation.
    """
    operation = request.properties.get("operation")
    if operation != "put-token":
        raise OperationNotSupported(f"operation is {operation!r}; allowed at $cbs: 'put-token'")
    return _answer(202, description="Accepted")


def refuse_token(error: BrokerError) -> Answer:
    """Answer with a refusal."""
    return _answer(error.status, description=str(error))


def _answer(status: int, *, description: str) -> Answer:
    return Answer(properties={"status-code": Int(status), "status-description": description})
