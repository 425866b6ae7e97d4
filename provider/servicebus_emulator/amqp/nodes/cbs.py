"""Claims-based security: the node ``$cbs``, to which clients send their tokens.

See "AMQP Claims-based Security Version 1.0" (OASIS) and Microsoft's "AMQP 1.0 in Azure Service Bus: protocol guide":
the token is the body of a request; its type and the resource it is for are application properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from servicebus_emulator.amqp.codec.value_codec import Int, Symbol
from servicebus_emulator.amqp.nodes.request_response import Request, Response
from servicebus_emulator.engine.model.errors import BrokerError, OperationNotSupported, Unauthorized

if TYPE_CHECKING:
    from servicebus_emulator.amqp.session.authorization import Authorization

CBS: Final = "$cbs"


def put_token(authorization: Authorization, request: Request) -> Response:
    """Accept the token of a request.

    :raises OperationNotSupported: for any other operation.
    :raises BrokerError: when the token is invalid.
    """
    operation = request.properties.get("operation")
    if operation != "put-token":
        raise OperationNotSupported(f"operation is {operation!r}; allowed at $cbs: 'put-token'")
    properties = request.properties
    authorization.put_token(request.body, kind=properties.get("type"), audience=properties.get("name"))
    return Response(properties={"status-code": Int(202), "status-description": "Accepted"})


def token_error_response(error: BrokerError, description: str) -> Response:
    """Return the response to a refused token. An injected fault is recognized by its status, not its condition."""
    response = Response(properties={"status-code": Int(error.status), "status-description": description})
    if isinstance(error, Unauthorized):
        response.properties["error-condition"] = Symbol(error.condition)
    return response
