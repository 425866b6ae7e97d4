"""An embedded Service Bus: queues, topics and sessions over AMQP 1.0, with the administration API, in one process.

For tests and demonstrations::

    async with Emulator(["contoso"]) as emulator:
        contoso = emulator["contoso"]
        contoso.namespace.create_queue(QueueDescription("flights"))
        client = ServiceBusClient.from_connection_string(contoso.connection_string)

It breaks on purpose too::

        contoso.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights", count=3))

Clients have to show what they may do: the connection string holds the key of the rule that may do everything, and
``contoso.namespace.access_policies`` makes others. ``Emulator(["contoso"], open=True)`` lets in everybody.

As a process of its own: ``python -m servicebus_emulator``, or :class:`EmulatorProcess`, which can be killed. In tests
the fixtures of :mod:`servicebus_emulator.pytest_plugin` are there already. More in README.md beside this file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from servicebus_emulator.emulator import Emulator
    from servicebus_emulator.faults import Fault, FaultKind, Operation
    from servicebus_emulator.namespace_server import HostedNamespace
    from servicebus_emulator.security.bearer import Client, Role
    from servicebus_emulator.testing.process import EmulatorProcess
    from servicebus_emulator.testing.remote_namespace import RemoteNamespace

__all__ = [
    "Client",
    "Emulator",
    "EmulatorProcess",
    "Fault",
    "FaultKind",
    "HostedNamespace",
    "Operation",
    "RemoteNamespace",
    "Role",
]

# Imported when asked for: pytest imports this package in every project that has it installed.
_PLACES: Final = {
    "Client": "security.bearer",
    "Emulator": "emulator",
    "EmulatorProcess": "testing.process",
    "Fault": "faults",
    "FaultKind": "faults",
    "HostedNamespace": "namespace_server",
    "Operation": "faults",
    "Role": "security.bearer",
    "RemoteNamespace": "testing.remote_namespace",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; allowed: {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{place}"), name)
