"""Stands in for the SDK's private test support, as far as its Service Bus tests use it.

The original provisions Azure resources and records HTTP. Here resources are entities of an embedded Service
Bus, everything is live, and nothing is recorded.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tests.conformance.lane import NAMESPACE, current_lane

__all__ = [
    "AzureMgmtPreparer",
    "AzureMgmtRecordedTestCase",
    "AzureRecordedTestCase",
    "AzureTestError",
    "CachedResourceGroupPreparer",
    "FakeResource",
    "PowerShellPreparer",
    "RandomNameResourceGroupPreparer",
    "ReservedResourceNameError",
    "ResourceGroupPreparer",
    "add_general_regex_sanitizer",
    "get_credential",
    "get_region_override",
    "recorded_by_proxy",
    "set_bodiless_matcher",
    "set_custom_default_matcher",
]

TestFunction = Callable[..., Any]

_OF_NAMESPACES: Final = "ServiceBusNamespacePreparer"

_numbers = itertools.count(1)


class AzureTestError(Exception):
    """A test cannot be prepared."""


class ReservedResourceNameError(AzureTestError):
    """A name is reserved."""


@dataclass(frozen=True, slots=True)
class FakeResource:
    """A resource that is only a name."""

    name: str
    id: str


class AzureRecordedTestCase:
    """A class of tests; every run is live."""

    is_live = True
    in_recording = False

    @staticmethod
    def await_prepared_test(test: TestFunction) -> TestFunction:
        """Run a coroutine function as a test."""
        import asyncio

        @functools.wraps(test)
        def run(*arguments: Any, **options: Any) -> Any:
            return asyncio.run(test(*arguments, **options))

        return run


class AzureMgmtRecordedTestCase(AzureRecordedTestCase):
    """A class of tests that provision resources."""


def get_credential(*, is_async: bool = False, **_: Any) -> Any:
    """Return the identity of the test run."""
    return current_lane().credential(is_async=is_async)


def get_region_override(default: str) -> str:
    """Return the region: any will do."""
    return default


def recorded_by_proxy(test: TestFunction) -> TestFunction:
    """Leave the test as it is: nothing is recorded."""
    return test


def add_general_regex_sanitizer(**_: Any) -> None:
    """Do nothing: nothing is recorded."""


set_bodiless_matcher = set_custom_default_matcher = add_general_regex_sanitizer


class AzureMgmtPreparer:
    """Makes a resource for a test, gives it to the test and removes it afterwards.

    Preparers stand above each other; each receives what those above it made. With a cache, one resource serves all
    tests of the run that ask for the same.
    """

    is_live: ClassVar = True
    _cached: ClassVar[dict[tuple[Any, ...], dict[str, Any]]] = {}

    def __init__(
        self,
        name_prefix: str = "",
        random_name_length: int = 24,
        *,
        random_name_enabled: bool = False,
        **_: Any,
    ) -> None:
        self.name_prefix = name_prefix
        self.random_name_enabled = random_name_enabled
        self.resource_moniker = name_prefix
        self.resource_random_name = ""
        self.resource: Any = None
        self.client: Any = None
        self.test_class_instance: Any = None
        self._length = random_name_length
        self._cache_key: tuple[Any, ...] | None = None

    @property
    def moniker(self) -> str:
        """The name that a recording would show."""
        return self.resource_moniker

    def set_cache(self, enabled: bool, *key: Any) -> None:
        """Share the resource with others of the same class and key."""
        self._cache_key = (type(self).__name__, *map(repr, key)) if enabled else None

    def create_mgmt_client(self, client_class: Any, **_: Any) -> Any:
        """Return a client of the resource manager."""
        return current_lane().resource_manager(client_class)

    def create_resource(self, name: str, **resources: Any) -> dict[str, Any]:
        """Make the resource; subclasses do."""
        raise NotImplementedError

    def remove_resource(self, name: str, **resources: Any) -> None:
        """Remove the resource; subclasses do."""

    def __call__(self, test: TestFunction) -> TestFunction:
        """Decorate a test."""
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def prepared(case: Any, **given: Any) -> None:
                name, resources = self._prepare(given)
                try:
                    await test(case, **given, **resources)
                finally:
                    self._clean_up(name, given)
        else:

            @functools.wraps(test)
            def prepared(case: Any, **given: Any) -> None:
                name, resources = self._prepare(given)
                try:
                    test(case, **given, **resources)
                finally:
                    self._clean_up(name, given)

        return prepared

    def _prepare(self, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        if self._cache_key is None:
            name = self._new_name()
            return name, self.create_resource(name, **given)
        if self._cache_key not in self._cached:
            name = self._new_name()
            self._cached[self._cache_key] = {"name": name, "resources": self.create_resource(name, **given)}
        found = self._cached[self._cache_key]
        return found["name"], found["resources"]

    def _clean_up(self, name: str, given: Mapping[str, Any]) -> None:
        if self._cache_key is None:
            self.remove_resource(name, **given)

    def _new_name(self) -> str:
        if type(self).__name__ == _OF_NAMESPACES:
            # There is one, whose host name is known.
            return NAMESPACE
        if self.resource_random_name != "":
            # Given by the environment, as that of the resource group.
            return self.resource_random_name
        number = str(next(_numbers))
        return f"{self.name_prefix[: self._length - len(number)]}{number}"


class ResourceGroupPreparer(AzureMgmtPreparer):
    """Names a resource group; the embedded Service Bus is in none."""

    def create_resource(self, name: str, **_: Any) -> dict[str, Any]:
        """Name it."""
        return {"resource_group": FakeResource(name=name, id=name), "location": "local"}


RandomNameResourceGroupPreparer = CachedResourceGroupPreparer = ResourceGroupPreparer


class PowerShellPreparer:
    """Gives a test the settings that a deployment would have left in the environment.

    :param directory: prefix of their names.
    :param settings: their names and example values.
    """

    def __init__(self, directory: str, **settings: str) -> None:
        self._examples = settings
        self._directory = directory

    def __call__(self, test: TestFunction) -> TestFunction:
        """Decorate a test."""
        signature = inspect.signature(test)
        free = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        wanted = [name for name in self._examples if free or name in signature.parameters]

        def settings() -> dict[str, str]:
            return {name: os.environ.get(name.upper(), self._examples[name]) for name in wanted}

        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def prepared(case: Any, **given: Any) -> None:
                await test(case, **given, **settings())
        else:

            @functools.wraps(test)
            def prepared(case: Any, **given: Any) -> None:
                test(case, **given, **settings())

        # What is given here is no fixture that pytest would have to find.
        kept = [each for name, each in signature.parameters.items() if name not in self._examples]
        prepared.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        prepared.is_prepared_from_settings = True  # type: ignore[attr-defined]
        return prepared
