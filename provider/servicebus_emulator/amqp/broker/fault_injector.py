"""Applies the faults of one namespace to its connections and its port.

:mod:`servicebus_emulator.faults` decides which fault strikes an operation. A fault that strikes one operation is
applied to that operation; one in force for the whole namespace (refuse, freeze, drop, latency, bandwidth) is applied
when it is set, and undone when it expires or is cleared.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Protocol

from servicebus_emulator.amqp.transport.packet_loss import check_packet_loss_support
from servicebus_emulator.faults import (
    Armed,
    Fault,
    FaultError,
    FaultKind,
    Operation,
    Pace,
    holding,
    pace_of,
    strike,
)
from servicebus_emulator.logs import event

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.clock import Clock

_log = logging.getLogger(__name__)


class FaultTarget(Protocol):
    """A connection that faults can be applied to."""

    def freeze(self) -> None:
        """Suspend reading and writing."""

    def thaw(self) -> None:
        """Resume reading and writing."""

    def lose_packets(self, *, lost: bool) -> None:
        """Start or stop dropping the packets that arrive."""

    def set_pace(self, pace: Pace | None) -> None:
        """Set delay and bandwidth; None = neither."""

    def reset(self) -> None:
        """Close with a TCP reset."""


class FaultableListener(Protocol):
    """The listening port of a namespace."""

    def refuse(self) -> None:
        """Refuse new connections."""

    def listen_again(self) -> None:
        """Accept connections again."""

    def lose_packets(self, *, lost: bool) -> None:
        """Leave new connections unanswered, or answer them again."""


def kill_own_process() -> None:
    """End this process at once, as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class FaultInjector:
    """The faults of one namespace, in the running event loop.

    :param namespace: its name.
    :param clock: the clock by which faults expire.
    :param seed: the seed of faults with a probability.
    :param kill: ends the process.
    :ivar strikes: the number of operations struck by fault kind, expired and cleared faults included.
    """

    def __init__(
        self, namespace: str, *, clock: Clock, seed: int = 0, kill: Callable[[], None] = kill_own_process
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._seed = seed
        self.kill = kill
        self.strikes: Counter[FaultKind] = Counter()
        self._numbers = count(1)
        self._armed: tuple[Armed, ...] = ()
        self._connections: dict[FaultTarget, str | None] = {}
        self._frozen: set[FaultTarget] = set()
        self._losing_packets: set[FaultTarget | FaultableListener] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._refusing = False
        self._listener: FaultableListener | None = None
        self._changed = asyncio.Event()

    @property
    def armed(self) -> tuple[Armed, ...]:
        """The faults in force."""
        return holding(self._armed, now=self._clock.now())

    def may_strike(self, operation: Operation) -> bool:
        """Return whether a fault is set that strikes such operations; it may have expired."""
        if len(self._armed) == 0:
            return False
        faults = [each.fault for each in self._armed]
        return any(operation in fault.operations and not fault.is_state(operation) for fault in faults)

    def add(self, fault: Fault) -> Armed:
        """Set a fault.

        :raises FaultError: when it is for another namespace, or this system does not support it.
        """
        if not fault.is_of(self._namespace):
            raise FaultError("namespace", value=fault.namespace, allowed=f"{self._namespace}, or none")
        if fault.kind is FaultKind.DROP:
            check_packet_loss_support()
        until = None if fault.duration is None else self._clock.now() + round(fault.duration * 1000)
        armed = Armed(id=str(next(self._numbers)), fault=fault, until=until, seed=self._seed)
        self._armed = (*self.armed, armed)
        self._log_fault(logging.WARNING, "set", armed, f"set: {fault.kind}", entity=fault.entity)
        self._apply()
        return armed

    def clear(self, fault_id: str | None = None) -> tuple[Armed, ...]:
        """Clear one fault, or all (None); return those that were in force."""
        cleared = tuple(each for each in self.armed if fault_id is None or each.id == fault_id)
        self._armed = tuple(each for each in self.armed if each not in cleared)
        for each in cleared:
            text = f"cleared: {each.fault.kind}, strikes={each.strikes}"
            self._log_fault(logging.WARNING, "cleared", each, text, entity=each.fault.entity, strikes=each.strikes)
        self._apply()
        return cleared

    def stop(self) -> None:
        """Undo all faults that could keep the namespace from stopping."""
        self._armed = ()
        for each in tuple(self._losing_packets):
            self._set_losing(each, losing=False)
        for connection in tuple(self._connections):
            connection.set_pace(None)
        self._changed.set()
        self._cancel_timer()

    def time_shifted(self) -> None:
        """Undo the faults that expired because the clock was moved forward."""
        self._apply()

    def attach_listener(self, listener: FaultableListener) -> None:
        """Apply faults to the namespace's open port."""
        self._listener = listener
        self._apply()

    # Faults that strike an operation

    def strike(self, operation: Operation, *, entity: str | None = None) -> Armed | None:
        """Return the fault that strikes an operation, if any, and count the strike."""
        if len(self._armed) == 0:
            return None
        struck, self._armed = strike(self._armed, operation=operation, entity=entity, now=self._clock.now())
        if struck is not None:
            self.strikes[struck.fault.kind] += 1
            text = f"strikes: {struck.fault.kind} on {operation}, entity={entity!r}"
            self._log_fault(logging.INFO, "struck", struck, text, entity=entity, operation=operation)
        return struck

    def add_connection(self, connection: FaultTarget) -> None:
        """Register a connection; it may be frozen when this returns."""
        self._connections[connection] = None
        if len(self._armed) > 0:
            self._apply()

    def accepted(self, connection: FaultTarget) -> None:
        """Register a connection that was just accepted; it may be broken when this returns."""
        self.add_connection(connection)
        if len(self._armed) == 0:
            return
        struck = self.strike(Operation.CONNECT)
        if struck is not None:
            self.apply_to_connection(struck, connection=connection)

    def remove_connection(self, connection: FaultTarget) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        self._frozen.discard(connection)
        self._losing_packets.discard(connection)

    def apply_to_connection(self, struck: Armed, *, connection: FaultTarget) -> bool:
        """Apply a fault to a connection or the process; return whether this ends the operation."""
        match struck.fault.kind:
            case FaultKind.RESET:
                connection.reset()
            case FaultKind.KILL:
                self.kill()
            case FaultKind.FREEZE | FaultKind.DROP:
                self._connections[connection] = struck.id
                self._apply()
                return False
            case _:
                return False
        return True

    async def wait_until_over(self, struck: Armed) -> None:
        """Wait until a fault has expired or was cleared."""
        while any(each.id == struck.id for each in self.armed):
            await self._changed.wait()

    # Faults in force for the namespace

    def _apply(self) -> None:
        self._armed = armed = self.armed
        kinds = {each.id: each.fault.kind for each in armed}
        in_force = {(each.fault.kind, operation) for each in armed for operation in each.fault.operations}
        lose_all = (FaultKind.DROP, Operation.ANYTHING) in in_force
        freeze_all = lose_all or (FaultKind.FREEZE, Operation.ANYTHING) in in_force
        pace = pace_of(armed, now=self._clock.now())
        for connection, fault_id in tuple(self._connections.items()):
            connection.set_pace(pace)
            kind = None if fault_id is None else kinds.get(fault_id)
            # Also freeze a connection whose packets are lost: the kernel would still send what is written.
            self._set_losing(connection, losing=lose_all or kind is FaultKind.DROP)
            self._set_frozen(connection, frozen=freeze_all or kind is not None)
        if self._listener is not None:
            self._set_losing(self._listener, losing=lose_all or (FaultKind.DROP, Operation.CONNECT) in in_force)
        refusing = any(each.fault.kind is FaultKind.REFUSE for each in armed)
        if refusing != self._refusing and self._listener is not None:
            self._refusing = refusing
            if refusing:
                self._listener.refuse()
            else:
                self._listener.listen_again()
        self._changed.set()
        self._changed.clear()
        self._set_timer()

    def _set_frozen(self, connection: FaultTarget, *, frozen: bool) -> None:
        if frozen and connection not in self._frozen:
            self._frozen.add(connection)
            connection.freeze()
        elif not frozen and connection in self._frozen:
            self._frozen.discard(connection)
            connection.thaw()

    def _set_losing(self, target: FaultTarget | FaultableListener, *, losing: bool) -> None:
        if losing != (target in self._losing_packets):
            target.lose_packets(lost=losing)
            (self._losing_packets.add if losing else self._losing_packets.discard)(target)

    def _log_fault(self, level: int, action: str, fault: Armed, text: str, **fields: object) -> None:
        about = event(f"fault-{action}", namespace=self._namespace, fault=fault.id, kind=fault.fault.kind, **fields)
        _log.log(level, "namespace %s: fault %s %s", self._namespace, fault.id, text, extra=about)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self._cancel_timer()
        ends = [each.until for each in self._armed if each.until is not None]
        if len(ends) > 0:
            delay = max(0, min(ends) - self._clock.now()) + 1
            self._timer = asyncio.get_running_loop().call_later(delay / 1000, self._apply)
