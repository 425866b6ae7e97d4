"""Preserve AMQP types that the SDK loses when it receives a message.

The SDK decodes string, symbol and binary to ``bytes``, timestamps and integers of every width to ``int``, and arrays to
``list``; it can send decimals but not receive them. Before a message goes to the backlog, :func:`type_note` records
what
:func:`restore_type` could not infer afterwards, and :func:`decimals_as_text` converts decimals. Messages of other
senders have no notes; their types are inferred.

A typed value has the SDK's form ``{"TYPE": "LONG", "VALUE": 5}``. A note is the name of a type or a list:
``["LIST", note, ...]``, ``["ARRAY", note, ...]``, ``["MAP", key note, value note, ...]``,
``["DESCRIBED", descriptor type, descriptor, note]`` or ``["DECIMAL128", digits]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

TypeNote: TypeAlias = "str | list[TypeNote | int | None]"

_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The Python type that the SDK decodes each AMQP type to.
_SCALARS: Final[Mapping[str, type[Any]]] = {
    "NULL": type(None),
    "BOOL": bool,
    **dict.fromkeys(("UBYTE", "BYTE", "USHORT", "SHORT", "UINT", "INT", "ULONG", "LONG", "TIMESTAMP"), int),
    **dict.fromkeys(("FLOAT", "DOUBLE"), float),
    "UUID": UUID,
    **dict.fromkeys(("BINARY", "STRING", "SYMBOL"), bytes),
}
_COMPOUNDS: Final = frozenset({"LIST", "ARRAY", "MAP", "DESCRIBED", "DECIMAL128"})


class TypedValue(dict[str, Any]):
    """The SDK's form of a typed value; hashable, since it may be a map key."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((self["TYPE"], repr(self["VALUE"])))


def amqp_typed(kind: str, value: Any) -> dict[str, Any]:
    """Return ``value`` in the form that the SDK encodes as AMQP type ``kind`` (upper case)."""
    return TypedValue(TYPE=kind, VALUE=value)


def type_note(value: Any) -> TypeNote | None:
    """Return the note of an outgoing value's AMQP type, or ``None`` if :func:`restore_type` will infer it."""
    match value:
        case {"TYPE": str(kind), "VALUE": _} if kind in _SCALARS:
            return kind
        case {"TYPE": str(kind), "VALUE": inner} if kind in _COMPOUNDS:
            return _compound_note(kind, inner)
    return value_body_note(value)


def value_body_note(value: Any) -> TypeNote | None:
    """Return the type note of a value body, which the SDK encodes by its Python type alone."""
    match value:
        case datetime():
            return "TIMESTAMP"
        case bytes() | bytearray():
            return "BINARY"
        case Decimal():
            return _compound_note("DECIMAL128", value)
        case list():
            return _compound_note("LIST", value)
        case tuple():
            return _compound_note("DESCRIBED", value)
        case dict():
            return _compound_note("MAP", value)
    return None


def _compound_note(kind: str, value: Any) -> TypeNote | None:
    match kind:
        case "DECIMAL128":
            return [kind, str(value)]
        case "DESCRIBED":
            descriptor, inner = value
            return [kind, *_descriptor_note(descriptor), type_note(inner)]
        case "MAP":
            pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else value
            notes = [type_note(item) for pair in pairs for item in pair]
        case _:
            notes = [type_note(item) for item in value]
    return [kind, *notes] if kind == "ARRAY" or any(note is not None for note in notes) else None


def _descriptor_note(descriptor: Any) -> tuple[str, str | int]:
    """Return type and value of a descriptor, a symbol or a ulong (AMQP 1.0, part 1, section 1.5)."""
    match descriptor:
        case {"TYPE": str(kind), "VALUE": int(value)}:
            return kind, value
        case {"TYPE": str(kind), "VALUE": value}:
            return kind, to_text(value)
        case int():
            return "INT", descriptor
        case bytes():
            return "BINARY", to_text(descriptor)
    return "STRING", str(descriptor)


def decimals_as_text(value: Any) -> Any:
    """Return ``value`` with every decimal as text, since the SDK raises when it receives one."""
    match value:
        case Decimal():
            return str(value)
        case {"TYPE": "DECIMAL128", "VALUE": inner}:
            return str(inner)
        case {"TYPE": str(kind), "VALUE": _} if kind in _SCALARS:
            return value
        case {"TYPE": str(kind), "VALUE": inner} if kind in _COMPOUNDS:
            return amqp_typed(kind, decimals_as_text(inner))
        case list():
            return [decimals_as_text(item) for item in value]
        case tuple():
            return tuple(decimals_as_text(item) for item in value)
        case dict():
            return {decimals_as_text(key): decimals_as_text(item) for key, item in value.items()}
    return value


