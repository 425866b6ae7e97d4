"""An embedded Service Bus: queues, topics and sessions over AMQP 1.0, with the administration API, in one process.

For tests and demonstrations::

    async with Emulator(["contoso"]) as emulator:
        contoso = emulator["contoso"]
        contoso.namespace.create_queue(QueueDescription("flights"))
        client = ServiceBusClient.from_connection_string(contoso.connection_string)

Faults can be set::

        contoso.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights", count=3))

Clients need a key or token. The connection string holds the key of the root rule, which has all rights;
``contoso.namespace.access_policies`` creates others. With ``Emulator(["contoso"], open=True)`` nothing is checked.

In a separate process: ``python -m servicebus_emulator``, or :class:`EmulatorProcess`, which can be killed. For pytest,
see the fixtures of :mod:`servicebus_emulator.pytest_plugin`. See also README.md.
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

# Imported lazily: pytest imports this package in every project that has it installed.
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
