"""The unmodified asynchronous SDK sends, receives and settles over real sockets (SPEC.md, section 4)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus._pyamqp.error import AMQPError
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, MessageSizeExceededError

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tests.emulator.support.sdk_client import SdkClient, bodies

pytestmark = pytest.mark.asyncio(loop_scope="session")
DEAD_LETTER = ServiceBusSubQueue.DEAD_LETTER


async def test_single_messages_and_batches_arrive_in_order(sdk: SdkClient, queue: str):
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("first"))
        batch = await sender.create_message_batch()
        for number in range(50):
            batch.add_message(
                ServiceBusMessage(f"b{number}", session_id="s", partition_key="s", message_id=f"id{number}")
            )
        await sender.send_messages(batch)
        received = await receiver.receive_messages(100, max_wait_time=2)
        assert bodies(received) == ["first", *(f"b{number}" for number in range(50))]
        assert received[1].message_id == "id0"
        assert (received[50].message_id, received[50].session_id, received[50].partition_key) == ("id49", "s", "s")
        assert [message.sequence_number for message in received] == list(range(1, 52))


async def test_every_settlement_is_executed_and_confirmed(contoso: HostedNamespace, sdk: SdkClient, queue: str):
    counts = contoso.namespace.counts
    dead = sdk.client.get_queue_receiver(queue, sub_queue=DEAD_LETTER, max_wait_time=2)
    async with sdk.queue(queue) as (sender, receiver), sdk.opened(dead):
        await sender.send_messages([ServiceBusMessage(text) for text in ("done", "again", "broken", "aside")])
        done, again, broken, aside = await receiver.receive_messages(4, max_wait_time=2)
        await receiver.complete_message(done)
        assert counts(queue).active == 3
        await receiver.abandon_message(again)
        (again,) = await receiver.receive_messages(1, max_wait_time=2)
        assert (str(again), again.delivery_count) == ("again", 1)
        await receiver.dead_letter_message(broken, reason="unreadable", error_description="no alias")
        assert counts(queue).dead_lettered == 1
        (broken,) = await dead.receive_messages(1, max_wait_time=2)
        assert (broken.dead_letter_reason, broken.dead_letter_error_description) == ("unreadable", "no alias")
        await receiver.defer_message(aside)
        (aside,) = await receiver.receive_deferred_messages([aside.sequence_number])
        assert str(aside) == "aside"
        await receiver.complete_message(aside)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([aside.sequence_number])
        assert counts(queue).active == 1


async def test_the_lock_token_is_the_delivery_tag_and_a_delivery_annotation(sdk: SdkClient, queue: str):
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        raw = message.raw_amqp_message
        assert raw.delivery_annotations == {b"x-opt-lock-token": message.lock_token}
        assert message.lock_token == UUID(bytes_le=message._delivery_tag)


async def test_an_abandoned_message_counts_a_delivery_without_delivery_failed(sdk: SdkClient, queue: str):
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        # As the JavaScript client abandons: the Python client adds delivery_failed.
        await receiver._handler.settle_messages_async(
            message._delivery_id,
            message._delivery_tag,
            "modified",
            undeliverable_here=False,
            await_outcome=True,
        )
        (again,) = await receiver.receive_messages(1, max_wait_time=2)
        assert again.delivery_count == 1


async def test_a_settlement_may_modify_properties(sdk: SdkClient, queue: str):
    async def settle(outcome: str, **options: object) -> None:
        await receiver._handler.settle_messages_async(
            message._delivery_id, message._delivery_tag, outcome, await_outcome=True, **options
        )

    dead = sdk.client.get_queue_receiver(queue, sub_queue=DEAD_LETTER, max_wait_time=2)
    async with sdk.queue(queue) as (sender, receiver), sdk.opened(dead):
        await sender.send_messages(ServiceBusMessage("x", application_properties={"tries": 1, "kept": True}))
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        await settle("modified", message_annotations={"tries": 2, "why": "late"})
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        assert message.application_properties == {b"kept": True, b"tries": 2, b"why": b"late"}
        info = {"DeadLetterReason": "no", "tries": 3}
        await settle("rejected", error=AMQPError("com.microsoft:dead-letter", None, info))
        (message,) = await dead.receive_messages(1, max_wait_time=2)
        assert (message.dead_letter_reason, message.application_properties[b"tries"]) == ("no", 3)


async def test_a_lock_is_renewed_and_a_late_settlement_is_refused(contoso: HostedNamespace, sdk: SdkClient, queue: str):
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        until = message.locked_until_utc
        await asyncio.sleep(0.01)
        assert await receiver.renew_message_lock(message) > until
        # Completed behind the client's back: it refuses by itself to settle a message whose lock has expired.
        contoso.namespace.find(queue).main.complete(message.lock_token.bytes_le)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(message)


async def test_closing_a_receiver_releases_prefetched_messages(contoso: HostedNamespace, sdk: SdkClient, queue: str):
    async with sdk.opened(sdk.client.get_queue_sender(queue)) as (sender,):
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
    async with sdk.client.get_queue_receiver(queue, prefetch_count=20) as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        await receiver.complete_message(message)
    taken = contoso.namespace.find(queue).main.receive(20)
    assert [message.sequence_number for message in taken] == list(range(2, 21))
    assert {message.delivery_count for message in taken} == {0}


async def test_peek_returns_messages_of_all_states_in_order(sdk: SdkClient, queue: str):
    later = datetime.now(UTC) + timedelta(hours=1)
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
        await sender.schedule_messages(ServiceBusMessage("scheduled"), later)
        await receiver.defer_message((await receiver.receive_messages(1, max_wait_time=2))[0])
        seen = await receiver.peek_messages(10, sequence_number=1)
        assert [(str(message), message.state.name) for message in seen] == [
            ("0", "DEFERRED"),
            ("1", "ACTIVE"),
            ("2", "ACTIVE"),
            ("scheduled", "SCHEDULED"),
        ]
        assert bodies(await receiver.peek_messages(1, sequence_number=2)) == ["1"]
        assert await receiver.peek_messages(10, sequence_number=5) == []


async def test_scheduled_messages_are_enqueued_on_time_or_cancelled(sdk: SdkClient, queue: str):
    now = datetime.now(UTC)
    soon, later = now + timedelta(seconds=1.5), now + timedelta(hours=1)
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("soon", scheduled_enqueue_time_utc=soon))
        numbers = await sender.schedule_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], later)
        await sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(numbers)
        assert bodies(await receiver.peek_messages(10)) == ["soon"]
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        assert str(message) == "soon"
        assert (
            message.enqueued_time_utc
            >= message.scheduled_enqueue_time_utc
            == soon.replace(microsecond=soon.microsecond // 1000 * 1000)
        )


async def test_every_amqp_type_and_body_kind_is_preserved(sdk: SdkClient, queue: str):
    properties = {
        "int": 7,
        "negative": -1,
        "float": 1.5,
        "true": True,
        "text": "zażółć",
        "uuid": UUID(int=5),
        "time": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
    }
    sent = [
        AmqpAnnotatedMessage(data_body=[b"one", b"", b"three"]),
        AmqpAnnotatedMessage(value_body={b"key": [1, 2.5, None, b"\x00"]}),
        AmqpAnnotatedMessage(sequence_body=[[1, b"two"], [b"three"]]),
        AmqpAnnotatedMessage(
            data_body=b"\x00\x53not a section",
            header=AmqpMessageHeader(durable=True, priority=7, time_to_live=60_000),
            properties=AmqpMessageProperties(
                message_id=UUID(int=9), correlation_id=b"c", reply_to=b"r", group_sequence=3, content_encoding=b"e"
            ),
            application_properties=dict(properties),
            annotations={"x-opt-partition-key": "p", "x-own": 1},
            footer={"f": 1},
        ),
    ]
    async with sdk.queue(queue) as (sender, receiver):
        for message in sent:
            await sender.send_messages(message)
        data, value, sequence, full = [
            message.raw_amqp_message for message in await receiver.receive_messages(4, max_wait_time=2)
        ]
    assert list(data.body) == [b"one", b"", b"three"]
    assert value.body == {b"key": [1, 2.5, None, b"\x00"]}
    assert [list(each) for each in sequence.body] == [[1, b"two"], [b"three"]]
    assert (full.header.durable, full.header.priority, full.header.time_to_live) == (True, 7, 60_000)
    assert full.properties.message_id == UUID(int=9)
    assert (full.properties.correlation_id, full.properties.group_sequence) == (b"c", 3)
    received = {name.decode(): each for name, each in full.application_properties.items()}
    assert received == {**properties, "text": "zażółć".encode()} | {"time": received["time"]}
    assert (full.annotations[b"x-own"], full.annotations[b"x-opt-partition-key"]) == (1, b"p")
    assert full.footer == {b"f": 1}
    assert list(full.body) == [b"\x00\x53not a section"]


async def test_a_missing_message_id_is_assigned(sdk: SdkClient, queue: str):
    async with sdk.queue(queue) as (sender, receiver):
        await sender.send_messages(AmqpAnnotatedMessage(data_body=b"x"))
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        assert len(message.message_id) == 32


async def test_duplicates_by_message_ids_of_any_type_are_accepted_and_dropped(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("unique", requires_duplicate_detection=True))
    named = ServiceBusMessage("a", message_id="1")
    numbered = AmqpAnnotatedMessage(data_body=b"b", properties=AmqpMessageProperties(message_id=UUID(int=7)))
    async with sdk.opened(sdk.client.get_queue_sender("unique")) as (sender,):
        for message in (named, numbered, named, numbered):
            await sender.send_messages(message)
        assert await sender.schedule_messages(named, datetime.now(UTC) + timedelta(hours=1)) == [0]
    assert contoso.namespace.counts("unique").total == 2


async def test_messages_above_the_links_max_message_size_are_refused(
    contoso: HostedNamespace, sdk: SdkClient, queue: str
):
    async with sdk.opened(sdk.client.get_queue_sender(queue)) as (sender,):
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 256 * 1024
        await sender.send_messages(ServiceBusMessage(b"x" * 255 * 1024))
        for size in (257 * 1024, 2 * 1024 * 1024):
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(b"x" * size))
        with pytest.raises(MessageSizeExceededError):
            await sender.schedule_messages(ServiceBusMessage(b"x" * 257 * 1024), datetime.now(UTC) + timedelta(hours=1))
        await sender.send_messages(ServiceBusMessage(b"the link goes on"))
    assert contoso.namespace.counts(queue).active == 2


async def test_batches_have_their_own_size_limit(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_queue(QueueDescription("premium", max_message_size_in_kilobytes=102_400))
    async with sdk.queue("premium") as (sender, receiver):
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 1024 * 1024
        await sender.send_messages(ServiceBusMessage(b"x" * 3 * 1024 * 1024))
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        assert b"".join(message.body) == b"x" * 3 * 1024 * 1024
        oversized = await sender.create_message_batch(max_size_in_bytes=1024 * 1024)
        oversized._max_size_in_bytes = 2 * 1024 * 1024
        for _ in range(3):
            oversized.add_message(ServiceBusMessage(b"x" * 500_000))
        with pytest.raises(MessageSizeExceededError, match="a batch of"):
            await sender.send_messages(oversized)


async def test_a_topic_serves_each_subscription(contoso: HostedNamespace, sdk: SdkClient):
    contoso.namespace.create_topic(TopicDescription("delays"))
    for name in ("one", "two"):
        contoso.namespace.create_subscription(SubscriptionDescription("delays", name))
    sender = sdk.client.get_topic_sender("delays")
    one = sdk.client.get_subscription_receiver("delays", "one", max_wait_time=2)
    two = sdk.client.get_subscription_receiver("Delays", "TWO", max_wait_time=2)
    async with sdk.opened(sender, one, two):
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        for receiver in (one, two):
            received = await receiver.receive_messages(2, max_wait_time=2)
            assert bodies(received) == ["a", "b"]
            assert [message.enqueued_sequence_number for message in received] == [1, 2]
