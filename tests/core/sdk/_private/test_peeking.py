"""Messages are peeked as outlines, which say what decoding them says (SPEC section 9)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.protocol.message_outline import OutlineReader
from servicebus_pair.core.sdk._private.peeking import peek_outlines
from servicebus_pair.core.sdk.received_message import OutlinedMessage, ReceivedMessage
from tests.core.support.encoding import encode
from tests.core.support.local_pair import BACKLOG, LocalPair, numbered

pytestmark = pytest.mark.fast_sdk


async def test_messages_are_outlined_unless_one_of_them_is_unusual(local_pair: LocalPair) -> None:
    await local_pair.put_into_backlog("flights", numbered(3))
    client = local_pair.pair._open().secondary
    link, decoding = client.receive_link(BACKLOG), client.receive_link(BACKLOG)
    link.outlines = OutlineReader()
    found = await link.peek(max_messages=2, timeout=5, from_sequence_number=2)
    assert [type(each) for each in found] == [OutlinedMessage] * 2
    names = ("sequence_number", "state", "message_id", "session_id", "content_type", "destination", "digest")
    decoded = await decoding.peek(max_messages=2, timeout=5, from_sequence_number=2)
    assert [[getattr(each, name) for name in names] for each in found] == [
        [getattr(each, name) for name in names] for each in decoded
    ]
    assert await link.peek(max_messages=2, timeout=5, from_sequence_number=4) == []
    await local_pair.put_raw_into_backlog([_with_a_value()])
    both = await link.peek(max_messages=9, timeout=5, from_sequence_number=3)
    assert [(type(each), each.sequence_number) for each in both] == [(ReceivedMessage, 3), (ReceivedMessage, 4)]
    [outlined] = await link.peek(max_messages=1, timeout=5, from_sequence_number=3)
    assert isinstance(outlined, OutlinedMessage)


def _with_a_value() -> ServiceBusMessage:
    message = ServiceBusMessage(None, message_id="value")
    message._raw_amqp_message = AmqpAnnotatedMessage(value_body="value")
    return message


@pytest.mark.parametrize("status", [199, 500])
async def test_an_answer_that_is_an_error_has_no_outlines(status: int) -> None:
    errors: list[Any] = []
    transport = SimpleNamespace(AMQP_LONG_VALUE=int, handle_amqp_mgmt_error=lambda *given: errors.append(given[-1]))
    content = encode(AmqpAnnotatedMessage(data_body=b"x"))
    answer = SimpleNamespace(value={b"messages": [{b"message": content}]}, application_properties={})

    async def request(_: bytes, __: Any, take: Any, *, timeout: float) -> Any:
        return take(status, answer, f"within {timeout}", amqp_transport=transport)

    receiver: Any = SimpleNamespace(
        _amqp_transport=transport,
        _mgmt_request_response_with_retry=request,
        _check_live=list,
        _populate_message_properties=dict,
    )
    found = await peek_outlines(receiver, reader=OutlineReader(), max_messages=1, from_sequence_number=1, timeout=5)
    assert (found, errors) == (None, [status])
