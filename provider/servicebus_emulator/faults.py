"""What the embedded Service Bus can be told to do wrong, and when: values and pure decisions.

A :class:`Fault` says what goes wrong, at which operations, of which entities, how often and for how long.
An :class:`Armed` fault has been given to a namespace and counts down. :func:`strike` decides whether one of
them strikes an operation; it reads no clock and rolls no dice of its own: the same faults, seed and sequence
of operations give the same strikes.

What each kind looks like to a client of azure-servicebus was measured with 7.15; see the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from random import Random
from typing import Final

from servicebus_emulator.engine.model.errors import BrokerError

__all__ = [
    "Armed",
    "Fault",
    "FaultError",
    "FaultKind",
    "InjectedError",
    "Operation",
    "Pace",
    "holding",
    "pace_of",
    "refusal_of",
    "strike",
]

_MAX_SECONDS: Final = 86_400.0
_LONGEST_SHOWN: Final = 100
_MAX_COUNT: Final = 2**31 - 1
_STATUSES: Final = range(400, 600)


class FaultError(ValueError):
    """A fault that cannot be.

    :ivar field: the field of the fault.
    :ivar value: the refused value.
    :ivar allowed: what is allowed instead.
    """

    def __init__(self, field: str, *, value: object, allowed: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
        super().__init__(f"{field} is {shown}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class InjectedError(BrokerError):
    """A refusal without any reason but a fault.

    :param condition: the AMQP error condition.
    :param status: the status code of an HTTP or request/response answer.
    """

    def __init__(self, message: str, *, condition: str, status: int) -> None:
        super().__init__(message)
        self.condition = condition
        self.status = status


class Operation(StrEnum):
    """Where a fault can strike.

    ``receive`` is the handing out of messages that wait; ``authenticate`` a token brought to ``$cbs``; ``manage`` a
    request to an entity's ``$management`` (peeking, scheduling, renewing, settling what was deferred);
    ``administer`` a request over HTTP, whose entity is its path; ``anything`` all that goes over the connections of
    a namespace, those that exist and those to come.
    """

    CONNECT = "connect"
    AUTHENTICATE = "authenticate"
    OPEN_SENDER = "open-sender"
    OPEN_RECEIVER = "open-receiver"
    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"
    MANAGE = "manage"
    ADMINISTER = "administer"
    ANYTHING = "anything"


class FaultKind(StrEnum):
    """What can go wrong.

    - ``refuse``: the kernel refuses connections; those that there are stay.
    - ``reset``: the connection breaks before the operation is carried out.
    - ``freeze``: bytes are taken in and acknowledged, nothing is said; as long as the fault holds. What arrived
      with the operation that it strikes is carried out, and what waited goes on afterwards.
    - ``drop``: packets are lost: nothing is acknowledged and nothing said, from the operation that it strikes on and
      for as long as the fault holds; on ``connect``, connections that begin (their SYN) get no answer. Linux only.
    - ``latency``, ``bandwidth``: bytes are late, or slow in both directions.
    - ``server-busy`` ... ``unauthorized``: the operation is refused with the condition of that name.
    - ``auth-failure``: ``$cbs`` answers a token with a status of choice.
    - ``no-disposition``, ``late-disposition``: carried out, and answered never, or late; a settlement that is never
      answered was lost on its way, and the message stays locked.
    - ``released``, ``modified``: a message is not stored, and answered with that outcome.
    - ``lock-lost``: a settlement is refused, and the message comes again.
    - ``duplicate``: a message sent is stored twice; one settled is confirmed, and comes again.
    - ``close-link``, ``close-connection``: ended with a condition of choice instead of being carried out.
    - ``kill``: the process ends as by ``kill -9``, whoever it belongs to.
    """

    REFUSE = "refuse"
    RESET = "reset"
    FREEZE = "freeze"
    DROP = "drop"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    SERVER_BUSY = "server-busy"
    INTERNAL_ERROR = "internal-error"
    QUOTA_EXCEEDED = "quota-exceeded"
    SIZE_EXCEEDED = "size-exceeded"
    ENTITY_DISABLED = "entity-disabled"
    NOT_FOUND = "not-found"
    UNAUTHORIZED = "unauthorized"
    AUTH_FAILURE = "auth-failure"
    NO_DISPOSITION = "no-disposition"
    LATE_DISPOSITION = "late-disposition"
    RELEASED = "released"
    MODIFIED = "modified"
    LOCK_LOST = "lock-lost"
    DUPLICATE = "duplicate"
    CLOSE_LINK = "close-link"
    CLOSE_CONNECTION = "close-connection"
    KILL = "kill"


_O = Operation
_OPENING: Final = (_O.OPEN_SENDER, _O.OPEN_RECEIVER)
_REFUSABLE: Final = (_O.SEND, *_OPENING, _O.SETTLE, _O.MANAGE, _O.ADMINISTER)
_LINKED: Final = (_O.SEND, _O.RECEIVE, *_OPENING, _O.SETTLE, _O.AUTHENTICATE, _O.MANAGE)
_BROKEN: Final = (*_LINKED, _O.CONNECT, _O.ADMINISTER)
_ANSWERED: Final = (_O.SEND, _O.SETTLE, _O.AUTHENTICATE, _O.MANAGE)

# Where a kind can strike, and where it does unless told otherwise.
_PLACES: Final[dict[FaultKind, tuple[tuple[Operation, ...], tuple[Operation, ...]]]] = {
    FaultKind.REFUSE: ((_O.CONNECT,), (_O.CONNECT,)),
    FaultKind.RESET: (_BROKEN, (_O.SEND,)),
    FaultKind.FREEZE: ((_O.ANYTHING, *_BROKEN), (_O.ANYTHING,)),
    FaultKind.DROP: ((_O.ANYTHING, *_BROKEN), (_O.ANYTHING,)),
    FaultKind.LATENCY: ((_O.ANYTHING,), (_O.ANYTHING,)),
    FaultKind.BANDWIDTH: ((_O.ANYTHING,), (_O.ANYTHING,)),
    FaultKind.SERVER_BUSY: (_REFUSABLE, (_O.SEND,)),
    FaultKind.INTERNAL_ERROR: (_REFUSABLE, (_O.SEND,)),
    FaultKind.QUOTA_EXCEEDED: (_REFUSABLE, (_O.SEND,)),
    FaultKind.SIZE_EXCEEDED: (_REFUSABLE, (_O.SEND,)),
    FaultKind.ENTITY_DISABLED: (_REFUSABLE, (_O.SEND, *_OPENING)),
    FaultKind.NOT_FOUND: (_REFUSABLE, _OPENING),
    FaultKind.UNAUTHORIZED: (_REFUSABLE, _OPENING),
    FaultKind.AUTH_FAILURE: ((_O.AUTHENTICATE,), (_O.AUTHENTICATE,)),
    FaultKind.NO_DISPOSITION: (_ANSWERED, (_O.SEND,)),
    FaultKind.LATE_DISPOSITION: (_ANSWERED, (_O.SEND,)),
    FaultKind.RELEASED: ((_O.SEND,), (_O.SEND,)),
    FaultKind.MODIFIED: ((_O.SEND,), (_O.SEND,)),
    FaultKind.LOCK_LOST: ((_O.SETTLE, _O.MANAGE), (_O.SETTLE,)),
    FaultKind.DUPLICATE: ((_O.SEND, _O.SETTLE), (_O.SEND,)),
    FaultKind.CLOSE_LINK: ((_O.SEND, _O.RECEIVE, _O.SETTLE), (_O.SEND,)),
    FaultKind.CLOSE_CONNECTION: (_LINKED, (_O.SEND,)),
    FaultKind.KILL: (_BROKEN, (_O.SEND,)),
}

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
# Conditions of the namespace, as long as the fault holds, and no matter of a single operation.
_STATES: Final = frozenset({FaultKind.REFUSE, FaultKind.LATENCY, FaultKind.BANDWIDTH})
_WITHOUT_ENTITY: Final = frozenset({_O.CONNECT, _O.AUTHENTICATE, _O.ANYTHING})

# The fields that belong to some kinds only: these need them, or have a default for them.
_NEEDED: Final[dict[str, frozenset[FaultKind]]] = {
    "delay": frozenset({FaultKind.LATENCY, FaultKind.LATE_DISPOSITION}),
    "bytes_per_second": frozenset({FaultKind.BANDWIDTH}),
}
_OPTIONAL: Final[dict[str, frozenset[FaultKind]]] = {
    "status": frozenset({FaultKind.AUTH_FAILURE}),
    "condition": frozenset({FaultKind.CLOSE_LINK, FaultKind.CLOSE_CONNECTION}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    :param kind: what.
    :param on: at which operations; empty = where the kind usually strikes.
    :param namespace: of which namespace; None = of each.
    :param entity: of which entities: a path in which ``*`` stands for anything, in any case; None = of all.
    :param probability: how often an operation that could be struck is, above 0 and up to 1.
    :param count: how many operations are struck at most; None = any number.
    :param duration: for how long, in seconds from when the fault is set; None = until it is cleared.
    :param delay: seconds by which bytes (latency) or an answer (late-disposition) are late.
    :param bytes_per_second: how fast bytes go, each way and on each connection.
    :param status: the status code with which ``$cbs`` answers (auth-failure); None = 401.
    :param condition: the AMQP condition with which a link or connection is closed; None = a forced detach.
    :raises FaultError: naming the field, its value and what is allowed.
    """

    kind: FaultKind
    on: tuple[Operation, ...] = ()
    namespace: str | None = None
    entity: str | None = None
    probability: float = 1.0
    count: int | None = None
    duration: float | None = None
    delay: float | None = None
    bytes_per_second: int | None = None
    status: int | None = None
    condition: str | None = None

    def __post_init__(self) -> None:
        _check_places(self)
        _check_numbers(self)
        _check_fields_of_kind(self)
        if any(self.is_state(operation) for operation in self.operations):
            _check_state(self)

    def is_of(self, namespace: str) -> bool:
        """Tell whether it concerns a namespace."""
        return self.namespace is None or self.namespace.casefold() == namespace.casefold()

    def is_state(self, operation: Operation) -> bool:
        """Tell whether it holds at an operation all the time, and is no matter of a single one."""
        if self.kind in _STATES or operation is _O.ANYTHING:
            return True
        # A SYN has no answer by which the kernel would tell of it.
        return self.kind is FaultKind.DROP and operation is _O.CONNECT

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations at which it strikes."""
        return _PLACES[self.kind][1] if len(self.on) == 0 else self.on


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """A fault in force.

    :ivar id: names it, within its namespace.
    :ivar until: when it is over (milliseconds since 1970); None = when it is cleared.
    :ivar seed: from which its luck comes.
    :ivar rolls: how often its luck was tried.
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
        """Whether it has struck as often as it may. It stays in force for what it struck already."""
        return self.fault.count is not None and self.strikes >= self.fault.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast bytes leave and arrive.

    :ivar delay: seconds by which what is sent is late.
    :ivar bytes_per_second: None = unlimited.
    """

    delay: float
    bytes_per_second: int | None


def holding(armed: Sequence[Armed], *, now: int) -> tuple[Armed, ...]:
    """Return the faults that are not over.

    :param now: milliseconds since 1970.
    """
    return tuple(each for each in armed if each.until is None or each.until > now)


def strike(
    armed: Sequence[Armed], *, operation: Operation, entity: str | None, now: int
) -> tuple[Armed | None, tuple[Armed, ...]]:
    """Decide whether a fault strikes an operation: the first one that matches and has the luck.

    :param entity: the path of the entity the operation is about; None = about none.
    :param now: milliseconds since 1970.
    :returns: the fault that strikes, and all faults as they stand afterwards.
    """
    held = holding(armed, now=now)
    after = list(held)
    for position, each in enumerate(held):
        if each.spent or not _matches(each.fault, operation=operation, entity=entity):
            continue
        lucky = _is_lucky(each)
        after[position] = replace(each, rolls=each.rolls + 1, strikes=each.strikes + lucky)
        if lucky:
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
    """Return the refusal that a fault stands for; None when it is of another kind."""
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


def _is_lucky(armed: Armed) -> bool:
    if armed.fault.probability >= 1:
        return True
    # Its own luck, whatever other faults and operations there are.
    return Random(f"{armed.seed}/{armed.id}/{armed.rolls}").random() < armed.fault.probability  # noqa: S311


def _check_places(fault: Fault) -> None:
    possible = _PLACES[fault.kind][0]
    for each in fault.on:
        if each not in possible:
            raise FaultError("on", value=str(each), allowed=f"for {fault.kind}: {', '.join(possible)}")
    if fault.entity == "":
        raise FaultError("entity", value=fault.entity, allowed="a path, in which * stands for anything")
    if fault.entity is not None and not _WITHOUT_ENTITY.isdisjoint(fault.operations):
        raise FaultError(
            "entity",
            value=fault.entity,
            allowed=f"none, as {fault.kind} on {', '.join(fault.operations)} has no entity",
        )


def _check_numbers(fault: Fault) -> None:
    if not 0 < fault.probability <= 1:
        raise FaultError("probability", value=fault.probability, allowed="above 0, up to 1")
    for name, value, most in (
        ("count", fault.count, _MAX_COUNT),
        ("duration", fault.duration, _MAX_SECONDS),
        ("delay", fault.delay, _MAX_SECONDS),
        ("bytes_per_second", fault.bytes_per_second, _MAX_COUNT),
    ):
        if value is not None and not 0 < value <= most:
            raise FaultError(name, value=value, allowed=f"above 0, up to {most:g}")
    if fault.status is not None and fault.status not in _STATUSES:
        raise FaultError("status", value=fault.status, allowed="400 .. 599")
    if fault.condition == "":
        raise FaultError("condition", value=fault.condition, allowed="an AMQP condition, such as amqp:internal-error")


def _check_fields_of_kind(fault: Fault) -> None:
    for name, kinds in (_NEEDED | _OPTIONAL).items():
        value = getattr(fault, name)
        if value is not None and fault.kind not in kinds:
            raise FaultError(name, value=value, allowed=f"for {', '.join(sorted(kinds))} only, not for {fault.kind}")
    for name, kinds in _NEEDED.items():
        if fault.kind in kinds and getattr(fault, name) is None:
            raise FaultError(name, value=None, allowed=f"a number above 0, which {fault.kind} needs")


def _check_state(fault: Fault) -> None:
    for name, value, only in (("probability", fault.probability, 1.0), ("count", fault.count, None)):
        if value != only:
            ruled = "none" if only is None else str(only)
            why = f"as {fault.kind} on {', '.join(fault.operations)} holds for as long as it is set"
            raise FaultError(name, value=value, allowed=f"{ruled}, {why}")
