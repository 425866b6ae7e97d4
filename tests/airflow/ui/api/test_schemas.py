from __future__ import annotations

import json

import pytest

from servicebus_pair.ui.api.schemas import RequestBodyError, parse_request
from servicebus_pair.ui.view.action_catalogue import ActionName


@pytest.mark.parametrize(
    ("action", "body", "field"),
    [
        ("pause_syphon", {}, "reason"),
        ("pause_syphon", {"reason": "   "}, "reason"),
        ("pause_syphon", {"reason": 1}, "reason"),
        ("pause_syphon", {"reason": "x" * 501}, "reason"),
        ("pause_syphon", {"reason": "x", "force": True}, "force"),
        ("pause_syphon", [], "body"),
        ("throttle_syphon", {"reason": "x", "rate": 0}, "rate"),
        ("throttle_syphon", {"reason": "x", "rate": "fast"}, "rate"),
        ("fail_over", {"reason": "x"}, "entities"),
        ("fail_over", {"reason": "x", "entities": []}, "entities"),
        ("fail_over", {"reason": "x", "entities": ["flights", ""]}, "entities.1"),
        ("fail_over", {"reason": "x", "entities": ["flights"], "hold_minutes": -1}, "hold_minutes"),
        ("drill", {"reason": "x", "entities": ["flights"], "messages": 10_001}, "messages"),
        ("plan_cleanup", {"reason": "x", "what": "everything"}, "what"),
    ],
)
def test_invalid_field_is_named(action: str, body: object, field: str):
    with pytest.raises(RequestBodyError) as raised:
        parse_request(ActionName(action), json.dumps(body).encode())

    assert [each["field"] for each in raised.value.fields] == [field]


def test_settings_are_the_fields_without_reason_and_null():
    request = parse_request(ActionName.REDRIVE, b'{"reason": " fixed ", "rate": null}')

    assert (request.reason, request.settings()) == ("fixed", {})
