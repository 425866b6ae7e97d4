"""The faults of one namespace, carried out.

What strikes is decided in :mod:`servicebus_emulator.faults`; here it is done. A fault that strikes one
operation acts there and then. One that holds for the namespace (refusing, freezing, losing, latency, bandwidth)
is applied when it is set, and taken back when it is over or cleared.
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

from servicebus_emulator.amqp.packets import check_can_lose
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
    from servicebus_emulator.engine.clock import Clock

__all__ = ["Breakable", "Gate", "Trouble", "kill_this_process"]

_log = logging.getLogger(__name__)


class Breakable(Protocol):
    """A connection, as faults see it."""

    def freeze(self) -> None:
        """Say nothing and hear nothing."""
        ...

    def thaw(self) -> None:
        """Go on where it was frozen."""
        ...

    def lose_packets(self, *, lost: bool) -> None:
        """Let nothing that the peer sends arrive, or let it arrive again."""
        ...

    def set_pace(self, pace: Pace | None) -> None:
        """Let bytes go as fast as that; None = as they come."""
        ...

    def reset(self) -> None:
        """Break the connection."""
        ...


class Gate(Protocol):
    """The way in to a namespace."""

    def refuse(self) -> None:
        """Refuse connections from now on."""
        ...

    def listen_again(self) -> None:
        """Refuse connections no longer."""
        ...

    def lose_packets(self, *, lost: bool) -> None:
        """Let connections begin without any answer, or with one again."""
        ...


def kill_this_process() -> None:
    """End the process at once, as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Trouble:
    """Keeps the faults of one namespace in the running event loop.

    :param namespace: its name.
    :param clock: the clock on which faults end.
    :param seed: from which the luck of faults comes that do not always strike.
    :ivar kill: ends the process.
    :ivar strikes: how often faults struck an operation, by kind, those that are over or cleared included.
    """

    def __init__(
        self, namespace: str, *, clock: Clock, seed: int = 0, kill: Callable[[], None] = kill_this_process
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._seed = seed
        self.kill = kill
        self.strikes: Counter[FaultKind] = Counter()
        self._numbers = count(1)
        self._armed: tuple[Armed, ...] = ()
        self._connections: dict[Breakable, str | None] = {}
        self._frozen: set[Breakable] = set()
        self._losing: set[Breakable | Gate] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._refusing = False
        self._gate: Gate | None = None
        self._changed = asyncio.Event()

    @property
    def armed(self) -> tuple[Armed, ...]:
        """The faults in force."""
        return holding(self._armed, now=self._clock.now())

    def add(self, fault: Fault) -> Armed:
        """Set a fault.

        :raises FaultError: when it is meant for another namespace, or this system cannot do it.
        """
        if not fault.is_of(self._namespace):
            raise FaultError("namespace", value=fault.namespace, allowed=f"{self._namespace}, or none")
        if fault.kind is FaultKind.DROP:
            check_can_lose()
        until = None if fault.duration is None else self._clock.now() + round(fault.duration * 1000)
        armed = Armed(id=str(next(self._numbers)), fault=fault, until=until, seed=self._seed)
        self._armed = (*self.armed, armed)
        _log.warning(
            "namespace %s: fault %s set: %s",
            self._namespace,
            armed.id,
            fault.kind,
            extra=event("fault-set", namespace=self._namespace, entity=fault.entity, fault=armed.id, kind=fault.kind),
        )
        self._apply()
        return armed

    def clear(self, fault_id: str | None = None) -> tuple[Armed, ...]:
        """Take back a fault, or all (None); return those that were in force."""
        cleared = tuple(each for each in self.armed if fault_id is None or each.id == fault_id)
        self._armed = tuple(each for each in self.armed if each not in cleared)
        for each in cleared:
            _log.warning(
                "namespace %s: fault %s cleared: %s, strikes=%d",
                self._namespace,
                each.id,
                each.fault.kind,
                each.strikes,
                extra=event(
                    "fault-cleared",
                    namespace=self._namespace,
                    entity=each.fault.entity,
                    fault=each.id,
                    kind=each.fault.kind,
                    strikes=each.strikes,
                ),
            )
        self._apply()
        return cleared

    def stop(self) -> None:
        """Forget all faults: nothing that is frozen or slow keeps the namespace from stopping."""
        self._armed = ()
        for each in tuple(self._losing):
            self._set_losing(each, losing=False)
        for connection in tuple(self._connections):
            connection.set_pace(None)
        self._changed.set()
        self._cancel_timer()

    def time_shifted(self) -> None:
        """Take back what is over by a clock that was put forward."""
        self._apply()

    def guard(self, gate: Gate) -> None:
        """Let `gate`, which is open, refuse connections when a fault says so."""
        self._gate = gate
        self._apply()

    # Where faults strike

    def strike(self, operation: Operation, *, entity: str | None = None) -> Armed | None:
        """Return the fault that strikes an operation, if one does."""
        if len(self._armed) == 0:
            return None
        struck, self._armed = strike(self._armed, operation=operation, entity=entity, now=self._clock.now())
        if struck is not None:
            self.strikes[struck.fault.kind] += 1
            _log.info(
                "namespace %s: fault %s strikes: %s on %s, entity=%r",
                self._namespace,
                struck.id,
                struck.fault.kind,
                operation,
                entity,
                extra=event(
                    "fault-struck",
                    namespace=self._namespace,
                    entity=entity,
                    fault=struck.id,
                    kind=struck.fault.kind,
                    operation=operation,
                ),
            )
        return struck

    def opened(self, connection: Breakable) -> None:
        """Note a connection on which something is spoken; it may be frozen already when this returns."""
        self._connections[connection] = None
        if len(self._armed) > 0:
            self._apply()

    def arrived(self, connection: Breakable) -> None:
        """Note a connection on which nothing was said yet; it may be broken already when this returns."""
        self.opened(connection)
        if len(self._armed) == 0:
            return
        struck = self.strike(Operation.CONNECT)
        if struck is not None:
            self.break_connection(struck, connection=connection)

    def left(self, connection: Breakable) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        self._frozen.discard(connection)
        self._losing.discard(connection)

    def break_connection(self, struck: Armed, *, connection: Breakable) -> bool:
        """Do what a fault does to a connection or to the process; return whether the operation is over with it."""
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
        """Wait until a fault is over or cleared."""
        while any(each.id == struck.id for each in self.armed):
            await self._changed.wait()

    # What holds for the namespace

    def _apply(self) -> None:
        self._armed = armed = self.armed
        kinds = {each.id: each.fault.kind for each in armed}
        held = {(each.fault.kind, operation) for each in armed for operation in each.fault.operations}
        losing = (FaultKind.DROP, Operation.ANYTHING) in held
        silent = losing or (FaultKind.FREEZE, Operation.ANYTHING) in held
        pace = pace_of(armed, now=self._clock.now())
        for connection, struck_by in tuple(self._connections.items()):
            connection.set_pace(pace)
            kind = None if struck_by is None else kinds.get(struck_by)
            # Whose packets are lost says nothing either: the kernel would go on sending what is written.
            self._set_losing(connection, losing=losing or kind is FaultKind.DROP)
            self._set_frozen(connection, frozen=silent or kind is not None)
        if self._gate is not None:
            self._set_losing(self._gate, losing=losing or (FaultKind.DROP, Operation.CONNECT) in held)
        refusing = any(each.fault.kind is FaultKind.REFUSE for each in armed)
        if refusing != self._refusing and self._gate is not None:
            self._refusing = refusing
            if refusing:
                self._gate.refuse()
            else:
                self._gate.listen_again()
        self._changed.set()
        self._changed.clear()
        self._set_timer()

    def _set_frozen(self, connection: Breakable, *, frozen: bool) -> None:
        if frozen and connection not in self._frozen:
            self._frozen.add(connection)
            connection.freeze()
        elif not frozen and connection in self._frozen:
            self._frozen.discard(connection)
            connection.thaw()

    def _set_losing(self, way: Breakable | Gate, *, losing: bool) -> None:
        if losing != (way in self._losing):
            way.lose_packets(lost=losing)
            (self._losing.add if losing else self._losing.discard)(way)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self._cancel_timer()
        ends = [each.until for each in self._armed if each.until is not None]
        if len(ends) > 0:
            wait = max(0, min(ends) - self._clock.now()) + 1
            self._timer = asyncio.get_running_loop().call_later(wait / 1000, self._apply)
