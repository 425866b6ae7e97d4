"""Issue 2: state is kept on disk, so that a kill loses nothing that was answered."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from proton import Message as ProtonMessage

from servicebus_emulator.amqp.incoming import read_message
from servicebus_emulator.amqp.properties import AmqpProperties
from servicebus_emulator.engine.descriptions import (
    INT_MAX,
    AccessRight,
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.entities import QueueEntity, SubQueue, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.errors import EntityNotFound
from servicebus_emulator.engine.journal import JournalError
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.engine.timespan import TimeSpan
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.broker import content, texts, token_of
from tests.emulator.clock import ManualClock


class Disk:
    """A namespace that is opened again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()

    @contextmanager
    def namespace(self) -> Iterator[Namespace]:
        with closing(SqliteJournal(self.path)) as journal:
            yield Namespace(
                "contoso", clock=self.clock, journal=journal, snapshot=journal.snapshot(), codec=AmqpProperties()
            )


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "data" / "contoso.sqlite")


def queue_of(namespace: Namespace, path: str = "q") -> QueueEntity:
    entity = namespace.find(path)
    assert isinstance(entity, QueueEntity)
    return entity


def test_every_field_of_every_description_is_kept(disk: Disk):
    rule = AuthorizationRule(
        rights=(AccessRight.SEND, AccessRight.LISTEN),
        created_time=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        key_name="k",
        primary_key="p",
    )
    queue = QueueDescription(
        "contoso/x-servicebus-transfer/0",
        max_delivery_count=INT_MAX,
        default_message_time_to_live=TimeSpan.MAX,
        lock_duration=TimeSpan(1),
        authorization_rules=(rule,),
        user_metadata="zażółć",
        status=EntityStatus.RECEIVE_DISABLED,
    )
    topic = TopicDescription("delays", max_size_in_megabytes=5120)
    subscription = SubscriptionDescription(
        "delays",
        "one",
        rules=(
            RuleDescription(
                "sql",
                SqlFilter(expression="a = @b", parameters=(("@b", TimeSpan(5)),)),
                SqlAction(expression="SET c = 1"),
            ),
            RuleDescription("correlation", CorrelationFilter(label="x", properties=(("n", 1.5), ("t", True)))),
        ),
    )
    with disk.namespace() as namespace:
        namespace.create_queue(replace(queue, max_delivery_count=1))
        namespace.update_queue(queue)
        namespace.create_topic(topic)
        namespace.create_subscription(subscription)
    with disk.namespace() as namespace:
        assert namespace.list_queues() == (queue,)
        assert namespace.list_topics() == (topic,)
        assert namespace.list_subscriptions("delays") == (subscription,)


def test_a_stored_rule_that_cannot_be_read_does_not_keep_the_folder_from_opening(disk: Disk):
    """An older version took rules from its configuration file without reading them."""
    never_read = SubscriptionDescription("t", "s", rules=(RuleDescription("r", SqlFilter(expression="a ==")),))
    with disk.namespace() as namespace:
        namespace.create_topic(TopicDescription("t"))
        namespace.create_subscription(replace(never_read, rules=()))
        namespace.update_subscription(never_read)
    with disk.namespace() as namespace:
        assert namespace.list_subscriptions("t") == (never_read,)
        topic = namespace.find("t")
        assert isinstance(topic, TopicEntity)
        empty = read_message(bytes(ProtonMessage().encode()), new_id=lambda: "given")
        topic.send([empty])
        (dead,) = namespace.find("t/Subscriptions/s").part(SubQueue.DEAD_LETTER).take(1)
        assert dead.dead_letter is not None
        assert "rule 'r': the rule cannot be read: found '='" in str(dead.dead_letter.description)
        namespace.update_rule("t", "s", RuleDescription("r"))
        topic.send([empty])
        assert namespace.counts("t/Subscriptions/s").active == 1


def test_messages_come_back_in_the_state_they_were_in(disk: Disk):
    due = disk.clock.now() + 60_000
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q", lock_duration=TimeSpan.of(timedelta(minutes=5))))
        entity = queue_of(namespace)
        entity.send(
            [content(text, time_to_live=90_000) for text in ("waits", "locked", "failed", "deferred", "dead", "done")]
        )
        entity.schedule([content("scheduled", scheduled_for=due)])
        by_text = {message.content.sections.decode(): message for message in entity.main.take(6)}
        entity.main.release(token_of(by_text["waits"]))
        entity.main.abandon(token_of(by_text["failed"]))
        entity.main.defer(token_of(by_text["deferred"]))
        entity.main.dead_letter(token_of(by_text["dead"]), reason="why", description=None)
        entity.main.complete(token_of(by_text["done"]))
        namespace.commit()
    with disk.namespace() as namespace:
        entity = queue_of(namespace)
        assert entity.counts().active == 4
        taken = entity.main.take(10)
        assert [(*texts([message]), message.delivery_count) for message in taken] == [
            ("waits", 0),
            ("locked", 0),
            ("failed", 1),
        ]
        assert texts(entity.main.take_deferred([4], session_id=None)) == ["deferred"]
        (dead,) = entity.part(SubQueue.DEAD_LETTER).take(10)
        assert (dead.number, dead.dead_letter, dead.content.time_to_live) == (5, ("why", None), 90_000)
        disk.clock.go_on(60)
        assert texts(entity.main.take(10)) == ["scheduled"]
        disk.clock.go_on(30)
        entity.main.complete(token_of(taken[0]))
        assert entity.sequence.last == 8


