"""Deliveries are taken from frames, and settled in runs (AMQP 1.0, sections 2.7.5 and 2.7.6)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp.error import MessageException
from azure.servicebus._pyamqp.outcomes import Accepted, Modified, Rejected, Released
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.protocol.amqp_sections import NULL, binary, join_list, section, text, uint
from servicebus_pair.core.sdk._private import decode_limits
from servicebus_pair.core.sdk._private.raw_receiver import RawReceiver, Settlement, runs
from tests.core.support.frames import FALSE, HANDLE, TRUE, FakeHandler, disposition, frame, in_frame

pytestmark = [pytest.mark.fast_sdk, pytest.mark.simulated]

ACCEPTED, RELEASED, MODIFIED = (section(code, b"\x45") for code in (0x24, 0x26, 0x27))
REJECTED = section(0x25, b"\x45")
LOST = section(0x25, join_list([section(0x1D, join_list([text("com.microsoft:message-lock-lost", constructor=0xA3)]))]))
MODIFIED_HERE = Modified(delivery_failed=True, undeliverable_here=False, message_annotations=None)
SECONDS = st.sampled_from([TRUE, FALSE, b"\x56\x00", NULL])


def never() -> bool:
    return False


def opened() -> tuple[FakeHandler, RawReceiver]:
    handler = FakeHandler()
    return handler, RawReceiver(handler.owner, max_bytes=2**20 + 99)


def now() -> float:
    return asyncio.get_running_loop().time()


@given(st.sets(st.integers(0, 40)))
def test_runs_are_the_longest_consecutive_ranges(ids: set[int]) -> None:
    found = list(runs(ids))
    assert [number for first, last in found for number in range(first, last + 1)] == sorted(ids)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))


@st.composite
def transfers(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[int, bytes]]]:
    """Return frames, and the deliveries in them."""
    frames, deliveries = [], []
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, 300) | st.just(2**32 - 1))
        parts = draw(st.lists(st.binary(max_size=9), min_size=1, max_size=3))
        for position, part in enumerate(parts):
            fields = [uint(HANDLE), uint(number) if position == 0 else NULL, binary(b"tag"), uint(0)]
            if position + 1 < len(parts):
                fields += [draw(SECONDS), draw(st.sampled_from([TRUE, b"\x56\x01"]))]
                fields += [NULL, NULL, FALSE][: draw(st.integers(0, 3))]
            else:
                # The last frame: nothing more, in each form; what follows is not to be taken for it.
                fields += [draw(SECONDS), draw(st.sampled_from([FALSE, b"\x56\x00", NULL]))]
                fields += [NULL, NULL, TRUE, TRUE, TRUE][: draw(st.integers(0, 5))]
                fields = fields[: draw(st.sampled_from([2, 4, 5, 20]))]
            frames.append(frame(0x14, fields, part))
        deliveries.append((number, b"".join(parts)))
    return frames, deliveries


@given(sent=transfers())
async def test_deliveries_are_put_together_from_their_frames(
    sent: tuple[list[bytes], list[tuple[int, bytes]]],
) -> None:
    frames, deliveries = sent
    handler, raw = opened()
    link, session = handler._link, handler._session
    handler.feed(transfer(0))
    await raw.receive(max_messages=1, wait=1.0, should_stop=never)
    of_another_link = frame(0x14, [uint(HANDLE + 1), uint(0), binary(b""), uint(0)], b"answer")
    of_the_session = frame(0x13, [uint(HANDLE), uint(5000), uint(0), uint(5000)])
    handler.feed(of_another_link, of_the_session, *frames)
    assert await raw.receive(max_messages=len(deliveries), wait=1.0, should_stop=never) == deliveries
    assert handler._connection.given == [(5, 0x14), (5, 0x13)]
    assert (link.delivery_count, link.current_link_credit) == (1 + len(deliveries), 0)
    assert (session.next_incoming_id, session.remote_outgoing_window) == (2 + len(frames), 4999 - len(frames))
    assert session.incoming_window == 1000 - len(frames)


async def test_every_other_frame_is_given_to_the_sdk() -> None:
    handler, raw = opened()
    fields = [uint(HANDLE), uint(0), binary(b"tag"), uint(0), FALSE, FALSE]
    answers = [FALSE, uint(1), NULL, TRUE, ACCEPTED]
    session = [NULL, uint(1), uint(2), uint(3)]
    kinds = {0x10: [], 0x11: session, 0x12: [binary(b"l"), uint(HANDLE), TRUE], 0x13: session, 0x16: [uint(HANDLE)]}
    others = [frame(kind, given) for kind, given in {**kinds, 0x17: [], 0x18: []}.items()]
    # Lists of the other two forms.
    others.append(in_frame(section(0x18, b"\x45")))
    others += [
        in_frame(section(kind, struct.pack(">BII", 0xD0, 4 + len(b"".join(items)), len(items)) + b"".join(items)))
        for kind, items in ((0x14, fields), (0x15, answers))
    ]
    handler._session.on_disposition = lambda _: handler.feed(*others)
    assert list(await raw.settle([1], Settlement.COMPLETE, timeout=0.5)) == [1]
    assert await raw.receive(max_messages=1, wait=0.1, should_stop=never) == []
    assert [each[1] for each in handler._connection.given] == [each[10] for each in others]


@pytest.mark.parametrize(
    ("current", "allowed", "wanted", "changes"),
    [
        (0, 10, 10, True),
        (10, 10, 10, False),
        (6, 10, 10, True),  # all that is wanted
        (6, 10, 20, False),  # more than half is left
        (5, 10, 20, True),
        (12, 10, 20, True),
        (0, 0, 5, False),
        (4, 0, 5, True),
    ],
)
async def test_credit_is_changed_when_half_is_used_or_all_that_is_wanted_is_allowed(
    current: int, allowed: int, wanted: int, changes: bool
) -> None:
    handler, raw = opened()
    handler._link.current_link_credit, raw._size_known = current, True
    raw._window = SimpleNamespace(credit={wanted: allowed}.get)  # type: ignore[assignment]
    assert await raw._ask_for(wanted) == allowed
    assert handler._link.flows == [{"link_credit": allowed}] * changes


async def test_at_least_one_frame_is_asked_for_however_little_memory_there_is() -> None:
    handler = FakeHandler()
    raw = RawReceiver(handler.owner, max_bytes=100)
    handler.feed(transfer(0))
    assert len(await raw.receive(max_messages=5, wait=0.1, should_stop=never)) == 1
    assert handler._link.flows[0] == {"link_credit": 1}


async def test_a_message_without_an_end_is_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_limits, "_MAX_MESSAGE_BYTES", 3000)
    handler, raw = opened()
    part, more = (
        frame(0x14, [uint(HANDLE), uint(0), binary(b"tag"), uint(0), FALSE, TRUE], bytes(size)) for size in (1000, 1)
    )
    for _ in range(2):
        # Forgotten with the message: each one is counted alone.
        handler.feed(part, part, part, transfer(0))
        ((_, message),) = await raw.receive(max_messages=1, wait=1.0, should_stop=never)
        assert len(message) == 3001
    handler.feed(part, part, part, more)
    with pytest.raises(ConnectionAbortedError, match="a message of more than 3000 bytes"):
        await raw.receive(max_messages=1, wait=1.0, should_stop=never)


@pytest.mark.parametrize(("max_bytes", "credit"), [(750, 10), (749, 9)])
async def test_what_was_returned_counts_no_more_and_no_less_than_its_bytes(max_bytes: int, credit: int) -> None:
    handler = FakeHandler()
    raw = RawReceiver(handler.owner, max_bytes=max_bytes)
    assert not raw.fell_silent
    handler.feed(frame(0x14, [uint(HANDLE), uint(0), binary(b"tag"), uint(0), FALSE, FALSE], bytes(100)))
    assert len(await raw.receive(max_messages=1, wait=1.0, should_stop=never)) == 1
    await raw.receive(max_messages=200, wait=0.0, should_stop=never)
    # The largest message seen counts three quarters of its size in the second receive.
    assert handler._link.current_link_credit == credit


async def test_a_request_asks_for_what_has_not_arrived() -> None:
    handler, raw = opened()
    handler.feed(*map(transfer, range(5)))
    assert len(await raw.receive(max_messages=2, wait=1.0, should_stop=never)) == 2
    await raw.request(10)
    assert handler._link.current_link_credit == 10 - 3


async def test_a_receive_that_has_enough_at_once_leaves_the_credit_for_the_next() -> None:
    handler, raw = opened()
    handler.feed(*map(transfer, range(5)))
    await raw.settle([99], Settlement.COMPLETE, timeout=0.1, request=10)
    assert len(await raw.receive(max_messages=5, wait=1.0, should_stop=never)) == 5
    assert handler._link.current_link_credit == 5


async def test_messages_that_were_not_asked_for_are_not_kept_without_limit() -> None:
    handler, raw = opened()
    handler.feed(*map(transfer, range(101)))
    assert len(await raw.receive(max_messages=1, wait=1.0, should_stop=never)) == 1
    handler.feed(*map(transfer, range(101, 202)))
    # Also while it waits for something else.
    [failure] = (await raw.settle([0], Settlement.COMPLETE, timeout=1.0)).values()
    assert "sent 101 messages or 201 bytes that were not asked for" in str(failure)


async def test_numbers_of_a_session_and_a_link_begin_again_with_zero() -> None:
    """AMQP 1.0, section 2.8.10: a service may begin with any number."""
    handler, raw = opened()
    handler._session.next_incoming_id = handler._link.delivery_count = 2**32 - 1
    handler.feed(transfer(0))
    assert len(await raw.receive(max_messages=1, wait=1.0, should_stop=never)) == 1
    assert (handler._session.next_incoming_id, handler._link.delivery_count) == (0, 0)


def transfer(number: int) -> bytes:
    return frame(0x14, [uint(HANDLE), uint(number), binary(b"tag"), uint(0), FALSE, FALSE], b"m")


@pytest.mark.parametrize(
    ("arrivals", "received", "ends"),
    [
        ([], 0, 2.0),
        ([0.3], 1, 0.4),
        ([0.3, 0.38], 2, 0.48),
        ([1.9], 1, 2.0),
        # More and more arrives: what has arrived for 5 s behind the wait is returned.
        ([0.04 * number for number in range(1, 250)], 175, 7.04),
    ],
    ids=["nothing", "one", "two", "late", "endless"],
)
async def test_a_receive_ends_when_the_queue_is_silent(arrivals: list[float], received: int, ends: float) -> None:
    handler, raw = opened()
    began = now()
    for number, at in enumerate(arrivals):
        asyncio.get_running_loop().call_at(began + at, handler.feed, transfer(number))
    found = await raw.receive(max_messages=1000, wait=2.0, should_stop=never)
    assert now() - began == pytest.approx(ends, abs=0.02)
    assert len(found) == pytest.approx(received, abs=2 if received > 10 else 0)
    assert raw.fell_silent is (0 < received < 10), "nothing and an endless stream are no such end"


@pytest.mark.parametrize(("arrives", "received"), [(False, 0), (True, 1)])
async def test_a_receive_that_should_stop_returns_what_has_arrived(arrives: bool, received: int) -> None:
    handler, raw = opened()
    began = now()
    if arrives:
        asyncio.get_running_loop().call_at(began + 0.5, handler.feed, transfer(1))
    found = await raw.receive(max_messages=10, wait=60.0, should_stop=lambda: now() - began >= 0.5)
    assert len(found) == received
    assert now() - began < 0.8


async def test_what_arrives_beyond_is_kept_for_the_next_receive_and_credit_is_for_what_is_missing() -> None:
    handler, raw = opened()
    handler.feed(*map(transfer, range(5)))
    began = now()
    assert [number for number, _ in await raw.receive(max_messages=2, wait=1.0, should_stop=never)] == [0, 1]
    handler._link.current_link_credit = 0
    assert [number for number, _ in await raw.receive(max_messages=4, wait=1.0, should_stop=never)] == [2, 3, 4]
    assert [number for number, _ in await raw.receive(max_messages=1, wait=0.0, should_stop=never)] == []
    assert await raw.receive(max_messages=1, wait=0.0, should_stop=never) == []
    assert now() - began < 0.15, "what has arrived is returned at once"
    # As many as are wanted; none, as more arrived than was asked for; the second lacked one; the last found it given.
    assert handler._link.flows == [{"link_credit": credit} for credit in (2, 0, 1)]


@pytest.mark.parametrize(("size", "credit", "later"), [(10, 200, 200), (300_000, 2, 4), (900_000, 0, 1)])
async def test_more_is_asked_for_with_a_settlement_as_long_as_what_is_settled_leaves_room(
    size: int, credit: int, later: int
) -> None:
    handler, raw = opened()
    answering_with(handler, ACCEPTED)
    parts = [bytes(min(4096, size - start)) for start in range(0, size, 4096)]
    more = [FALSE if number == len(parts) - 1 else TRUE for number in range(len(parts))]
    fields = [uint(HANDLE), uint(0), binary(b"tag"), uint(0), FALSE]
    handler.feed(*(frame(0x14, [*fields, each], part) for each, part in zip(more, parts, strict=True)))
    [(_, message)] = await raw.receive(max_messages=1, wait=1.0, should_stop=never)
    assert await raw.settle([0], Settlement.COMPLETE, timeout=1.0, request=200) == {}
    assert (len(message), handler._link.current_link_credit) == (size, credit)
    await raw.receive(max_messages=200, wait=0.0, should_stop=never)
    assert handler._link.current_link_credit == later, "what was settled counts no more"


@pytest.mark.parametrize(("size", "credit"), [(10, 200), (1_000, 200), (300_000, 2), (900_000, 0), (2**21, 0)])
async def test_before_a_size_is_known_the_session_limits_the_bytes_and_then_credit_does(size: int, credit: int) -> None:
    """AMQP 1.0, section 2.5.6: the service sends as many frames as the session's window allows, 256 here."""
    handler, raw = opened()
    link, session = handler._link, handler._session
    windows = list[tuple[int, int]]()
    flow = link.flow

    async def noted(**fields: Any) -> None:
        windows.append((fields["link_credit"], session.incoming_window))
        await flow(**fields)

    link.flow = noted  # type: ignore[method-assign]  # the session's window goes with each frame
    parts = [bytes(min(4096, size - start)) for start in range(0, size, 4096)]
    fields = [uint(HANDLE), uint(0), binary(b"tag"), uint(0), FALSE]
    frames = [frame(0x14, [*fields, TRUE if part is not parts[-1] else FALSE], part) for part in parts]
    receiving = asyncio.create_task(raw.receive(max_messages=201, wait=1.0, should_stop=never))
    await asyncio.sleep(0.01)
    assert windows == [(201, 256)]
    handler.feed(*frames[:-1][:1])
    await asyncio.sleep(0.01)
    handler.feed(*frames[1:] or frames)
    assert [len(message) for _, message in await receiving] == [size]
    assert windows[1][1] == 1000
    assert link.current_link_credit == credit


