"""Where the namespaces are that the interface manages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from servicebus_emulator.amqp.trouble import Trouble
    from servicebus_emulator.engine.journal import JournalError
    from servicebus_emulator.engine.namespace import Namespace

__all__ = ["Host", "Hosted"]


class Hosted(Protocol):
    """A namespace that is served."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def namespace(self) -> Namespace:
        """Its entities."""
        ...

    @property
    def trouble(self) -> Trouble:
        """Its faults."""
        ...

    @property
    def endpoint_address(self) -> str:
        """Where clients of messages connect to, such as ``sb://127.0.0.1:5672``."""
        ...

    def fail(self, error: JournalError) -> None:
        """Take note that its state cannot be kept any longer."""
        ...


class Host(Protocol):
    """Serves namespaces, and begins and ends to."""

    @property
    def namespaces(self) -> tuple[Hosted, ...]:
        """The namespaces that are served."""
        ...

    async def add(self, name: str) -> Hosted:
        """Serve one more namespace, on ports that are free.

        :raises ValueError: when it cannot be named so.
        :raises OSError: when no port is free.
        """
        ...

    async def remove(self, name: str) -> None:
        """Serve a namespace no longer, and forget what it held."""
        ...
