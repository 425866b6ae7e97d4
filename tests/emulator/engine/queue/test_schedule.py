"""Scheduled messages."""

from __future__ import annotations

import pytest

from servicebus_emulator.engine.model.errors import (
    MessageNotFound,
)
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_emulator.engine.queue.queue import MessageQueue
from tests.emulator.support.engine import EngineHarness, content, texts


def test_a_scheduled_message_becomes_active_under_a_new_sequence_number(
    harness: EngineHarness, entity: QueueEntity, queue: MessageQueue
):
    numbers = entity.schedule([content("later", scheduled_for=harness.clock.now() + 5000)])
    assert numbers == [4]
    harness.advance(4.9)
    assert (entity.counts().active, entity.counts().scheduled) == (3, 1)
    harness.advance(0.1)
    assert (entity.counts().active, entity.counts().scheduled) == (4, 0)
    message = queue.receive(4)[-1]
    assert (message.sequence_number, message.enqueued_at) == (5, harness.clock.now())


def test_a_message_with_a_scheduled_enqueue_time_is_scheduled_on_send(harness: EngineHarness, entity: QueueEntity):
    entity.send([content("later", scheduled_for=harness.clock.now() + 5000), content("now")])
    assert texts(entity.main.receive(2)) == ["now"]
    harness.advance(5)
    assert texts(entity.main.receive(2)) == ["later"]


def test_a_scheduled_enqueue_time_in_the_past_is_ignored(harness: EngineHarness, entity: QueueEntity):
    entity.send([content("late", scheduled_for=harness.clock.now() - 1)])
    assert texts(entity.main.receive(1)) == ["late"]


def test_cancel_is_all_or_none(harness: EngineHarness, entity: QueueEntity):
    due = harness.clock.now() + 5000
    numbers = entity.schedule([content("x", scheduled_for=due), content("y", scheduled_for=due)])
    with pytest.raises(MessageNotFound):
        entity.cancel([*numbers, 99])
    entity.cancel([numbers[0], numbers[0]])
    harness.advance(5)
    assert texts(entity.main.receive(2)) == ["y"]
    with pytest.raises(MessageNotFound):
        entity.cancel([numbers[1]])


def test_the_time_to_live_of_a_scheduled_message_starts_on_activation(harness: EngineHarness, entity: QueueEntity):
    entity.send([content("x", time_to_live=1000, scheduled_for=harness.clock.now() + 5000)])
    harness.advance(5)
    assert entity.counts().active == 1
    harness.advance(1)
    assert entity.counts().active == 0
