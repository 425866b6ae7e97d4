"""The sender against a primary that is busy, stumbles, or is no service at all (SPEC section 4)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair
from servicebus_pair.core.errors import (
    SendTimeoutError,
    ServerBusyError,
)
from tests.core.breakable import GRACE, INTERVAL, QUICK, Breakable, endpoint, numbered
from tests.core.outages import RESET_ONCE

pytestmark = pytest.mark.simulated


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
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY))
        began = asyncio.get_running_loop().time()
        with pytest.raises(SendTimeoutError) as caught:
            # Less than the wait, and on a link that is open: nothing but the answer can end it.
            await sender.send(numbered(3), timeout=0.4)
        assert asyncio.get_running_loop().time() - began < 0.4 + 1.0
    assert isinstance(caught.value.cause, ServerBusyError)
    assert len(caught.value.unsent) == 3
    assert breakable.recorder.states == []


async def test_section_4_a_busy_server_is_waited_for_and_not_diverted_from(breakable: Breakable) -> None:
    busy = breakable.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, count=3))
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        result = await sender.send(numbered(10))
    assert (result.primary, result.diverted) == (10, 0)
    # Longer than the failover interval, and yet no failure that counts.
    assert asyncio.get_running_loop().time() - began >= 3 * 0.5
    assert [each.strikes for each in breakable.primary.faults if each.id == busy.id] == [3]
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
