"""What holds for all modules of a room of core: its values (DESIGN section 5, rule 3), defaults and limits."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import FunctionType, LambdaType, ModuleType
from typing import Any


def _modules(room: str) -> list[ModuleType]:
    package = importlib.import_module(f"servicebus_pair.core.{room}")
    return [
        importlib.import_module(found.name) for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]


def _classes(room: str) -> list[Any]:
    return [
        kind
        for module in _modules(room)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ]


def check_values(
    room: str,
    *,
    mutable: AbstractSet[str] = frozenset(),
    keyword_only: AbstractSet[str] = frozenset(),
    by_identity: AbstractSet[str] = frozenset(),
    hidden: AbstractSet[str] = frozenset(),
) -> None:
    """Check all dataclasses of a package of core.

    :param mutable: those that are not frozen.
    :param keyword_only: those that are created by keyword only.
    :param by_identity: those that are equal to themselves only.
    :param hidden: fields that ``repr`` does not show: they are secret, or long.
    """
    kinds: list[Any] = [kind for kind in _classes(room) if is_dataclass(kind)]
    assert {kind.__name__ for kind in kinds if not kind.__dataclass_params__.frozen} == mutable
    assert {kind.__name__ for kind in kinds if any(each.kw_only for each in fields(kind))} == keyword_only
    assert {kind.__name__ for kind in kinds if not kind.__dataclass_params__.eq} == by_identity
    assert {f"{kind.__name__}.{each.name}" for kind in kinds for each in fields(kind) if not each.repr} == hidden
    assert [kind.__name__ for kind in kinds if "__slots__" not in vars(kind)] == []
    assert [kind.__name__ for kind in _classes(room) if _lacks_constructor(kind)] == []


def _lacks_constructor(kind: type) -> bool:
    """Return whether a class declares fields that nothing sets, as one does that is no dataclass any more."""
    declared = [name for name in vars(kind).get("__annotations__", {}) if not hasattr(kind, name)]
    others = issubclass(kind, BaseException | tuple) or getattr(kind, "_is_protocol", False)
    return bool(declared) and not is_dataclass(kind) and "__init__" not in vars(kind) and not others


def check_defaults(room: str, expected: Mapping[str, Any]) -> None:
    """Check the flags, numbers and durations that parameters and fields of a package of core have by default.

    What a caller does not ask for is off or zero.

    :param expected: those that are neither; those of ``PairOptions`` have a test of their own.
    """
    found = {name: value for name, value in _defaults(room) if value and isinstance(value, int | float | timedelta)}
    assert {name: value for name, value in found.items() if not name.startswith("PairOptions.")} == expected


def _defaults(room: str) -> Iterator[tuple[str, Any]]:
    for kind in _classes(room):
        if is_dataclass(kind):
            yield from _defaults_of(kind)
        for member in vars(kind).values():
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and not (is_dataclass(kind) and function.__name__ == "__init__"):
                yield from _defaults_of(function)
    for module in _modules(room):
        for function in vars(module).values():
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                yield from _defaults_of(function)


def _defaults_of(function: Any) -> Iterator[tuple[str, Any]]:
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if default is inspect.Parameter.empty or repr(default) == "<factory>":
            continue
        if isinstance(default, LambdaType) and default.__name__ == "<lambda>" and not default.__code__.co_argcount:
            default = default()
        yield f"{function.__qualname__}.{parameter.name}", default


def check_limits(room: str, expected: Mapping[str, Any]) -> None:
    """Check the time limits, sizes and counts that the modules of a package of core and their classes declare.

    They are tuned with each other: the table makes each of them a decision. Codes of a wire format, which are written
    in hexadecimal, are tested by what is on the wire.
    """
    found: dict[str, Any] = {}
    for module in _modules(room):
        # Not from a syntax tree: Python 3.11 fails to build one when the garbage collector runs code meanwhile.
        source = Path(str(module.__file__)).read_text("utf-8")
        name = module.__name__.rpartition(".")[2]
        found |= _limits(name, vars(module), source)
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__ and not is_dataclass(kind):
                found |= _limits(f"{name}.{kind.__name__}", vars(kind), source, indent="    ")
    assert found == expected


def _limits(prefix: str, values: Mapping[str, Any], source: str, *, indent: str = "") -> dict[str, Any]:
    """Return the numbers, durations and series of them among ``values`` that ``source`` assigns."""
    found = {}
    for name, value in values.items():
        assigned = re.search(rf"^{indent}(?:\w+, )*{name}(?:, \w+)*(?:: .*?)? = (.*)", source, re.MULTILINE)
        if assigned is None or assigned[1].startswith("0x"):
            continue
        is_series = isinstance(value, tuple) and value and assigned[1].startswith("(") and all(map(_is_limit, value))
        if _is_limit(value) or is_series:
            found[f"{prefix}.{name}"] = value
    return found


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float | timedelta | range)