async def test_the_window_of_the_session_is_opened_again_when_half_is_used() -> None:
    handler, raw = opened()
    handler.feed(transfer(0))
    await raw.receive(max_messages=1, wait=0.1, should_stop=never)
    for window, flows in ((501, 0), (500, 1)):
        handler._session.incoming_window = window
        await raw.receive(max_messages=1, wait=0.1, should_stop=never)
        assert handler._session.flows == flows
    assert handler._session.incoming_window == 1000


async def test_a_receive_renews_the_token() -> None:
    handler, raw = opened()
    asked: list[float] = []

    async def handle_token() -> None:
        asked.append(now())

    handler._cbs_authenticator = SimpleNamespace(handle_token=handle_token)
    began = now()
    await raw.receive(max_messages=1, wait=1.0, should_stop=never)
    assert [at - began for at in asked] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8], abs=0.01)


@pytest.mark.parametrize("state", [0, 2, 4, 6, None])
async def test_a_lost_link_is_an_error(state: int | None) -> None:
    handler, raw = opened()
    if state is not None:
        handler._link.state = SimpleNamespace(value=state, name="DETACHED")
    else:
        handler._connection._error = ConnectionAbortedError("gone")
    with pytest.raises(ConnectionAbortedError, match=r"DETACHED|gone"):
        await raw.receive(max_messages=1, wait=1.0, should_stop=never)
    [failure] = (await raw.settle([1], Settlement.COMPLETE, timeout=1.0)).values()
    assert isinstance(failure, ConnectionAbortedError)


