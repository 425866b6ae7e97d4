"""A received message as plain values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType, Header, Properties
from servicebus_pair.core.receive.message_fields import UnreadableMessageError, message_fields

VALUES: dict[str, tuple[Any, Any]] = {
    "text": (b"late", "late"),
    "bytes": (b"\xff", {"base64": "/w=="}),
    "number": (5, 5),
    "not a number": (float("nan"), "nan"),
    "id": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "time": (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
    "map": ({b"a": [None, True]}, {"a": [None, True]}),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_plain(name: str) -> None:
    value, plain = VALUES[name]
    properties = message_fields(AmqpMessage([b""], application_properties={b"p": value}))["application_properties"]
    assert properties == {"p": plain}
    assert message_fields(AmqpMessage(value, BodyType.VALUE)) == {"body": plain, "body_type": "value"}


def test_the_fields_have_the_names_of_a_message_to_send() -> None:
    message = AmqpMessage(
        [b"par", b"ts"],
        header=Header(time_to_live=1500),
        properties=Properties(message_id=b"m", group_id="s", reply_to_group_id="r", subject=b"late"),
        annotations={b"x-opt-partition-key": b"s"},
    )
    assert message_fields(message) == {
        "body": "parts",
        "message_id": "m",
        "session_id": "s",
        "reply_to_session_id": "r",
        "subject": "late",
        "partition_key": "s",
        "time_to_live": 1.5,
    }


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [object(), nested(20_000)], ids=["unknown type", "depth"])
def test_what_json_cannot_hold_is_unreadable(value: Any) -> None:
    with pytest.raises(UnreadableMessageError, match=r"JSON cannot hold|nested too deeply"):
        json.dumps(message_fields(AmqpMessage(value, BodyType.VALUE)))
