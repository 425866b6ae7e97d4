"""DESIGN section 5, rule 2: public names are few, listed in ``__all__``, and guarded here."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import servicebus_pair.core

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(servicebus_pair.core.__path__, "servicebus_pair.core.")
    if not module.ispkg
)


def test_the_public_face_of_core_is_exactly_this() -> None:
    assert servicebus_pair.core.__all__ == [
        "ArmCoordinates",
        "BacklogSurvey",
        "BlockingHealthStore",
        "CleanupReport",
        "ClientSecret",
        "DefaultIdentity",
        "DrainReport",
        "DrillReport",
        "Endpoint",
        "EntityHealth",
        "HealthState",
        "HealthStore",
        "InMemoryHealthStore",
        "InboundMessage",
        "Ledger",
        "ManagedIdentity",
        "NamespacePair",
        "Operations",
        "PairOptions",
        "PairReceiver",
        "PairSender",
        "PairSettings",
        "PriceList",
        "Progress",
        "ProvisionReport",
        "ScheduleResult",
        "Secret",
        "SendResult",
        "SyncBridge",
        "Syphon",
        "TimeToLive",
        "bill",
        "drill_id",
        "is_ping",
        "read_pair_settings",
    ]


def test_each_public_name_is_there_and_says_what_it_is() -> None:
    for name in servicebus_pair.core.__all__:
        public = getattr(servicebus_pair.core, name)
        assert public.__name__ == name
        assert public.__module__.startswith("servicebus_pair.core."), name
        assert inspect.getdoc(public), name


def test_the_names_known_to_type_checkers_are_the_names_found_when_running() -> None:
    path = inspect.getsourcefile(servicebus_pair.core)
    assert path is not None
    imported = {
        (alias.name, node.module)
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("servicebus_pair.core.")
        for alias in node.names
    }
    assert {name for name, _ in imported} == set(servicebus_pair.core.__all__)
    for name, module in imported:
        assert getattr(importlib.import_module(str(module)), name) is getattr(servicebus_pair.core, name)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match=r"'servicebus_pair.core' has no attribute 'Syphoon'"):
        servicebus_pair.core.Syphoon  # noqa: B018 - the access is the test


def _is_code(member: object) -> bool:
    return inspect.isroutine(member) or isinstance(member, property)


def test_every_public_class_function_and_method_says_what_it_does() -> None:
    silent = list[str]()
    for module in MODULES:
        loaded = importlib.import_module(module)
        silent += [] if loaded.__doc__ else [module]
        public = [item for name, item in vars(loaded).items() if not name.startswith("_")]
        for item in (each for each in public if getattr(each, "__module__", None) == module):
            if inspect.isroutine(item) or inspect.isclass(item):
                silent += [] if item.__doc__ else [f"{module}.{item.__name__}"]
            if inspect.isclass(item):
                silent += [
                    f"{module}.{item.__name__}.{name}"
                    for name, member in vars(item).items()
                    if not name.startswith("_") and _is_code(member) and not inspect.getdoc(member)
                ]
    assert silent == []
