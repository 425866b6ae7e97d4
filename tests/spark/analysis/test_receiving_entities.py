"""Parsing of receiving entities: queues, and subscriptions of topics."""

from __future__ import annotations

import pytest

from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity, parse_receiving_entities, paths_by_entity


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("flights", ReceivingEntity("flights", "flights")),
        ("delays/Subscriptions/all", ReceivingEntity("delays/Subscriptions/all", "delays")),
        ("delays/subscriptions/all = delays", ReceivingEntity("delays/subscriptions/all", "delays")),
        ("ops/delays/Subscriptions/all", ReceivingEntity("ops/delays/Subscriptions/all", "ops/delays")),
    ],
)
def test_entity_is_explicit_or_derived_from_the_path(text: str, entity: ReceivingEntity):
    assert parse_receiving_entities(text) == (entity,)


def test_subscriptions_of_a_topic_are_grouped_case_insensitively():
    entities = parse_receiving_entities("delays/Subscriptions/all,DELAYS/Subscriptions/late,flights")
    assert paths_by_entity(entities) == {
        "delays": ("delays/Subscriptions/all", "DELAYS/Subscriptions/late"),
        "flights": ("flights",),
    }
