"""Checks of options and parameters.

Each check takes the name and the value of a field, which may be text, and returns the value in its proper type. It
raises ``ConfigurationError`` with the name, the value and what is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.redaction import OF_A_URL, scrub, secret_kind

_HOST: Final = r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
_HOST_ADDRESS: Final = re.compile(_HOST)
# Also those that change the direction of writing: a name would be shown as another one.
CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_NAME: Final = re.compile(r"[\w.()-]{1,128}", re.ASCII)
_LONGEST_SHOWN: Final = 40
# Nothing that a connection string or a signature needs.
_PLAIN_LOCATION: Final = re.compile(r"[\w ./\\:~-]*")


def boolean(name: str, value: Any) -> bool:
    """Check a boolean, or the text ``true`` or ``false`` in any case."""
    folded = str(value).strip().lower() if isinstance(value, bool | str) else ""
    found = {"true": True, "false": False}.get(folded)
    if found is None:
        raise ConfigurationError(f"{name} is {_shown(value)}: allowed are true and false")
    return found


def choice(*allowed: str) -> Callable[[str, Any], str]:
    """Return a check for one of ``allowed``."""

    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise ConfigurationError(f"{name} is {_shown(value)}: allowed are {', '.join(allowed)}")
        return str(value)

    return check


def integer(low: int, high: int | None = None) -> Callable[[str, Any], int]:
    """Return a check for a whole number from ``low`` to ``high``, or the text of one."""

    def check(name: str, value: Any) -> int:
        number = _number(value)
        if not number.is_integer() or number < low or (high is not None and number > high):
            limit = "" if high is None else f" to {high}"
            raise ConfigurationError(f"{name} is {_shown(value)}: it must be a whole number from {low}{limit}")
        return int(number)

    return check


def message_rate(name: str, value: Any) -> float:
    """Check a finite number of messages per second above 0, or the text of one."""
    rate = _number(value)
    if not 0 < rate < math.inf:
        raise ConfigurationError(f"{name} is {_shown(value)}: it must be a number of messages a second above 0")
    return rate


def duration(low: timedelta, high: timedelta = timedelta.max) -> Callable[[str, Any], timedelta]:
    """Return a check for a ``timedelta``, or a number or text of seconds, from ``low`` to ``high``."""

    def check(name: str, value: Any) -> timedelta:
        try:
            parsed = value if isinstance(value, timedelta) else timedelta(seconds=_number(value))
        except (ValueError, OverflowError):
            parsed = None
        if parsed is None or not low <= parsed <= high:
            limit = "" if high == timedelta.max else f" to {high.total_seconds():g}"
            text = str(value) if isinstance(value, timedelta) else _shown(value)
            raise ConfigurationError(
                f"{name} is {text}: it must be a timedelta or a number of seconds, "
                f"from {low.total_seconds():g}{limit} s"
            )
        return parsed

    return check


def _shown(value: Any) -> str:
    """Quote a short value only: allowed ones are short, and a long one may be a secret of an unknown form."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else "a value that is not shown"


def no_secret(name: str, value: Any, *, belongs: str = "in a field for secrets") -> None:
    """Refuse a value that holds a secret, without quoting it.

    :param belongs: says where such a value belongs.
    """
    kind = secret_kind(value)
    if kind == OF_A_URL:
        belongs += ", or where the library of a store finds it"
    if kind is not None:
        raise ConfigurationError(f"{name} holds {kind}, which is not shown here: it belongs {belongs}")


def host_address(name: str, value: Any) -> str:
    """Check a host name or IP address, with an optional port."""
    return _matching(_HOST_ADDRESS, name, value, "a host name, optionally with a port, such as gateway.example:443")


def service_url(*schemes: str) -> Callable[[str, Any], str]:
    """Return a check for the URL of a host, without a path, query or user."""
    shape = re.compile(rf"(?:{'|'.join(map(re.escape, schemes))}){_HOST}/?")
    example = " or ".join(f"{scheme}host:port" for scheme in schemes)

    def check(name: str, value: Any) -> str:
        return _matching(shape, name, value, example)

    return check


def resource_name(name: str, value: Any) -> str:
    """Check the name or id of something: letters, digits, ``.``, ``_``, ``-`` and parentheses."""
    return _matching(_NAME, name, value, "a name or id of letters, digits, '.', '_', '-' and parentheses")


def _matching(shape: re.Pattern[str], name: str, value: Any, allowed: str) -> str:
    no_secret(name, value)
    if not isinstance(value, str) or shape.fullmatch(value) is None:
        # Not quoted: it may be a secret of a shape that nobody knows.
        raise ConfigurationError(f"{name} is not allowed: it must be {allowed}")
    return value


def non_empty_text(name: str, value: Any, *, meaning: str = "a text that is not empty") -> str:
    """Check a text that is not blank and has no control characters. ``meaning`` says in errors what it must be."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} is {value!r}: it must be {meaning}")
    if CONTROL_CHARACTERS.search(value) is not None:
        # They would forge lines of logs.
        raise ConfigurationError(f"{name} is {value!r}: it must have no line ends and other control characters")
    return value


def entity_path(name: str, value: Any) -> str:
    """Check the path of a queue, topic or subscription."""
    path = non_empty_text(name, value, meaning="the path of a queue or topic")
    if path.startswith("__") or "/__" in path:
        raise ConfigurationError(f"{name} is {value!r}: each part of a path begins with a letter or digit")
    return path


# fsspec opens them, and some call a host or read a file at once; no spool can be there, or it ends with its process.
_NO_STORES: Final = (
    *("memory", "local"),
    *("http", "https", "ftp", "data", "reference", "generic", "zip", "tar", "libarchive", "git", "github", "jupyter"),
    *("gist", "jlab", "dir", "cached", "blockcache", "filecache", "simplecache", "asyncwrapper"),
)


def storage_location(name: str, value: Any) -> str:
    """Check the absolute path of a folder, or the URL of one in an object store, without credentials.

    A value that may hold a secret is not quoted.
    """
    text = non_empty_text(name, value, meaning="an absolute path or a URL")
    shown = repr(text) if _PLAIN_LOCATION.fullmatch(text) else "a text that is not shown"
    parts = urlsplit(text)
    if not (text.startswith("/") or (parts.scheme and "://" in text)):
        raise ConfigurationError(f"{name} is {shown}: it must be an absolute path or a URL, such as s3://bucket/spool")
    if parts.password is not None or parts.query or scrub(text) != text:
        raise ConfigurationError(f"{name} is a URL with credentials or a query: give them to the store's library")
    if "::" in text or parts.scheme in _NO_STORES:
        raise ConfigurationError(f"{name} is a URL of {parts.scheme!r}, which is no object store to write to")
    return text


def is_folder(location: str | None) -> bool:
    """Return whether a storage location is a folder, which each machine may have for itself, and no object store."""
    return location is not None and urlsplit(location).scheme in {"", "file"}


def _number(value: Any) -> float:
    """Return ``value`` as a float, NaN if it is no number."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
