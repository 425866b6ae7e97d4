"""Keeping AMQP types through the SDK, which forgets some of them on receipt.

The SDK decodes string, symbol and binary alike to ``bytes``, a timestamp to ``int``, every integer
width to ``int`` and an array to ``list``; a decimal it cannot receive at all, though it sends it.
:func:`describe` notes, before a message goes to the backlog, what :func:`restore` could not guess
afterwards, and :func:`portable` writes decimals as text. The guess alone (no note) is what a
message of another sender gets.

A typed value is written the SDK's way: ``{"TYPE": "LONG", "VALUE": 5}``. A note is the name of a
type, or a list: ``["LIST", note, ...]``, ``["ARRAY", note, ...]``, ``["MAP", key's, value's, ...]``,
``["DESCRIBED", descriptor's type, descriptor, note]`` or ``["DECIMAL128", digits]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

__all__ = ["TypeNote", "bare", "describe", "describe_bare", "portable", "restore", "text", "texts", "typed"]

TypeNote: TypeAlias = "str | list[TypeNote | int | None]"

_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALARS: Final = frozenset(
    {
        "NULL",
        "BOOL",
        "UBYTE",
        "BYTE",
        "USHORT",
        "SHORT",
        "UINT",
        "INT",
        "ULONG",
        "LONG",
        "FLOAT",
        "DOUBLE",
        "TIMESTAMP",
        "UUID",
        "BINARY",
        "STRING",
        "SYMBOL",
    }
)
_COMPOUNDS: Final = frozenset({"LIST", "ARRAY", "MAP", "DESCRIBED", "DECIMAL128"})


class _Typed(dict[str, Any]):
    """The SDK's form of a typed value; hashable, since the key of a map may be one."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((self["TYPE"], repr(self["VALUE"])))


def typed(kind: str, value: Any) -> dict[str, Any]:
    """Return ``value`` marked for the SDK's encoder as AMQP type ``kind`` (upper case)."""
    return _Typed(TYPE=kind, VALUE=value)


def describe(value: Any) -> TypeNote | None:
    """Note the AMQP type of a value about to be sent, or ``None`` when :func:`restore` will guess it."""
    match value:
        case {"TYPE": str(kind), "VALUE": _} if kind in _SCALARS:
            return kind
        case {"TYPE": str(kind), "VALUE": inner} if kind in _COMPOUNDS:
            return _describe_compound(kind, inner)
    return describe_bare(value)


def describe_bare(value: Any) -> TypeNote | None:
    """Note the type of a whole value body, where the SDK goes by the Python type alone."""
    match value:
        case datetime():
            return "TIMESTAMP"
        case bytes() | bytearray():
            return "BINARY"
        case Decimal():
            return _describe_compound("DECIMAL128", value)
        case list():
            return _describe_compound("LIST", value)
        case tuple():
            return _describe_compound("DESCRIBED", value)
        case dict():
            return _describe_compound("MAP", value)
    return None


def _describe_compound(kind: str, value: Any) -> TypeNote | None:
    if kind == "DECIMAL128":
        return [kind, str(value)]
    if kind == "DESCRIBED":
        return [kind, *_describe_descriptor(value[0]), describe(value[1])]
    if kind == "MAP":
        pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else value
        notes = [describe(item) for pair in pairs for item in pair]
    else:
        notes = [describe(item) for item in value]
    return [kind, *notes] if kind == "ARRAY" or any(note is not None for note in notes) else None


def _describe_descriptor(descriptor: Any) -> tuple[str, str | int]:
    """The type and value of a descriptor, which is a symbol or a ulong (AMQP 1.0, part 1, section 1.5)."""
    match descriptor:
        case {"TYPE": str(kind), "VALUE": int(value)}:
            return kind, value
        case {"TYPE": str(kind), "VALUE": value}:
            return kind, text(value)
        case int():
            return "INT", descriptor
        case bytes():
            return "BINARY", text(descriptor)
    return "STRING", str(descriptor)


def portable(value: Any) -> Any:
    """Return ``value`` with every decimal as text, since the SDK raises on receiving one."""
    match value:
        case Decimal():
            return str(value)
        case {"TYPE": "DECIMAL128", "VALUE": inner}:
            return str(inner)
        case {"TYPE": str(kind), "VALUE": _} if kind in _SCALARS:
            return value
        case {"TYPE": str(kind), "VALUE": inner} if kind in _COMPOUNDS:
            return typed(kind, portable(inner))
        case list():
            return [portable(item) for item in value]
        case tuple():
            return tuple(portable(item) for item in value)
        case dict():
            return {portable(key): portable(item) for key, item in value.items()}
    return value


