"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from datetime import timedelta

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values("pair", keyword_only={"Attempts", "NamespaceCheck"}, hidden={"SettingsReference.settings"})


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "pair",
        {
            "NamespacePair.drill.messages": 10,
            "NamespacePair.drill.limit": timedelta(seconds=120),
            "NamespacePair.drill.life": timedelta(seconds=3600),
            "BacklogManagement.cost.period": timedelta(days=30),
            "BacklogManagement.cost.size_bytes": 1024,
            "check_namespace.timeout": 6.0,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "pair",
        {
            "connection_check._TIMEOUT": 6.0,
            "connection_check._MAX_ERROR_CHARACTERS": 200,
            "continuous_syphon._FIRST_DELAY": 1.0,
            "drill._CALL_TIMEOUT": 5.0,
            "drill._PEEK_BATCH": 250,
            "drill._HOLD_PAUSE": 1.0,
            "namespace_pair._LISTING_TIMEOUT": 10.0,
            "backlog_management._NONE": timedelta(0),
            "drill._END_HOLD": timedelta(milliseconds=1),
            "endpoint_settings._MAX_FILE_BYTES": 16_777_216,
            "namespace_pair._NONE": timedelta(0),
            "namespace_pair._DRILL_LIMIT": timedelta(minutes=2),
            "namespace_pair._DRILL_LIFE": timedelta(hours=1),
        },
    )
