"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values("provision")


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults("provision", {})


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "provision",
        {
            "provisioning._RETRY_DELAYS_SECONDS": (1.0, 2.0),
        },
    )
