"""Quotas, status checks and pings."""

from __future__ import annotations

import pytest

from servicebus_emulator.engine.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import (
    EntityDisabled,
    OperationNotAllowed,
    QuotaExceeded,
)
from tests.emulator.support.engine import EngineHarness, content, dead_letters, texts, token_of


@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_an_entity_that_is_disabled_for_sending_refuses_messages(harness: EngineHarness, status: EntityStatus):
    entity = harness.queue(QueueDescription("q", status=status))
    with pytest.raises(EntityDisabled, match="set it to Active"):
        entity.send([content("x")])


def test_a_batch_that_exceeds_the_entity_size_is_refused_as_a_whole(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q", max_size_in_megabytes=1))
    with pytest.raises(QuotaExceeded, match="allowed: 1048576"):
        entity.send([content("x"), content("y" * 1024 * 1024)])
    assert entity.counts().total == 0


def test_scheduled_and_dead_lettered_messages_count_against_the_entity_size(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q", max_size_in_megabytes=1))
    third = "x" * (1024 * 1024 // 3)
    entity.schedule([content(third, scheduled_for=harness.clock.now() + 60_000)])
    entity.send([content(third), content(third)])
    entity.main.dead_letter(token_of(entity.main.receive(1)[0]), reason=None, description=None)
    with pytest.raises(QuotaExceeded):
        entity.send([content(third)])
    dead_letters(entity).complete(token_of(dead_letters(entity).receive(1)[0]))
    entity.send([content(third)])
    with pytest.raises(QuotaExceeded):
        entity.send([content(third)])
    entity.main.receive(1, delete=True)
    entity.send([content(third)])


def test_the_size_of_a_topic_includes_its_subscriptions(harness: EngineHarness):
    topic = harness.topic(TopicDescription("t", max_size_in_megabytes=1))
    subscription = harness.subscription(SubscriptionDescription("t", "s"))
    topic.send([content("x" * 1024 * 1024)])
    with pytest.raises(QuotaExceeded, match="'t' holds 1048576 bytes"):
        topic.send([content("y")])
    subscription.main.complete(token_of(subscription.main.receive(1)[0]))
    topic.send([content("y")])


def test_a_message_without_session_id_is_refused_if_the_queue_requires_sessions(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q", requires_session=True))
    with pytest.raises(OperationNotAllowed, match="message 1 of 2 has no session id"):
        entity.send([content("x", session_id="s"), content("y")])
    assert entity.counts().total == 0


@pytest.mark.parametrize("deliver_pings", [True, False])
def test_pings_are_delivered_only_if_configured(*, deliver_pings: bool):
    harness = EngineHarness(deliver_pings=deliver_pings)
    entity = harness.queue(QueueDescription("q"))
    topic = harness.topic(TopicDescription("t"))
    subscription = harness.subscription(SubscriptionDescription("t", "s"))
    sent = [content("a"), content("p", ping=True), content("b")]

    entity.send(sent)
    topic.send(sent)
    numbers = entity.schedule(sent)

    delivered = ["a", "p", "b"] if deliver_pings else ["a", "b"]
    assert texts(subscription.main.receive(10)) == delivered
    assert [number > 0 for number in numbers] == [True, deliver_pings, True]
    harness.advance(0)
    assert texts(entity.main.receive(10)) == delivered * 2


def test_delivered_pings_can_be_duplicates():
    entity = EngineHarness(deliver_pings=True).queue(QueueDescription("q", requires_duplicate_detection=True))
    entity.send([content("p", ping=True)] * 2)
    assert texts(entity.main.receive(5)) == ["p"]
