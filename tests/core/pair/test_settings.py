"""Pair settings from a plain mapping (SPEC section 2)."""

from __future__ import annotations

import traceback
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.pair.endpoint_settings import ENDPOINT_SETTINGS
from servicebus_pair.core.pair.settings import PairSettings, read_pair_settings

KEY = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="
PRIMARY = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey={KEY}"
SECONDARY = PRIMARY.replace("contoso", "contoso-dr")
SECONDS = "it must be a timedelta or a number of seconds"
BOTH = {"primary_connection_string": PRIMARY, "secondary_connection_string": SECONDARY}


def test_connection_strings_alone_give_default_options() -> None:
    settings = read_pair_settings(BOTH)
    assert isinstance(settings, PairSettings)
    assert (settings.primary.namespace, settings.secondary.namespace) == ("contoso", "contoso-dr")
    assert settings.options == PairOptions()


@pytest.mark.parametrize("empty", [None, ""])
def test_empty_values_count_as_absent(empty: Any) -> None:
    absent: dict[str, Any] = {field.name: empty for field in fields(PairOptions)}
    absent |= {f"{side}_{name}": empty for side in ("primary", "secondary") for name in ENDPOINT_SETTINGS}
    assert read_pair_settings({**absent, **BOTH}) == read_pair_settings(BOTH)


@pytest.mark.parametrize(
    ("setting", "given", "read"),
    [
        ("failover_interval", "2.5", timedelta(seconds=2.5)),
        ("ping_primary_interval", 90, timedelta(seconds=90)),
        ("backlog_queue_count", "3", 3),
        ("enable_syphon", "True", True),
    ],
)
def test_options_are_parsed_from_text_and_numbers(setting: str, given: Any, read: Any) -> None:
    assert getattr(read_pair_settings({**BOTH, setting: given}).options, setting) == read


def test_every_option_can_be_given_as_text() -> None:
    defaults = PairOptions()
    given: dict[str, Any] = {}
    for field in fields(PairOptions):
        value = getattr(defaults, field.name)
        text = str(value.total_seconds() if isinstance(value, timedelta) else value)
        given[field.name] = "" if value is None else text
    assert read_pair_settings({**BOTH, **given}).options == defaults


def test_namespace_and_administration_can_be_set_for_local_host() -> None:
    local = PRIMARY.replace("contoso.servicebus.windows.net", "127.0.0.1:5672")
    settings = read_pair_settings(
        {
            **BOTH,
            "primary_connection_string": local,
            "primary_namespace": "contoso",
            "primary_administration": "127.0.0.1:5300",
        }
    )
    assert (settings.primary.namespace, settings.primary.administration) == ("contoso", "127.0.0.1:5300")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fail_over_interval": 5}, "setting 'fail_over_interval' is unknown: allowed are attempt_timeout, "),
        ({"sort": 5, "fail_over_interval": 5}, "setting 'fail_over_interval' is unknown"),
        ({"primary_connection_string": None}, "setting primary_connection_string is missing"),
        ({"secondary_connection_string": ""}, "setting secondary_connection_string is missing"),
        ({"primary_connection_string": 5}, "setting primary_connection_string is missing"),
        ({"secondary_connection_string": PRIMARY}, "primary and secondary are both 'contoso.servicebus.windows.net'"),
        ({"secondary_connection_string": KEY}, "setting secondary_connection_string: connection string: Endpoint is"),
        ({"failover_interval": "soon"}, f"setting failover_interval is 'soon': {SECONDS}"),
        ({"failover_interval": 3601}, f"setting failover_interval is 3601: {SECONDS}, from 0 to 3600 s"),
        ({"backlog_queue_count": "0"}, "setting backlog_queue_count is '0': it must be a whole number from 1"),
        ({"enable_syphon": "yes"}, "setting enable_syphon is 'yes': allowed are true and false"),
    ],
)
def test_invalid_setting_is_named_with_value_and_allowed_values(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_pair_settings({**BOTH, **change})
    assert message in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_repr_of_settings_hides_secrets() -> None:
    assert KEY not in repr(read_pair_settings(BOTH))