def answering(handler: FakeHandler, answer: Callable[[Any], list[bytes]]) -> None:
    handler._session.on_disposition = lambda sent: handler.feed(*answer(sent))


def answering_with(handler: FakeHandler, outcome: bytes) -> None:
    answering(handler, lambda sent: [disposition(sent.first, sent.last, outcome)])


@pytest.mark.parametrize(
    ("settlement", "state", "confirmation"),
    [
        (Settlement.COMPLETE, Accepted(), ACCEPTED),
        (Settlement.ABANDON, MODIFIED_HERE, MODIFIED),
        (Settlement.RELEASE, Released(), RELEASED),
        (Settlement.DEAD_LETTER, None, REJECTED),
    ],
)
async def test_a_settlement_is_confirmed_by_its_own_outcome_only(
    settlement: Settlement, state: Any, confirmation: bytes
) -> None:
    for outcome in (ACCEPTED, MODIFIED, RELEASED, REJECTED, LOST):
        handler, raw = opened()
        answering_with(handler, outcome)
        failures = await raw.settle([0, 1, 5], settlement, timeout=1.0, error=("Why", "because"))
        assert sorted(failures) == ([] if outcome == confirmation else [0, 1, 5])
        assert all(isinstance(failure, MessageException) for failure in failures.values())
        sent = handler._session.dispositions
        assert [(each.role, each.first, each.last, each.settled, each.batchable) for each in sent] == [
            (True, 0, 1, False, True),
            (True, 5, 5, False, True),
        ]
        if settlement is not Settlement.DEAD_LETTER:
            assert [each.state for each in sent] == [state] * 2
            continue
        assert isinstance(sent[0].state, Rejected)
        error = sent[0].state.error
        assert (error.condition, error.description) == (b"com.microsoft:dead-letter", "because")
        assert error.info == {"DeadLetterReason": "Why", "DeadLetterErrorDescription": "because"}


