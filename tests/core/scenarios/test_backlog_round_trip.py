"""The envelope over the embedded Service Bus: what went through the backlog is what would have been sent (SPEC 4)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import proton
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.core.support.local_pair import BACKLOG, LocalPair, open_local_pair
from tests.core.support.queues import peek_all
from tests.emulator.support.proton_client import connected

LATER = datetime(2030, 1, 31, 23, 59, 58, 250_000, tzinfo=UTC)
SCHEDULED = "x-opt-scheduled-enqueue-time"
TICKS_OF_AN_HOUR = proton.Described(proton.symbol("com.microsoft:timespan"), 36_000_000_000)
SCALARS: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "ubyte": amqp_typed("UBYTE", 255),
    "ushort": amqp_typed("USHORT", 65_535),
    "uint": amqp_typed("UINT", 2**32 - 1),
    "ulong": amqp_typed("ULONG", 2**64 - 1),
    "byte": amqp_typed("BYTE", -128),
    "short": amqp_typed("SHORT", -32_768),
    "int": -5,
    "long": amqp_typed("LONG", 5),
    "float": amqp_typed("FLOAT", 0.5),
    "double": 1.1,
    "decimal": Decimal("-1234567890123456789.50"),
    "timestamp": datetime(1969, 7, 20, 20, 17, 40, 123_000, tzinfo=UTC),
    "uuid": uuid.UUID(int=7),
    "binary": amqp_typed("BINARY", b"text"),
    "string": "t\u00e4xt",
    "symbol": amqp_typed("SYMBOL", "amqp:any"),
}
COMPOUNDS: dict[str, Any] = {
    "list": [1, [SCALARS["timestamp"], {"deep": amqp_typed("ULONG", 3)}], []],
    "map": {"k": [amqp_typed("BINARY", b"\x00"), None], 5: amqp_typed("SHORT", 1)},
    "array": amqp_typed("ARRAY", ["a", "b"]),
    "described": (amqp_typed("SYMBOL", "com.microsoft:timespan"), amqp_typed("LONG", 5)),
    "described list": (amqp_typed("SYMBOL", "com.example:row"), [1, Decimal("0.1"), "a"]),
}
EVERY_TYPE = {**SCALARS, **COMPOUNDS}


def annotated(**sections: Any) -> AmqpAnnotatedMessage:
    body = (
        sections if {"value_body", "sequence_body", "data_body"} & set(sections) else {"data_body": b"body", **sections}
    )
    return AmqpAnnotatedMessage(**body)


OWN_ALIASES: dict[Any, Any] = {
    "x-ms-path": "mine",
    "x-ms-sessionid": amqp_typed("LONG", 5),
    "x-ms-timetolive": (amqp_typed("SYMBOL", "com.microsoft:timespan"), amqp_typed("LONG", 5)),
    "x-ms-scheduledenqueuetimeutc": LATER,
    "x-servicebus-pair-types": "{",
    "x-servicebus-pair-own:x-ms-path": "twice",
}
MESSAGES: dict[str, Callable[[], ServiceBusMessage | AmqpAnnotatedMessage]] = {
    "nothing but a body": lambda: ServiceBusMessage("plain"),
    "no body": lambda: annotated(data_body=[]),
    "an empty body": lambda: ServiceBusMessage(b""),
    "data in several sections": lambda: annotated(data_body=[b"one", b"", b"\x00\xff"]),
    "a sequence in several sections": lambda: annotated(sequence_body=[[1, "a"], [], list(EVERY_TYPE.values())]),
    **{
        f"a value body: {name}": partial(annotated, value_body=value)
        for name, value in {**COMPOUNDS, "string": "v", "timestamp": LATER, "uuid": uuid.UUID(int=1), "int": 7}.items()
    },
    "properties of every type": lambda: annotated(application_properties=EVERY_TYPE),
    "annotations and footer of every type": lambda: annotated(
        annotations={f"x-opt-app-{name}": value for name, value in EVERY_TYPE.items()}, footer=EVERY_TYPE
    ),
    "priority and durable": lambda: annotated(header={"priority": 7, "durable": True}),
    "addresses and group": lambda: annotated(
        properties={
            "message_id": uuid.UUID(int=3),
            "correlation_id": 9,
            "user_id": b"ann",
            "to": "somewhere",
            "reply_to": "answers",
            "reply_to_group_id": "answers-1",
            "group_sequence": 2**32 - 1,
            "content_type": "text/plain",
            "content_encoding": "utf-8",
            "subject": "UA",
        }
    ),
    "session, time to live and schedule": lambda: annotated(
        header={"time_to_live": 604_800_001},
        properties={"group_id": "N14228", "group_sequence": 3, "absolute_expiry_time": 1, "creation_time": 5},
        annotations={SCHEDULED: amqp_typed("TIMESTAMP", int(LATER.timestamp() * 1000))},
    ),
    "a partition key": lambda: ServiceBusMessage("keyed", partition_key="N14228"),
    "aliases of its own": lambda: ServiceBusMessage("own", session_id="s", application_properties=OWN_ALIASES),
}


def stored(namespace: HostedNamespace, queue: str) -> list[tuple[bytes, bytes, bytes, int | None, int | None]]:
    """Each message of a queue as the service keeps it, to the byte, with the times that it read from it."""
    entity = namespace.namespace.find(queue)
    assert isinstance(entity, QueueEntity)
    contents: list[Content] = [each.content for each in entity.sub_queue(SubQueue.MAIN).peek(1, limit=1000)]
    return [
        # A header of nulls is equivalent to none.
        (
            each.header.strip(b"@") and each.header,
            each.annotations,
            each.sections,
            each.time_to_live,
            each.scheduled_for,
        )
        for each in contents
    ]


@pytest.fixture
def time_stands_still() -> Iterator[None]:
    """For the time of day, which the SDK and our encoding write into each message that has a time to live."""
    still = SimpleNamespace(**{**vars(time), "mktime": lambda _: 1_357_041_600.0})
    with (
        patch("azure.servicebus._transport._pyamqp_transport.time", still),
        patch("servicebus_pair.core.sdk._private.message_encoding.time", still),
        patch("servicebus_pair.core.protocol.relayed_message._created_at", lambda _: 1_357_041_600_000),
    ):
        yield


@pytest.mark.usefixtures("time_stands_still")
async def test_section_4_every_message_arrives_byte_for_byte_as_if_it_had_been_sent_to_its_entity() -> None:
    async with open_local_pair("direct", "diverted") as here, here.pair.sender("direct") as direct:
        await here.pair.fail_over("diverted", reason="test")
        async with here.pair.sender("diverted") as diverted:
            for name, make in MESSAGES.items():
                message = make()
                assert (await direct.send(message)).primary == 1, name
                assert (await diverted.send(message)).diverted == 1, name
        await here.pair.mark_healthy("diverted")
        drained = await here.pair.syphon().drain()
        assert (drained.moved, drained.dead_lettered) == ({"diverted": len(MESSAGES)}, {})
        # The syphon sends what has a partition key in a batch of its own, so the order is another one.
        arrived = stored(here.primary, "diverted")
        for name, expected in zip(MESSAGES, stored(here.primary, "direct"), strict=True):
            assert expected in arrived, name
            arrived.remove(expected)


async def test_section_4_a_received_message_that_is_sent_on_is_diverted_as_it_would_be_sent() -> None:
    async with open_local_pair("source", "direct", "diverted") as here:
        async with here.pair.sender("source") as sender:
            own: dict[Any, Any] = {"text": "a", "number": 5, "flag": True, "id": uuid.UUID(int=1)}
            await sender.send(ServiceBusMessage(b"on", message_id="on", session_id="s", application_properties=own))
        [received] = await peek_all(here.primary.connection_string, "source")
        async with here.pair.sender("direct") as direct:
            await direct.send(received)
        await here.pair.fail_over("diverted", reason="test")
        async with here.pair.sender("diverted") as diverted:
            await diverted.send(received)
        await here.pair.mark_healthy("diverted")
        assert (await here.pair.syphon().drain()).moved == {"diverted": 1}
        assert stored(here.primary, "diverted") == stored(here.primary, "direct")


async def test_section_4_a_message_that_looks_like_a_backlog_copy_is_diverted_unchanged() -> None:
    async with open_local_pair("direct", "diverted") as here:
        nested = wrap(to_amqp_message(ServiceBusMessage("in", message_id="in", session_id="s")), entity="elsewhere")
        async with here.pair.sender("direct") as direct:
            await direct.send(nested)
        await here.pair.fail_over("diverted", reason="test")
        async with here.pair.sender("diverted") as diverted:
            await diverted.send(nested)
        await here.pair.mark_healthy("diverted")
        assert (await here.pair.syphon().drain()).moved == {"diverted": 1}
        assert stored(here.primary, "diverted") == stored(here.primary, "direct")


def of_the_original(number: int, **own: Any) -> proton.Message:
    """A message as the .NET original left it in a backlog queue: TimeSpan and DateTime in their own encodings."""
    message = proton.Message(id=f"net-{number}", subject="UA", inferred=True, body=b"<body/>")
    properties: dict[str, Any] = {
        "x-ms-path": "flights",
        "x-ms-sessionid": "N14228",
        "x-ms-timetolive": TICKS_OF_AN_HOUR,
        "x-ms-scheduledenqueuetimeutc": proton.timestamp(int(LATER.timestamp() * 1000)),
        **own,
    }
    message.properties = properties  # type: ignore[assignment]  # Proton has no types
    return message


async def leave_behind(here: LocalPair, *messages: proton.Message) -> None:
    """Send to the backlog queue as another AMQP library does."""
    async with connected(here.secondary) as peer:
        sender = peer.sender(peer.begin(), BACKLOG)
        await peer.until(lambda: sender.credit > 0)
        for number, message in enumerate(messages):
            sender.delivery(str(number))
            sender.stream(message.encode())
            sender.advance()
        await peer.until(lambda: len(peer.answered) == len(messages))
        assert set(peer.answered.values()) == {proton.Delivery.ACCEPTED}


async def test_section_4_a_backlog_that_the_dotnet_original_left_behind_is_drained() -> None:
    own = {
        "Waited": TICKS_OF_AN_HOUR,
        "Since": proton.timestamp(1_357_041_600_123),
        "Link": proton.Described(proton.symbol("com.microsoft:uri"), "https://example.org/"),
        "Id": uuid.UUID(int=1),
        "Big": 2**40,
    }
    async with open_local_pair("flights", unchecked=True) as here:
        await leave_behind(here, of_the_original(1, **own))
        assert (await here.pair.syphon().drain()).moved == {"flights": 1}
        [message] = await peek_all(here.primary.connection_string, "flights")
        assert (message.message_id, message.session_id, message.subject) == ("net-1", "N14228", "UA")
        assert message.time_to_live == timedelta(hours=1)
        assert message.scheduled_enqueue_time_utc == LATER
        assert b"".join(message.body) == b"<body/>"
        assert message.application_properties is not None
        assert set(message.application_properties) == {name.encode() for name in own}
        [(_, _, sections, _, _)] = stored(here.primary, "flights")
        for described in ("Waited", "Link"):
            # The descriptor and the value, to the byte.
            data = proton.Data()
            data.put_object(own[described])
            assert data.encode() in sections or data.encode().replace(b"\xb3", b"\xa3") in sections, described
