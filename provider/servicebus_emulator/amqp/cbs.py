"""Claims-based security: the node ``$cbs`` to which clients bring their tokens.

As in "AMQP Claims-based Security Version 1.0" (OASIS) and Microsoft's "AMQP 1.0 in Azure Service Bus: protocol
guide": the token is the body of a request, its type and the resource that it is for are application properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_emulator.amqp.requests import Answer, Request
from servicebus_emulator.amqp.values import Int, Symbol
from servicebus_emulator.engine.errors import BrokerError, OperationNotSupported, Unauthorized

if TYPE_CHECKING:
    from servicebus_emulator.amqp.claims import Claims

__all__ = ["put_token", "refuse_token"]


def put_token(claims: Claims, request: Request) -> Answer:
    """Take in the token of a request.

    :raises OperationNotSupported: for any other operation.
    :raises BrokerError: when the token is not good.
    """
    operation = request.properties.get("operation")
    if operation != "put-token":
        raise OperationNotSupported(f"operation is {operation!r}; allowed at $cbs: 'put-token'")
    claims.bring(request.body, kind=request.properties.get("type"), audience=request.properties.get("name"))
    return Answer(properties={"status-code": Int(202), "status-description": "Accepted"})


def refuse_token(error: BrokerError) -> Answer:
    """Answer with a refusal. What refuses a token says by which condition; what a fault made up says its status."""
    answer = Answer(properties={"status-code": Int(error.status), "status-description": str(error)})
    if isinstance(error, Unauthorized):
        answer.properties["error-condition"] = Symbol(error.condition)
    return answer