ANSWERS = st.lists(st.sampled_from(["confirmed", "refused", "unsettled", "of the service", "none"]), min_size=24)


@given(ids=st.sets(st.integers(0, 11), min_size=1), answers=ANSWERS, order=st.permutations(range(12)), data=st.data())
async def test_each_delivery_has_the_answer_that_the_service_gave_for_it(
    ids: set[int], answers: list[str], order: list[int], data: st.DataObject
) -> None:
    """The service may answer in any order, twice, for single deliveries and for ranges beyond what is settled."""
    handler, raw = opened()
    kinds = {
        "confirmed": (ACCEPTED, FALSE, TRUE),
        "refused": (LOST, FALSE, TRUE),
        "unsettled": (ACCEPTED, FALSE, FALSE),
        "of the service": (ACCEPTED, TRUE, TRUE),
    }
    answered: list[bytes] = []
    of_the_service = 0
    expected = dict.fromkeys(ids, "none")
    remaining = set(range(12))
    for first in order:
        last = first
        while last + 1 in remaining and first in remaining and data.draw(st.booleans()):
            last += 1
        kind = answers[first]
        if first not in remaining or kind == "none":
            continue
        remaining -= set(range(first, last + 1))
        outcome, role, settled = kinds[kind]
        answer = disposition(first, None if first == last else last, outcome, role=role, settled=settled)
        times = data.draw(st.integers(1, 2))
        answered += [answer] * times
        of_the_service += times * (kind == "of the service")
        expected |= {number: kind for number in range(first, last + 1) if number in ids}
    answering(handler, lambda sent: answered if sent.last == max(ids) else [])
    began = now()
    failures = await raw.settle(ids, Settlement.COMPLETE, timeout=3.0)
    of_kind = dict.fromkeys(ids, "confirmed") | {
        number: "none" if isinstance(failure, TimeoutError) else "refused" for number, failure in failures.items()
    }
    assert of_kind == {
        number: kind if kind in ("confirmed", "refused") else "none" for number, kind in expected.items()
    }
    assert now() - began == pytest.approx(3.0 if "none" in of_kind.values() else 0.0, abs=0.01)
    assert handler._connection.given == [(5, 0x15)] * of_the_service


