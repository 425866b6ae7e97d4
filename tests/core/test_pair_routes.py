"""Which way messages go, what comes out at its end, and what is told of it (SPEC sections 3, 4, 5, 6 and 9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import EntityHealth, Ledger, State
from servicebus_pair.core.backlog import backlog_queue
from servicebus_pair.core.errors import EntityNotFoundError, InvalidMessageError, SendError, TimedOutError
from servicebus_pair.core.link import Link
from servicebus_pair.core.mover import Mover
from servicebus_pair.core.ports import InMemoryHealthStore
from servicebus_pair.core.send_link import SendLink
from tests.core.breakable import QUICK, Breakable, breakable_pair, numbered
from tests.core.hasty import HastyClock
from tests.core.hosted import hosted
from tests.core.peeking import peek_all

pytestmark = pytest.mark.simulated


async def test_section_3_provisioning_creates_what_is_missing_and_finds_it_the_second_time(
    breakable: Breakable,
) -> None:
    paths = tuple(backlog_queue("contoso", index) for index in range(3))
    breakable.secondary.namespace.delete_queue(paths[1])
    first = await breakable.pair.provision()
    again = await breakable.pair.provision()
    assert (first.found, first.created) == ((paths[0], paths[2]), (paths[1],))
    assert (again.found, again.created, again.drifted, again.extra) == (paths, (), (), ())


async def test_section_4_while_healthy_messages_go_to_the_primary_in_order(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        result = await sender.send(numbered(2500))
    held = await peek_all(breakable.primary.connection_string, "flights")
    assert (result.primary, result.diverted) == (2500, 0)
    assert [message.message_id for message in held] == [f"m{n}" for n in range(2500)]


async def test_section_4_a_message_survives_divert_and_syphon_unchanged(breakable: Breakable) -> None:
    scheduled = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    message = ServiceBusMessage(
        b"\x00\xffbinary",
        message_id="flight-1",
        session_id="N14228",
        correlation_id="c",
        subject="UA",
        content_type="application/octet-stream",
        reply_to="answers",
        to="somewhere",
        time_to_live=timedelta(days=7, seconds=1),
        scheduled_enqueue_time_utc=scheduled,
        application_properties={
            "origin": "EWR",
            "distance": 5_000_000_000,
            "delay": 2.5,
            "cancelled": False,
            "when": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
            "nothing": None,
        },
    )
    async with breakable.pair.sender("flights") as sender:
        direct = ServiceBusMessage("direct", application_properties={"distance": {"TYPE": "LONG", "VALUE": 1}})
        await sender.send(direct)
        message.application_properties["distance"] = {"TYPE": "LONG", "VALUE": 5_000_000_000}  # type: ignore[index]
        await sender.send(message)
        breakable.pair.fail_over("flights", reason="test", by="the test")
        assert (await sender.send(message)).diverted == 1
        breakable.pair.mark_healthy("flights")
        assert (await breakable.pair.syphon().drain()).moved == {"flights": 1}
    _, one, two = await peek_all(breakable.primary.connection_string, "flights")
    for attribute in (
        "message_id",
        "session_id",
        "correlation_id",
        "subject",
        "content_type",
        "reply_to",
        "to",
        "time_to_live",
        "scheduled_enqueue_time_utc",
        "application_properties",
    ):
        assert getattr(two, attribute) == getattr(one, attribute), attribute
    assert b"".join(two.body) == b"".join(one.body)
    assert two.scheduled_enqueue_time_utc == scheduled
    assert two.time_to_live == timedelta(days=7, seconds=1)


async def test_section_4_a_missing_entity_is_raised_at_once_with_the_unsent_messages(
    breakable: Breakable,
) -> None:
    async with breakable.pair.sender("no-such-queue") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(3))
        assert isinstance(caught.value.cause, EntityNotFoundError)
        assert len(caught.value.unsent) == 3
        assert not breakable.pair.health("no-such-queue").failed_over


async def test_section_4_a_message_that_cannot_be_encoded_is_raised_and_named_as_unsent(
    breakable: Breakable,
) -> None:
    bad = ServiceBusMessage("bad", message_id="bad", application_properties={"count": 2**40})
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="'bad' cannot be encoded") as caught:
            await sender.send([*numbered(2), bad, *numbered(2, start=2)])
    unsent = [message.properties.message_id for message in caught.value.unsent]
    assert isinstance(caught.value.cause, InvalidMessageError)
    assert sorted(unsent) == ["bad", "m0", "m1", "m2", "m3"]


async def test_section_5_a_stale_failed_over_from_the_store_is_pinged_before_it_is_believed() -> None:
    store = InMemoryHealthStore({"flights": EntityHealth(State.FAILED_OVER, since=1.0, reason="yesterday", by="send")})
    async with breakable_pair(store=store) as breakable, breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).primary == 1
    assert store.known["flights"].state is State.HEALTHY


async def test_section_6_what_can_never_be_delivered_is_dead_lettered_with_a_reason(
    breakable: Breakable,
) -> None:
    queue = backlog_queue("contoso", 0)
    link = breakable.pair._open().secondary.send_link(queue)
    await link.send_one(ServiceBusMessage("no path", message_id="lost sheep"), timeout=5)
    to_nowhere = ServiceBusMessage("x", message_id="x", application_properties={"x-ms-path": "nowhere"})
    await link.send_one(to_nowhere, timeout=5)
    drained = await breakable.pair.syphon().drain()
    dead = await peek_all(breakable.secondary.connection_string, queue, dead_letter=True)
    assert drained.dead_lettered == {"NoPath": 1, "EntityNotFound": 1}
    assert {message.message_id: message.dead_letter_reason for message in dead} == {
        "lost sheep": "NoPath",
        "x": "EntityNotFound",
    }


async def test_section_6_a_refused_batch_that_may_pass_is_never_dead_lettered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise InvalidMessageError("the handler was shut down under the send")

    async with hosted("flights", options=QUICK, clock=HastyClock()) as both, both.pair.sender("flights") as sender:
        both.pair.fail_over("flights", reason="test")
        await sender.send(numbered(5))
        with monkeypatch.context() as fault:
            fault.setattr(SendLink, "send", refuse)
            drained = await both.pair.syphon().drain()
        assert (drained.moved, drained.dead_lettered, drained.empty) == ({}, {}, False)
        assert (await both.pair.syphon().drain()).moved == {"flights": 5}


async def test_section_6_a_completion_that_gets_no_answer_is_counted_as_a_possible_duplicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Link._call

    async def silent(self: Link, doing: str, operation: Any, *, timeout: float) -> Any:
        if doing == "settle on":
            raise TimedOutError("no answer")
        return await call(self, doing, operation, timeout=timeout)

    async with hosted("flights", options=QUICK, clock=HastyClock()) as both, both.pair.sender("flights") as sender:
        both.pair.fail_over("flights", reason="test")
        [queue] = (await sender.send(numbered(5))).backlog_queues
        mover = Mover(both.pair.syphon()._shop, queue)
        monkeypatch.setattr(Link, "_call", silent)
        assert await mover.step(wait=2) == 5
        assert mover.tally.duplicates_possible == 5
        monkeypatch.undo()
        await mover.detach()


async def test_section_6_a_peek_begins_at_the_beginning_after_a_receive_too(breakable: Breakable) -> None:
    queue = backlog_queue("contoso", 0)
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(3))
        link = breakable.pair._open().primary.receive_link("flights")
        assert len(await link.receive(most=3, wait=2, timeout=5)) == 3
        assert [message.message_id for message in await link.peek(most=10, timeout=5)] == ["m0", "m1", "m2"]
        assert await breakable.pair._open().secondary.receive_link(queue).peek(most=10, timeout=5) == []


async def test_section_9_the_ledger_tells_the_route_of_every_message(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", run="r1") as ledger:
        async with breakable_pair(observers=(ledger,)) as breakable, breakable.pair.sender("flights") as sender:
            await sender.send(numbered(1))
            breakable.pair.fail_over("flights", reason="test")
            await sender.send(numbered(1, start=1))
            breakable.pair.mark_healthy("flights")
            await breakable.pair.syphon().drain()
    text = ledger.path.read_text()
    assert [line.split('"id":')[1][:5] for line in text.splitlines()] == ['"m0",', '"m1",', '"m1",']
    assert text.count('"route":"backlog"') == 1
    assert text.count('"kind":"syphoned"') == 1
