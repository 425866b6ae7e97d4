"""Values and pure rules shared by all packages of the core: options, errors, events, results, health, prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.model.checks import (
        CONTROL_CHARACTERS,
        boolean,
        choice,
        duration,
        entity_path,
        integer,
        is_folder,
        message_rate,
        no_secret,
        non_empty_text,
        storage_location,
    )
    from servicebus_pair.core.model.daemon_thread import DaemonThread
    from servicebus_pair.core.model.interfaces import Clock, SystemClock
    from servicebus_pair.core.model.logs import get_logger, guard_library_logs, printable
    from servicebus_pair.core.model.options import OPTION_CHECKS
    from servicebus_pair.core.model.redaction import learn_secrets, scrub, secret_kind
    from servicebus_pair.core.model.regular_files import (
        IrregularFileError,
        count_values,
        files_below,
        load_json,
        open_regular,
        read_regular,
    )
    from servicebus_pair.core.model.results import Drift
    from servicebus_pair.core.model.usage_meter import Meter, Operation

__all__ = [
    "CONTROL_CHARACTERS",
    "OPTION_CHECKS",
    "Clock",
    "DaemonThread",
    "Drift",
    "IrregularFileError",
    "Meter",
    "Operation",
    "SystemClock",
    "boolean",
    "choice",
    "count_values",
    "duration",
    "entity_path",
    "files_below",
    "get_logger",
    "guard_library_logs",
    "integer",
    "is_folder",
    "learn_secrets",
    "load_json",
    "message_rate",
    "no_secret",
    "non_empty_text",
    "open_regular",
    "printable",
    "read_regular",
    "scrub",
    "secret_kind",
    "storage_location",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "checks": [
            "CONTROL_CHARACTERS",
            "boolean",
            "choice",
            "duration",
            "entity_path",
            "integer",
            "is_folder",
            "message_rate",
            "no_secret",
            "non_empty_text",
            "storage_location",
        ],
        "daemon_thread": ["DaemonThread"],
        "interfaces": ["Clock", "SystemClock"],
        "logs": ["get_logger", "guard_library_logs", "printable"],
        "options": ["OPTION_CHECKS"],
        "redaction": ["learn_secrets", "scrub", "secret_kind"],
        "regular_files": [
            "IrregularFileError",
            "count_values",
            "files_below",
            "load_json",
            "open_regular",
            "read_regular",
        ],
        "results": ["Drift"],
        "usage_meter": ["Meter", "Operation"],
    },
)