async def test_answers_after_the_time_limit_belong_to_no_later_settlement() -> None:
    handler, raw = opened()
    [failure] = (await raw.settle([1], Settlement.COMPLETE, timeout=1.5)).values()
    assert str(failure) == "settlements were not confirmed in 1.5 s"
    answering(handler, lambda _: [disposition(1, 1, LOST), disposition(2, 2, ACCEPTED)])
    assert await raw.settle([2], Settlement.COMPLETE, timeout=1.0) == {}


async def test_credit_is_taken_back_and_what_arrives_meanwhile_is_released() -> None:
    handler, raw = opened()
    await raw.drain_credit()
    assert (handler._link.flows, handler._session.dispositions) == ([], [])
    handler._link.current_link_credit = 1
    began = now()
    for number in (4, 5, 7):
        asyncio.get_running_loop().call_at(began + 0.01 * number, handler.feed, transfer(number))
    await raw.drain_credit()
    assert now() - began == pytest.approx(0.07 + 2 * 0.05, abs=0.02)
    assert handler._link.flows == [{"link_credit": 0, "drain": True}, {"link_credit": 0}]
    released = [(each.first, each.last, each.settled, each.state) for each in handler._session.dispositions]
    assert released == [(4, 5, True, Released()), (7, 7, True, Released())]
    await raw.drain_credit()
    assert len(handler._session.dispositions) == 2


@pytest.mark.parametrize("broken", [False, True])
async def test_closing_releases_what_was_not_returned(broken: bool) -> None:
    handler, raw = opened()
    handler.feed(transfer(1), transfer(2))
    await raw.receive(max_messages=1, wait=1.0, should_stop=never)
    if broken:
        handler._connection._error = ConnectionAbortedError("gone")
    await handler.close_async()
    assert handler.closed
    assert [each.first for each in handler._session.dispositions] == [2]


async def test_the_keep_alive_of_the_sdk_is_stopped() -> None:
    handler = FakeHandler()
    task = handler._keep_alive_thread = asyncio.create_task(asyncio.sleep(60))
    RawReceiver(handler.owner, max_bytes=2**20)
    await asyncio.wait({task})
    assert (task.cancelled(), handler._keep_alive_thread) == (True, None)
