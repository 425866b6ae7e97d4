"""All operations of a transaction take effect, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from servicebus_emulator.engine.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import (
    BrokerError,
    MessageLockLost,
    OperationNotAllowed,
    QuotaExceeded,
    TransactionRolledBack,
    TransactionUnknown,
)
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.transaction import Transaction
from tests.emulator.support.engine import (
    EngineHarness,
    PersistentNamespace,
    content,
    queue_of,
    reason_of,
    texts,
    token_of,
)


def transaction(harness: EngineHarness) -> Transaction:
    return Transaction("txn:1", namespace=harness.namespace)


def settle(within: Transaction, entity: QueueEntity, token: bytes, *, outcome: str = "complete") -> None:
    queue = entity.main
    settlements: dict[str, Callable[[], None]] = {
        "complete": partial(queue.complete, token),
        "abandon": partial(queue.abandon, token),
        "dead-letter": partial(queue.dead_letter, token, reason="late", description=None),
    }
    within.settle(entity, queue, token, settlement=settlements[outcome], session=1)


def locked(entity: QueueEntity, *bodies: str) -> list[bytes]:
    entity.send([content(body) for body in bodies])
    return [token_of(message) for message in entity.main.receive(len(bodies))]


def test_nothing_is_visible_before_the_commit_and_everything_after(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q"))
    tokens = locked(entity, "one", "two", "three")
    within = transaction(harness)
    for token, outcome in zip(tokens, ("complete", "abandon", "dead-letter"), strict=True):
        settle(within, entity, token, outcome=outcome)
    within.send(entity, [content("four")], session=2)
    assert entity.main.receive(10) == []
    assert (entity.main.active_count, entity.counts().dead_lettered) == (3, 0)
    within.commit()
    assert texts(entity.main.receive(10)) == ["two", "four"]
    assert (entity.main.active_count, entity.counts().dead_lettered) == (2, 1)


def test_a_rollback_leaves_messages_locked(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q"))
    (token,) = locked(entity, "one")
    within = transaction(harness)
    settle(within, entity, token)
    within.send(entity, [content("two")], session=1)
    within.roll_back()
    assert entity.main.receive(10) == []
    entity.main.complete(token)
    assert entity.main.active_count == 0


def _expire(harness: EngineHarness, entity: QueueEntity) -> None:  # noqa: ARG001 - one of several spoilers
    harness.advance(61)


def _fill(harness: EngineHarness, entity: QueueEntity) -> None:  # noqa: ARG001 - one of several spoilers
    entity.send([content(b"x" * (1024 * 1024 - 30))])


def _disable(harness: EngineHarness, entity: QueueEntity) -> None:
    harness.namespace.update(replace(entity.description, status=EntityStatus.SEND_DISABLED))


def _delete(harness: EngineHarness, entity: QueueEntity) -> None:
    harness.namespace.delete_queue(entity.description.path)


@pytest.mark.parametrize("spoil", [_expire, _fill, _disable, _delete])
def test_what_has_become_impossible_undoes_the_rest(
    harness: EngineHarness, spoil: Callable[[EngineHarness, QueueEntity], None]
):
    description = QueueDescription("q", max_size_in_megabytes=1024)
    entity = harness.queue(description)
    object.__setattr__(entity.description, "max_size_in_megabytes", 1)
    tokens = locked(entity, "one", "two")
    within = transaction(harness)
    for token in tokens:
        settle(within, entity, token)
    within.send(entity, [content("three" * 5), content("four" * 5)], session=1)
    spoil(harness, entity)
    harness.namespace.take_effects()
    before = entity.main.active_count
    with pytest.raises(TransactionRolledBack):
        within.commit()
    assert entity.main.active_count == before
    with pytest.raises(TransactionUnknown):
        within.commit()


def test_a_lock_does_not_expire_in_the_middle_of_a_commit(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q"))
    tokens = locked(entity, *[str(number) for number in range(50)])
    within = transaction(harness)
    for token in tokens[:-1]:
        settle(within, entity, token)
    harness.clock.advance(59.99)
    now = harness.clock.now

    def later() -> int:
        harness.clock.advance(0.001)
        return now()

    harness.clock.now = later  # type: ignore[method-assign]
    try:
        within.commit()
    except TransactionRolledBack:
        assert entity.main.active_count == 50
    else:
        assert entity.main.active_count == 1
    # A lock that was held expires when it is due.
    harness.advance(61)
    assert len(entity.main.receive(50)) == entity.main.active_count


def test_a_sessions_lock_outlives_the_commit_and_then_expires(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q", requires_session=True))
    entity.send([content("one", session_id="s"), content("two", session_id="s")])
    lock = entity.main.accept_session("s")
    (first, _) = entity.main.receive(2, session_lock=lock)
    within = transaction(harness)
    settle(within, entity, token_of(first))
    within.commit()
    assert entity.main.active_count == 1
    assert entity.main.renew_session_lock("s") > harness.clock.now()
    harness.advance(61)
    assert entity.main.accept_session(None) is not None


def test_it_lasts_two_minutes_from_its_first_operation(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q"))
    within = transaction(harness)
    harness.advance(1000)
    within.send(entity, [content("one")], session=1)
    harness.advance(119)
    within.send(entity, [content("two")], session=1)
    harness.advance(1)
    with pytest.raises(OperationNotAllowed, match=r"No active Transaction was found for ID 'txn:1'.*00:02:00"):
        within.send(entity, [content("three")], session=1)
    with pytest.raises(TransactionUnknown):
        within.commit()
    assert entity.main.active_count == 0


def test_it_concerns_one_entity_and_what_that_transfers(harness: EngineHarness):
    entity, other = harness.queue(QueueDescription("q")), harness.queue(QueueDescription("other"))
    (token,), (foreign,) = locked(entity, "one"), locked(other, "two")
    within = transaction(harness)
    settle(within, entity, token)
    with pytest.raises(OperationNotAllowed, match="multiple top-level entities"):
        settle(within, other, foreign)
    with pytest.raises(OperationNotAllowed, match="multiple top-level entities"):
        within.send(other, [content("three")], session=2)
    within.send(other, [content("four")], session=1)
    within.send(other, [content("five")], session=3, via=entity)
    within.commit()
    assert texts(other.main.receive(10)) == ["four", "five"]


def test_a_transferred_message_that_its_destination_refuses_is_dead_lettered(harness: EngineHarness):
    entity, other = harness.queue(QueueDescription("q")), harness.queue(QueueDescription("other"))
    (token,) = locked(entity, "one")
    within = transaction(harness)
    settle(within, entity, token)
    within.send(other, [content("two")], session=1)
    harness.namespace.update(replace(other.description, status=EntityStatus.DISABLED))
    within.commit()
    assert (entity.main.active_count, other.main.active_count) == (0, 0)
    (dead,) = entity.sub_queue(SubQueue.TRANSFER_DEAD_LETTER).receive(10)
    assert (texts([dead]), reason_of(dead)) == (["two"], "MessagingEntityDisabledException")


def test_a_subscription_and_its_topic_are_one_entity(harness: EngineHarness):
    topic = harness.topic(TopicDescription("t"))
    subscription = harness.subscription(SubscriptionDescription("t", "s"))
    other = harness.queue(QueueDescription("q"))
    topic.send([content("one")])
    (message,) = subscription.main.receive(1)
    within = transaction(harness)
    within.send(topic, [content("two")], session=1)
    within.settle(
        subscription,
        subscription.main,
        token_of(message),
        settlement=partial(subscription.main.complete, token_of(message)),
        session=2,
    )
    within.send(other, [content("three")], session=1)
    harness.namespace.delete_queue("q")
    # A topic has no transfer dead-letter queue, so nothing is transferred through it.
    with pytest.raises(TransactionRolledBack):
        within.commit()
    assert subscription.main.active_count == 1


@pytest.mark.parametrize(
    ("sent", "refused"),
    [([content("again")] * 101, QuotaExceeded), ([content(b"x" * (1024 * 1024 + 1))], QuotaExceeded)],
)
def test_what_cannot_be_sent_is_refused_at_once(harness: EngineHarness, sent: list[Any], refused: type[BrokerError]):
    entity = harness.queue(QueueDescription("q"))
    object.__setattr__(entity.description, "max_size_in_megabytes", 1)
    within = transaction(harness)
    with pytest.raises(refused):
        within.send(entity, sent, session=1)
    within.send(entity, [content("one")], session=1)
    within.commit()
    assert entity.main.active_count == 1


def test_a_message_is_settled_once(harness: EngineHarness):
    entity = harness.queue(QueueDescription("q"))
    (token,) = locked(entity, "one")
    within = transaction(harness)
    settle(within, entity, token)
    for given in (token, bytes(16)):
        with pytest.raises(MessageLockLost):
            settle(within, entity, given)
    within.commit()
    assert entity.main.active_count == 0


def test_a_commit_survives_a_restart_whole(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        entity = queue_of(namespace)
        (token,) = locked(entity, "one")
        namespace.commit()
        within = Transaction("txn:1", namespace=namespace)
        settle(within, entity, token)
        within.send(entity, [content("two")], session=1)
        within.commit()
        # The process dies before the cycle of the broker ends.
    with persistent.open() as namespace:
        assert texts(queue_of(namespace).main.receive(10)) == ["one"]
        entity = queue_of(namespace)
        within = Transaction("txn:2", namespace=namespace)
        entity.main.release(next(iter(entity.main._locked)))
        (message,) = entity.main.receive(1)
        settle(within, entity, token_of(message))
        within.send(entity, [content("two")], session=1)
        within.commit()
        namespace.commit()
    with persistent.open() as namespace:
        assert texts(queue_of(namespace).main.receive(10)) == ["two"]
