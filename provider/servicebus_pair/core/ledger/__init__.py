"""The ledger: records written by senders and syphons, and the rules by which reports evaluate them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.ledger.folded import (
        FOLD_LIST,
        FOLDED,
        folded_problem,
        folded_twice,
        footer_problem,
        read_fold_list,
    )
    from servicebus_pair.core.ledger.incidents import INCIDENT_GAP_SECONDS, Incident, LedgerSlice, find_incidents
    from servicebus_pair.core.ledger.judgement import Evidence, Judgement, judge
    from servicebus_pair.core.ledger.manifest import EntityManifest, PublishManifest
    from servicebus_pair.core.ledger.partitions import days_since, run_partition
    from servicebus_pair.core.ledger.reader import KINDS, MAX_AT, MAX_BYTES, MAX_TEXT_BYTES, ROUTES, check_version
    from servicebus_pair.core.ledger.reconcile import (
        Found,
        History,
        Location,
        Outcome,
        Sent,
        Syphoned,
        Verdict,
        classify,
    )
    from servicebus_pair.core.ledger.segments import (
        SEGMENT,
        SegmentedLedger,
        check_ledger,
        ledger_storage,
        open_ledger,
        writer_name,
    )
    from servicebus_pair.core.ledger.session_order_check import Arrival, check_order
    from servicebus_pair.core.ledger.totals import Totals
    from servicebus_pair.core.ledger.unclosed import open_files
    from servicebus_pair.core.ledger.usage import LedgerCount, count_ledger, operations_for_record
    from servicebus_pair.core.ledger.writer import CLOSED, LedgerWriter

__all__ = [
    "CLOSED",
    "FOLDED",
    "FOLD_LIST",
    "INCIDENT_GAP_SECONDS",
    "KINDS",
    "MAX_AT",
    "MAX_BYTES",
    "MAX_TEXT_BYTES",
    "ROUTES",
    "SEGMENT",
    "Arrival",
    "EntityManifest",
    "Evidence",
    "Found",
    "History",
    "Incident",
    "Judgement",
    "LedgerCount",
    "LedgerSlice",
    "LedgerWriter",
    "Location",
    "Outcome",
    "PublishManifest",
    "SegmentedLedger",
    "Sent",
    "Syphoned",
    "Totals",
    "Verdict",
    "check_ledger",
    "check_order",
    "check_version",
    "classify",
    "count_ledger",
    "days_since",
    "find_incidents",
    "folded_problem",
    "folded_twice",
    "footer_problem",
    "judge",
    "ledger_storage",
    "open_files",
    "open_ledger",
    "operations_for_record",
    "read_fold_list",
    "run_partition",
    "writer_name",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "folded": [
            "FOLDED",
            "FOLD_LIST",
            "folded_problem",
            "folded_twice",
            "footer_problem",
            "read_fold_list",
        ],
        "incidents": ["INCIDENT_GAP_SECONDS", "Incident", "LedgerSlice", "find_incidents"],
        "judgement": ["Evidence", "Judgement", "judge"],
        "manifest": ["EntityManifest", "PublishManifest"],
        "unclosed": ["open_files"],
        "partitions": ["days_since", "run_partition"],
        "reader": ["KINDS", "MAX_AT", "MAX_BYTES", "MAX_TEXT_BYTES", "ROUTES", "check_version"],
        "reconcile": ["Found", "History", "Location", "Outcome", "Sent", "Syphoned", "Verdict", "classify"],
        "segments": [
            "SEGMENT",
            "SegmentedLedger",
            "check_ledger",
            "ledger_storage",
            "open_ledger",
            "writer_name",
        ],
        "session_order_check": ["Arrival", "check_order"],
        "totals": ["Totals"],
        "usage": ["LedgerCount", "count_ledger", "operations_for_record"],
        "writer": ["CLOSED", "LedgerWriter"],
    },
)
