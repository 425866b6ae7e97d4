"""Where the messages of an entity arrive: in its queue, or in the subscriptions of its topic."""

from __future__ import annotations

import pytest

from servicebus_pair.spark.places import Place, by_entity, parse_places


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("flights", Place("flights", "flights")),
        ("delays/Subscriptions/all", Place("delays/Subscriptions/all", "delays")),
        ("delays/subscriptions/all = delays", Place("delays/subscriptions/all", "delays")),
        ("ops/delays/Subscriptions/all", Place("ops/delays/Subscriptions/all", "ops/delays")),
    ],
)
def test_a_place_names_its_entity_or_implies_it(text: str, place: Place):
    assert parse_places(text) == (place,)


def test_a_topics_subscriptions_are_its_places_whatever_the_case():
    places = parse_places("delays/Subscriptions/all,DELAYS/Subscriptions/late,flights")
    assert by_entity(places) == {
        "delays": ("delays/Subscriptions/all", "DELAYS/Subscriptions/late"),
        "flights": ("flights",),
    }
