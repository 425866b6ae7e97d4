"""Sends to a backlog that is busy, loses connections or does not respond (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.model.errors import (
    AuthorizationError,
    InvalidMessageError,
    MessageTooLargeError,
    NoBacklogQueueError,
    RejectedError,
    SendTimeoutError,
    ServerBusyError,
    ServiceError,
    ServiceFaultError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.model.events import BacklogCopyTooLarge, MessagesAccepted, QueuePulled, Route
from servicebus_pair.core.protocol.amqp_message import BodyType, Properties
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send import backlog_sender
from tests.core.support.fake_backlog import Diverting, FakeLink
from tests.core.support.manual_clock import START

pytestmark = pytest.mark.simulated


async def test_section_4_diverted_messages_are_accepted_and_the_queue_is_kept() -> None:
    diverting = Diverting()
    queue = await diverting.send()
    assert diverting.links[queue].ids == ["m0", "m1"]
    assert diverting.state.result().diverted_ids == ("m0", "m1")
    [event] = diverting.events
    assert isinstance(event, MessagesAccepted)
    assert (event.entity, event.route, event.queue, event.at) == ("flights", Route.BACKLOG, queue, START)
    diverting.start(1)
    assert await diverting.send() == queue


async def test_section_4_a_failing_queue_leaves_the_rotation_and_another_takes_the_messages() -> None:
    diverting = Diverting()
    first = diverting.selector.select(None)
    assert first is not None
    diverting.sender._queue = first
    diverting.fail(ServiceFaultError("broken"), queue=first)
    assert await diverting.send() != first
    assert [(event.queue, event.reason, event.at) for event in diverting.of(QueuePulled)] == [(first, "broken", START)]
    assert (diverting.selector.is_removed(first), diverting.state.result().diverted) == (True, 2)


@pytest.mark.parametrize("because", [None, UnreachableError("lost")])
async def test_section_4_if_every_queue_fails_the_error_names_both_failures(because: ServiceError | None) -> None:
    diverting = Diverting()
    diverting.fail(*[ServiceFaultError("broken")] * 9)
    with pytest.raises(NoBacklogQueueError) as caught:
        await diverting.send(because=because)
    primary = "an outage" if because is None else "lost"
    assert f"flights is failed over ({primary}) and no backlog queue took the 2 messages" in str(caught.value)
    assert "(tried 3, the last one: broken)" in str(caught.value)
    assert isinstance(caught.value.cause, ServiceFaultError)
    assert sorted(event.queue for event in diverting.of(QueuePulled)) == ["q0", "q1", "q2"]
    assert not diverting.selector.unresponsive


@pytest.mark.parametrize(("attached", "attempts"), [(True, 2), (False, 1)])
async def test_section_4_one_loss_of_a_working_connection_is_retried_on_the_same_queue(
    attached: bool, attempts: int
) -> None:
    diverting = Diverting()
    for link in diverting.links.values():
        link.attached = attached
    diverting.fail(*[UnreachableError("lost")] * 9)
    with pytest.raises(NoBacklogQueueError):
        await diverting.send()
    assert [len(link.timeouts) for link in diverting.links.values()] == [attempts] * 3


@pytest.mark.parametrize(("timeout", "sent"), [(25, 3), (20, 2)])
async def test_section_4_a_busy_queue_is_kept_after_its_delay_within_the_deadline(timeout: int, sent: int) -> None:
    diverting = Diverting(timeout=timeout)
    diverting.fail(*[ServerBusyError("busy")] * 9)
    with pytest.raises(SendTimeoutError, match=rf"not finished within the {timeout} s given by the caller: busy"):
        await diverting.send()
    assert (diverting.clock.sleeps, diverting.events) == ([10.0, 10.0], [])
    assert sorted(len(link.timeouts) for link in diverting.links.values()) == [0, 0, sent]


@pytest.mark.parametrize(("error", "in_doubt"), [(ServiceFaultError("x"), 2), (AuthorizationError("x"), 0)])
async def test_section_4_a_refused_attempt_leaves_nothing_in_doubt(error: ServiceError, in_doubt: int) -> None:
    diverting = Diverting()
    diverting.fail(*[error] * 9)
    with pytest.raises(NoBacklogQueueError):
        await diverting.send()
    assert len(diverting.state.in_doubt) == in_doubt


@pytest.mark.parametrize("error", [MessageTooLargeError("too large"), InvalidMessageError("no type")])
@pytest.mark.parametrize("ordered", [False, True])
async def test_section_4_a_message_that_no_queue_can_take_is_raised_at_once(error: ServiceError, ordered: bool) -> None:
    diverting = Diverting(order=by_session() if ordered else None)
    diverting.fail(*[error] * 9)
    with pytest.raises(type(error), match=f"{error}$") as caught:
        await diverting.send()
    assert str(caught.value).startswith("as a copy for the backlog, ") is isinstance(error, MessageTooLargeError)
    assert sum(len(link.timeouts) for link in diverting.links.values()) == 1


async def test_section_4_copies_are_sent_in_batches_of_the_link_and_accepted_ones_only_once() -> None:
    diverting = Diverting(5, body=1000)
    for link in diverting.links.values():
        link.limit = 2_600
    queue = diverting.selector.select(None)
    assert queue is not None
    diverting.sender._queue = queue
    link = diverting.links[queue]
    outcomes: list[Any] = [None, UnreachableError("lost")]
    link.outcomes = outcomes
    await diverting.send()
    assert link.ids == ["m0", "m1", "m2", "m3", "m4"]
    assert [len(event.messages) for event in diverting.of(MessagesAccepted)] == [2, 2, 1]


async def test_section_4_a_send_that_ends_between_batches_reports_all_states() -> None:
    diverting = Diverting(5, body=1000, timeout=1.0)
    for link in diverting.links.values():
        link.limit, link.seconds = 2_600, 60.0
        outcomes: list[Any] = [None, TimedOutError("late")]
        link.outcomes = outcomes
    with pytest.raises(SendTimeoutError):
        await diverting.send()
    assert diverting.state.result().diverted_ids == ("m0", "m1")
    assert [message.properties.message_id for message in diverting.state.in_doubt] == ["m2", "m3"]  # type: ignore[union-attr]
    assert len(diverting.state.unsent) == 3


async def test_section_4_silent_queues_share_a_bounded_search() -> None:
    diverting = Diverting()
    for link in diverting.links.values():
        link.seconds = 60.0
    diverting.fail(*[TimedOutError("late")] * 9)
    with pytest.raises(NoBacklogQueueError, match="tried 3"):
        await diverting.send()
    assert sorted(link.timeouts[0] or 0 for link in diverting.links.values()) == [2.5, 5.0, 10.0]
    # The search ended because every queue was tried; with ever more queues, it would end after 20 seconds.
    assert (diverting.clock.time, diverting.selector.unresponsive) == (START + 17.5, False)
    diverting.links["q0"].seconds = 60.0
    diverting.selector.unresponsive = True
    diverting.start(1)
    with pytest.raises(NoBacklogQueueError):
        await diverting.send()
    assert (diverting.clock.time, diverting.selector.unresponsive) == (START + 21.5, True)
    diverting.fail()
    await diverting.send()
    assert not diverting.selector.unresponsive


async def test_section_4_a_search_that_takes_20_seconds_shortens_the_next_one() -> None:
    diverting = Diverting(queues=20)
    for link in diverting.links.values():
        link.seconds = 60.0
    diverting.fail(*[TimedOutError("late")] * 9)
    for ends in (START + 21, START + 26):
        with pytest.raises(NoBacklogQueueError):
            await diverting.send()
        assert diverting.selector.unresponsive
        assert diverting.clock.time <= ends


@pytest.mark.parametrize("call", ["open_in_slot", "send_in_slot"])
async def test_section_4_a_send_gives_up_a_queue_that_did_not_answer_others(call: str) -> None:
    diverting = Diverting()
    waiting = diverting.selector.select(None)
    assert waiting is not None
    diverting.sender._queue = waiting
    original = getattr(diverting.links[waiting], call)

    async def removed_meanwhile(*given: Any) -> Any:
        diverting.selector.remove(waiting)
        return await original(*given)

    setattr(diverting.links[waiting], call, removed_meanwhile)
    assert await diverting.send() != waiting
    assert (diverting.links[waiting].timeouts, diverting.of(QueuePulled)) == ([None] * (call == "send_in_slot"), [])


def by_session() -> Any:
    """An order that sends all messages to ``q1``."""
    return SimpleNamespace(group_by_queue=lambda _entity, copies, _messages: {"q1": dict(copies)})


async def test_section_6_in_session_order_only_the_queue_of_the_session_is_used() -> None:
    diverting = Diverting(order=by_session())
    diverting.fail(UnreachableError("lost"), ServerBusyError("busy"), UnreachableError("lost"), queue="q1")
    await diverting.send()
    assert (diverting.links["q1"].ids, diverting.clock.sleeps) == (["m0", "m1"], [10.0])
    diverting.start(1)
    diverting.fail(*[ServiceFaultError("broken")] * 9, queue="q1")
    with pytest.raises(NoBacklogQueueError, match=r"took the 1 messages \(tried 1, the last one: broken\)"):
        await diverting.send()
    assert len(diverting.links["q1"].timeouts) == 4 + 3
    assert [link.ids for name, link in diverting.links.items() if name != "q1"] == [[], []]
    assert diverting.of(QueuePulled) == []


async def test_section_6_in_session_order_a_silent_queue_ends_the_search() -> None:
    diverting = Diverting(order=by_session())
    diverting.selector.unresponsive = True
    diverting.links["q1"].seconds = 60.0
    diverting.fail(*[TimedOutError("late")] * 9, queue="q1")
    with pytest.raises(NoBacklogQueueError):
        await diverting.send()
    assert diverting.links["q1"].timeouts == [2.0, 1.0, 1.0]
    assert diverting.selector.unresponsive


async def test_section_6_in_session_order_nothing_is_diverted_once_the_entity_failed_back() -> None:
    diverting = Diverting(5, body=1000, order=by_session())
    diverting.links["q1"].limit = 2_600
    send = diverting.links["q1"].send_in_slot

    async def fails_back_meanwhile(*given: Any) -> bool:
        diverting.failed_back = True
        return await send(*given)

    diverting.links["q1"].send_in_slot = fails_back_meanwhile  # type: ignore[method-assign, assignment]
    await diverting.send()
    assert diverting.links["q1"].ids == ["m0", "m1"]
    assert diverting.left == diverting.taken[2:]
    assert len(diverting.state.unsent) == 3


@pytest.mark.parametrize(("times", "refused"), [(2, 0), (3, 0), (4, 1)])
async def test_section_4_a_message_is_refused_once_two_queues_rejected_it(times: int, refused: int) -> None:
    diverting = Diverting(1)
    rejected = [RejectedError("cannot be digested")] * times
    sends = 0

    async def reject_first(link: FakeLink, batch: EncodedBatch, slot: SendSlot, on_start: Callable[[], None]) -> bool:
        nonlocal sends
        sends += 1
        slot.attempt_timeout()
        on_start()
        if sends <= len(rejected):
            raise rejected[0]
        link.ids += batch.ids
        return True

    for link in diverting.links.values():
        link.send_in_slot = partial(reject_first, link)  # type: ignore[method-assign]
    queue = await diverting.send()
    assert (len(diverting.state.refused), diverting.of(QueuePulled)) == (refused, [])
    assert diverting.clock.sleeps == [0.25, 0.5]
    assert sum(len(link.ids) for link in diverting.links.values()) == 1 - refused
    # The first queue judged in two pauses, and one attempt on another queue confirmed its verdict.
    assert (sends, diverting.links[queue].ids) == (min(times + 1, 4), ["m0"] if times == 2 else [])


async def test_section_4_a_queue_that_takes_no_link_after_rejections_leaves_the_rotation() -> None:
    diverting = Diverting(1)
    first = diverting.selector.select(None)
    assert first is not None
    diverting.sender._queue = first
    diverting.fail(*[RejectedError("cannot be digested")] * 3, queue=first)
    diverting.links[first].reopen_error = ServiceFaultError("gone")
    assert await diverting.send() != first
    assert [event.queue for event in diverting.of(QueuePulled)] == [first]
    assert diverting.state.result().diverted == 1


@pytest.mark.parametrize("attached", [False, True])
async def test_section_4_the_link_to_the_backlog_is_prepared_unless_it_is_open(attached: bool) -> None:
    diverting = Diverting()
    for link in diverting.links.values():
        link.attached = attached
    diverting.sender.prepare()
    await asyncio.gather(*diverting.sender._background)
    assert sum(link.opened for link in diverting.links.values()) == (0 if attached else 1)


@pytest.mark.parametrize(
    ("size", "limit", "warned"), [(250_000, 262_144, False), (262_090, 262_144, True), (262_090, 300_000, False)]
)
async def test_section_4_a_copy_beyond_the_limit_of_its_link_is_reported(size: int, limit: int, warned: bool) -> None:
    diverting = Diverting()
    for link in diverting.links.values():
        link.limit = limit
    batch = EncodedBatch(262_144)
    assert batch.try_add(to_amqp_message(ServiceBusMessage(b"x" * size, message_id="m", session_id="s")))
    diverting.sender.check_sizes(batch)
    await asyncio.gather(*diverting.sender._background)
    assert len(diverting.of(BacklogCopyTooLarge)) == warned
    for event in diverting.events:
        assert (event.message_id, event.limit_bytes, event.at) == ("m", limit, START)
        assert event.size_bytes == batch.refs[0].size_bytes <= limit < event.size_bytes + event.growth_bytes


@pytest.mark.parametrize("size", [26_214, 26_215])
async def test_section_4_a_small_message_is_not_even_measured(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    measured = list[str]()

    def overhead(*_: object, entity: str) -> int:
        measured.append(entity)
        return 0

    monkeypatch.setattr(backlog_sender, "copy_overhead", overhead)
    batch: Any = SimpleNamespace(messages=[object()], ids=["m"], sizes=[size])
    Diverting().sender.check_sizes(batch)
    assert measured == ["flights"] * (size > 26_214)


@pytest.mark.parametrize(("size", "checks"), [(262_144, 0), (262_145, 16)])
async def test_section_4_at_most_16_checks_run_and_only_of_copies_beyond_the_standard_limit(
    monkeypatch: pytest.MonkeyPatch, size: int, checks: int, caplog: pytest.LogCaptureFixture
) -> None:
    overheads: Iterator[InvalidMessageError | int] = iter([InvalidMessageError("no copy"), *[100] * 40])

    def overhead(*_: object, **__: object) -> int:
        if isinstance(found := next(overheads), InvalidMessageError):
            raise found
        return found

    monkeypatch.setattr(backlog_sender, "copy_overhead", overhead)
    batch: Any = SimpleNamespace(messages=[object()] * 20, ids=["m"] * 20, sizes=[size - 100] * 20)
    diverting = Diverting()
    diverting.sender.check_sizes(batch)
    assert len(diverting.sender._background) == checks
    # Other work in the background may exceed the limit; then there are no more checks either.
    diverting.health.failed()
    diverting.clock.time += 60
    diverting.sender.try_again()
    diverting.sender.check_sizes(batch)
    assert len(diverting.sender._background) == checks + 1
    assert "flights: in an outage its send would fail: no copy" in caplog.text
    await asyncio.gather(*diverting.sender._background)
    assert len(diverting.of(BacklogCopyTooLarge)) == checks


async def test_section_4_a_copy_of_exactly_the_limit_fits_and_the_larger_limit_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog_sender, "copy_overhead", lambda *_, **__: 100)
    for limit, largest, warned in ((300_000, 0, 0), (299_999, 0, 1), (299_999, 300_000, 0), (0, 299_999, 1)):
        diverting = Diverting(queues=1)
        diverting.links["q0"].limit, diverting.links["q0"].max_message_bytes = limit, largest
        batch: Any = SimpleNamespace(messages=[object()], ids=["m"], sizes=[299_900])
        diverting.sender.check_sizes(batch)
        await asyncio.gather(*diverting.sender._background)
        assert len(diverting.of(BacklogCopyTooLarge)) == warned


@pytest.mark.parametrize(("queues", "reachable"), [(0, True), (3, False), (3, True)])
async def test_section_10_a_backlog_that_failed_is_tried_after_its_pause_and_used_once_a_queue_takes_a_link(
    monkeypatch: pytest.MonkeyPatch, queues: int, reachable: bool
) -> None:
    diverting = Diverting(queues=queues)
    health = diverting.health
    if not reachable:

        async def refuse(**_: object) -> int:
            raise UnreachableError("no")

        for link in diverting.links.values():
            monkeypatch.setattr(link, "open", refuse)
    health.failed()
    for seconds in (0, 59.9):
        diverting.clock.time = START + seconds
        diverting.sender.try_again()
        assert diverting.sender._background == set()
    diverting.clock.time = START + 60
    diverting.sender.try_again()
    diverting.sender.try_again()
    assert len(diverting.sender._background) == 1
    await asyncio.gather(*diverting.sender._background)
    assert health.is_down is not (queues > 0 and reachable)
    # Without a queue, nothing is prepared or checked either.
    diverting.sender.prepare()
    monkeypatch.setattr(backlog_sender, "copy_overhead", lambda *_, **__: 100)
    batch: Any = SimpleNamespace(messages=[object()], ids=["m"], sizes=[300_000])
    diverting.sender.check_sizes(batch)
    await asyncio.gather(*diverting.sender._background)
    assert len(diverting.of(BacklogCopyTooLarge)) == (queues > 0 and reachable)


async def test_section_10_a_divert_says_whether_the_backlog_works() -> None:
    diverting = Diverting()
    diverting.fail(*[ServiceFaultError("broken")] * 9)
    with pytest.raises(NoBacklogQueueError):
        await diverting.send()
    assert diverting.health.is_down
    diverting.fail()
    diverting.start(1)
    await diverting.send()
    assert not diverting.health.is_down


async def test_section_6_in_session_order_an_attempt_on_the_backlog_needs_a_lease() -> None:
    diverting = Diverting(order=by_session())
    leases = [0.0, 0.0, -1.0, -1.0, 0.5]
    diverting.registry.lease_seconds_left = lambda _: leases.pop(0)
    await diverting.send()
    assert (diverting.links["q1"].timeouts, leases) == ([None, None, 10.0], [])
    assert diverting.links["q1"].ids == ["m0", "m1"]
    assert diverting.of(QueuePulled) == []


@pytest.mark.parametrize("spool", ["s", None])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("why", ["too large", "too large, as only the service knows", "no encoding", "no session id"])
async def test_section_10_a_spooled_message_that_the_backlog_cannot_take_waits_unless_it_holds_up_its_session(
    why: str, ordered: bool, spool: str | None
) -> None:
    diverting = Diverting(3, order=by_session() if ordered else None, unspooled_from=spool)
    message = diverting.taken[1].message
    match why:
        case "no encoding":
            message.body, message.body_type = 2**70, BodyType.VALUE
        case "no session id":
            message.properties = Properties(message_id="m1", group_id=b"\xff")
        case _:
            message.body = [b"x" * 3_000]
    for link in diverting.links.values():
        link.limit = 2_600
        if "only the service" in why:
            link.max_message_bytes = 1 << 20
            outcomes: list[Any] = [None, MessageTooLargeError("the service says so")]
            link.outcomes = outcomes
    if (ordered and spool) or (why == "no session id" and not spool):
        queue = await diverting.send()
        ids = diverting.links["q1" if ordered else queue].ids
        assert sorted(ids) == ["m0", "m2"]
        assert [each.message for each in diverting.state.refused] == [message]
        return
    with pytest.raises((MessageTooLargeError, InvalidMessageError)):
        await diverting.send()
    assert diverting.state.refused == ()


@pytest.mark.parametrize("count", [2, 3, 5, 8])
async def test_section_4_a_rejected_batch_is_halved_until_the_offender_stands_alone(count: int) -> None:
    diverting = Diverting(count)

    async def reject_second(link: FakeLink, batch: EncodedBatch, slot: SendSlot, on_start: Callable[[], None]) -> bool:
        slot.attempt_timeout()
        on_start()
        if "m1" in batch.ids:
            raise RejectedError("cannot be digested")
        link.ids += batch.ids
        return True

    for link in diverting.links.values():
        link.send_in_slot = partial(reject_second, link)  # type: ignore[method-assign]
    queue = await diverting.send()
    assert diverting.links[queue].ids == [f"m{number}" for number in range(count) if number != 1]
    assert [each.message for each in diverting.state.refused] == [diverting.taken[1].message]
