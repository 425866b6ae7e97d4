from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servicebus_pair.ui.sources.run_queries import to_timestamp
from servicebus_pair.ui.sources.task_values import read_json


@pytest.mark.parametrize(("stored", "value"), [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("{", None), (None, None)])
def test_invalid_json_becomes_none(stored: object, value: object):
    assert read_json(stored) == value


def test_naive_times_are_utc():
    assert to_timestamp(datetime(2030, 1, 1)) == to_timestamp(datetime(2030, 1, 1, tzinfo=UTC))  # noqa: DTZ001
    assert to_timestamp(None) is None
