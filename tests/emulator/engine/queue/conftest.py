from __future__ import annotations

from datetime import timedelta

import pytest

from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_emulator.engine.queue.queue import MessageQueue
from tests.emulator.support.engine import EngineHarness, content


@pytest.fixture
def entity(harness: EngineHarness) -> QueueEntity:
    minute = TimeSpan.of(timedelta(minutes=1))
    return harness.queue(QueueDescription("flights", lock_duration=minute, max_delivery_count=3))


@pytest.fixture
def queue(entity: QueueEntity) -> MessageQueue:
    entity.send([content("a"), content("b"), content("c")])
    return entity.main
