"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from dataclasses import is_dataclass
from datetime import timedelta
from typing import get_args

from servicebus_pair.core.model.events import Event
from servicebus_pair.core.model.health_transitions import HealthEvent
from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    assert all(is_dataclass(kind) for union in (Event, HealthEvent) for kind in get_args(union))
    check_values(
        "model",
        keyword_only={"ArmCoordinates", "Endpoint", "Operations", "PairOptions", "PriceList"},
        hidden={
            *("ArmCoordinates.credential", "Endpoint.connection_string", "Endpoint.credential"),
            *("SendResult.message_ids", "SendResult.primary_ids", "SendResult.diverted_ids", "SendResult.spooled_ids"),
            "SendResult.duplicates_possible_ids",
        },
    )


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "model",
        {
            "Meter.count.times": 1,
            "duration.high": timedelta.max,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "model",
        {
            "checks._LONGEST_SHOWN": 40,
            "daemon_thread.HANG_SECONDS": 5.0,
            "events.SLOT_SECONDS": 300,
            "health_state._LATEST": 253_402_300_799.0,
            "health_state._MAX_TEXT": 1000,
            "options._MEGABYTE": 1_048_576,
            "pricing.BILLED_BYTES": 65_536,
            "pricing._MAX_PRICE": 1_000_000,
            "pricing._MAX_TIERS": 100,
            "pricing._MILLION": 1_000_000,
            "regular_files._MAX_DEPTH": 16,
            "regular_files._MAX_VALUES": 2_000_000,
            "redaction._KEY_CHARACTERS": 43,
            "redaction._MIN_LEARNED_CHARACTERS": 8,
            "redaction._MIN_RANDOMNESS": 40,
            "redaction._MAX_LEARNED": 2000,
            "errors.PairError.retriable": False,
            "errors.PairError.triggers_failover": False,
            "errors.PairError.may_be_stored": False,
            "errors.UnreachableError.retriable": True,
            "errors.UnreachableError.triggers_failover": True,
            "errors.UnreachableError.may_be_stored": True,
            "errors.TimedOutError.retriable": True,
            "errors.TimedOutError.triggers_failover": True,
            "errors.TimedOutError.may_be_stored": True,
            "errors.ServiceFaultError.retriable": True,
            "errors.ServiceFaultError.triggers_failover": True,
            "errors.ServiceFaultError.may_be_stored": True,
            "errors.AuthenticationSuspectError.retriable": True,
            "errors.AuthenticationSuspectError.triggers_failover": True,
            "errors.ServerBusyError.retriable": True,
            "errors.RejectedError.retriable": True,
            "errors.SessionLockedError.retriable": True,
            "errors.SpoolError.retriable": True,
            "errors.SpoolError.may_be_stored": True,
            "errors.SpoolFullError.may_be_stored": False,
            "options._SECOND": timedelta(seconds=1),
            "options._MINUTE": timedelta(minutes=1),
        },
    )