def restore_type(value: Any, note: TypeNote | None) -> Any:
    """Return a received value with its original AMQP type, from its note or inferred.

    Without a note, ``bytes`` that are UTF-8 become a string and others stay binary; an integer becomes the narrowest
    of int, long and ulong that holds it; a described integer becomes a long, like .NET's ``com.microsoft:timespan``.

    :raises ValueError: the note does not match the value.
    """
    match note:
        case None:
            return _infer(value)
        case str() if note in _SCALARS and _is_decoded(value, note):
            return amqp_typed(note, value)
        case ["DECIMAL128", str(digits)]:
            return amqp_typed("DECIMAL128", Decimal(digits))
        case ["LIST", *notes] if isinstance(value, list):
            return _restore_each(value, notes)
        case ["ARRAY", *notes] if isinstance(value, list):
            return amqp_typed("ARRAY", _restore_each(value, notes))
        case ["MAP", *notes] if isinstance(value, dict):
            items = _restore_each([item for pair in value.items() for item in pair], notes)
            return amqp_typed("MAP", dict(zip(items[::2], items[1::2], strict=True)))
        case ["DESCRIBED", str(kind), (str() | int()) as descriptor, inner] if not isinstance(inner, int):
            exact = descriptor.encode() if isinstance(descriptor, str) else descriptor
            return amqp_typed(kind, exact), restore_type(_undescribed(value), inner)
    raise ValueError(f"the type note {note!r} does not match a received {type(value).__name__}")


def _is_decoded(value: Any, kind: str) -> bool:
    """Return whether the SDK decodes values of an AMQP type like this; it would send another value as a map."""
    return isinstance(value, _SCALARS[kind]) and (kind == "BOOL" or not isinstance(value, bool))


def _restore_each(values: list[Any], notes: list[Any]) -> list[Any]:
    return [restore_type(value, note) for value, note in zip(values, notes, strict=True)]


def _infer(value: Any) -> Any:
    descriptor = getattr(value, "descriptor", None)
    if descriptor is not None:
        plain = _undescribed(value)
        kind = "ULONG" if isinstance(descriptor, int) else "SYMBOL"
        return amqp_typed(kind, descriptor), amqp_typed("LONG", plain) if isinstance(plain, int) else _infer(plain)
    match value:
        case bool():
            return value
        case bytes():
            return _text_or_binary(value)
        case int():
            return _integer(value)
        case list():
            return [_infer(item) for item in value]
        case dict():
            return amqp_typed("MAP", {_infer(key): _infer(item) for key, item in value.items()})
    return value


def _undescribed(value: Any) -> Any:
    """Return the value without the descriptor that the SDK attached to it or put into a map."""
    if isinstance(value, dict):
        # The SDK turns a descriptor of AMQP itself into the key of the value, any other into the map item "descriptor".
        for key, item in value.items():
            if isinstance(key, str) and key != "descriptor":
                return _undescribed(item)
        return {key: item for key, item in value.items() if key != "descriptor"}
    kinds: tuple[type[Any], ...] = (bytes, int, float, list)
    for kind in kinds:
        if isinstance(value, kind) and not isinstance(value, bool):
            return kind(value)
    return value


def _text_or_binary(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return amqp_typed("BINARY", value)


def _integer(value: int) -> Any:
    if value in _INT32:
        return int(value)
    return amqp_typed("LONG" if value in _INT64 else "ULONG", int(value))


def as_value_body(value: Any) -> Any:
    """Return a restored value in the form that the SDK sends as a value body.

    The SDK encodes value bodies by their Python type and omits those that are false, such as 0 or "".

    :raises ValueError: the SDK cannot send this value as a body.
    """
    match value:
        case {"TYPE": "TIMESTAMP", "VALUE": int(milliseconds)}:
            try:
                return _EPOCH + timedelta(milliseconds=milliseconds)
            except OverflowError as error:
                raise ValueError(f"a timestamp of {milliseconds} ms cannot be sent as a value body") from error
        case {"TYPE": "BINARY" | "MAP" | "DECIMAL128", "VALUE": inner}:
            return _always_truthy(inner)
        case {"TYPE": kind}:
            raise ValueError(f"a value body of AMQP type {kind} cannot be sent with the Python SDK")
    return _always_truthy(value)


def _always_truthy(value: Any) -> Any:
    if value is None or value:
        return value
    if isinstance(value, bool):
        raise ValueError("a value body that is false cannot be sent with the Python SDK")  # noqa: TRY004  the value is wrong, not its type
    kind = type(value)
    return type(kind.__name__, (kind,), {"__bool__": lambda _: True})(value)


def to_text(key: Any) -> str:
    """Return a property or annotation name, or value, that the SDK decoded to ``bytes`` or ``str`` as text."""
    return key.decode() if isinstance(key, bytes) else str(key)


def text_keys(mapping: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return a map of properties or annotations with its keys as text."""
    return {} if mapping is None else {to_text(key): value for key, value in mapping.items()}
