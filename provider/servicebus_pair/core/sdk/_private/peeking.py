"""Peeks messages over a receiver of azure-servicebus (7.15) without decoding them.

The SDK decodes each peeked message into objects, which takes longer than all else that an inspection does.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from servicebus_pair.core.protocol.message_outline import MessageOutline, OutlineReader

_OK = 200


async def peek_outlines(
    receiver: ServiceBusReceiver,
    *,
    reader: OutlineReader,
    max_messages: int,
    from_sequence_number: int,
    timeout: float,
) -> list[MessageOutline] | list[ServiceBusReceivedMessage]:
    """Return the outlines of up to ``max_messages`` messages; decoded messages if one of them is unusual."""
    from azure.servicebus._common import constants, mgmt_handlers

    inner: Any = receiver
    decode: Any = mgmt_handlers.peek_op

    def take(status: int, response: Any, description: Any, **more: Any) -> Any:
        if status == _OK:
            outlines = [reader.read(each[b"message"]) for each in response.value[b"messages"]]
            if None not in outlines:
                return outlines
        return decode(status, response, description, receiver=inner, **more)

    request: dict[str, Any] = {
        constants.MGMT_REQUEST_FROM_SEQUENCE_NUMBER: inner._amqp_transport.AMQP_LONG_VALUE(from_sequence_number),
        constants.MGMT_REQUEST_MAX_MESSAGE_COUNT: max_messages,
    }
    inner._check_live()
    inner._populate_message_properties(request)
    found: list[MessageOutline] | list[ServiceBusReceivedMessage] = await inner._mgmt_request_response_with_retry(
        constants.REQUEST_RESPONSE_PEEK_OPERATION, request, take, timeout=timeout
    )
    return found
