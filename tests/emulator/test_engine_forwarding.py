"""Issue 3: entities that pass on what they get, four times at most."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from servicebus_emulator.engine.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.errors import InvalidArgument
from servicebus_emulator.engine.forwarding import in_order_of_creation
from servicebus_emulator.engine.message import Message
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.engine.timespan import TimeSpan
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.broker import Bench, content, texts, token_of
from tests.emulator.clock import ManualClock


def chain(bench: Bench, *paths: str) -> list[QueueEntity]:
    """Create queues, each of which forwards to the one before it."""
    entities = [bench.queue(QueueDescription(paths[0]))]
    return entities + [bench.queue(QueueDescription(path, forward_to=to)) for to, path in pairwise(paths)]


def stranded(entity: QueueEntity) -> Message:
    (message,) = entity.part(SubQueue.TRANSFER_DEAD_LETTER).peek(0, limit=10)
    assert entity.counts().transfer_dead_lettered == 1
    assert entity.counts().total == 1
    return message


def reason_of(message: Message) -> str | None:
    assert message.dead_letter is not None
    return message.dead_letter.reason


def test_a_queue_passes_on_what_it_gets_and_keeps_nothing(bench: Bench):
    last, first = chain(bench, "last", "first")
    first.send([content("a"), content("b")])
    assert first.counts().total == 0
    assert texts(last.main.take(10)) == ["a", "b"]


def test_a_scheduled_message_is_passed_on_when_its_time_has_come(bench: Bench):
    last, first = chain(bench, "last", "first")
    first.schedule([content("a", scheduled_for=bench.clock.now() + 5000)])
    assert (first.counts().scheduled, last.counts().total) == (1, 0)
    bench.go_on(5)
    assert (first.counts().total, last.counts().active) == (0, 1)


def test_a_message_is_forwarded_four_times_and_no_fifth(bench: Bench):
    zero, one, *_, four, five = chain(bench, "0", "1", "2", "3", "4", "5")
    four.send([content("near")])
    assert texts(zero.main.take(1)) == ["near"]
    five.send([content("far")])
    assert texts([stranded(one)]) == ["far"]
    assert reason_of(stranded(one)) == "MaxTransferHopCountExceeded"


def test_a_circle_ends_after_four_hops(bench: Bench):
    a, b = chain(bench, "a", "b")
    bench.namespace.update_queue(replace(a.description, forward_to="b"))
    a.send([content("x")])
    assert reason_of(stranded(a)) == "MaxTransferHopCountExceeded"
    assert b.counts().total == 0


def test_a_queue_that_forwards_to_itself_ends_after_four_hops_as_well(bench: Bench):
    queue = bench.queue(QueueDescription("a"))
    bench.namespace.update_queue(replace(queue.description, forward_to="sb://host:1/A"))
    queue.send([content("x")])
    assert reason_of(stranded(queue)) == "MaxTransferHopCountExceeded"


def test_dead_letters_may_return_to_their_own_queue(bench: Bench):
    queue = bench.queue(QueueDescription("a"))
    bench.namespace.update_queue(replace(queue.description, forward_dead_lettered_messages_to="a"))
    queue.send([content("x")])
    for _ in range(5):
        (message,) = queue.main.take(1)
        queue.main.dead_letter(token_of(message), reason="no", description=None)
    assert reason_of(stranded(queue)) == "MaxTransferHopCountExceeded"


def test_a_queue_with_sessions_may_name_a_target_and_keeps_what_it_gets(bench: Bench):
    last = bench.queue(QueueDescription("last"))
    first = bench.queue(QueueDescription("first", requires_session=True, forward_to="last"))
    first.send([content("x", session_id="s")])
    assert (first.counts().active, last.counts().total) == (1, 0)


def test_topics_and_subscriptions_are_part_of_a_chain(bench: Bench):
    inbox = bench.queue(QueueDescription("inbox"))
    topic = bench.topic(TopicDescription("topic"))
    subscription = bench.subscription(SubscriptionDescription("topic", "s", forward_to="sb://contoso/Inbox"))
    bench.queue(QueueDescription("first", forward_to="topic")).send([content("a")])
    topic.send([content("b")])
    assert subscription.counts().total == 0
    assert [(*texts([message]), message.hops) for message in inbox.main.take(10)] == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": EntityStatus.SEND_DISABLED}, "MessagingEntityDisabledException"),
        ({"max_size_in_megabytes": 1}, "QuotaExceededException"),
    ],
)
def test_what_the_target_refuses_waits_in_the_transfer_dead_letter_queue(
    bench: Bench, change: dict[str, object], reason: str
):
    last, first = chain(bench, "last", "first")
    last.send([content("x" * 1024 * 1024)])
    bench.namespace.update_queue(replace(last.description, **change))
    first.send([content("a")])
    assert reason_of(stranded(first)) == reason
    assert "'last'" in str(stranded(first).dead_letter)


def test_what_has_no_target_any_longer_waits_too(bench: Bench):
    _, first = chain(bench, "last", "first")
    bench.namespace.delete_queue("last")
    first.send([content("a")])
    assert reason_of(stranded(first)) == "MessagingEntityNotFoundException"
    bench.namespace.update_queue(replace(first.description, user_metadata="may still be described"))


def test_a_message_without_a_session_id_cannot_pass_to_a_queue_that_requires_one(bench: Bench):
    bench.queue(QueueDescription("sessions", requires_session=True))
    first = bench.queue(QueueDescription("first", forward_to="sessions"))
    first.send([content("a")])
    assert reason_of(stranded(first)) == "InvalidOperationException"


def test_a_dead_letter_is_passed_on_with_its_reason_and_its_source(bench: Bench):
    graves = bench.queue(QueueDescription("graves", default_message_time_to_live=TimeSpan.of(timedelta(days=1))))
    entity = bench.queue(
        QueueDescription(
            "flights", forward_dead_lettered_messages_to="graves", dead_lettering_on_message_expiration=True
        )
    )
    entity.send([content("a"), content("b", time_to_live=1000)])
    entity.main.dead_letter(token_of(entity.main.take(1)[0]), reason="why", description=None)
    bench.go_on(1)
    assert entity.counts().total == 0
    found = [(*texts([message]), reason_of(message), message.died_in) for message in graves.main.take(10)]
    assert found == [("a", "why", "flights"), ("b", "TTLExpiredException", "flights")]


def test_a_message_keeps_the_time_that_is_left_to_live(bench: Bench):
    last = bench.queue(QueueDescription("last"))
    first = bench.queue(QueueDescription("first", default_message_time_to_live=TimeSpan.of(timedelta(seconds=10))))
    first.send([content("a")])
    bench.go_on(6)
    bench.namespace.update_queue(replace(first.description, forward_to="last"))
    assert last.counts().active == 1
    bench.go_on(4)
    assert last.counts().active == 0


def test_what_waits_when_forwarding_begins_is_passed_on_and_what_is_locked_when_it_is_given_back(bench: Bench):
    last, first = bench.queue(QueueDescription("last")), bench.queue(QueueDescription("first"))
    first.send([content("locked"), content("waits")])
    (locked,) = first.main.take(1)
    bench.namespace.update_queue(replace(first.description, forward_to="last"))
    assert texts(last.main.peek(0, limit=9)) == ["waits"]
    first.main.abandon(token_of(locked))
    assert texts(last.main.peek(0, limit=9)) == ["waits", "locked"]
    bench.namespace.update_queue(replace(first.description, forward_to=None))
    first.send([content("stays")])
    assert texts(first.main.take(9)) == ["stays"]


def test_duplicates_are_dropped_where_they_arrive(bench: Bench):
    last = bench.queue(QueueDescription("last", requires_duplicate_detection=True))
    first = bench.queue(QueueDescription("first", forward_to="last"))
    first.send([content("a"), content("a")])
    assert (first.counts().total, last.counts().active) == (0, 1)


@pytest.mark.parametrize("field", ["forward_to", "forward_dead_lettered_messages_to"])
def test_a_target_must_exist_when_it_is_named(bench: Bench, field: str):
    with pytest.raises(InvalidArgument, match=f"{field} is 'nowhere'; allowed: the path of a queue or topic"):
        bench.queue(QueueDescription("q", **{field: "nowhere"}))
    entity = bench.queue(QueueDescription("q"))
    with pytest.raises(InvalidArgument):
        bench.namespace.update_queue(replace(entity.description, **{field: "nowhere"}))
    bench.topic(TopicDescription("t"))
    with pytest.raises(InvalidArgument):
        bench.subscription(SubscriptionDescription("t", "s", **{field: "nowhere"}))
    assert entity.description == QueueDescription("q")
    assert bench.namespace.list_subscriptions("t") == ()


def test_entities_are_created_in_the_order_of_their_needs(bench: Bench):
    wanted = [
        QueueDescription("first", forward_to="Topic"),
        SubscriptionDescription("topic", "s", forward_to="last", forward_dead_lettered_messages_to="last"),
        TopicDescription("topic"),
        QueueDescription("last"),
    ]
    ordered = in_order_of_creation(wanted)
    for description in ordered:
        bench.namespace.create(description)
    assert sorted(each.path for each in ordered) == sorted(each.path for each in wanted)
    with pytest.raises(InvalidArgument):
        bench.namespace.create(
            in_order_of_creation([QueueDescription("a", forward_to="b"), QueueDescription("b", forward_to="a")])[0]
        )


def test_the_hops_of_a_message_and_where_it_died_outlive_a_restart(tmp_path: Path):
    clock, path = ManualClock(), tmp_path / "contoso.sqlite"
    descriptions = [
        QueueDescription("graves"),
        QueueDescription("flights", forward_dead_lettered_messages_to="graves"),
        QueueDescription("first", forward_to="flights"),
    ]
    with closing(SqliteJournal(path)) as journal:
        namespace = Namespace("contoso", clock=clock, journal=journal, snapshot=journal.snapshot())
        for description in descriptions:
            namespace.create(description)
        namespace.find("first").send([content("a"), content("b")])
        namespace.commit()
    with closing(SqliteJournal(path)) as journal:
        namespace = Namespace("contoso", clock=clock, journal=journal, snapshot=journal.snapshot())
        flights = namespace.find("flights").main
        flights.dead_letter(token_of(flights.take(1)[0]), reason="why", description=None)
        namespace.commit()
    with closing(SqliteJournal(path)) as journal:
        namespace = Namespace("contoso", clock=clock, journal=journal, snapshot=journal.snapshot())
        (dead,) = namespace.find("graves").main.take(9)
        assert (dead.hops, dead.died_in, dead.dead_letter) == (2, "flights", ("why", None))
        assert [(*texts([each]), each.hops) for each in namespace.find("flights").main.take(9)] == [("b", 1)]


def test_forwarding_goes_on_after_a_restart(tmp_path: Path):
    clock, path = ManualClock(), tmp_path / "contoso.sqlite"
    with closing(SqliteJournal(path)) as journal:
        namespace = Namespace("contoso", clock=clock, journal=journal, snapshot=journal.snapshot())
        namespace.create(QueueDescription("last"))
        namespace.create(QueueDescription("first", forward_to="last"))
        namespace.find("first").schedule([content("a", scheduled_for=clock.now() + 1000)])
        namespace.commit()
    clock.go_on(1)
    with closing(SqliteJournal(path)) as journal:
        namespace = Namespace("contoso", clock=clock, journal=journal, snapshot=journal.snapshot())
        namespace.take_effects()
        namespace.advance()
        assert texts(namespace.find("last").main.take(9)) == ["a"]
