"""The hook: reading the connection, testing it, and showing no secret."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import CONN_ID, KEY, Pair

VARIABLE = f"AIRFLOW_CONN_{CONN_ID.upper()}"


async def test_the_settings_are_the_same_read_either_way(pair: Pair):
    hook = ServiceBusPairHook(CONN_ID)

    settings = hook.get_settings()

    assert settings == await hook.aget_settings()
    assert (settings.primary.namespace, settings.secondary.namespace) == ("contoso", "contoso-dr")
    assert settings.options.failover_interval == timedelta(seconds=1)
    assert KEY in pair.connection()
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("no json", "its extra must be a JSON object"),
        ("[1]", "its extra must be a JSON object"),
        ("{}", "setting primary_connection_string is missing"),
        (
            json.dumps({"primary_connection_string": f"SharedAccessKey={KEY}"}),
            "setting primary_connection_string: connection string: Endpoint is",
        ),
        (json.dumps({"failover_intervall": 5}), "setting 'failover_intervall' is unknown: allowed are"),
    ],
    ids=["no json", "a list", "empty", "no endpoint", "unknown setting"],
)
def test_a_wrong_connection_is_told_by_field_and_never_quoted(monkeypatch: pytest.MonkeyPatch, extra: str, told: str):
    monkeypatch.setenv(VARIABLE, json.dumps({"conn_type": "servicebus_pair", "extra": extra}))

    with pytest.raises(ConfigurationError, match=told) as error:
        ServiceBusPairHook(CONN_ID).get_settings()

    assert str(error.value).startswith(f"connection {CONN_ID}: ")
    assert KEY not in str(error.value)


def test_connection_strings_and_the_keys_in_them_are_masked_in_logs(pair: Pair):
    from airflow.sdk.log import redact

    ServiceBusPairHook(CONN_ID).get_settings()

    assert redact(f"key {KEY} in {pair.extra()['primary_connection_string']}") == "key *** in ***"
