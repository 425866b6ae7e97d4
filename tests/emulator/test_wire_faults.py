"""EMULATOR 2 and 3: each fault looks to the unmodified client as it was measured to: class, condition, loose times."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from servicebus_emulator import Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.amqp import packets
from servicebus_emulator.faults import FaultError
from tests.emulator.broken import PATIENCE, client_of, held, receive, send


@pytest.fixture(autouse=True)
def collect_what_the_client_leaks() -> Iterator[None]:
    """The client leaves the socket of a connection that broke to the garbage collector, which warns of it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


REJECTED = [
    (FaultKind.SERVER_BUSY, ServiceBusServerBusyError, "com.microsoft:server-busy"),
    (FaultKind.INTERNAL_ERROR, ServiceBusError, "amqp:internal-error"),
    (FaultKind.QUOTA_EXCEEDED, ServiceBusQuotaExceededError, "amqp:resource-limit-exceeded"),
    (FaultKind.SIZE_EXCEEDED, MessageSizeExceededError, "amqp:link:message-size-exceeded"),
    (FaultKind.ENTITY_DISABLED, MessagingEntityDisabledError, "com.microsoft:entity-disabled"),
    (FaultKind.NOT_FOUND, MessagingEntityNotFoundError, "amqp:not-found"),
    (FaultKind.UNAUTHORIZED, ServiceBusAuthorizationError, "amqp:unauthorized-access"),
]


async def test_a_rejected_send_raises_the_class_of_its_condition_and_stores_nothing(broken: HostedNamespace):
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        await send(sender)
        for kind, error, condition in REJECTED:
            broken.set_fault(Fault(kind=kind, on=(Operation.SEND,), entity="FLIGHTS", count=1))
            with pytest.raises(error, match=condition) as caught:
                await send(sender)
            assert type(caught.value) is error
        await send(client.get_queue_sender("calm"))
    assert (held(broken), held(broken, "calm")) == (1, 1)


async def test_a_refused_attach_raises_the_class_of_its_condition(broken: HostedNamespace):
    async with client_of(broken) as client:
        for kind, error, condition in REJECTED:
            broken.set_fault(Fault(kind=kind, on=(Operation.OPEN_SENDER,), count=1))
            with pytest.raises(error, match=condition):
                await send(client.get_queue_sender("flights"))
            broken.set_fault(Fault(kind=kind, on=(Operation.OPEN_RECEIVER,), count=1))
            with pytest.raises(error, match=condition):
                await receive(client.get_queue_receiver("flights"))


async def test_refused_connections_are_connection_errors_at_once_and_the_port_is_kept(broken: HostedNamespace):
    port = broken.amqp_port
    for _ in range(2):
        fault = broken.set_fault(Fault(kind=FaultKind.REFUSE))
        async with client_of(broken) as client:
            began = asyncio.get_running_loop().time()
            with pytest.raises(ServiceBusConnectionError):
                await send(client.get_queue_sender("flights"))
            assert asyncio.get_running_loop().time() - began < 2
            broken.clear_faults(fault.id)
            await send(client.get_queue_sender("flights"))
    assert (broken.amqp_port, held(broken)) == (port, 2)


async def test_refusing_ends_by_itself(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.REFUSE, duration=0.2))
    async with client_of(broken) as client:
        with pytest.raises(ServiceBusConnectionError):
            await send(client.get_queue_sender("flights"))
        await asyncio.sleep(0.3)
        await send(client.get_queue_sender("flights"))


@pytest.mark.parametrize(
    "operation", [Operation.CONNECT, Operation.AUTHENTICATE, Operation.OPEN_SENDER, Operation.SEND]
)
async def test_a_reset_is_a_connection_error_and_the_next_try_works(broken: HostedNamespace, operation: Operation):
    broken.set_fault(Fault(kind=FaultKind.RESET, on=(operation,), count=1))
    async with client_of(broken) as client:
        with pytest.raises(ServiceBusConnectionError):
            await send(client.get_queue_sender("flights"))
        await send(client.get_queue_sender("flights"))
    assert held(broken) == 1


