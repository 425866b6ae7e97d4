"""Deliveries are written as transfers, and their outcomes awaited side by side (AMQP 1.0, section 2.6)."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp.constants import LinkDeliverySettleReason
from azure.servicebus._pyamqp.error import ErrorCondition, MessageException
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.sdk._private.raw_sender import RawSender
from tests.core.support.frames import FakeHandler

pytestmark = [pytest.mark.fast_sdk, pytest.mark.simulated]

SETTLED = LinkDeliverySettleReason.DISPOSITION_RECEIVED


def opened(credit: int = 10) -> tuple[FakeHandler, RawSender]:
    handler = FakeHandler()
    handler._link.current_link_credit = credit
    return handler, RawSender(handler.owner)


def now() -> float:
    return asyncio.get_running_loop().time()


def transfers(data: bytes) -> list[tuple[int, list[Any]]]:
    """Return the size and the fields of each frame, with the payload as the last one, as the SDK decodes them."""
    found = []
    while data:
        size, offset, kind, channel = struct.unpack_from(">IBBH", data)
        assert (offset, kind, channel) == (2, 0, 5)
        code, fields = decode_frame(memoryview(data)[8:size])
        assert code == 0x14
        found.append((size, fields))
        data = data[size:]
    return found


async def settle(handler: FakeHandler, position: int = 0, state: Any = None, reason: Any = SETTLED) -> None:
    """Answer as the SDK's link does once it has decoded a disposition."""
    await handler._link._pending_deliveries[position].on_settled(reason, {"accepted": []} if state is None else state)


