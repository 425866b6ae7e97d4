"""Issue 3: a switch that puts the clock forward, for tests of locks, times to live and schedules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace
from servicebus_emulator.admin import access_control
from servicebus_emulator.clock import ShiftableClock, TimeShiftError
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.errors import EntityNotFound
from servicebus_emulator.engine.model.timespan import TimeSpan
from tests.emulator.support.authorizers import signed_headers
from tests.emulator.support.manual_clock import ManualClock
from tests.emulator.support.sdk_client import SdkClient, bodies, connect_sdk

HOUR = timedelta(hours=1)


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso", "contoso-dr"], allow_time_shift=True) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


@pytest.fixture
async def sdk(hosted: HostedNamespace) -> AsyncIterator[SdkClient]:
    async with connect_sdk(hosted) as opened:
        yield opened


async def test_a_lock_ends_at_once_and_the_message_comes_again(hosted: HostedNamespace, sdk: SdkClient):
    async with sdk.queue("flights") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(1)
        hosted.shift_time(timedelta(minutes=2))
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        (again,) = await receiver.receive_messages(1)
        assert again.delivery_count == 1
        await receiver.complete_message(again)


async def test_a_receiver_that_waits_gets_what_is_scheduled_when_its_time_has_come(
    hosted: HostedNamespace, sdk: SdkClient
):
    due = datetime.now(tz=UTC) + timedelta(minutes=1)
    async with sdk.queue("flights") as (sender, receiver):
        await sender.schedule_messages(ServiceBusMessage("x"), due)
        waiting = asyncio.ensure_future(receiver.receive_messages(1, max_wait_time=20))
        # Short of its time: the timer has to follow the clock, not what was left when it was set.
        hosted.shift_time(timedelta(seconds=59))
        assert bodies(await asyncio.wait_for(waiting, 15)) == ["x"]


async def test_a_queue_that_is_idle_for_long_goes_and_a_fault_ends(hosted: HostedNamespace):
    hosted.namespace.create_queue(QueueDescription("idle", auto_delete_on_idle=TimeSpan.of(HOUR)))
    hosted.set_fault(Fault(kind=FaultKind.FREEZE, duration=3600))
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    hosted.shift_time(2 * HOUR)
    assert (await asyncio.wait_for(reader.readexactly(4), 5)) == b"AMQP"
    with pytest.raises(EntityNotFound):
        hosted.namespace.get_queue("idle")
    writer.close()


async def test_time_is_put_forward_over_http_where_that_is_allowed(hosted: HostedNamespace, http: ClientSession):
    async with http.get("/$time") as response:
        before = await response.json()
    assert before["shifted_seconds"] == 0
    async with http.post("/$time", json={"shift_seconds": 90.5}) as response:
        assert response.status == 200
        after = await response.json()
    assert (after["shifted_seconds"], after["shift_allowed"]) == (90.5, True)
    passed = datetime.fromisoformat(after["now"]) - datetime.fromisoformat(before["now"])
    assert timedelta(seconds=90) < passed < timedelta(seconds=100)
    assert hosted._clock.ahead == timedelta(seconds=90.5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[]", "an object with the number shift_seconds"),
        (b"{}", "an object with the number shift_seconds"),
        (b'{"shift_seconds": 1, "more": 1}', "shift_seconds only"),
        (b'{"shift_seconds": "60"}', "shift_seconds is '60'; allowed: a number of seconds"),
        (b'{"shift_seconds": true}', "allowed: a number of seconds"),
        (b'{"shift_seconds": 0}', "shift_seconds is 0; allowed: forward only, above 0 and up to 315360000"),
        (b'{"shift_seconds": -1}', "shift_seconds is -1; allowed: forward only"),
        (b'{"shift_seconds": NaN}', "shift_seconds is nan; allowed: forward only"),
        (b'{"shift_seconds": 1e999}', "shift_seconds is inf; allowed"),
        (b'{"shift_seconds": 0.0001}', "0.001 to 315360000 seconds"),
        (b'{"shift_seconds": ' + b"[" * 100_000, "the body is not JSON"),
    ],
)
async def test_a_bad_shift_is_refused_and_shifts_nothing(
    hosted: HostedNamespace, http: ClientSession, body: bytes, message: str
):
    async with http.post("/$time", data=body, headers={"Content-Type": "application/json"}) as response:
        assert response.status == 400
        assert message in (await response.json())["error"]
    assert hosted._clock.ahead == timedelta()


async def test_over_http_time_stands_unless_it_was_allowed_to_move():
    async with Emulator(["contoso"]) as emulator:
        hosted = emulator["contoso"]
        async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as http:
            async with http.post("/$time", json={"shift_seconds": 60}) as response:
                assert response.status == 403
                assert "--allow-time-shift" in (await response.json())["error"]
            async with http.get("/$time") as response:
                assert (await response.json())["shift_allowed"] is False


async def test_only_json_moves_the_clock_so_that_no_form_of_a_web_page_can(http: ClientSession):
    async with http.post("/$time", data=b'{"shift_seconds": 60}', headers={"Content-Type": "text/plain"}) as response:
        assert response.status == 400


async def test_from_elsewhere_moving_the_clock_needs_a_token_that_may_manage(monkeypatch: pytest.MonkeyPatch):
    # Not every machine that runs this has an address besides the loopback's.
    monkeypatch.setattr(access_control, "is_loopback", lambda _: False)
    async with Emulator(["contoso"], allow_time_shift=True) as emulator:
        hosted = emulator["contoso"]
        async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as http:
            async with http.post("/$time", json={"shift_seconds": 60}) as response:
                assert response.status == 401
            async with http.post("/$time", json={"shift_seconds": 60}, headers=signed_headers()) as response:
                assert response.status == 200
    assert hosted._clock.ahead == timedelta(seconds=60)


def test_a_clock_goes_forward_only_and_ten_years_at_most():
    clock = ShiftableClock(ManualClock(start=1000))
    clock.shift(timedelta(days=3650))
    assert clock.now() == 1000 + 3650 * 24 * 3_600_000
    for by in (timedelta(), timedelta(seconds=-1), timedelta(milliseconds=1)):
        with pytest.raises(TimeShiftError, match="allowed: forward only"):
            clock.shift(by)
