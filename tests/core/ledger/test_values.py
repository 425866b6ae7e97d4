"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from datetime import timedelta

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values("ledger")


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "ledger",
        {
            "Evidence.recorded": True,
            "Found.count": 1,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "ledger",
        {
            "incidents.INCIDENT_GAP_SECONDS": 60.0,
            "manifest._VERSION": 1,
            "reader.MAX_AT": 4_102_444_799,
            "reader.MAX_BYTES": 2**53,
            "reader.MAX_TEXT_BYTES": 4096,
            "reader._FOLDED_BYTES": 256,
            "reader._MAX_LINE_BYTES": 65_536,
            "reader._MAX_UNREADABLE_BYTES": 262_144,
            "folded._MAX_GROUP_BYTES": 268_435_456,
            "folded._BLOCK_BYTES": 512,
            "folded._FOOTER_END": 8,
            "folded._MAX_FOOTER_BYTES": 67_108_864,
            "folded._MAX_PAGE_BYTES": 16_777_216,
            "folded._MAX_RATIO": 256,
            "folded._PAGE_BYTES": 1024,
            "parquet_pages._MAX_DEPTH": 16,
            "parquet_pages._MAX_HEADER_BYTES": 65_536,
            "folded._MAX_LIST_BYTES": 67_108_864,
            "partitions._DIGEST_BYTES": 6,
            "partitions._MAX_CHARACTERS": 80,
            "segments._FLUSH_SECONDS": 10.0,
            "unclosed._LAST_LINE_BYTES": 4096,
            "unclosed._BEGAN_WITHIN": 172_800.0,
            "writer.LEDGER_VERSION": 1,
            "partitions._DAY": timedelta(days=1),
        },
    )
