"""Keeping AMQP types through the SDK, which forgets some of them on receipt.

The SDK decodes string, symbol and binary alike to ``bytes``, a timestamp to ``int`` and every
integer width to ``int``; it encodes ``bytes`` properties as string and ``int`` as a 32-bit int.
:func:`describe` notes, before a message goes to the backlog, what :func:`restore` could not guess
afterwards. The guess alone (no note) is what a message of another sender gets.

A typed value is written the SDK's way: ``{"TYPE": "LONG", "VALUE": 5}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

__all__ = ["TypeNote", "describe", "restore", "text", "texts", "typed"]

TypeNote: TypeAlias = str | list["TypeNote | None"] | dict[str, "TypeNote | None"]

_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)


def typed(kind: str, value: Any) -> dict[str, Any]:
    """Return ``value`` marked for the SDK's encoder as AMQP type ``kind`` (upper case)."""
    return {"TYPE": kind, "VALUE": value}


def describe(value: Any) -> TypeNote | None:
    """Note the AMQP type of a value about to be sent, or ``None`` when :func:`restore` will guess it."""
    match value:
        case {"TYPE": str(kind), "VALUE": _} if len(value) == 2:
            return kind
        case bool() | None | float():
            return None
        case datetime():
            return "TIMESTAMP"
        case bytes() | bytearray():
            return "BINARY"
        case list():
            notes = [describe(item) for item in value]
            return notes if any(note is not None for note in notes) else None
        case dict():
            named = {text(key): describe(item) for key, item in value.items()}
            return named if any(note is not None for note in named.values()) else None
    return None


def restore(value: Any, note: TypeNote | None) -> Any:
    """Give a received value the type it had, from its note or by the best guess.

    Without a note: ``bytes`` that are UTF-8 become a string, others stay binary; an integer takes
    the narrowest of int, long and ulong that holds it.
    """
    if isinstance(note, str):
        if note in ("STRING", "SYMBOL") and isinstance(value, bytes):
            return typed(note, value.decode())
        return typed(note, value)
    match value:
        case bool():
            return value
        case bytes():
            return _text_or_binary(value)
        case int():
            return _integer(value)
        case list():
            notes = note if isinstance(note, list) else [None] * len(value)
            return [restore(item, item_note) for item, item_note in zip(value, notes, strict=True)]
        case dict():
            named = note if isinstance(note, dict) else {}
            return {text(key): restore(item, named.get(text(key))) for key, item in value.items()}
    return value


def _text_or_binary(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return typed("BINARY", value)


def _integer(value: int) -> Any:
    if value in _INT32:
        return int(value)
    return typed("LONG" if value in _INT64 else "ULONG", int(value))


def text(key: Any) -> str:
    """Return a property or annotation name as text, however the SDK gave it."""
    return key.decode() if isinstance(key, bytes) else str(key)


def texts(mapping: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return a map of properties or annotations with its names as text."""
    return {} if mapping is None else {text(key): value for key, value in mapping.items()}
