"""Batches are packed as the service demands: by partition key, and by session where it must be (SPEC section 4)."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_pair.core.errors import RefusedError, SendError
from servicebus_pair.core.events import MessagesAccepted
from servicebus_pair.core.send_link import SendLink, Turn
from servicebus_pair.core.splitting import by_session, is_mixed, session_key
from servicebus_pair.core.wire import WireBatch
from tests.core.breakable import Breakable, numbered


def seated(count: int, sessions: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x", message_id=f"m{n}", session_id=f"s{n % sessions}") for n in range(count)]


@settings(max_examples=100)
@given(sessions=st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=30))
def test_a_refused_batch_is_parted_without_loss_and_in_order_of_each_session(sessions: list[str | None]) -> None:
    messages = [ServiceBusMessage("x", session_id=each).raw_amqp_message for each in sessions]
    parts = list(by_session(messages, range(len(messages))))
    assert sorted(number for numbers, _ in parts for number in numbers) == list(range(len(messages)))
    for numbers, part in parts:
        assert numbers == sorted(numbers)
        assert [messages[number] for number in numbers] == part
        assert not is_mixed(part)
    assert len(parts) == len({session_key(message) for message in messages})


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partitioned entity: the embedded Service Bus has none, so its refusal is planted."""
    send = SendLink.send_in_turn

    async def refuse_mixtures(self: SendLink, batch: WireBatch, turn: Turn) -> bool:
        if self.path == "flights" and is_mixed(batch.messages):
            raise RefusedError("Batching brokered messages with distinct SessionId or PartitionKey is not supported")
        return await send(self, batch, turn)

    monkeypatch.setattr(SendLink, "send_in_turn", refuse_mixtures)


@pytest.mark.usefixtures("strict")
async def test_section_4_an_entity_that_takes_no_mixture_gets_one_session_a_batch(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        first = await sender.send(seated(9, 3))
        second = await sender.send(seated(9, 3))
    assert sorted(first.primary_ids) == sorted(second.primary_ids) == sorted(f"m{n}" for n in range(9))
    accepted = breakable.recorder.of(MessagesAccepted)
    assert [[ref.message_id for ref in event.messages] for event in accepted[:3]] == [
        ["m0", "m3", "m6"],
        ["m1", "m4", "m7"],
        ["m2", "m5", "m8"],
    ]
    assert [len(event.messages) for event in accepted] == [3] * 6
    assert breakable.recorder.states == []


@pytest.mark.usefixtures("strict")
async def test_section_4_the_backlog_takes_what_the_entity_refused_mixed(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        breakable.pair.fail_over("flights", reason="test")
        assert (await sender.send(seated(9, 3))).diverted == 9


async def test_section_4_an_entity_that_takes_mixtures_gets_full_batches(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(seated(9, 3))
    assert [len(event.messages) for event in breakable.recorder.of(MessagesAccepted)] == [9]


async def test_section_4_a_refusal_that_is_not_due_to_mixture_is_raised(
    breakable: Breakable, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: SendLink, batch: WireBatch, turn: Turn) -> bool:
        raise RefusedError(f"{self.path} takes none of {len(batch)} within {turn.patience}")

    monkeypatch.setattr(SendLink, "send_in_turn", refuse)
    async with breakable.pair.sender("flights") as sender:
        for messages in (numbered(2), seated(4, 2)):
            with pytest.raises(SendError) as caught:
                await sender.send(messages)
            assert isinstance(caught.value.cause, RefusedError)
            assert len(caught.value.unsent) == len(messages)


@pytest.mark.usefixtures("strict")
async def test_section_6_a_destination_that_takes_no_mixture_is_no_outage_to_the_syphon(breakable: Breakable) -> None:
    breakable.pair.fail_over("flights", reason="test")
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send(seated(9, 3))).diverted == 9
    report = await breakable.pair.syphon().drain()
    assert (report.moved, report.dead_lettered, report.failures) == ({"flights": 9}, {}, {})
    assert report.duplicates_possible == 0
    assert sorted(each or "" for each in await breakable.ids_on_the_primary()) == [f"m{n}" for n in range(9)]
