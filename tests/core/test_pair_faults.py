"""The sender against a primary that breaks on purpose (SPEC section 4: what counts, when it diverts, nothing lost)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, State
from servicebus_pair.core.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityDisabledError,
    EntityNotFoundError,
    MessageTooLargeError,
    QuotaExceededError,
    RefusedError,
    SendError,
    SendTimeoutError,
    ServerBusyError,
    ServiceError,
)
from tests.core.breakable import GRACE, INTERVAL, PING, QUICK, Breakable, breakable_pair, endpoint, numbered

RESET_ONCE = Fault(kind=FaultKind.RESET, count=1)
RESET_ALWAYS = Fault(kind=FaultKind.RESET, on=(Operation.SEND, Operation.OPEN_SENDER))
NO_ANSWER = Fault(kind=FaultKind.NO_DISPOSITION, entity="flights")
LATE = Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", delay=20)

# Under a live link, unless the fault is there from the beginning.
# Each row: what breaks while a link is open.
OUTAGES = [
    pytest.param([Fault(kind=FaultKind.REFUSE), RESET_ONCE], id="refuse"),
    pytest.param([Fault(kind=FaultKind.FREEZE)], id="freeze"),
    pytest.param([Fault(kind=FaultKind.DROP)], id="packets lost"),
    pytest.param([RESET_ALWAYS], id="reset"),
    pytest.param([NO_ANSWER], id="no disposition"),
    pytest.param([LATE], id="late disposition"),
    pytest.param([Fault(kind=FaultKind.RELEASED, entity="flights")], id="released"),
    pytest.param([Fault(kind=FaultKind.MODIFIED, entity="flights")], id="modified"),
    pytest.param([Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")], id="internal error"),
    pytest.param([Fault(kind=FaultKind.CLOSE_LINK, entity="flights")], id="link closed"),
    pytest.param([Fault(kind=FaultKind.CLOSE_CONNECTION, entity="flights")], id="connection closed"),
    pytest.param([Fault(kind=FaultKind.LATENCY, delay=8)], id="slow beyond the interval"),
    *(
        pytest.param([Fault(kind=FaultKind.AUTH_FAILURE, status=status), RESET_ONCE], id=f"token service says {status}")
        for status in (401, 403, 404, 500, 503)
    ),
]
# And what is broken before the first link is opened.
COLD_OUTAGES = [
    pytest.param([Fault(kind=FaultKind.REFUSE)], id="refuse"),
    pytest.param([Fault(kind=FaultKind.FREEZE)], id="freeze"),
    pytest.param([Fault(kind=FaultKind.DROP)], id="packets lost"),
    pytest.param([Fault(kind=FaultKind.RESET, on=(Operation.CONNECT,))], id="reset"),
    pytest.param([Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.OPEN_SENDER,))], id="internal error"),
    pytest.param([Fault(kind=FaultKind.CLOSE_CONNECTION, on=(Operation.OPEN_SENDER,))], id="connection closed"),
    pytest.param([Fault(kind=FaultKind.NO_DISPOSITION, on=(Operation.AUTHENTICATE,))], id="token service silent"),
]
# What is the caller's to mend: raised at once, with the messages, whether a link was open or not.
SENDING = (Operation.SEND,)
OPENING = (Operation.OPEN_SENDER,)
ERRORS = [
    pytest.param(Fault(kind=FaultKind.NOT_FOUND, on=OPENING), EntityNotFoundError, id="not found"),
    pytest.param(Fault(kind=FaultKind.UNAUTHORIZED, on=OPENING), AuthorizationError, id="no right to open"),
    pytest.param(Fault(kind=FaultKind.UNAUTHORIZED, on=SENDING), AuthorizationError, id="no right to send"),
    pytest.param(Fault(kind=FaultKind.QUOTA_EXCEEDED, on=SENDING), QuotaExceededError, id="full"),
    pytest.param(Fault(kind=FaultKind.QUOTA_EXCEEDED, on=OPENING), QuotaExceededError, id="too many links"),
    pytest.param(Fault(kind=FaultKind.ENTITY_DISABLED, on=SENDING), EntityDisabledError, id="disabled"),
    pytest.param(Fault(kind=FaultKind.ENTITY_DISABLED, on=OPENING), EntityDisabledError, id="disabled at the link"),
    pytest.param(Fault(kind=FaultKind.SIZE_EXCEEDED, on=SENDING), MessageTooLargeError, id="too large"),
    *(
        pytest.param(Fault(kind=FaultKind.AUTH_FAILURE, status=status), AuthenticationError, id=f"credential: {status}")
        for status in (401, 403, 404, 500, 503)
    ),
]
POLICIES = [
    pytest.param(FaultKind.QUOTA_EXCEEDED, {"on_quota_exceeded": "fail_over"}, id="full"),
    pytest.param(FaultKind.ENTITY_DISABLED, {"on_entity_disabled": "fail_over"}, id="disabled"),
]


async def diverts_and_recovers(breakable: Breakable, faults: list[Fault], *, already: int) -> None:
    """Send under faults, mend them, and see everything arrive."""
    for fault in faults:
        breakable.primary.set_fault(fault)
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        result = await sender.send(numbered(10, start=already))
        took = asyncio.get_running_loop().time() - began
        assert (result.primary, result.diverted) == (0, 10)
        assert took < INTERVAL + GRACE
        assert breakable.pair.health("flights").failed_over
        breakable.primary.clear_faults()
        mended = asyncio.get_running_loop().time()
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 15)
        back = await sender.send(numbered(10, start=already + 10))
        assert asyncio.get_running_loop().time() - mended < PING + GRACE
        assert (back.primary, back.diverted) == (10, 0)
    drained = await breakable.pair.syphon().drain()
    assert drained.moved == {"flights": 10}
    # At least once: what a client took for lost may be there too.
    assert set(await breakable.ids_on_the_primary()) >= {f"m{n}" for n in range(already + 20)}
    # A single call that hangs for the whole interval is suspect for no time at all.
    assert breakable.recorder.states in (
        [State.FAILED_OVER, State.HEALTHY],
        [State.SUSPECT, State.FAILED_OVER, State.HEALTHY],
    )


@pytest.mark.parametrize("faults", OUTAGES)
async def test_section_4_under_a_live_link_every_outage_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(10))).primary == 10
        await diverts_and_recovers(breakable, faults, already=10)


@pytest.mark.parametrize("faults", COLD_OUTAGES)
async def test_section_4_an_outage_from_the_beginning_diverts_in_time_and_nothing_is_lost(
    breakable: Breakable, faults: list[Fault]
) -> None:
    await diverts_and_recovers(breakable, faults, already=0)


@pytest.mark.parametrize(("fault", "error"), ERRORS)
async def test_section_4_what_the_caller_must_mend_is_raised_at_once_with_its_messages_and_fails_nothing_over(
    breakable: Breakable, fault: Fault, error: type[ServiceError]
) -> None:
    breakable.primary.set_fault(fault)
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(3))
        assert asyncio.get_running_loop().time() - began < INTERVAL
    assert isinstance(caught.value.cause, error)
    assert (len(caught.value.unsent), caught.value.in_doubt) == (3, ())
    assert breakable.recorder.states == []


async def test_section_4_a_message_without_a_session_id_is_no_outage_of_a_session_queue(breakable: Breakable) -> None:
    breakable.primary.namespace.create_queue(QueueDescription("seated", requires_session=True))
    async with breakable.pair.sender("seated") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
    assert isinstance(caught.value.cause, RefusedError)
    assert breakable.recorder.states == []


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
async def test_section_4_a_policy_makes_a_full_or_disabled_entity_count(
    kind: FaultKind, policy: dict[str, Any]
) -> None:
    async with breakable_pair(**policy) as breakable, breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(10))).primary == 10
        await diverts_and_recovers(breakable, [Fault(kind=kind, entity="flights")], already=10)


async def test_section_4_a_service_that_is_not_amqp_at_all_is_an_outage(breakable: Breakable) -> None:
    """A proxy that answers in HTTP: the SDK says no more than "Handler failed"."""
    http = await asyncio.start_server(_answer_in_http, "127.0.0.1", 0)
    port = http.sockets[0].getsockname()[1]
    primary = Endpoint.from_connection_string(
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true;",
        namespace="contoso",
    )
    async with http, NamespacePair(primary, endpoint(breakable.secondary), QUICK) as pair:
        began = asyncio.get_running_loop().time()
        async with pair.sender("flights") as sender:
            assert (await sender.send(numbered(3))).diverted == 3
        assert asyncio.get_running_loop().time() - began < INTERVAL + GRACE


async def _answer_in_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(8)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


async def test_section_4_a_busy_server_is_waited_for_within_the_time_of_the_caller_only(breakable: Breakable) -> None:
    breakable.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY))
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        with pytest.raises(SendTimeoutError) as caught:
            await sender.send(numbered(3), timeout=1.2)
        assert asyncio.get_running_loop().time() - began < 1.2 + 1.0
    assert isinstance(caught.value.cause, ServerBusyError)
    assert len(caught.value.unsent) == 3
    assert breakable.recorder.states == []


async def test_section_4_a_busy_server_is_waited_for_and_not_diverted_from(breakable: Breakable) -> None:
    busy = breakable.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, count=6))
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        result = await sender.send(numbered(10))
    assert (result.primary, result.diverted) == (10, 0)
    # Longer than the failover interval, and yet no failure that counts.
    assert asyncio.get_running_loop().time() - began > 6 * 0.5
    assert [each.strikes for each in breakable.primary.faults if each.id == busy.id] == [6]
    assert breakable.recorder.states == []
    assert set(await breakable.ids_on_the_primary()) == {f"m{n}" for n in range(10)}


async def test_section_4_a_single_reset_is_forgiven(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(RESET_ONCE)
        assert (await sender.send(numbered(10, start=1))).primary == 10
    assert breakable.recorder.states == []


async def test_section_4_an_outage_of_one_entity_leaves_the_others_alone(breakable: Breakable) -> None:
    breakable.primary.namespace.create_queue(QueueDescription("calm"))
    breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    async with breakable.pair.sender("flights") as flights, breakable.pair.sender("calm") as calm:
        assert (await flights.send(numbered(3))).diverted == 3
        assert (await calm.send(numbered(3))).primary == 3
    assert not breakable.pair.health("calm").failed_over
