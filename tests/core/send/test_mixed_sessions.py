"""Batches to entities that refuse several sessions in one batch (SPEC section 4)."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.model.errors import RefusedError, SendError
from servicebus_pair.core.model.events import MessagesAccepted
from servicebus_pair.core.protocol.batching import is_mixed
from servicebus_pair.core.sdk._private.batch_encoding import EncodedBatch
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot
from tests.core.support.local_pair import LocalPair, numbered


def seated(count: int, sessions: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x", message_id=f"m{n}", session_id=f"s{n % sessions}") for n in range(count)]


@pytest.fixture
def no_mixed_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a partitioned entity, which the embedded Service Bus does not support."""
    send = SendLink.send_in_slot

    async def refuse_mixtures(self: SendLink, batch: EncodedBatch, slot: SendSlot) -> bool:
        if self.path == "flights" and is_mixed(batch.messages):
            raise RefusedError("Batching brokered messages with distinct SessionId or PartitionKey is not supported")
        return await send(self, batch, slot)

    monkeypatch.setattr(SendLink, "send_in_slot", refuse_mixtures)


@pytest.mark.usefixtures("no_mixed_sessions")
async def test_section_4_an_entity_that_refuses_mixed_sessions_gets_single_sessions(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        first = await sender.send(seated(9, 3))
        second = await sender.send(seated(9, 3))
    assert sorted(first.primary_ids) == sorted(second.primary_ids) == sorted(f"m{n}" for n in range(9))
    accepted = local_pair.recorder.of(MessagesAccepted)
    assert [[ref.message_id for ref in event.messages] for event in accepted[:3]] == [
        ["m0", "m3", "m6"],
        ["m1", "m4", "m7"],
        ["m2", "m5", "m8"],
    ]
    assert [len(event.messages) for event in accepted] == [3] * 6
    assert local_pair.recorder.states == []


@pytest.mark.usefixtures("no_mixed_sessions")
async def test_section_4_the_backlog_accepts_batches_of_mixed_sessions(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await local_pair.pair.fail_over("flights", reason="test")
        assert (await sender.send(seated(9, 3))).diverted == 9


async def test_section_4_an_entity_that_accepts_mixed_sessions_gets_full_batches(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(seated(9, 3))
    assert [len(event.messages) for event in local_pair.recorder.of(MessagesAccepted)] == [9]


async def test_section_4_a_refusal_of_a_single_session_is_raised(
    local_pair: LocalPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: SendLink, batch: EncodedBatch, slot: SendSlot) -> bool:
        raise RefusedError(f"{self.path} takes none of {len(batch)} within {slot.wait_seconds}")

    monkeypatch.setattr(SendLink, "send_in_slot", refuse)
    async with local_pair.pair.sender("flights") as sender:
        for messages in (numbered(2), seated(4, 2)):
            with pytest.raises(SendError) as caught:
                await sender.send(messages)
            assert isinstance(caught.value.cause, RefusedError)
            assert len(caught.value.unsent) == len(messages)


@pytest.mark.usefixtures("no_mixed_sessions")
async def test_section_6_a_drain_splits_batches_that_the_destination_refuses(local_pair: LocalPair) -> None:
    await local_pair.pair.fail_over("flights", reason="test")
    async with local_pair.pair.sender("flights") as sender:
        assert (await sender.send(seated(9, 3))).diverted == 9
    report = await local_pair.pair.syphon().drain()
    assert (report.moved, report.dead_lettered, report.failures) == ({"flights": 9}, {}, {})
    assert report.duplicates_possible == 0
    assert sorted(each or "" for each in await local_pair.primary_ids()) == [f"m{n}" for n in range(9)]
