"""The size of backlog copies, and warnings for messages that would not fit (SPEC section 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator import Emulator, Fault, FaultKind
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import NamespacePair
from servicebus_pair.core.model.errors import SendError
from servicebus_pair.core.model.events import BacklogCopyTooLarge
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.sdk.message_batch import encoded_size
from servicebus_pair.core.sdk.messages import from_sdk, to_amqp_message
from servicebus_pair.core.send.backlog_copies import LARGEST_UNCHECKED, UnencodedBatch, copy_overhead
from servicebus_pair.core.send.delivery_state import TrackedMessage
from tests.core.support.encoding import encode
from tests.core.support.local_pair import QUICK_OPTIONS, LocalPair, endpoint
from tests.core.support.message_strategies import messages
from tests.examples import examples

LIMIT = 262_144


@examples(150)
@given(message=messages(), entity=st.text(min_size=1, max_size=60))
def test_section_4_copy_overhead_is_exact(message: AmqpAnnotatedMessage, entity: str) -> None:
    ours = from_sdk(message)
    assert copy_overhead(ours, entity=entity) == len(encode(wrap(ours, entity=entity))) - len(encode(message))


@pytest.mark.parametrize(
    "properties",
    [{}, {"n" * 10: 1}, {f"p{n:04}": b"x" for n in range(900)}, {f"é{n:03}": True for n in range(900)}],
    ids=["none", "one", "many bytes", "many booleans"],
)
def test_section_4_every_copy_beyond_the_limit_is_measured(properties: Any) -> None:
    message = to_amqp_message(ServiceBusMessage(b"", message_id="m", application_properties=properties))
    size, more = encoded_size(message), copy_overhead(message, entity="e" * 260)
    if size > 1000:
        # In the same proportion, a message of the largest size that is not measured.
        assert LARGEST_UNCHECKED * (size + more) <= LIMIT * size


HALF = 1_048_576 // 2 - 300


@pytest.mark.parametrize(
    ("bodies", "fits"),
    [
        ([[b"x" * HALF], [b"x" * HALF]], True),
        ([[b"x" * HALF], [b"x" * (HALF + 1)]], False),
        ([[b"x" * HALF], [b"", b"x" * HALF, b"x"]], False),
        ([[b"x" * 2 * HALF], [b""]], True),
        ([[b"x" * 2 * HALF], [b"x"]], False),
        ([[b"x" * 5 * HALF]], True),
    ],
    ids=["exactly full", "a byte more", "several sections", "small message", "small message too many", "one large"],
)
def test_section_4_unencoded_messages_are_collected_up_to_a_megabyte(bodies: list[list[bytes]], fits: bool) -> None:
    batch = UnencodedBatch()
    *first, last = [TrackedMessage(AmqpMessage(body)) for body in bodies]
    assert all(batch.try_add(each) for each in first)
    assert batch.try_add(last) is fits
    assert batch.messages == [*first, *([last] if fits else [])]
    assert len(batch) == len(batch.messages)


def test_section_4_bodies_of_values_are_not_measured() -> None:
    batch = UnencodedBatch()
    for message in (
        AmqpMessage("x" * 3 * HALF, BodyType.VALUE),
        AmqpMessage([["x" * HALF]], BodyType.SEQUENCE),
    ):
        assert all(batch.try_add(TrackedMessage(message)) for _ in range(3))


def almost_full() -> ServiceBusMessage:
    overhead = encoded_size(to_amqp_message(ServiceBusMessage(b"x" * 1000, message_id="almost full"))) - 1000
    return ServiceBusMessage(b"x" * (LIMIT - overhead - 10), message_id="almost full")


async def test_section_4_few_size_checks_wait_for_an_unresponsive_backlog(
    local_pair: LocalPair,
) -> None:
    local_pair.secondary.set_fault(Fault(kind=FaultKind.FREEZE))
    async with local_pair.pair.sender("flights") as sender:
        assert (await sender.send([almost_full() for _ in range(40)])).primary == 40
        waiting = [task for task in asyncio.all_tasks() if task.get_name() == "check the backlog limit"]
        assert 0 < len(waiting) <= 16
        local_pair.secondary.clear_faults()
        await local_pair.recorder.wait_for(BacklogCopyTooLarge)


async def test_section_4_limits_are_those_of_the_links(local_pair: LocalPair) -> None:
    premium = QueueDescription("premium", max_message_size_in_kilobytes=102_400)
    local_pair.primary.namespace.create_queue(premium)
    message = ServiceBusMessage(b"x" * 5_000_000, message_id="of 5 MB")
    async with local_pair.pair.sender("premium") as sender:
        assert (await sender.send(message)).primary == 1
        await local_pair.recorder.wait_for(BacklogCopyTooLarge)
        assert local_pair.recorder.of(BacklogCopyTooLarge)[0].limit_bytes == LIMIT
        await local_pair.pair.fail_over("premium", reason="test")
        with pytest.raises(SendError, match=f"as a copy for the backlog.* the link takes {LIMIT}"):
            await sender.send(message)


async def test_section_4_large_messages_are_diverted_if_the_backlog_accepts_them() -> None:
    async with Emulator(["contoso", "contoso-dr"], message_kilobytes=102_400) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("premium"))
        ends = endpoint(emulator["contoso"]), endpoint(emulator["contoso-dr"])
        async with NamespacePair(*ends, QUICK_OPTIONS) as pair, pair.sender("premium") as sender:
            await pair.provision()
            await pair.fail_over("premium", reason="test")
            sent = await sender.send(ServiceBusMessage(b"x" * 5_000_000, message_id="of 5 MB"))
            assert sent.diverted == 1
            await pair.mark_healthy("premium")
            assert (await pair.syphon().drain()).moved == {"premium": 1}