@pytest.mark.parametrize("kind", [FaultKind.CLOSE_LINK, FaultKind.CLOSE_CONNECTION])
@pytest.mark.parametrize("retries", [0, 3])
async def test_a_receiver_that_is_closed_attaches_again_in_silence_if_it_may_retry(
    broken: HostedNamespace, kind: FaultKind, retries: int
):
    async with client_of(broken) as other, client_of(broken, retries=retries) as client:
        receiver = client.get_queue_receiver("flights")
        assert await receive(receiver, wait=1) == []
        broken.set_fault(Fault(kind=kind, on=(Operation.RECEIVE,), entity="flights", count=1))
        await send(other.get_queue_sender("calm"))
        await send(other.get_queue_sender("flights"))
        if retries == 0:
            with pytest.raises(ServiceBusConnectionError, match="forced"):
                await receive(receiver)
        # Long enough for the client to pause before it tries again.
        found = [*await receive(receiver, wait=5), *await receive(receiver, wait=1)]
        assert len(found) == 1
        assert [armed.strikes for armed in broken.faults] == [1]


async def test_a_reset_while_receiving_is_a_connection_error_and_the_message_stays(broken: HostedNamespace):
    async with client_of(broken) as client:
        await send(client.get_queue_sender("flights"))
        broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.RECEIVE,), count=1))
        receiver = client.get_queue_receiver("flights")
        with pytest.raises(ServiceBusConnectionError):
            await receive(receiver)
        assert len(await receive(receiver)) == 1


async def test_a_reset_in_a_settlement_is_a_connection_error_and_the_message_stays(broken: HostedNamespace):
    async with client_of(broken) as client:
        await send(client.get_queue_sender("flights"))
        receiver = client.get_queue_receiver("flights")
        (message,) = await receive(receiver)
        broken.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.SETTLE,), count=1))
        with pytest.raises(ServiceBusError):
            await asyncio.wait_for(receiver.complete_message(message), PATIENCE)
    assert held(broken) == 1


async def test_a_peer_silent_from_the_start_times_out(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.FREEZE))
    async with client_of(broken) as client:
        with pytest.raises(OperationTimeoutError):
            await send(client.get_queue_sender("flights"), timeout=1)


async def test_under_a_live_freeze_a_send_times_out_and_a_receive_is_empty_without_any_error(broken: HostedNamespace):
    async with client_of(broken) as client:
        sender, receiver = client.get_queue_sender("flights"), client.get_queue_receiver("flights")
        await send(sender, "before")
        assert len(await receive(receiver)) == 1
        broken.set_fault(Fault(kind=FaultKind.FREEZE))
        with pytest.raises(OperationTimeoutError):
            await send(sender, "during", timeout=1)
        assert await receive(receiver, wait=1) == []
        broken.clear_faults()
        assert [str(message) for message in await receive(receiver)] == ["during"]


async def test_a_freeze_at_an_operation_freezes_that_connection_only(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.FREEZE, on=(Operation.SEND,), entity="flights", count=1))
    async with client_of(broken) as client, client_of(broken) as other:
        with pytest.raises(OperationTimeoutError):
            await send(client.get_queue_sender("flights"), timeout=1)
        await send(other.get_queue_sender("flights"))


async def test_packets_lost_under_a_live_link_are_a_connection_error_for_a_send_soon(broken: HostedNamespace):
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        await send(sender, "before")
        broken.set_fault(Fault(kind=FaultKind.DROP))
        began = asyncio.get_running_loop().time()
        with pytest.raises(ServiceBusConnectionError, match="amqp:socket-error"):
            await send(sender, "during", timeout=6)
        # Nothing was acknowledged, and the client's TCP gave up after its second; a freeze would be a time-out.
        assert 0.5 < asyncio.get_running_loop().time() - began < 5
        broken.clear_faults()
        await send(sender, "after")
        assert [str(message) for message in await receive(client.get_queue_receiver("flights"))] == ["before", "after"]


async def test_packets_lost_under_a_live_link_are_a_connection_error_for_a_settlement(broken: HostedNamespace):
    async with client_of(broken) as client:
        await send(client.get_queue_sender("flights"))
        receiver = client.get_queue_receiver("flights")
        (message,) = await receive(receiver)
        broken.set_fault(Fault(kind=FaultKind.DROP))
        with pytest.raises(ServiceBusConnectionError):
            await asyncio.wait_for(receiver.complete_message(message), PATIENCE)
    assert held(broken) == 1


