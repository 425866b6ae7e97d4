"""Faults from JSON and from the command line, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from servicebus_emulator.config_values import read_file
from servicebus_emulator.faults.model import Fault, FaultError, FaultKind, Operation
from servicebus_emulator.faults.strikes import Armed

if TYPE_CHECKING:
    from pathlib import Path

E = TypeVar("E", bound=StrEnum)

_NAMES: Final = tuple(field.name for field in fields(Fault))
_TEXTS: Final = ("namespace", "entity", "condition")
_INTEGERS: Final = ("count", "bytes_per_second", "status")
_NUMBERS: Final = ("probability", "duration", "delay")


def load_faults(path: Path) -> tuple[Fault, ...]:
    """Read faults from a file.

    :param path: JSON in UTF-8: a list of faults.
    :raises FaultError: when the file cannot be read or a fault is invalid.
    """
    try:
        document = json.loads(read_file(path))
    except OSError as error:
        raise FaultError("the file of faults", value=error.strerror, allowed="a file that can be read") from error
    except (ValueError, RecursionError) as error:
        raise FaultError("the file of faults", value=str(error), allowed="a JSON list of faults") from error
    if not isinstance(document, list):
        raise FaultError("the file of faults", value=type(document).__name__, allowed="a JSON list of faults")
    faults = []
    for position, each in enumerate(document):
        try:
            faults.append(fault_from_json(each))
        except FaultError as error:
            raise FaultError(f"[{position}].{error.field}", value=error.value, allowed=error.allowed) from error
    return tuple(faults)


def fault_from_json(document: object) -> Fault:
    """Read one fault.

    :param document: a JSON object whose members are the fields of :class:`Fault`; null = left out.
    :raises FaultError: when a member is invalid.
    """
    if not isinstance(document, Mapping):
        raise FaultError("the fault", value=document, allowed="a JSON object with the member kind")
    members = {name: value for name, value in document.items() if value is not None}
    for name in members:
        if name not in _NAMES:
            raise FaultError("the member", value=name, allowed=", ".join(_NAMES))
    if "kind" not in members:
        raise FaultError("kind", value=None, allowed=", ".join(FaultKind))
    checked: dict[str, Any] = {name: _member(name, value) for name, value in members.items()}
    return Fault(**checked)


def fault_from_text(text: str) -> Fault:
    """Read one fault of the command line: ``KIND[,FIELD=VALUE]...``, with several operations as ``on=a+b``.

    :raises FaultError: when a field is invalid.
    """
    kind, *rest = text.split(",")
    document: dict[str, object] = {"kind": kind.strip()}
    for each in rest:
        name, equals, value = (part.strip() for part in each.partition("="))
        if equals == "" or name in document:
            raise FaultError("the fault", value=text, allowed="KIND[,FIELD=VALUE]... with each field once")
        document[name] = _from_text(name, value)
    return fault_from_json(document)


def fault_document(fault: Fault) -> dict[str, Any]:
    """Return a fault as JSON, as :func:`fault_from_json` reads it."""
    members = {name: value for name, value in asdict(fault).items() if value is not None}
    members["on"] = list(fault.operations)
    return members


def armed_document(armed: Armed) -> dict[str, Any]:
    """Return a fault in force as JSON."""
    return {"id": armed.id, **fault_document(armed.fault), "strikes": armed.strikes, "until": armed.until}


def _from_text(name: str, text: str) -> object:
    if name == "on":
        return text.split("+")
    if name not in (*_INTEGERS, *_NUMBERS):
        return text
    try:
        return int(text) if name in _INTEGERS else float(text)
    except ValueError as error:
        raise FaultError(name, value=text, allowed="a number") from error


def _member(name: str, value: object) -> object:
    if name == "kind":
        return _one_of(FaultKind, name, value)
    if name == "on":
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list):
            raise FaultError(name, value=value, allowed=f"one or a list of {', '.join(Operation)}")
        return tuple(_one_of(Operation, name, each) for each in names)
    types, allowed = _types_of(name)
    # In Python a bool is an int.
    if not isinstance(value, types) or isinstance(value, bool):
        raise FaultError(name, value=value, allowed=allowed)
    return value


def _types_of(name: str) -> tuple[tuple[type, ...], str]:
    if name in _TEXTS:
        return (str,), "a text"
    return ((int,), "a whole number") if name in _INTEGERS else ((int, float), "a number")


def _one_of(values: type[E], name: str, value: object) -> E:
    for each in values:
        if each == value:
            return each
    raise FaultError(name, value=value, allowed=", ".join(values))
