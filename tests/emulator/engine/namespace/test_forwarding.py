"""Autoforwarding."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from servicebus_emulator.engine.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import InvalidArgument
from servicebus_emulator.engine.model.message import Message
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.forwarding import creation_order
from tests.emulator.support.engine import (
    EngineHarness,
    PersistentNamespace,
    content,
    queue_of,
    reason_of,
    texts,
    token_of,
)


def chain(harness: EngineHarness, *paths: str) -> list[QueueEntity]:
    """Create queues, each of which forwards to the one before it."""
    entities = [harness.queue(QueueDescription(paths[0]))]
    return entities + [harness.queue(QueueDescription(path, forward_to=to)) for to, path in pairwise(paths)]


def transfer_dead_letter(entity: QueueEntity) -> Message:
    (message,) = entity.sub_queue(SubQueue.TRANSFER_DEAD_LETTER).peek(0, limit=10)
    assert entity.counts().transfer_dead_lettered == 1
    assert entity.counts().total == 1
    return message


def test_a_scheduled_message_is_forwarded_when_due(harness: EngineHarness):
    last, first = chain(harness, "last", "first")
    first.schedule([content("a", scheduled_for=harness.clock.now() + 5000)])
    assert (first.counts().scheduled, last.counts().total) == (1, 0)
    harness.advance(5)
    assert (first.counts().total, last.counts().active) == (0, 1)


def test_a_message_is_forwarded_at_most_four_times(harness: EngineHarness):
    zero, one, *_, four, five = chain(harness, "0", "1", "2", "3", "4", "5")
    four.send([content("near")])
    assert texts(zero.main.receive(1)) == ["near"]
    five.send([content("far")])
    assert texts([transfer_dead_letter(one)]) == ["far"]
    assert reason_of(transfer_dead_letter(one)) == "MaxTransferHopCountExceeded"


def test_subscriptions_that_forward_to_their_topic_make_a_limited_number_of_copies(harness: EngineHarness):
    topic = harness.topic(TopicDescription("t"))
    for number in range(9):
        harness.subscription(SubscriptionDescription("t", f"s{number}", forward_to="t"))
    for sent in (1, 2):
        topic.send([content("x")])
        # Not 9**5. The next message has as many.
        dead = sum(each.counts().transfer_dead_lettered for each in topic.subscriptions.values())
        assert 8_000 * sent < dead < 11_000 * sent
    last = topic.subscriptions["s8"].sub_queue(SubQueue.TRANSFER_DEAD_LETTER).peek(0, limit=10_000)[-1]
    assert reason_of(last) == "QuotaExceededException"


def test_dead_letters_can_be_forwarded_to_their_own_queue(harness: EngineHarness):
    queue = harness.queue(QueueDescription("a"))
    harness.namespace.update(replace(queue.description, forward_dead_lettered_messages_to="a"))
    queue.send([content("x")])
    for _ in range(5):
        (message,) = queue.main.receive(1)
        queue.main.dead_letter(token_of(message), reason="no", description=None)
    assert reason_of(transfer_dead_letter(queue)) == "MaxTransferHopCountExceeded"


def test_a_queue_with_sessions_does_not_forward(harness: EngineHarness):
    last = harness.queue(QueueDescription("last"))
    first = harness.queue(QueueDescription("first", requires_session=True, forward_to="last"))
    first.send([content("x", session_id="s")])
    assert (first.counts().active, last.counts().total) == (1, 0)


def test_forwarding_through_topics_and_subscriptions(harness: EngineHarness):
    inbox = harness.queue(QueueDescription("inbox"))
    topic = harness.topic(TopicDescription("topic"))
    subscription = harness.subscription(SubscriptionDescription("topic", "s", forward_to="sb://contoso/Inbox"))
    harness.queue(QueueDescription("first", forward_to="topic")).send([content("a")])
    topic.send([content("b")])
    assert subscription.counts().total == 0
    assert [(*texts([message]), message.hops) for message in inbox.main.receive(10)] == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": EntityStatus.SEND_DISABLED}, "MessagingEntityDisabledException"),
        ({"max_size_in_megabytes": 1}, "QuotaExceededException"),
    ],
)
def test_a_refused_message_goes_to_the_transfer_dead_letter_queue(
    harness: EngineHarness, change: dict[str, Any], reason: str
):
    last, first = chain(harness, "last", "first")
    last.send([content("x" * 1024 * 1024)])
    harness.namespace.update(replace(last.description, **change))
    first.send([content("a")])
    assert reason_of(transfer_dead_letter(first)) == reason
    assert "'last'" in str(transfer_dead_letter(first).dead_letter)


def test_a_message_whose_target_was_deleted_goes_to_the_transfer_dead_letter_queue(harness: EngineHarness):
    _, first = chain(harness, "last", "first")
    harness.namespace.delete_queue("last")
    first.send([content("a")])
    assert reason_of(transfer_dead_letter(first)) == "MessagingEntityNotFoundException"
    harness.namespace.update(replace(first.description, user_metadata="may still be described"))


def test_a_message_without_session_id_is_not_forwarded_to_a_queue_with_sessions(harness: EngineHarness):
    harness.queue(QueueDescription("sessions", requires_session=True))
    first = harness.queue(QueueDescription("first", forward_to="sessions"))
    first.send([content("a")])
    assert reason_of(transfer_dead_letter(first)) == "InvalidOperationException"


def test_a_forwarded_dead_letter_carries_its_reason_and_source(harness: EngineHarness):
    archive = harness.queue(QueueDescription("archive", default_message_time_to_live=TimeSpan.of(timedelta(days=1))))
    entity = harness.queue(
        QueueDescription(
            "flights", forward_dead_lettered_messages_to="archive", dead_lettering_on_message_expiration=True
        )
    )
    entity.send([content("a"), content("b", time_to_live=1000)])
    entity.main.dead_letter(token_of(entity.main.receive(1)[0]), reason="why", description=None)
    harness.advance(1)
    assert entity.counts().total == 0
    found = [
        (*texts([message]), reason_of(message), message.dead_letter_source) for message in archive.main.receive(10)
    ]
    assert found == [("a", "why", "flights"), ("b", "TTLExpiredException", "flights")]


def test_a_forwarded_message_keeps_its_remaining_time_to_live(harness: EngineHarness):
    last = harness.queue(QueueDescription("last"))
    first = harness.queue(QueueDescription("first", default_message_time_to_live=TimeSpan.of(timedelta(seconds=10))))
    first.send([content("a")])
    harness.advance(6)
    harness.namespace.update(replace(first.description, forward_to="last"))
    assert last.counts().active == 1
    harness.advance(4)
    assert last.counts().active == 0


def test_enabling_forwarding_forwards_ready_messages_now_and_locked_ones_when_returned(harness: EngineHarness):
    last, first = harness.queue(QueueDescription("last")), harness.queue(QueueDescription("first"))
    first.send([content("locked"), content("ready")])
    (locked,) = first.main.receive(1)
    harness.namespace.update(replace(first.description, forward_to="last"))
    assert texts(last.main.peek(0, limit=9)) == ["ready"]
    first.main.abandon(token_of(locked))
    assert texts(last.main.peek(0, limit=9)) == ["ready", "locked"]
    harness.namespace.update(replace(first.description, forward_to=None))
    first.send([content("stays")])
    assert texts(first.main.receive(9)) == ["stays"]


def test_the_target_drops_duplicates(harness: EngineHarness):
    last = harness.queue(QueueDescription("last", requires_duplicate_detection=True))
    first = harness.queue(QueueDescription("first", forward_to="last"))
    first.send([content("a"), content("a")])
    assert (first.counts().total, last.counts().active) == (0, 1)


@pytest.mark.parametrize("field", ["forward_to", "forward_dead_lettered_messages_to"])
def test_a_new_forwarding_target_must_exist(harness: EngineHarness, field: str):
    target: dict[str, Any] = {field: "nowhere"}
    with pytest.raises(InvalidArgument, match=f"{field} is 'nowhere'; allowed: the path of a queue or topic"):
        harness.queue(QueueDescription("q", **target))
    entity = harness.queue(QueueDescription("q"))
    with pytest.raises(InvalidArgument):
        harness.namespace.update(replace(entity.description, **target))
    harness.topic(TopicDescription("t"))
    with pytest.raises(InvalidArgument):
        harness.subscription(SubscriptionDescription("t", "s", **target))
    assert entity.description == QueueDescription("q")
    assert harness.namespace.list_subscriptions("t") == ()


def test_creation_order_puts_targets_first(harness: EngineHarness):
    wanted: list[QueueDescription | TopicDescription | SubscriptionDescription] = [
        QueueDescription("first", forward_to="Topic"),
        SubscriptionDescription("topic", "s", forward_to="last", forward_dead_lettered_messages_to="last"),
        TopicDescription("topic"),
        QueueDescription("last"),
    ]
    ordered = creation_order(wanted)
    for description in ordered:
        harness.namespace.create(description)
    assert sorted(each.path for each in ordered) == sorted(each.path for each in wanted)
    with pytest.raises(InvalidArgument):
        harness.namespace.create(
            creation_order([QueueDescription("a", forward_to="b"), QueueDescription("b", forward_to="a")])[0]
        )


def test_hops_and_dead_letter_source_survive_a_restart(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create(QueueDescription("archive"))
        namespace.create(QueueDescription("flights", forward_dead_lettered_messages_to="archive"))
        namespace.create(QueueDescription("first", forward_to="flights"))
        queue_of(namespace, "first").send([content("a"), content("b")])
        namespace.commit()
    with persistent.open() as namespace:
        flights = queue_of(namespace, "flights").main
        flights.dead_letter(token_of(flights.receive(1)[0]), reason="why", description=None)
        namespace.commit()
    with persistent.open() as namespace:
        (dead,) = queue_of(namespace, "archive").main.receive(9)
        assert (dead.hops, dead.dead_letter_source, dead.dead_letter) == (2, "flights", ("why", None))
        assert [(*texts([each]), each.hops) for each in queue_of(namespace, "flights").main.receive(9)] == [("b", 1)]


def test_forwarding_resumes_after_a_restart(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create(QueueDescription("last"))
        namespace.create(QueueDescription("first", forward_to="last"))
        queue_of(namespace, "first").schedule([content("a", scheduled_for=persistent.clock.now() + 1000)])
        namespace.commit()
    persistent.clock.advance(1)
    with persistent.open() as namespace:
        namespace.advance()
        assert texts(queue_of(namespace, "last").main.receive(9)) == ["a"]
