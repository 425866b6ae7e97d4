"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from math import inf

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values(
        "receive",
        keyword_only={"ReceiveContext"},
        by_identity={"InboundMessage"},
        hidden={"InboundMessage.fields", "InboundMessage.received"},
    )


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "receive",
        {
            "PairReceiver.receive.max_messages": 1,
            "PairReceiver.receive.max_wait": inf,
            "PairReceiver.receive.wait_for_primary": True,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "receive",
        {
            "message_locks._MIN_PAUSE": 1.0,
            "message_locks._MAX_PAUSE": 20.0,
            "receiver._CALL_TIMEOUT": 10.0,
            "receiver._LONGEST_WAIT": 60.0,
            "receiver._LONGEST_ACCEPT": 30.0,
            "receiver._SESSION_WAIT": 1.0,
            "receiver._FIRST_PAUSE": 1.0,
            "receiver._EMPTY_PAUSE": 0.05,
            "receiver._MAX_LINK_MESSAGES": 500,
            "receiver._STOP_TIMEOUT": 2.0,
        },
    )