async def test_packets_lost_are_nothing_at_all_to_a_receiver_that_only_waits(broken: HostedNamespace):
    async with client_of(broken) as client:
        receiver = client.get_queue_receiver("flights", prefetch_count=10)
        assert await receive(receiver, wait=1) == []
        broken.set_fault(Fault(kind=FaultKind.DROP))
        assert await receive(receiver, wait=1) == []


async def test_a_syn_that_is_dropped_is_a_time_out_and_connections_that_there_are_stay(broken: HostedNamespace):
    async with client_of(broken) as other, client_of(broken) as client:
        linked = other.get_queue_sender("flights")
        await send(linked)
        broken.set_fault(Fault(kind=FaultKind.DROP, on=(Operation.CONNECT,)))
        with pytest.raises(OperationTimeoutError):
            await send(client.get_queue_sender("flights"), timeout=1)
        await send(linked)
    async with client_of(broken) as later:
        await send(later.get_queue_sender("flights"))
    assert held(broken) == 3


async def test_packets_lost_from_one_operation_on_are_those_of_its_connection_and_come_back(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.DROP, on=(Operation.SEND,), entity="flights", count=1, duration=0.5))
    async with client_of(broken) as client, client_of(broken) as other:
        sending = asyncio.create_task(send(client.get_queue_sender("flights"), timeout=6))
        await send(other.get_queue_sender("calm"))
        # Shorter than the client's patience: TCP makes up for it.
        await sending
    assert held(broken) == 1


async def test_a_namespace_stops_while_packets_are_lost_and_where_none_can_be_says_so(
    broken: HostedNamespace, monkeypatch: pytest.MonkeyPatch
):
    reader, writer = await asyncio.open_connection(broken.host, broken.amqp_port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    await asyncio.wait_for(reader.readexactly(8), PATIENCE)
    broken.set_fault(Fault(kind=FaultKind.DROP))
    await asyncio.wait_for(broken.stop(), 1)
    assert await asyncio.wait_for(reader.read(), PATIENCE) is not None
    writer.close()
    monkeypatch.setattr(packets, "_SO_ATTACH_FILTER", -1)
    with pytest.raises(FaultError, match=r"kind is 'drop'; allowed: on Linux"):
        broken.set_fault(Fault(kind=FaultKind.DROP))
    assert broken.faults == ()


async def test_without_a_disposition_a_send_times_out_although_it_is_stored(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, count=1))
    async with client_of(broken) as client:
        with pytest.raises(OperationTimeoutError):
            await send(client.get_queue_sender("flights"), timeout=1)
    assert held(broken) == 1


async def test_a_late_disposition_is_in_time_or_a_time_out_although_it_is_stored(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=0.7))
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        began = asyncio.get_running_loop().time()
        await send(sender, timeout=5)
        assert asyncio.get_running_loop().time() - began > 0.6
        with pytest.raises(OperationTimeoutError):
            await send(sender, timeout=0.3)
    assert held(broken) == 2


@pytest.mark.parametrize("kind", [FaultKind.RELEASED, FaultKind.MODIFIED])
async def test_a_released_or_modified_send_hangs_even_with_a_timeout(broken: HostedNamespace, kind: FaultKind):
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        await send(sender)
        broken.set_fault(Fault(kind=kind, count=1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sender.send_messages(ServiceBusMessage("x"), timeout=0.5), 2)
    assert held(broken) == 1


@pytest.mark.parametrize("kind", [FaultKind.CLOSE_LINK, FaultKind.CLOSE_CONNECTION])
async def test_a_close_loses_its_condition_on_the_way_to_the_caller(broken: HostedNamespace, kind: FaultKind):
    broken.set_fault(Fault(kind=kind, condition="com.microsoft:server-busy", count=1))
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        with pytest.raises(ServiceBusConnectionError, match="amqp:unknown-error"):
            await send(sender)
        await send(sender)
    assert held(broken) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
async def test_every_failure_of_a_token_is_an_authentication_error(broken: HostedNamespace, status: int):
    broken.set_fault(Fault(kind=FaultKind.AUTH_FAILURE, status=status))
    async with client_of(broken) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await send(client.get_queue_sender("flights"))


async def test_a_lock_that_is_lost_raises_and_the_message_comes_again(broken: HostedNamespace):
    async with client_of(broken) as client:
        await send(client.get_queue_sender("flights"))
        receiver = client.get_queue_receiver("flights")
        (message,) = await receive(receiver)
        broken.set_fault(Fault(kind=FaultKind.LOCK_LOST, count=1))
        with pytest.raises(MessageLockLostError):
            await asyncio.wait_for(receiver.complete_message(message), PATIENCE)
        (again,) = await receive(receiver)
        assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 1)
        await receiver.complete_message(again)
    assert held(broken) == 0


