"""DESIGN section 5, rule 3: values are frozen dataclasses with slots."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["check_values"]


def check_values(
    room: str, *, mutable: AbstractSet[str] = frozenset(), keyword_only: AbstractSet[str] = frozenset()
) -> None:
    """Check all dataclasses of a package of core.

    :param mutable: those that are not frozen.
    :param keyword_only: those that are created by keyword only.
    """
    package = importlib.import_module(f"servicebus_pair.core.{room}")
    modules = [
        importlib.import_module(found.name) for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    kinds: list[Any] = [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
    ]
    assert {kind.__name__ for kind in kinds if not kind.__dataclass_params__.frozen} == mutable
    assert {kind.__name__ for kind in kinds if any(each.kw_only for each in fields(kind))} == keyword_only
    assert [kind.__name__ for kind in kinds if "__slots__" not in vars(kind)] == []
