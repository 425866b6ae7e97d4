"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from datetime import timedelta
from math import inf

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values("health", mutable={"_Lease"})


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "health",
        {
            "_Lease.loaded_at": -inf,
            "_Lease.observed_at": -inf,
            "_Lease.acts_at": -inf,
            "HealthRegistry.refresh.timeout": 5.0,
            "SessionOrdering.fail_back.look_first": True,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "health",
        {
            "leases.FAILBACK_POLL_SECONDS": 10.0,
            "ordered_registry._SAVE_ATTEMPTS": 3,
            "ordered_registry._RETRY_SECONDS": 0.2,
            "prober._MAX_JITTER": 1.0,
            "prober._MAX_PINGS_AT_ONCE": 100,
            "prober._STORE_TIMEOUT": 0.5,
            "registry._STORE_TIMEOUT": 5.0,
            "registry._REFRESH_FRACTION": 0.8,
            "session_ordering._CALL_TIMEOUT": 10.0,
            "session_ordering._ACCEPT_WAIT": 1.0,
            "session_ordering._POLL_SECONDS": 0.1,
            "session_ordering._LOOK_PAUSE": 1.0,
            "session_ordering._FIRST_PAUSE_OF_HOLDS": 15.0,
            "session_ordering._LONGEST_PAUSE_OF_HOLDS": 300.0,
            "session_ordering._LOOK_SECONDS": 2.0,
            "session_ordering._LITTLE_SECONDS": 5.0,
            "store_calls._CLOSE_SECONDS": 0.5,
            "prober.PING_TIME_TO_LIVE": timedelta(seconds=1),
        },
    )
