"""Values of this package are frozen (DESIGN section 5); its defaults and limits are what was decided."""

from __future__ import annotations

from datetime import timedelta

from tests.core.support.values import check_defaults, check_limits, check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values("spool")


def test_what_a_caller_does_not_ask_for_is_off_or_zero() -> None:
    check_defaults(
        "spool",
        {
            "FolderStorage.__init__.mode": 0o600,
            **dict.fromkeys(
                (f"{storage}.read.limit" for storage in ("FolderStorage", "ObjectStorage", "SpoolStorage")), 150_994_944
            ),
            "Spool.__init__.max_age": timedelta.max,
            "open_storage.mode": 0o600,
        },
    )


def test_limits_are_those_that_were_tuned_together() -> None:
    check_limits(
        "spool",
        {
            "claims.CLAIM_SECONDS": 60.0,
            "claims._RENEWALS": 6,
            "drain._CONCURRENT_ENTITIES": 8,
            "drain._MAX_REASONS": 10,
            "drain._LARGE_BYTES": 33_554_432,
            "folder_storage.PRIVATE": 0o600,
            "folder_storage._MAX_DEPTH": 16,
            "folder_storage._MAX_WARNINGS": 100,
            "folder_storage.SHARED_MODE": 0o666,
            "spool._NANOSECONDS": 1_000_000_000,
            "spool._ALARM_SHARE": 0.8,
            "spool._TIME_DIGITS": 20,
            "storage.MAX_FILE_BYTES": 150_994_944,
            "storage.MAX_SMALL_FILE_BYTES": 65_536,
            "spool._LISTING_SECONDS": 5.0,
            "spool._PIECE_BYTES": 4_194_304,
            "spool._LISTED_AT_ONCE": 1000,
            "folder_storage.FolderStorage.listing_seconds": 0.0,
            "object_storage.ObjectStorage.listing_seconds": 25.0,
            "spool._SLOWEST_BYTES_PER_SECOND": 4_194_304,
            "spool_file._MAX_DAMAGED": 10_000,
            "spool_file._MAX_VALUES": 1_000_000,
            "spool_file._FEW_VALUES": 64,
            "spool_file._MAX_HEADER_BYTES": 65_536,
            "spool_file._KEY_BYTES": 32,
            "spool_file._SALT_BYTES": 16,
            "identity._MAX_CHARACTERS": 1000,
            "spool_file._NONCE_BYTES": 12,
        },
    )
