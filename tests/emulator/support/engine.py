"""A namespace with a manual clock, without AMQP or HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from servicebus_emulator.amqp.codec.property_codec import AmqpPropertyCodec
from servicebus_emulator.engine.model.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.message import Content, Message
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.queue.queue import MessageQueue
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.support.manual_clock import ManualClock


def content(
    sections: str | bytes = b"",
    *,
    time_to_live: int | None = None,
    scheduled_for: int | None = None,
    session_id: str | None = None,
    ping: bool = False,
) -> Content:
    return Content(
        header=b"",
        annotations=b"",
        annotation_count=0,
        sections=sections.encode() if isinstance(sections, str) else sections,
        time_to_live=time_to_live,
        scheduled_for=scheduled_for,
        session_id=session_id,
        ping=ping,
    )


def texts(messages: list[Message]) -> list[str]:
    return [message.content.sections.decode() for message in messages]


def token_of(message: Message) -> bytes:
    assert message.lock is not None
    return message.lock.token


def reason_of(message: Message) -> str | None:
    assert message.dead_letter is not None
    return message.dead_letter.reason


def queue_of(namespace: Namespace, path: str = "q") -> QueueEntity:
    entity = namespace.find(path)
    assert isinstance(entity, QueueEntity)
    return entity


def dead_letters(entity: QueueEntity) -> MessageQueue:
    return entity.sub_queue(SubQueue.DEAD_LETTER)


class EngineHarness:
    """A namespace in memory and its clock."""

    def __init__(self, *, deliver_pings: bool = False) -> None:
        self.clock = ManualClock()
        tokens = (number.to_bytes(16, "big") for number in count(1))
        self.namespace = Namespace(
            "contoso",
            clock=self.clock,
            random_bytes=lambda size: b"".join(next(tokens) for _ in range(size // 16)),
            deliver_pings=deliver_pings,
        )

    def queue(self, description: QueueDescription) -> QueueEntity:
        self.namespace.create_queue(description)
        return queue_of(self.namespace, description.path)

    def topic(self, description: TopicDescription) -> TopicEntity:
        self.namespace.create_topic(description)
        entity = self.namespace.find(description.path)
        assert isinstance(entity, TopicEntity)
        return entity

    def subscription(self, description: SubscriptionDescription) -> SubscriptionEntity:
        self.namespace.create_subscription(description)
        entity = self.namespace.find(description.path)
        assert isinstance(entity, SubscriptionEntity)
        return entity

    def advance(self, seconds: float) -> None:
        """Advance the clock and do the work that is due."""
        self.namespace.take_effects()
        self.clock.advance(seconds)
        self.namespace.advance()


class PersistentNamespace:
    """A namespace in a file that can be closed and reopened. Closing does not commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()

    @contextmanager
    def open(self) -> Iterator[Namespace]:
        with closing(SqliteJournal(self.path)) as journal:
            namespace = Namespace(
                "contoso", clock=self.clock, journal=journal, snapshot=journal.snapshot(), codec=AmqpPropertyCodec()
            )
            namespace.take_effects()
            yield namespace
