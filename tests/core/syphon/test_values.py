"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from datetime import timedelta
from math import inf

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values(
        "syphon",
        mutable={"DrainContext", "DrainCounters", "DrainRun", "_DestinationLinks", "_Failure"},
        keyword_only={"DrainRun"},
    )


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "syphon",
        {
            "BacklogEntry.lock_seconds": 60.0,
            "DrainContext.max_batch_bytes": 16_777_216,
            "DrainContext.first_batch_messages": 16,
            "DrainContext.sends_at_once": 3,
            "DrainContext.slow_batch_seconds": 15.0,
            "DrainContext.attempt_timeout": 10.0,
            "DrainContext.pings": True,
            "DrainContext.list_sessions.timeout": 10.0,
            "DrainRun._may_count": True,
            "_DestinationLinks.count": 1,
            "RateLimiter.acquire.min_permits": 1,
            "RateLimiter.acquire.timeout": inf,
            "Source.peek.from_sequence_number": 1,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "syphon",
        {
            "backlog_entry.SENDING_SHARE": 0.6,
            "backlog_entry._DEFAULT_LOCK_SECONDS": 30.0,
            "batch_sender._MIN_SEND_TIMEOUT": 0.5,
            "batch_sender._ATTEMPT_SHARE": 0.5,
            "batch_sender._MAX_REJECTIONS": 8,
            "batch_sender._REJECTION_PAUSE_SHARE": 0.03333333333333333,
            "drain.MAX_LINKS": 8,
            "drain._STOP_GRACE": 1.5,
            "drain_context.CALL_TIMEOUT": 10.0,
            "drain_context.MAX_BATCH_BYTES": 16_777_216,
            "drain_run._MAX_SESSIONS": 16,
            "drain_run._TURNS": 8,
            "attempt_timeouts.LONGEST_ATTEMPT": 30.0,
            "attempt_timeouts._QUICK": 0.5,
            "attempt_timeouts._RETURN": 0.9,
            "batch_size.INITIAL_BATCH_SIZE": 16,
            "batch_size._GROWTH": 4,
            "batch_size._QUICK_GROWTH": 16,
            "destination_backoff.MAX_BACKOFF": 120.0,
            "destination_backoff.MAX_CONSECUTIVE_FAILURES": 5,
            "link_pool._EXTRA_LINKS": 2,
            "ports._SENDS_OVER_ONE_LINK": 16,
            "ports._LINKS": 3,
            "ports._FIRST_RELAYED": 64,
            "rate_limiter._ROUNDING": 1e-06,
            "rate_limiter._MIN_PAUSE": 0.001,
            "queue_drain._SHORT_WAIT": 0.3,
            "queue_drain._MAX_PAUSE_WITH_LOCKS": 10.0,
            "queue_drain._FIRST_PAGE_SIZE": 5,
            "queue_drain._MAX_WAIT_FOR_LOCKS": 65.0,
            "queue_drain._MAX_SKIPPED": 1000,
            "queue_drain._MAX_PAUSE": 30.0,
            "queue_drain._MAX_PAUSE_FOR_LOCKS": 5.0,
            "queue_drain._MIN_PAUSE": 0.05,
            "queue_drain._MAX_HELPERS": 1,
            "queue_worker._MAX_WAITING_BATCHES": 4,
            "queue_worker._MAX_IDLE_WITH_LOCKS": 10.0,
            "queue_worker._MAX_IDLE_WITH_WAITING": 1.0,
            "queue_worker._MIN_SENDING_SECONDS": 1.0,
            "session_drain._SHORT_WAIT": 0.3,
            "session_drain._FIRST_ACCEPT_WAIT": 0.3,
            "session_drain._ACCEPT_WAIT": 1.0,
            "session_drain._HOLD_INTERVAL": 10.0,
            "session_drain._MAX_HELD": 100,
            "session_drain._MAX_TURN": 60.0,
            "session_drain._MAX_WAIT_FOR_LOCKS": 65.0,
            "session_drain._MAX_PAUSE_FOR_LOCKS": 5.0,
            "session_drain._MAX_PAUSE": 30.0,
            "session_drain._MIN_PAUSE": 0.05,
            "session_drain._STOP_GRACE": 1.5,
            "session_worker._MAX_IDLE": 10.0,
            "session_worker._RENEWAL_SHARE": 0.5,
            "session_worker._LITTLE_SECONDS": 5.0,
            "session_worker._MAX_LOCK_SECONDS": 60.0,
            "settlement.RELEASE_TIMEOUT": 2.0,
            "settlement._MAX_DESCRIPTION": 1000,
            "backlog_entry._MILLISECOND": timedelta(milliseconds=1),
        },
    )
