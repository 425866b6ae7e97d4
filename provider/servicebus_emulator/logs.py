"""The log: one event per line, as text or JSON, with keys and tokens masked."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TextIO

_PACKAGE: Final = "servicebus_emulator."
# The value of a key, of a signature within a token, of a token within a header, and a key of 32 bytes or a JSON Web
# Token by their shapes.
_SECRETS: Final = (
    re.compile(r"(SharedAccessKey(?:=|%3D))[^;\s\"'\\]+", re.IGNORECASE),
    re.compile(r"(\bsig=)[^&\s\"'\\]+", re.IGNORECASE),
    re.compile(r"(\bBearer )[^\s\"'\\]+", re.IGNORECASE),
    re.compile(r"(?<![\w+/=-])()[\w+/-]{43}=(?![\w=])", re.ASCII),
    re.compile(r"(?<![\w-])()eyJ[\w-]{8,800}\.[\w-]{8,}+\.[\w-]*", re.ASCII),
)


class LogFormat(StrEnum):
    """The format of events."""

    TEXT = "text"
    JSON = "json"


def event(name: str, **fields: Any) -> dict[str, Any]:
    """Return the argument `extra` of a logging call.

    :param name: the event, such as ``fault-set``.
    :param fields: its fields; no bodies, no keys.
    """
    return {"event": name, "fields": {key: value for key, value in fields.items() if value is not None}}


def masked(text: str) -> str:
    """Return a text with its keys and tokens masked."""
    for secret in _SECRETS:
        text = secret.sub(r"\1***", text)
    return text


def configure(*, level: str, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Log to a stream, one event per line.

    :param level: the lowest level to log.
    :param stream: None = standard error.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


class TextFormatter(logging.Formatter):
    """``2026-11-20T21:04:05.678Z INFO namespace contoso: created queue flights``; a traceback follows it indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of an event."""
        line = f"{_time_of(record)} {record.levelname} {record.getMessage()}"
        traceback = _traceback_of(self, record)
        text = line if traceback is None else f"{line}\n{traceback}"
        return masked("\n    ".join(map(_printable, text.split("\n"))))


class JsonFormatter(logging.Formatter):
    """An object per line: ``time``, ``level``, ``event``, ``message``, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        document = {
            "time": _time_of(record),
            "level": record.levelname,
            "event": getattr(record, "event", record.name.removeprefix(_PACKAGE)),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        traceback = _traceback_of(self, record)
        if traceback is not None:
            document["traceback"] = traceback
        return json.dumps({key: _plain(value) for key, value in document.items()})


def _printable(line: str) -> str:
    """Escape what a client sent to forge lines or to change what a terminal shows."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def _time_of(record: logging.LogRecord) -> str:
    created = datetime.fromtimestamp(record.created, tz=UTC)
    return created.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    return None if record.exc_info is None else formatter.formatException(record.exc_info)


def _plain(value: object) -> object:
    return value if isinstance(value, int | float) else masked(str(value))
