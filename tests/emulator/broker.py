"""A namespace on a clock of the test's own, without any wire."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from servicebus_emulator.engine.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.entities import QueueEntity, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.message import Content, Message
from servicebus_emulator.engine.namespace import Namespace
from tests.emulator.clock import ManualClock


def content(
    text: str = "",
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
        sections=text.encode(),
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


class Bench:
    """A namespace and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        tokens = self._tokens()
        self.namespace = Namespace(
            "contoso", clock=self.clock, random_bytes=lambda size: b"".join(next(tokens) for _ in range(size // 16))
        )

    def queue(self, description: QueueDescription) -> QueueEntity:
        self.namespace.create_queue(description)
        entity = self.namespace.find(description.path)
        assert isinstance(entity, QueueEntity)
        return entity

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

    def go_on(self, seconds: float) -> None:
        """Let time pass, and let happen what falls due."""
        self.namespace.take_effects()
        self.clock.go_on(seconds)
        self.namespace.advance()

    @staticmethod
    def _tokens() -> Iterator[bytes]:
        return (number.to_bytes(16, "big") for number in count(1))
