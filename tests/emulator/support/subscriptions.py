"""A topic with one subscription, for tests of its rules."""

from __future__ import annotations

from typing import Any

from proton import Message as ProtonMessage

from servicebus_emulator.amqp.codec.delivery_encoder import encode_delivery
from servicebus_emulator.amqp.codec.property_codec import AmqpPropertyCodec
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message
from servicebus_emulator.engine.model.descriptions import SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.model.rule_descriptions import (
    RuleDescription,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from tests.emulator.support.manual_clock import ManualClock


def message(body: str = "", *, annotations: dict[Any, Any] | None = None, **fields: Any) -> Content:
    built = ProtonMessage(body=body, annotations=annotations, **fields)
    return decode_message(bytes(built.encode()), new_id=lambda: "generated")


def sql(name: str, expression: str, action: str | None = None) -> RuleDescription:
    return RuleDescription(
        name, SqlFilter(expression=expression), None if action is None else SqlAction(expression=action)
    )


class SubscriptionHarness:
    """A topic with one subscription."""

    def __init__(self, *rules: RuleDescription, **settings: Any) -> None:
        self.namespace = Namespace("contoso", clock=ManualClock(), codec=AmqpPropertyCodec())
        self.namespace.create_topic(TopicDescription("t"))
        self.namespace.create_subscription(SubscriptionDescription("t", "s", rules=rules, **settings))
        topic, subscription = self.namespace.find("t"), self.namespace.find("t/Subscriptions/s")
        assert isinstance(topic, TopicEntity)
        assert isinstance(subscription, SubscriptionEntity)
        self.topic, self.subscription = topic, subscription

    def send(self, *contents: Content) -> list[ProtonMessage]:
        """Send messages; return all messages in the subscription, decoded by Proton."""
        self.topic.send(contents)
        return self.received(SubQueue.MAIN)

    def received(self, part: SubQueue) -> list[ProtonMessage]:
        found = []
        for each in self.subscription.sub_queue(part).peek(0, limit=100, session_id=None):
            decoded = ProtonMessage()
            decoded.decode(encode_delivery(each))
            found.append(decoded)
        return found
