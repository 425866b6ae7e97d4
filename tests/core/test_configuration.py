"""SPEC section 2 from a plain mapping: the one reader of settings, whoever brings them."""

from __future__ import annotations

import traceback
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from servicebus_pair.core.configuration import PairSettings, read_pair
from servicebus_pair.core.endpoint_settings import ENDPOINT_SETTINGS
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.options import PairOptions

KEY = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="
PRIMARY = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey={KEY}"
SECONDARY = PRIMARY.replace("contoso", "contoso-dr")
BOTH = {"primary_connection_string": PRIMARY, "secondary_connection_string": SECONDARY}


def test_two_connection_strings_are_enough() -> None:
    settings = read_pair(BOTH)
    assert isinstance(settings, PairSettings)
    assert (settings.primary.namespace, settings.secondary.namespace) == ("contoso", "contoso-dr")
    assert settings.options == PairOptions()


@pytest.mark.parametrize("empty", [None, ""])
def test_an_empty_value_counts_as_absent(empty: Any) -> None:
    absent: dict[str, Any] = {field.name: empty for field in fields(PairOptions)}
    absent |= {f"{side}_{name}": empty for side in ("primary", "secondary") for name in ENDPOINT_SETTINGS}
    assert read_pair({**absent, **BOTH}) == read_pair(BOTH)


@pytest.mark.parametrize(
    ("setting", "given", "read"),
    [
        ("failover_interval", "2.5", timedelta(seconds=2.5)),
        ("failover_interval", 0, timedelta(0)),
        ("failover_interval", "0", timedelta(0)),
        ("ping_primary_interval", 90, timedelta(seconds=90)),
        ("backlog_queue_count", "3", 3),
        ("backlog_queue_count", 3.0, 3),
        ("syphon_batch_size", "250", 250),
        ("enable_syphon", "True", True),
        ("enable_syphon", "false", False),
        ("enable_syphon", True, True),
    ],
)
def test_section_2_options_are_read_from_text_and_numbers_with_durations_in_seconds(
    setting: str, given: Any, read: Any
) -> None:
    assert getattr(read_pair({**BOTH, setting: given}).options, setting) == read


def test_every_option_of_the_specification_is_a_setting() -> None:
    defaults = PairOptions()
    given: dict[str, Any] = {}
    for field in fields(PairOptions):
        value = getattr(defaults, field.name)
        given[field.name] = str(value.total_seconds() if isinstance(value, timedelta) else value)
    assert read_pair({**BOTH, **given}).options == defaults


def test_namespace_and_administration_are_given_where_the_host_does_not_tell() -> None:
    local = PRIMARY.replace("contoso.servicebus.windows.net", "127.0.0.1:5672")
    settings = read_pair(
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
        ({"fail_over_interval": 5}, "setting 'fail_over_interval' is unknown: allowed are backlog_queue_count, "),
        ({"primary_connection_string": None}, "setting primary_connection_string is missing"),
        ({"secondary_connection_string": ""}, "setting secondary_connection_string is missing"),
        ({"primary_connection_string": 5}, "setting primary_connection_string is missing"),
        ({"secondary_connection_string": PRIMARY}, "primary and secondary are both 'contoso.servicebus.windows.net'"),
        ({"secondary_connection_string": KEY}, "setting secondary_connection_string: connection string: Endpoint is"),
        ({"failover_interval": "soon"}, "setting failover_interval is 'soon': it must be a number"),
        ({"failover_interval": "nan"}, "setting failover_interval is 'nan': it must be a number"),
        ({"failover_interval": "inf"}, "setting failover_interval is 'inf': it must be a number"),
        ({"failover_interval": 1e300}, "setting failover_interval is 1e+300: it must be a number"),
        ({"failover_interval": True}, "setting failover_interval is True: it must be a number"),
        ({"failover_interval": []}, r"setting failover_interval is []: it must be a number"),
        ({"failover_interval": 3601}, "failover_interval is 1:00:01: allowed is 0:00:00 .. 1:00:00"),
        ({"backlog_queue_count": "2.5"}, "setting backlog_queue_count is '2.5': it must be a whole number"),
        ({"backlog_queue_count": "inf"}, "setting backlog_queue_count is 'inf': it must be a whole number"),
        ({"backlog_queue_count": "nan"}, "setting backlog_queue_count is 'nan': it must be a whole number"),
        ({"backlog_queue_count": "0"}, "backlog_queue_count is 0: allowed is >= 1"),
        ({"enable_syphon": "yes"}, "setting enable_syphon is 'yes': allowed are true and false"),
        ({"enable_syphon": 1}, "setting enable_syphon is 1: allowed are true and false"),
    ],
)
def test_section_2_a_wrong_setting_is_named_with_its_value_and_what_is_allowed(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_pair({**BOTH, **change})
    assert message in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_no_secret_is_shown_by_settings() -> None:
    assert KEY not in repr(read_pair(BOTH))
