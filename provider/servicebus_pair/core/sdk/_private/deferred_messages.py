"""Removing deferred messages with one request for many (azure-servicebus 7.15).

The public way is to receive each deferred message under a lock and to complete it with a request of its own. A receiver
that deletes what it receives is no alternative: the SDK gives its link one credit when it opens, so an active message
would be delivered, and be gone.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from azure.servicebus.aio import ServiceBusReceiver

from servicebus_pair.core.model.logs import get_logger

_log = get_logger(__name__)
_OPERATION: Final = b"com.microsoft:receive-by-sequence-number"
# The value of receiver-settle-mode that removes what is received.
_RECEIVE_AND_DELETE: Final = 0
_ERROR_CONDITION: Final = b"errorCondition"
_SUCCESS: Final = (200, 202, 204)


async def remove_deferred(receiver: ServiceBusReceiver, numbers: Sequence[int], *, timeout: float) -> None:
    """Remove deferred messages by sequence number, all or none. :raises MessageNotFoundError: one is not there."""
    inner: Any = receiver
    transport = inner._amqp_transport
    request = {
        "sequence-numbers": transport.AMQP_ARRAY_VALUE([transport.AMQP_LONG_VALUE(number) for number in numbers]),
        "receiver-settle-mode": transport.AMQP_UINT_VALUE(_RECEIVE_AND_DELETE),
    }
    inner._populate_message_properties(request)  # the id of a session

    def check(status: int, response: Any, description: Any, **_: Any) -> None:
        if status not in _SUCCESS:
            condition = response.application_properties.get(_ERROR_CONDITION)
            transport.handle_amqp_mgmt_error(_log, "Removing deferred messages failed.", condition, description, status)

    await inner._mgmt_request_response_with_retry(_OPERATION, request, check, timeout=timeout)
