"""DESIGN section 5, rule 3: values are frozen dataclasses with slots."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

NONE: AbstractSet[str] = frozenset()


@pytest.mark.parametrize(
    ("room", "mutable", "keyword_only"),
    [
        ("ledger", NONE, NONE),
        ("model", NONE, {"ArmCoordinates", "Endpoint", "Operations", "PairOptions", "PriceList"}),
        ("pair", NONE, {"Attempts", "NamespaceCheck"}),
        ("protocol", NONE, {"QueueSettings"}),
        ("sdk", NONE, {"ClientSecret", "DefaultIdentity", "Identity", "ManagedIdentity"}),
        ("send", NONE, NONE),
        ("syphon", {"DrainContext", "DrainCounters", "DrainRun", "_DestinationLinks", "_Failure"}, {"DrainRun"}),
    ],
)
def test_values_are_frozen_and_have_slots(room: str, mutable: AbstractSet[str], keyword_only: AbstractSet[str]) -> None:
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