@given(sizes=st.lists(st.integers(0, 2000) | st.sampled_from([448, 896, 449]), min_size=1, max_size=3))
async def test_a_delivery_is_split_into_frames_of_the_size_that_the_service_allows(sizes: list[int]) -> None:
    handler, raw = opened()
    link, session = handler._link, handler._session
    frames = 0
    for number, size in enumerate(sizes):
        payload = bytes(index % 251 for index in range(size))
        sending = asyncio.create_task(raw.send(payload, message_format=0x80013700 * (number % 2), timeout=1.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        found = transfers(handler._connection.written[number])
        frames += len(found)
        assert b"".join(bytes(fields[11]) for _, fields in found) == payload
        assert max(frame_size for frame_size, _ in found) <= 512
        assert len(found) == max(1, -(-size // 448))
        tag = struct.pack(">I", number + 1)
        assert {tuple(fields[:5]) for _, fields in found} == {(7, 11 + number, tag, 0x80013700 * (number % 2), False)}
        assert [fields[5] for _, fields in found] == [True] * (len(found) - 1) + [False]
        await settle(handler, number)
        await sending
        assert (link.delivery_count, session.next_outgoing_id) == (number + 1, 12 + number)
        assert (session.remote_incoming_window, session.outgoing_window) == (1000 - frames, 1000 - number - 1)


async def flow(handler: FakeHandler, delivery_count: int | None, credit: int | None, handle: int | None = 7) -> None:
    await handler._link._incoming_flow([None, None, None, None, handle, delivery_count, credit])


@pytest.mark.parametrize(
    ("delivery_count", "credit", "handle", "allowed"),
    [(2, 1, 7, 3), (1, 1, 7, 2), (0, 5, 7, 5), (2, 9, None, 2), (None, 9, 7, 2), (2, None, 7, 2)],
)
async def test_no_more_is_sent_than_the_service_gave_credit_for(
    delivery_count: int | None, credit: int | None, handle: int | None, allowed: int
) -> None:
    handler, raw = opened(credit=2)
    sending = [asyncio.create_task(raw.send(b"x", message_format=0, timeout=5.0)) for _ in range(8)]
    await asyncio.sleep(1.0)
    assert len(handler._connection.written) == 2
    await flow(handler, delivery_count, credit, handle)
    await asyncio.sleep(1.0)
    assert len(handler._connection.written) == allowed
    for task in sending:
        task.cancel()
    await asyncio.wait(sending)


async def test_credit_is_counted_from_what_was_delivered_before() -> None:
    handler = FakeHandler()
    handler._link.delivery_count, handler._link.current_link_credit = 5, 3
    raw = RawSender(handler.owner)
    sending = [asyncio.create_task(raw.send(b"x", message_format=0, timeout=5.0)) for _ in range(8)]
    await asyncio.sleep(1.0)
    assert len(handler._connection.written) == 3
    for task in sending:
        task.cancel()
    await asyncio.wait(sending)


async def test_nothing_is_sent_while_the_window_of_the_session_is_closed() -> None:
    handler, raw = opened()
    handler._session.remote_incoming_window = 0
    began = now()
    with pytest.raises(TimeoutError):
        await raw.send(b"x", message_format=0, timeout=1.0)
    assert now() - began == pytest.approx(1.0, abs=0.01)
    assert handler._connection.written == []
    handler._session.remote_incoming_window = 1
    with pytest.raises(TimeoutError):
        await raw.send(b"x", message_format=0, timeout=1.0)
    assert len(handler._connection.written) == 1


@pytest.mark.parametrize(
    ("state", "reason", "condition", "text"),
    [
        ({"accepted": []}, SETTLED, None, ""),
        ({"accepted": []}, LinkDeliverySettleReason.NOT_DELIVERED, "amqp:unknown-error", "answered {'accepted"),
        ({"released": []}, SETTLED, "amqp:unknown-error", "the service answered {'released': []}"),
        ({}, LinkDeliverySettleReason.NOT_DELIVERED, "amqp:unknown-error", "answered NOT_DELIVERED"),
        ({"rejected": [None]}, SETTLED, "amqp:unknown-error", "answered {'rejected'"),
        ({"rejected": [[b"com.contoso:own", b"refused"]]}, SETTLED, b"com.contoso:own", "refused"),
        ({"rejected": [[b"amqp:not-allowed", b"refused", {}]]}, SETTLED, ErrorCondition.NotAllowed, "refused"),
        ({"rejected": [[b"amqp:not-allowed"]]}, SETTLED, ErrorCondition.NotAllowed, "answered {'rejected'"),
        ({"rejected": [[b"amqp:not-allowed", None]]}, SETTLED, ErrorCondition.NotAllowed, "answered {'rejected'"),
    ],
)
async def test_every_outcome_but_accepted_is_an_error(state: Any, reason: Any, condition: Any, text: str) -> None:
    handler, raw = opened()
    sending = asyncio.create_task(raw.send(b"x", message_format=0, timeout=5.0))
    await asyncio.sleep(0.1)
    await settle(handler, 0, state, reason)
    if condition is None:
        await sending
        return
    with pytest.raises(MessageException) as caught:
        await sending
    found = caught.value.condition
    assert found == condition or getattr(found, "value", b"").decode() == condition
    description = caught.value.description
    assert text in (description.decode() if isinstance(description, bytes) else str(description))


async def test_outcomes_are_awaited_side_by_side() -> None:
    handler, raw = opened()
    sending = [asyncio.create_task(raw.send(b"x", message_format=0, timeout=9.0)) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert len(handler._connection.written) == 3
    for position in (2, 0, 1):
        await settle(handler, position)
        await asyncio.sleep(0.7)
        assert sending[position].done()


async def test_a_lost_link_ends_every_send_and_makes_the_sender_unusable() -> None:
    handler, raw = opened()
    usable = [raw.is_usable]
    sending = asyncio.create_task(raw.send(b"x", message_format=0, timeout=9.0))
    await asyncio.sleep(0.1)
    handler._link.state = SimpleNamespace(value=6, name="DETACHED")
    began = now()
    with pytest.raises(ConnectionAbortedError, match="DETACHED"):
        await sending
    assert now() - began < 0.3
    assert [*usable, raw.is_usable] == [True, False]
    with pytest.raises(ConnectionAbortedError):
        await raw.send(b"x", message_format=0, timeout=9.0)
    assert len(handler._connection.written) == 1


async def test_the_token_is_renewed_while_an_outcome_is_awaited_but_not_during_a_write() -> None:
    handler, raw = opened(credit=1)
    renewing = 0

    async def handle_token() -> None:
        nonlocal renewing
        assert raw._writing.locked()
        renewing += 1

    handler._cbs_authenticator = SimpleNamespace(handle_token=handle_token)
    first = asyncio.create_task(raw.send(b"x", message_format=0, timeout=9.0))
    await asyncio.sleep(0.9)
    assert 3 <= renewing <= 6
    await settle(handler)
    await first
    before = renewing
    # Without credit, the second delivery is being written all the time.
    with pytest.raises(TimeoutError):
        await raw.send(b"x", message_format=0, timeout=1.0)
    assert renewing == before
