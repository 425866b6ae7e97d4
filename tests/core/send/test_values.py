"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from math import inf

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values("send", mutable={"Part"}, keyword_only={"AttemptHistory", "SendPolicy"})


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "send",
        {
            "BatchDelivery._slot.sends": True,
            "AttemptHistory.rejected_since": inf,
            "next_step.deadline": inf,
            "BacklogSearchBudget.__init__.longest": 10.0,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "send",
        {
            "last_step._MAX_WRITES": 3,
            "backlog_copies._MAX_BATCH_BYTES": 1_048_576,
            "backlog_copies._MESSAGE_OVERHEAD_BYTES": 300,
            "backlog_copies.LARGEST_UNCHECKED": 26_214,
            "diversion._MAX_SESSION_QUEUE_ATTEMPTS": 3,
            "next_step._MAX_REJECTIONS": 3,
            "next_step._MAX_BUSY_ANSWERS": 10,
            "next_step._REJECTION_DELAY": 0.25,
            "next_step._RETRY_DELAYS": (0.25, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0),
            "timeouts.MAX_CALL_TIMEOUT": 10.0,
            "next_step._MIN_ATTEMPT": 1.0,
            "timeouts._MIN_ATTEMPT": 1.0,
            "next_step._MIN_LATE_ATTEMPT": 0.7,
            "batch_delivery._MIN_PREPARE_DELAY": 0.3,
            "batch_delivery._LINK_OPENING": 3.0,
            "timeouts._MIN_SEARCH": 10.0,
            "timeouts._MAX_SEARCH": 20.0,
            "timeouts._UNRESPONSIVE_SEARCH": 4.0,
            "timeouts._MIN_CALL": 0.1,
            "backlog_sender._MAX_BACKGROUND_TASKS": 16,
            "diversion._REJECTION_PAUSES": (0.25, 0.5),
        },
    )
