"""The hook reads its connection and masks secrets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import BACKLOG, CONN_ID, KEY, Pair, define_connection


async def test_both_reads_agree_and_mask_the_keys_in_logs(pair: Pair):
    from airflow.sdk.log import redact

    hook = ServiceBusPairHook(CONN_ID)

    settings = hook.get_settings()

    assert settings == await hook.aget_settings()
    assert (settings.primary.namespace, settings.secondary.namespace) == ("contoso", "contoso-dr")
    assert settings.options.failover_interval == timedelta(seconds=1)
    assert hook.backlog_queue_names() == tuple(BACKLOG)
    assert KEY not in repr(settings)
    assert redact(f"key {KEY} in {pair.extra()['primary_connection_string']}") == "key *** in ***"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([1], "its extra must be a JSON object"),
        ({}, "setting primary_connection_string is missing"),
        ({"primary_connection_string": f"SharedAccessKey={KEY}"}, "setting primary_connection_string: connection stri"),
        ({"failover_intervall": 5}, "setting 'failover_intervall' is unknown: allowed are"),
    ],
    ids=["a list", "empty", "no endpoint", "unknown setting"],
)
def test_invalid_connections_are_reported_by_field_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, extra: object, message: str
):
    define_connection(monkeypatch, extra)

    with pytest.raises(ConfigurationError, match=message) as error:
        ServiceBusPairHook(CONN_ID).get_settings()

    assert str(error.value).startswith(f"connection {CONN_ID}: ")
    assert KEY not in str(error.value)