async def test_a_lock_can_be_lost_at_its_renewal_too(broken: HostedNamespace):
    async with client_of(broken) as client:
        await send(client.get_queue_sender("flights"))
        receiver = client.get_queue_receiver("flights")
        (message,) = await receive(receiver)
        broken.set_fault(Fault(kind=FaultKind.LOCK_LOST, on=(Operation.MANAGE,), count=1))
        with pytest.raises(MessageLockLostError):
            await asyncio.wait_for(receiver.renew_message_lock(message), PATIENCE)


async def test_a_duplicate_is_stored_twice_or_comes_again_after_it_was_completed(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.DUPLICATE, count=1))
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        await asyncio.wait_for(sender.send_messages(ServiceBusMessage("x", message_id="m")), PATIENCE)
        assert held(broken) == 2
        receiver = client.get_queue_receiver("flights")
        first = await receive(receiver)
        assert [message.message_id for message in first] == ["m", "m"]
        broken.set_fault(Fault(kind=FaultKind.DUPLICATE, on=(Operation.SETTLE,), count=1))
        for message in first:
            await asyncio.wait_for(receiver.complete_message(message), PATIENCE)
        (again,) = await receive(receiver)
        assert again.sequence_number == first[0].sequence_number


async def test_latency_is_felt_in_every_answer_and_gone_when_it_is_cleared(broken: HostedNamespace):
    loop = asyncio.get_running_loop()
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        await send(sender)
        broken.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.4))
        began = loop.time()
        await send(sender)
        slow = loop.time() - began
        broken.clear_faults()
        began = loop.time()
        await send(sender)
        assert slow > 0.39
        assert loop.time() - began < slow


async def test_what_was_said_before_a_close_arrives_in_spite_of_latency(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.3))
    reader, writer = await asyncio.open_connection(broken.host, broken.amqp_port)
    began = asyncio.get_running_loop().time()
    writer.write(b"AMQP\x09\x09\x09\x09")
    answered = await asyncio.wait_for(reader.read(), PATIENCE)
    assert answered.startswith(b"AMQP")
    assert asyncio.get_running_loop().time() - began > 0.29
    writer.close()


async def test_bandwidth_slows_down_what_is_large_and_loses_nothing(broken: HostedNamespace):
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        await send(sender)
        broken.set_fault(Fault(kind=FaultKind.BANDWIDTH, bytes_per_second=100_000))
        began = asyncio.get_running_loop().time()
        await send(sender, "x" * 100_000, timeout=6)
        assert asyncio.get_running_loop().time() - began > 0.8
        broken.clear_faults()
        assert [len(str(message)) for message in await receive(client.get_queue_receiver("flights"))] == [1, 100_000]


async def test_a_deterministic_share_of_sends_is_rejected(broken: HostedNamespace):
    broken.set_fault(Fault(kind=FaultKind.SERVER_BUSY, probability=0.5))
    outcomes = []
    async with client_of(broken) as client:
        sender = client.get_queue_sender("flights")
        for _ in range(10):
            try:
                await send(sender)
            except ServiceBusServerBusyError:
                outcomes.append("busy")
            else:
                outcomes.append("stored")
    # What seed 0 gives, here and on every machine.
    assert " ".join(outcomes) == "busy stored stored stored stored busy stored stored busy busy"
    assert held(broken) == outcomes.count("stored")
