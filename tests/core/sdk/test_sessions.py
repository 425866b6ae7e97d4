"""Sessions of a queue: listed, and accepted by one receiver at a time (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_pair.core.model.errors import (
    EntityNotFoundError,
    LockLostError,
    RefusedError,
    ServiceFaultError,
    SessionLockedError,
    TimedOutError,
)
from servicebus_pair.core.sdk import namespace_client
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from tests.core.support.local_pair import endpoint

pytestmark = pytest.mark.simulated
TIMEOUT = 5.0


@dataclass(frozen=True)
class Sessions:
    """A namespace with the session queue ``q``, and a client of it."""

    namespace: HostedNamespace
    client: NamespaceClient

    async def send(self, *session_ids: str) -> None:
        link = self.client.send_link("q")
        for session_id in session_ids:
            await link.send_ping(to_amqp_message(ServiceBusMessage("x", session_id=session_id)), timeout=TIMEOUT)


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with Emulator(["contoso-dr"]) as emulator:
        namespace = emulator["contoso-dr"]
        namespace.namespace.create_queue(QueueDescription("q", requires_session=True))
        namespace.namespace.create_queue(QueueDescription("plain"))
        client = NamespaceClient(endpoint(namespace))
        try:
            yield Sessions(namespace, client)
        finally:
            namespace.clear_faults()
            await client.close()


async def test_every_session_with_messages_is_listed_once(sessions: Sessions) -> None:
    assert await sessions.client.list_sessions("q", timeout=TIMEOUT) == []
    names = [f"s{number:03}" for number in range(101)]
    await sessions.send(*names, "s000")
    assert await sessions.client.list_sessions("q", timeout=TIMEOUT) == names
    assert sessions.client.meter.read().management_calls == 2


async def test_a_session_is_accepted_by_one_receiver_at_a_time_and_listed_while_locked(sessions: Sessions) -> None:
    await sessions.send("a", "b")
    held = sessions.client.session_link("q", wait=1, session_id="a")
    assert await held.accept(timeout=TIMEOUT) == "a"
    with pytest.raises(SessionLockedError, match="is locked by another receiver"):
        await sessions.client.session_link("q", wait=1, session_id="a").accept(timeout=TIMEOUT)
    following = sessions.client.session_link("q", wait=1)
    assert await following.accept(timeout=TIMEOUT) == "b"
    assert await sessions.client.session_link("q", wait=1).accept(timeout=TIMEOUT) is None
    assert await sessions.client.list_sessions("q", timeout=TIMEOUT) == ["a", "b"]
    await held.close()
    again = sessions.client.session_link("q", wait=1, session_id="a")
    assert await again.accept(timeout=TIMEOUT) == "a"
    assert len(await again.peek(max_messages=5, timeout=TIMEOUT)) == 1


async def test_an_empty_session_can_be_accepted_and_peeked(sessions: Sessions) -> None:
    link = sessions.client.session_link("q", wait=1, session_id="none")
    assert await link.accept(timeout=TIMEOUT) == "none"
    assert await link.peek(max_messages=5, timeout=TIMEOUT) == []


@pytest.mark.parametrize(("path", "error"), [("missing", EntityNotFoundError), ("plain", RefusedError)])
async def test_a_queue_that_has_no_sessions_to_list_is_an_error(
    path: str, error: type[Exception], sessions: Sessions
) -> None:
    with pytest.raises(error):
        await sessions.client.list_sessions(path, timeout=TIMEOUT)


async def test_a_fault_of_a_queue_with_sessions_is_not_taken_for_its_absence(sessions: Sessions) -> None:
    sessions.namespace.set_fault(Fault(kind=FaultKind.CLOSE_CONNECTION, on=(Operation.MANAGE,), count=1))
    with pytest.raises(ServiceFaultError):
        await sessions.client.list_sessions("q", timeout=TIMEOUT)


@pytest.mark.parametrize(("path", "error"), [("missing", EntityNotFoundError), ("q", ServiceFaultError)])
async def test_a_fault_is_taken_for_the_absence_of_a_queue_that_cannot_be_peeked(
    path: str, error: type[Exception], sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: str, timeout: float) -> AsyncIterator[str]:
        if timeout == TIMEOUT:
            raise ServiceBusError("the management link was refused")
        yield ""

    monkeypatch.setattr(sessions.client._client, "list_queue_sessions", fail)
    with pytest.raises(error):
        await sessions.client.list_sessions(path, timeout=TIMEOUT)


async def test_a_list_of_sessions_has_an_end(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    async def endless(*_: str, timeout: float) -> AsyncIterator[str]:
        assert timeout == TIMEOUT
        while True:
            given.append("same")
            yield "same"

    monkeypatch.setattr(namespace_client, "_MAX_SESSIONS_BYTES", 5 * 104)
    monkeypatch.setattr(sessions.client._client, "list_queue_sessions", endless)
    with pytest.raises(ServiceFaultError, match="more sessions than fit into 520 bytes"):
        await sessions.client.list_sessions("q", timeout=TIMEOUT)
    assert len(given) == 6


async def test_silence_is_not_taken_for_an_empty_queue(sessions: Sessions) -> None:
    await sessions.send("a")
    sessions.namespace.set_fault(Fault(kind=FaultKind.FREEZE))
    with pytest.raises(TimedOutError):
        await sessions.client.list_sessions("q", timeout=1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimedOutError):
        await sessions.client.session_link("q", wait=10).accept(timeout=2)
    assert loop.time() - began == pytest.approx(12, abs=1)


async def test_a_link_that_was_browsed_accepts_its_session_again_and_one_that_received_does_not(
    sessions: Sessions,
) -> None:
    await sessions.send("a", "a")
    browsed = sessions.client.session_link("q", wait=1, session_id="a")
    await browsed.accept(timeout=TIMEOUT)
    browsed.detach_soon()
    await asyncio.sleep(0.1)
    assert len(await browsed.peek(max_messages=5, timeout=TIMEOUT)) == 2
    await browsed.receive(max_messages=1, max_wait_time=1, timeout=TIMEOUT)
    browsed.detach_soon()
    with pytest.raises(LockLostError, match="is lost: its link has failed"):
        await browsed.peek(max_messages=5, timeout=TIMEOUT)
    following = sessions.client.session_link("q", wait=1)
    assert await following.accept(timeout=TIMEOUT) == "a"
    following.detach_soon()
    with pytest.raises(LockLostError):
        await following.peek(max_messages=5, timeout=TIMEOUT)


async def test_a_session_is_renewed_and_each_call_is_counted(sessions: Sessions) -> None:
    await sessions.send("a")
    link = sessions.client.session_link("q", wait=1, session_id="a")
    assert await link.accept(timeout=TIMEOUT) == "a"
    first = link.locked_until
    assert first is not None
    await asyncio.sleep(0.05)
    await link.renew(timeout=TIMEOUT)
    assert (link.locked_until or 0.0) > first
    assert await sessions.client.session_link("q", wait=1).accept(timeout=TIMEOUT) is None
    counted = sessions.client.meter.read()
    assert (counted.lock_renewals, counted.empty_receives) == (1, 1)


@pytest.mark.usefixtures("sdk_path")
async def test_what_arrives_between_two_receives_stays_in_order(sessions: Sessions) -> None:
    await sessions.send("a")
    link = sessions.client.session_link("q", wait=1, session_id="a")
    await link.accept(timeout=TIMEOUT)
    received = await link.receive(max_messages=5, max_wait_time=1, timeout=TIMEOUT)
    await sessions.send(*["a"] * 3)
    assert await link.complete(received, timeout=TIMEOUT) == [None]
    while len(received) < 4:
        received += await link.receive(max_messages=5, max_wait_time=1, timeout=TIMEOUT)
    assert [each.sequence_number for each in received] == [1, 2, 3, 4]
    queue = sessions.namespace.namespace.find("q")
    assert isinstance(queue, QueueEntity)
    assert queue.counters().released == 0


@pytest.mark.usefixtures("sdk_path")
async def test_locks_of_single_messages_are_renewed_deferred_and_removed(sessions: Sessions) -> None:
    plain = sessions.client.send_link("plain")
    for number in range(3):
        await plain.send_ping(to_amqp_message(ServiceBusMessage("x", message_id=f"m{number}")), timeout=TIMEOUT)
    link = sessions.client.receive_link("plain")
    received = list[ReceivedMessage]()
    while len(received) < 3:
        received += await link.receive(max_messages=3, max_wait_time=1, timeout=TIMEOUT)
    assert await link.renew_locks(received, timeout=TIMEOUT) == [None] * len(received)
    assert sessions.client.meter.read().lock_renewals == len(received) == 3
    assert await link.defer(received[:2], timeout=TIMEOUT) == [None, None]
    numbers = [each.sequence_number for each in received[:2]]
    assert await link.remove_deferred(numbers, timeout=TIMEOUT)
    assert not await link.remove_deferred(numbers, timeout=TIMEOUT)
    await link.release(received[2:], timeout=TIMEOUT)
    [again] = await link.receive(max_messages=3, max_wait_time=1, timeout=TIMEOUT)
    assert again.message_id == "m2"
