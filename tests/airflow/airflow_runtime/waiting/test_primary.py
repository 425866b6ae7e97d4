from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.airflow_runtime.waiting.primary import _named_by_events


@pytest.mark.parametrize(
    "hostile",
    [
        {"entity": 5, "payload": "text"},
        {"payload": {"entities": 5}},
        {"payload": {"entities": "gates"}},
        {"payload": {"entities": [None, {}, ["gates"]]}},
    ],
    ids=str,
)
def test_events_of_another_shape_name_no_entity_and_hide_no_other(hostile: dict[str, Any]):
    extras = [{"entity": "flights"}, hostile, {"payload": {"entities": ["hotels"]}}, None]
    context = {"triggering_asset_events": {"asset": [SimpleNamespace(extra=extra) for extra in extras]}}

    assert sorted(_named_by_events(context)) == ["flights", "hotels"]
