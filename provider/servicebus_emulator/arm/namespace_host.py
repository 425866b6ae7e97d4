"""The namespaces of the emulator, as Azure Resource Manager needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from servicebus_emulator.amqp.broker.fault_injector import FaultInjector
    from servicebus_emulator.engine.namespace.namespace import Namespace
    from servicebus_emulator.engine.runtime.journal import JournalError


class ManagedNamespace(Protocol):
    """A namespace that is served."""

    @property
    def name(self) -> str:
        """Name of the namespace."""

    @property
    def namespace(self) -> Namespace:
        """Its entities."""

    @property
    def fault_injector(self) -> FaultInjector:
        """Its faults."""

    @property
    def endpoint_address(self) -> str:
        """The endpoint of message clients, such as ``sb://127.0.0.1:5672``."""

    def fail(self, error: JournalError) -> None:
        """Report that the state can no longer be persisted."""


class NamespaceHost(Protocol):
    """Starts and stops namespaces."""

    @property
    def namespaces(self) -> tuple[ManagedNamespace, ...]:
        """The namespaces that are served."""

    async def add(self, name: str) -> ManagedNamespace:
        """Serve another namespace, on free ports.

        :raises ValueError: the name is invalid or in use.
        :raises OSError: no port is free.
        """

    async def remove(self, name: str) -> None:
        """Stop serving a namespace and delete its content."""
