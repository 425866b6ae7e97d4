"""What the service changes in a description, and what its tiers accept and how much of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import ServerBusy
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.namespace.throttle import Throttle
from servicebus_emulator.engine.namespace.tiers import Tier
from tests.emulator.support.manual_clock import ManualClock

HOUR = TimeSpan.of(timedelta(hours=1))


def test_forwarding_keeps_a_subscription_from_being_deleted():
    namespace = Namespace("contoso")
    namespace.create_queue(QueueDescription("sink"))
    namespace.create_topic(TopicDescription("t"))
    idle = SubscriptionDescription("t", "s", auto_delete_on_idle=HOUR)
    assert namespace.create(replace(idle, forward_to="sink")).auto_delete_on_idle == TimeSpan.MAX
    assert namespace.update(idle).auto_delete_on_idle == HOUR
    assert namespace.update(replace(idle, forward_to="sink")).auto_delete_on_idle == TimeSpan.MAX


def test_a_partitioned_entity_has_sixteen_times_the_size():
    namespace = Namespace("contoso")
    asked = QueueDescription("q", enable_partitioning=True, max_size_in_megabytes=2048)
    kept = namespace.create(asked)
    assert kept == replace(asked, max_size_in_megabytes=32_768)
    assert namespace.update(kept) == kept
    assert namespace.update(asked) == kept
    topic = namespace.create(TopicDescription("t", enable_partitioning=True, max_size_in_megabytes=1))
    assert namespace.update(topic) == topic
    assert isinstance(topic, TopicDescription)
    assert topic.max_size_in_megabytes == 16


@pytest.mark.parametrize(
    ("tier", "description", "field"),
    [
        ("Basic", TopicDescription("t"), "topic"),
        ("Basic", QueueDescription("q", requires_session=True), "requires_session"),
        ("Basic", QueueDescription("q", requires_duplicate_detection=True), "requires_duplicate_detection"),
        ("Basic", QueueDescription("q", forward_to="sink"), "forward_to"),
        ("Standard", QueueDescription("q", max_message_size_in_kilobytes=1024), "max_message_size_in_kilobytes"),
        ("Standard", QueueDescription("q", max_size_in_megabytes=10_240), "max_size_in_megabytes"),
        ("Premium", QueueDescription("q", max_message_size_in_kilobytes=1023), "max_message_size_in_kilobytes"),
        ("Premium", QueueDescription("q", enable_partitioning=True), "enable_partitioning"),
        ("Premium", TopicDescription("t", enable_express=True), "enable_express"),
    ],
)
def test_a_tier_refuses_what_it_lacks(tier: str, description: Description, field: str):
    namespace = Namespace("contoso", tier=Tier(tier))
    with pytest.raises(DescriptionError, match=f"in the {tier} tier") as refused:
        namespace.create(description)
    assert refused.value.field == field


def test_a_tier_accepts_the_rest_and_premium_begins_at_a_megabyte():
    partitioned = QueueDescription("q", enable_partitioning=True, max_size_in_megabytes=5120)
    standard = Namespace("contoso", tier=Tier.STANDARD)
    kept = standard.create(partitioned)
    assert standard.update(kept) == kept
    assert standard.create(TopicDescription("t", max_message_size_in_kilobytes=256)).path == "t"
    premium = Namespace("contoso", tier=Tier.PREMIUM)
    assert premium.create(QueueDescription("q")) == QueueDescription("q", max_message_size_in_kilobytes=1024)
    large = QueueDescription("r", max_message_size_in_kilobytes=102_400, max_size_in_megabytes=81_920)
    assert premium.create(large) == large


def test_a_second_of_standard_has_a_thousand_credits():
    clock = ManualClock()
    throttle = Throttle("contoso", clock=clock, tier=Tier.STANDARD)
    throttle.check(999)
    throttle.check(100)
    with pytest.raises(ServerBusy, match="namespace contoso is being throttled"):
        throttle.check(1)
    clock.advance(1)
    throttle.check(1)
    throttle.spend(1000)
    with pytest.raises(ServerBusy):
        throttle.check(1)


def test_a_unit_of_premium_takes_four_megabytes_a_second():
    clock = ManualClock()
    throttle = Throttle("contoso", clock=clock, tier=Tier.PREMIUM, units=2)
    for _ in range(8):
        throttle.check(10_000, size=1024 * 1024)
    with pytest.raises(ServerBusy):
        throttle.check(1)
