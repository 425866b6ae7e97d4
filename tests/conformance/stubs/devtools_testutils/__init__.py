"""Stub of the SDK's private test support, as far as its Service Bus tests use it.

The original provisions Azure resources and records HTTP. This one creates entities in an embedded Service Bus and
records nothing.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tests.conformance.embedded_service import NAMESPACE, current_service

TestFunction = Callable[..., Any]

_NAMESPACE_PREPARER: Final = "ServiceBusNamespacePreparer"

_numbers = itertools.count(1)


class AzureTestError(Exception):
    """A test cannot be set up."""


class ReservedResourceNameError(AzureTestError):
    """A name is reserved."""


@dataclass(frozen=True, slots=True)
class FakeResource:
    """A resource without a counterpart."""

    name: str
    id: str


class AzureRecordedTestCase:
    """Base class of tests; every run is live."""

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
    """Base class of tests that provision resources."""


def get_credential(*, is_async: bool = False, **_: Any) -> Any:
    return current_service().credential(is_async=is_async)


def get_region_override(default: str) -> str:
    return default


def recorded_by_proxy(test: TestFunction) -> TestFunction:
    """Return the test unchanged: nothing is recorded."""
    return test


def add_general_regex_sanitizer(**_: Any) -> None:
    """Do nothing: nothing is recorded."""


set_bodiless_matcher = set_custom_default_matcher = add_general_regex_sanitizer


def _with_arguments(
    test: TestFunction, arguments: Callable[[Mapping[str, Any]], AbstractContextManager[Mapping[str, Any]]]
) -> TestFunction:
    """Decorate a test or coroutine function, so that it gets further arguments, which depend on those given."""
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def wrapper(case: Any, **given: Any) -> None:
            with arguments(given) as more:
                await test(case, **given, **more)
    else:

        @functools.wraps(test)
        def wrapper(case: Any, **given: Any) -> None:
            with arguments(given) as more:
                test(case, **given, **more)

    return wrapper


class AzureMgmtPreparer:
    """Decorator that creates a resource, passes it to the test and removes it afterwards.

    Preparers are stacked; each receives the resources of those above it. With a cache, tests that request the same
    resource share it.
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
        """Name used in recordings."""
        return self.resource_moniker

    def set_cache(self, enabled: bool, *key: Any) -> None:
        """Share the resource among preparers of the same class and key."""
        self._cache_key = (type(self).__name__, *map(repr, key)) if enabled else None

    def create_mgmt_client(self, client_class: Any, **_: Any) -> Any:
        return current_service().resource_manager(client_class)

    def create_resource(self, name: str, **resources: Any) -> dict[str, Any]:
        """Create the resource; implemented by subclasses."""
        raise NotImplementedError

    def remove_resource(self, name: str, **resources: Any) -> None:
        """Remove the resource; implemented by subclasses."""

    def __call__(self, test: TestFunction) -> TestFunction:
        return _with_arguments(test, self._prepared)

    @contextmanager
    def _prepared(self, given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        name, resources = self._prepare(given)
        try:
            yield resources
        finally:
            if self._cache_key is None:
                self.remove_resource(name, **given)

    def _prepare(self, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        if self._cache_key is None:
            name = self._new_name()
            return name, self.create_resource(name, **given)
        if self._cache_key not in self._cached:
            name = self._new_name()
            self._cached[self._cache_key] = {"name": name, "resources": self.create_resource(name, **given)}
        found = self._cached[self._cache_key]
        return found["name"], found["resources"]

    def _new_name(self) -> str:
        if type(self).__name__ == _NAMESPACE_PREPARER:
            # There is only one namespace, with a known host name.
            return NAMESPACE
        if self.resource_random_name != "":
            # Set by the environment, like the resource group.
            return self.resource_random_name
        number = str(next(_numbers))
        return f"{self.name_prefix[: self._length - len(number)]}{number}"


class ResourceGroupPreparer(AzureMgmtPreparer):
    """Names a resource group; the embedded Service Bus has none."""

    def create_resource(self, name: str, **_: Any) -> dict[str, Any]:
        return {"resource_group": FakeResource(name=name, id=name), "location": "local"}


RandomNameResourceGroupPreparer = CachedResourceGroupPreparer = ResourceGroupPreparer


class PowerShellPreparer:
    """Passes settings from the environment to a test, as a deployment script would set them.

    :param directory: prefix of the names.
    :param settings: names and example values.
    """

    def __init__(self, directory: str, **settings: str) -> None:
        self._examples = settings
        self._directory = directory

    def __call__(self, test: TestFunction) -> TestFunction:
        signature = inspect.signature(test)
        free = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())

        examples = {name: self._examples[name] for name in self._examples if free or name in signature.parameters}
        wrapper = _with_arguments(
            test, lambda _: nullcontext({name: os.environ.get(name.upper(), each) for name, each in examples.items()})
        )
        # Hide these parameters from pytest, which would look for fixtures.
        kept = [each for name, each in signature.parameters.items() if name not in self._examples]
        wrapper.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        wrapper.is_prepared_from_settings = True  # type: ignore[attr-defined]
        return wrapper