def test_time_to_live_goes_on_while_nothing_runs(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x", time_to_live=1000)])
        namespace.commit()
    disk.clock.go_on(1)
    with disk.namespace() as namespace:
        assert queue_of(namespace).main.take(1) == []


def test_a_sequence_number_is_never_given_twice(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")])
        queue_of(namespace).main.take(1, delete=True)
        namespace.commit()
    with disk.namespace() as namespace:
        queue_of(namespace).send([content("y")])
        assert queue_of(namespace).main.take(1)[0].number == 2


def test_topics_and_sessions_come_back(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_topic(TopicDescription("t"))
        namespace.create_subscription(SubscriptionDescription("t", "s", requires_session=True))
        topic = namespace.find("t")
        topic.send(
            [content("now", session_id="a"), content("later", session_id="a", scheduled_for=disk.clock.now() + 5)]
        )
        subscription = namespace.find("t/Subscriptions/s")
        assert isinstance(subscription, SubscriptionEntity)
        subscription.main.accept_session("a")
        subscription.main.set_session_state("a", b"half way")
        namespace.commit()
    with disk.namespace() as namespace:
        assert namespace.counts("t").scheduled == 1
        disk.clock.go_on(1)
        namespace.take_effects()
        namespace.advance()
        subscription = namespace.find("t/Subscriptions/s")
        hold = subscription.main.accept_session(None)
        assert subscription.main.session_state("a") == b"half way"
        assert subscription.main.session_ids(state_after=disk.clock.now() - 1001) == ["a"]
        assert subscription.main.session_ids(state_after=disk.clock.now() - 1000) == []
        assert texts(subscription.main.take(10, hold=hold)) == ["now", "later"]


def test_a_deleted_entity_stays_deleted_with_its_messages(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")])
        namespace.delete_queue("q")
    with disk.namespace() as namespace:
        with pytest.raises(EntityNotFound):
            namespace.find("q")
        namespace.create_queue(QueueDescription("q"))
        assert queue_of(namespace).counts().total == 0


def test_what_was_scheduled_in_a_deleted_topic_is_gone_too(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_topic(TopicDescription("t"))
        namespace.create_subscription(SubscriptionDescription("t", "s"))
        namespace.find("t").send([content("later", scheduled_for=disk.clock.now() + 5)])
        namespace.take_effects()
        namespace.delete_topic("t")
        disk.clock.go_on(1)
        namespace.advance()
        namespace.take_effects()
        assert namespace.next_due() is None
        namespace.commit()
    with disk.namespace() as namespace:
        assert namespace.list_topics() == ()


def test_what_was_not_committed_is_not_kept(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")])
    with disk.namespace() as namespace:
        assert queue_of(namespace).counts().total == 0


def test_a_file_in_use_is_refused(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q"))
        with pytest.raises(JournalError, match="another process"):
            SqliteJournal(disk.path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    path = tmp_path / "contoso.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(JournalError, match="cannot be opened"):
        SqliteJournal(path)


def test_the_file_is_its_owners_alone(disk: Disk):
    with disk.namespace():
        assert stat.S_IMODE(disk.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("count", [1, 500])
def test_a_batch_is_one_transaction(disk: Disk, count: int):
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue_of(namespace).send([content("x")] * count)
        begun = _count_transactions(namespace, namespace.commit)
    assert begun == 1


def _count_transactions(namespace: Namespace, action: Callable[[], None]) -> int:
    begun: list[str] = []
    database = namespace._context.journal._database  # type: ignore[attr-defined]
    database.set_trace_callback(lambda statement: begun.append(statement) if statement.startswith("BEGIN") else None)
    action()
    return len(begun)


def test_lifetimes_beyond_the_calendar_are_kept(disk: Disk):
    year = timedelta(days=365)
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q", default_message_time_to_live=TimeSpan.of(200 * year)))
        queue_of(namespace).send([content("x", time_to_live=253_402_300_799_999)])
        namespace.commit()
    with disk.namespace() as namespace:
        assert texts(queue_of(namespace).main.take(1)) == ["x"]


def test_a_message_that_was_changed_is_kept_as_it_is_now(disk: Disk):
    with disk.namespace() as namespace:
        namespace.create_queue(QueueDescription("q"))
        queue = queue_of(namespace).main
        queue_of(namespace).send([content("before"), content("other")])
        namespace.commit()
        token = token_of(queue.take(1)[0])
        queue.amend(token, lambda given: given._replace(sections=b"changed and longer"))
        assert queue.size_in_bytes == len(b"changed and longer" + b"other")
        queue.abandon(token)
        namespace.commit()
    with disk.namespace() as namespace:
        (first, second) = queue_of(namespace).main.take(2)
        assert (texts([first, second]), first.delivery_count) == (["changed and longer", "other"], 1)