def restore(value: Any, note: TypeNote | None) -> Any:
    """Give a received value the type it had, from its note or by the best guess.

    Without a note: ``bytes`` that are UTF-8 become a string, others stay binary; an integer takes
    the narrowest of int, long and ulong that holds it; a described integer is a long, as .NET's
    ``com.microsoft:timespan`` is.

    :raises ValueError: the note does not fit the value.
    """
    match note:
        case None:
            return _guess(value)
        case str() if note in _SCALARS:
            return typed(note, value)
        case ["DECIMAL128", str(digits)]:
            return typed("DECIMAL128", Decimal(digits))
        case ["LIST", *notes] if isinstance(value, list):
            return _restore_each(value, notes)
        case ["ARRAY", *notes] if isinstance(value, list):
            return typed("ARRAY", _restore_each(value, notes))
        case ["MAP", *notes] if isinstance(value, dict):
            items = _restore_each([item for pair in value.items() for item in pair], notes)
            return typed("MAP", dict(zip(items[::2], items[1::2], strict=True)))
        case ["DESCRIBED", str(kind), (str() | int()) as descriptor, inner] if not isinstance(inner, int):
            exact = descriptor.encode() if isinstance(descriptor, str) else descriptor
            return typed(kind, exact), restore(_undescribed(value), inner)
    raise ValueError(f"the type note {note!r} does not fit a received {type(value).__name__}")


def _restore_each(values: list[Any], notes: list[Any]) -> list[Any]:
    return [restore(value, note) for value, note in zip(values, notes, strict=True)]


def _guess(value: Any) -> Any:
    descriptor = getattr(value, "descriptor", None)
    if descriptor is not None:
        plain = _undescribed(value)
        kind = "ULONG" if isinstance(descriptor, int) else "SYMBOL"
        return typed(kind, descriptor), typed("LONG", plain) if isinstance(plain, int) else _guess(plain)
    match value:
        case bool():
            return value
        case bytes():
            return _text_or_binary(value)
        case int():
            return _integer(value)
        case list():
            return [_guess(item) for item in value]
        case dict():
            return typed("MAP", {_guess(key): _guess(item) for key, item in value.items()})
    return value


def _undescribed(value: Any) -> Any:
    """The value without the descriptor that the SDK hung on it, or put into a map under a name of type ``str``."""
    if isinstance(value, dict):
        # A descriptor of AMQP's own becomes the name of the value; any other one the item "descriptor" of a map.
        named = [item for key, item in value.items() if isinstance(key, str) and key != "descriptor"]
        return _undescribed(named[0]) if named else {key: item for key, item in value.items() if key != "descriptor"}
    kinds: tuple[type[Any], ...] = (bytes, int, float, list)
    for kind in kinds:
        if isinstance(value, kind) and not isinstance(value, bool):
            return kind(value)
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


def bare(value: Any) -> Any:
    """Return a restored value in the form that the SDK sends as a whole value body.

    There it goes by the Python type alone, and leaves out a body that is false, such as 0 or "".

    :raises ValueError: the SDK has no way to send this value as a body.
    """
    match value:
        case {"TYPE": "TIMESTAMP", "VALUE": int(milliseconds)}:
            try:
                return _EPOCH + timedelta(milliseconds=milliseconds)
            except OverflowError as error:
                raise ValueError(f"a timestamp of {milliseconds} ms cannot be sent as a value body") from error
        case {"TYPE": "BINARY" | "MAP" | "DECIMAL128", "VALUE": inner}:
            return _not_left_out(inner)
        case {"TYPE": kind}:
            raise ValueError(f"a value body of AMQP type {kind} cannot be sent with the Python SDK")
    return _not_left_out(value)


def _not_left_out(value: Any) -> Any:
    if value is None or value:
        return value
    if isinstance(value, bool):
        raise ValueError("a value body that is false cannot be sent with the Python SDK")  # noqa: TRY004 - not a type
    kind = type(value)
    return type(kind.__name__, (kind,), {"__bool__": lambda _: True})(value)


def text(key: Any) -> str:
    """Return a property or annotation name as text, however the SDK gave it."""
    return key.decode() if isinstance(key, bytes) else str(key)


def texts(mapping: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return a map of properties or annotations with its names as text."""
    return {} if mapping is None else {text(key): value for key, value in mapping.items()}
