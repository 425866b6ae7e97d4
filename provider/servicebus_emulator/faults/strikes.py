"""Which fault strikes an operation, how fast bytes go, and how an operation is refused: pure decisions.

An :class:`Armed` fault is set in a namespace and counts down. :func:`strike` decides whether one of them strikes an
operation. It reads no clock and has no randomness of its own: the same faults, seed and sequence of operations give
the same strikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from random import Random
from typing import Final

from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.faults.model import Fault, FaultKind, Operation

_REFUSALS: Final[dict[FaultKind, tuple[str, int]]] = {
    FaultKind.SERVER_BUSY: ("com.microsoft:server-busy", 503),
    FaultKind.INTERNAL_ERROR: ("amqp:internal-error", 500),
    FaultKind.QUOTA_EXCEEDED: ("amqp:resource-limit-exceeded", 403),
    FaultKind.SIZE_EXCEEDED: ("amqp:link:message-size-exceeded", 403),
    FaultKind.ENTITY_DISABLED: ("com.microsoft:entity-disabled", 400),
    FaultKind.NOT_FOUND: ("amqp:not-found", 404),
    FaultKind.UNAUTHORIZED: ("amqp:unauthorized-access", 401),
    FaultKind.AUTH_FAILURE: ("com.microsoft:auth-failed", 401),
    FaultKind.LOCK_LOST: ("com.microsoft:message-lock-lost", 410),
    FaultKind.CLOSE_LINK: ("amqp:link:detach-forced", 500),
    FaultKind.CLOSE_CONNECTION: ("amqp:connection:forced", 500),
}


class InjectedError(BrokerError):
    """A refusal caused by a fault alone.

    :param condition: the AMQP error condition.
    :param status: the status code of an HTTP response or a response over AMQP.
    """

    def __init__(self, message: str, *, condition: str, status: int) -> None:
        super().__init__(message)
        self.condition = condition
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """A fault in force.

    :ivar id: its name, unique within its namespace.
    :ivar until: when it ends (milliseconds since 1970); None = when it is cleared.
    :ivar seed: the seed of its random numbers.
    :ivar rolls: how many random numbers it has used.
    :ivar strikes: how many operations it has struck.
    """

    id: str
    fault: Fault
    until: int | None
    seed: int
    rolls: int = 0
    strikes: int = 0

    @property
    def spent(self) -> bool:
        """Whether it has struck as often as it may. It stays in force for what it struck."""
        return self.fault.count is not None and self.strikes >= self.fault.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast bytes are sent and received.

    :ivar delay: seconds by which what is sent is late.
    :ivar bytes_per_second: None = unlimited.
    """

    delay: float
    bytes_per_second: int | None


def holding(armed: Sequence[Armed], *, now: int) -> tuple[Armed, ...]:
    """Return the faults that have not ended.

    :param now: milliseconds since 1970.
    """
    return tuple(each for each in armed if each.until is None or each.until > now)


def strike(
    armed: Sequence[Armed], *, operation: Operation, entity: str | None, now: int
) -> tuple[Armed | None, tuple[Armed, ...]]:
    """Decide which fault strikes an operation: the first that matches and whose random number is low enough.

    :param entity: the path of the entity of the operation; None = it has none.
    :param now: milliseconds since 1970.
    :returns: the fault that strikes, and all faults afterwards.
    """
    after = list(holding(armed, now=now))
    for position, each in enumerate(tuple(after)):
        if each.spent or not _matches(each.fault, operation=operation, entity=entity):
            continue
        struck = _is_struck(each)
        after[position] = replace(each, rolls=each.rolls + 1, strikes=each.strikes + struck)
        if struck:
            return after[position], tuple(after)
    return None, tuple(after)


def pace_of(armed: Sequence[Armed], *, now: int) -> Pace | None:
    """Return how fast bytes go under these faults: the delays add up, the narrowest bandwidth counts.

    :param now: milliseconds since 1970.
    """
    faults = [each.fault for each in holding(armed, now=now)]
    delays = [each.delay for each in faults if each.kind is FaultKind.LATENCY and each.delay is not None]
    rates = [each.bytes_per_second for each in faults if each.bytes_per_second is not None]
    if len(delays) == 0 and len(rates) == 0:
        return None
    return Pace(delay=sum(delays), bytes_per_second=min(rates, default=None))


def refusal_of(fault: Fault) -> BrokerError | None:
    """Return the refusal of a fault; None = it is of another kind."""
    found = _REFUSALS.get(fault.kind)
    if found is None:
        return None
    condition = found[0] if fault.condition is None else fault.condition
    status = found[1] if fault.status is None else fault.status
    return InjectedError(f"a fault was set: {fault.kind}", condition=condition, status=status)


def _matches(fault: Fault, *, operation: Operation, entity: str | None) -> bool:
    if operation not in fault.operations or fault.is_state(operation):
        return False
    if fault.entity is None:
        return True
    return entity is not None and fnmatchcase(entity.casefold(), fault.entity.casefold())


def _is_struck(armed: Armed) -> bool:
    if armed.fault.probability >= 1:
        return True
    # A random number of its own, so that other faults and operations do not change the outcome.
    return Random(f"{armed.seed}/{armed.id}/{armed.rolls}").random() < armed.fault.probability  # noqa: S311
