"""The route of messages through primary, backlog and drain (SPEC sections 3, 4, 5, 6 and 9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import Ledger
from servicebus_pair.core.model.errors import InvalidMessageError, SendError
from servicebus_pair.core.protocol.backlog_queues import backlog_queue
from servicebus_pair.core.sdk.send_link import SendLink
from tests.core.support.fast_clock import FastClock
from tests.core.support.local_pair import QUICK_OPTIONS, LocalPair, numbered, open_local_pair, open_quick_pair
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated


async def test_section_4_while_healthy_messages_go_to_the_primary_in_order(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        result = await sender.send(numbered(2500))
    held = await peek_all(local_pair.primary.connection_string, "flights")
    assert (result.primary, result.diverted) == (2500, 0)
    assert [message.message_id for message in held] == [f"m{n}" for n in range(2500)]


async def test_section_4_a_message_that_cannot_be_encoded_raises_and_is_unsent(
    local_pair: LocalPair,
) -> None:
    bad = ServiceBusMessage("bad", message_id="bad", application_properties={"count": 2**40})
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="'bad' cannot be encoded") as caught:
            await sender.send([*numbered(2), bad, *numbered(2, start=2)])
    unsent = [message.properties.message_id for message in caught.value.unsent]
    assert isinstance(caught.value.cause, InvalidMessageError)
    assert sorted(unsent) == ["bad", "m0", "m1", "m2", "m3"]


async def test_section_6_a_transiently_refused_batch_is_not_dead_lettered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise InvalidMessageError("the handler was shut down under the send")

    async with (
        open_local_pair("flights", options=QUICK_OPTIONS, clock=FastClock()) as local_pair,
        local_pair.pair.sender("flights") as sender,
    ):
        await local_pair.pair.fail_over("flights", reason="test")
        await sender.send(numbered(5))
        with monkeypatch.context() as fault:
            fault.setattr(SendLink, "send", refuse)
            drained = await local_pair.pair.syphon().drain()
        assert (drained.moved, drained.dead_lettered, drained.empty) == ({}, {}, False)
        assert (await local_pair.pair.syphon().drain()).moved == {"flights": 5}


async def test_section_6_peek_starts_at_the_first_message_after_a_receive(local_pair: LocalPair) -> None:
    queue = backlog_queue("contoso", 0)
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(3))
        link = local_pair.pair._open().primary.receive_link("flights")
        assert len(await link.receive(max_messages=3, max_wait_time=2, timeout=5)) == 3
        assert [message.message_id for message in await link.peek(max_messages=10, timeout=5)] == ["m0", "m1", "m2"]
        assert await local_pair.pair._open().secondary.receive_link(queue).peek(max_messages=10, timeout=5) == []


async def test_section_9_the_ledger_records_the_route_of_every_message(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", run="r1") as ledger:
        async with open_quick_pair(observers=(ledger,)) as local_pair, local_pair.pair.sender("flights") as sender:
            await sender.send(numbered(1))
            await local_pair.pair.fail_over("flights", reason="test")
            await sender.send(numbered(1, start=1))
            await local_pair.pair.mark_healthy("flights")
            await local_pair.pair.syphon().drain()
    text = ledger.path.read_text()
    assert [line.split('"id":')[1][:5] for line in text.splitlines()] == ['"m0",', '"m1",', '"m1",']
    assert text.count('"route":"backlog"') == 1
    assert text.count('"kind":"syphoned"') == 1
