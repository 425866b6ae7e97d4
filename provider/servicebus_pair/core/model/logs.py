"""Loggers whose lines nobody can forge: control characters of values are escaped, and their secrets masked.

Names, reasons, message ids and the texts of services come from outside: a line end in one would begin a line of its
own, and an escape sequence would change what a terminal shows.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

from servicebus_pair.core.model.redaction import scrub


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module, which masks and escapes the values of its lines."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, _SafeValues) for each in logger.filters):
        logger.addFilter(_SafeValues())
    return logger


def guard_library_logs(name: str) -> None:
    """Keep a library's loggers at WARNING, unless a level is configured, and mask and escape their lines.

    The Azure SDK logs each frame, with tokens and bodies, to whoever sets the level of all loggers.

    :param name: of the logger above those of its modules.
    """
    library = logging.getLogger(name)
    if library.level == logging.NOTSET:
        library.setLevel(logging.WARNING)
    factory = logging.getLogRecordFactory()
    # Not a filter, which sees the lines of one logger only: the SDK makes more of them, later.
    if not (isinstance(factory, _SafeRecords) and factory.library == name):
        logging.setLogRecordFactory(_SafeRecords(name, factory))


def printable(text: str) -> str:
    """Return ``text`` without secrets, and with an escape sequence for each character that is not printed."""
    text = scrub(text)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class _Text(str):
    """A text that ``%r`` shows as it shows what it was made of."""

    __slots__ = ("shown",)

    shown: str

    def __repr__(self) -> str:
        return self.shown


class _SafeValues(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_safe_value, record.args))
        _hide_error(record)
        return True


class _SafeRecords:
    """Makes the records of all loggers; those of a library without secrets, as their templates may hold values too."""

    def __init__(self, library: str, make: Callable[..., logging.LogRecord]) -> None:
        self.library = library
        self._make = make

    def __call__(self, *arguments: Any, **more: Any) -> logging.LogRecord:
        record = self._make(*arguments, **more)
        if f"{record.name}.".startswith(f"{self.library}."):
            record.msg, record.args = printable(record.getMessage()), None
            _hide_error(record)
        return record


def _hide_error(record: logging.LogRecord) -> None:
    if record.exc_info and record.exc_info[1] is not None:
        lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
        # Indented, so that a text within it is no line of the log either. In the message, as not every formatter takes
        # the text of an error that a record has: Airflow's makes its own.
        record.msg = "\n".join((record.getMessage(), *(f"  {printable(line)}" for line in lines)))
        record.args = record.exc_info = record.exc_text = None


def _safe_value(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    shown = printable(text)
    if shown == text:
        return value
    safe = _Text(shown)
    safe.shown = printable(repr(value))
    return safe
