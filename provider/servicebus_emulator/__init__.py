"""An embedded Service Bus: queues, topics and sessions over AMQP 1.0, with the administration API, in one process.

For tests and demonstrations::

    async with Emulator(["contoso"]) as emulator:
        contoso = emulator["contoso"]
        contoso.namespace.create_queue(QueueDescription("flights"))
        client = ServiceBusClient.from_connection_string(contoso.connection_string)

It breaks on purpose too::

        contoso.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity="flights", count=3))

As a process of its own: ``python -m servicebus_emulator``, or :class:`EmulatorProcess`, which can be killed.
"""

from __future__ import annotations

from servicebus_emulator.faults import Fault, FaultKind, Operation
from servicebus_emulator.hosting import Emulator, HostedNamespace
from servicebus_emulator.process import EmulatorProcess
from servicebus_emulator.served import ServedNamespace

__all__ = ["Emulator", "EmulatorProcess", "Fault", "FaultKind", "HostedNamespace", "Operation", "ServedNamespace"]
