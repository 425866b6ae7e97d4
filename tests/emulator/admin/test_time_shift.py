"""Moving the clock forward, for tests of locks, times to live and schedules."""

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


async def test_an_expired_lock_redelivers_the_message_at_once(hosted: HostedNamespace, sdk: SdkClient):
    async with sdk.queue("flights") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages(1)
        hosted.shift_time(timedelta(minutes=2))
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        (again,) = await receiver.receive_messages(1)
        assert again.delivery_count == 1
        await receiver.complete_message(again)


async def test_a_waiting_receiver_gets_a_scheduled_message_when_it_is_due(hosted: HostedNamespace, sdk: SdkClient):
    due = datetime.now(tz=UTC) + timedelta(minutes=1)
    async with sdk.queue("flights") as (sender, receiver):
        await sender.schedule_messages(ServiceBusMessage("x"), due)
        waiting = asyncio.ensure_future(receiver.receive_messages(1, max_wait_time=20))
        # Just before the due time: the timer must follow the clock.
        hosted.shift_time(timedelta(seconds=59))
        assert bodies(await asyncio.wait_for(waiting, 15)) == ["x"]


async def test_an_idle_queue_is_deleted_and_a_fault_expires(hosted: HostedNamespace):
    hosted.namespace.create_queue(QueueDescription("idle", auto_delete_on_idle=TimeSpan.of(HOUR)))
    hosted.set_fault(Fault(kind=FaultKind.FREEZE, duration=3600))
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    hosted.shift_time(2 * HOUR)
    assert (await asyncio.wait_for(reader.readexactly(4), 5)) == b"AMQP"
    with pytest.raises(EntityNotFound):
        hosted.namespace.get_queue("idle")
    writer.close()


async def test_the_clock_is_moved_forward_over_http_if_allowed(hosted: HostedNamespace, http: ClientSession):
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
        (b'{"shift_seconds": ' + b"[" * 10_000, "the body is not JSON"),
    ],
)
async def test_a_bad_shift_is_refused_and_shifts_nothing(
    hosted: HostedNamespace, http: ClientSession, body: bytes, message: str
):
    async with http.post("/$time", data=body, headers={"Content-Type": "application/json"}) as response:
        assert response.status == 400
        assert message in (await response.json())["error"]
    assert hosted._clock.ahead == timedelta()


async def test_a_body_beyond_16_kib_is_refused_and_shifts_nothing(hosted: HostedNamespace, http: ClientSession):
    for size, status in ((16 * 1024, 200), (16 * 1024 + 1, 413)):
        body = b'{"shift_seconds": 1}'.ljust(size)
        async with http.post("/$time", data=body, headers={"Content-Type": "application/json"}) as response:
            assert response.status == status
    assert hosted._clock.ahead == timedelta(seconds=1)


async def test_http_clients_cannot_move_the_clock_by_default():
    async with Emulator(["contoso"]) as emulator:
        hosted = emulator["contoso"]
        async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as http:
            async with http.post("/$time", json={"shift_seconds": 60}) as response:
                assert response.status == 403
                assert "--allow-time-shift" in (await response.json())["error"]
            async with http.get("/$time") as response:
                assert (await response.json())["shift_allowed"] is False


async def test_only_json_moves_the_clock_which_html_forms_cannot_send(http: ClientSession):
    async with http.post("/$time", data=b'{"shift_seconds": 60}', headers={"Content-Type": "text/plain"}) as response:
        assert response.status == 400


async def test_remote_clients_need_the_manage_right_to_move_the_clock(monkeypatch: pytest.MonkeyPatch):
    # A machine may have only a loopback address.
    monkeypatch.setattr(access_control, "is_loopback", lambda _: False)
    async with Emulator(["contoso"], allow_time_shift=True) as emulator:
        hosted = emulator["contoso"]
        async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as http:
            async with http.post("/$time", json={"shift_seconds": 60}) as response:
                assert response.status == 401
            async with http.post("/$time", json={"shift_seconds": 60}, headers=signed_headers()) as response:
                assert response.status == 200
    assert hosted._clock.ahead == timedelta(seconds=60)


def test_a_clock_moves_forward_only_by_at_most_ten_years():
    clock = ShiftableClock(ManualClock(start=1000))
    clock.shift(timedelta(days=3650))
    assert clock.now() == 1000 + 3650 * 24 * 3_600_000
    for by in (timedelta(), timedelta(seconds=-1), timedelta(milliseconds=1)):
        with pytest.raises(TimeShiftError, match="allowed: forward only"):
            clock.shift(by)
