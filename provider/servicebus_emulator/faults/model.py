"""Faults that can be set, and their validation.

The effect of each kind on a client of azure-servicebus was measured with version 7.15; see the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_MAX_SECONDS: Final = 86_400.0
_LONGEST_SHOWN: Final = 100
_MAX_COUNT: Final = 2**31 - 1
_STATUSES: Final = range(400, 600)


class FaultError(ValueError):
    """A fault has an invalid field.

    :ivar field: the name of the invalid field.
    :ivar value: the invalid value.
    :ivar allowed: the allowed values.
    """

    def __init__(self, field: str, *, value: object, allowed: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
        super().__init__(f"{field} is {shown}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class Operation(StrEnum):
    """Where a fault can strike.

    ``receive`` is the delivery of messages; ``authenticate`` a token sent to ``$cbs``; ``manage`` a request to an
    entity's ``$management`` (peeking, scheduling, renewing locks, settling deferred messages); ``administer`` a
    request over HTTP, whose entity is its path; ``anything`` all bytes on the present and future connections of a
    namespace.
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

    - ``refuse``: the kernel refuses new connections; open ones stay.
    - ``reset``: the connection breaks before the operation is carried out.
    - ``freeze``: bytes are read and acknowledged, but nothing is sent while the fault holds. What arrived with the
      struck operation is carried out; everything else continues afterwards.
    - ``drop``: packets are lost: nothing is acknowledged and nothing sent, from the struck operation until the fault
      ends; on ``connect``, new connections (their SYN) get no answer. Linux only.
    - ``latency``, ``bandwidth``: bytes are delayed, or slow in both directions.
    - ``server-busy`` ... ``unauthorized``: the operation is refused with the condition of that name.
    - ``auth-failure``: ``$cbs`` answers a token with the chosen status.
    - ``no-disposition``, ``late-disposition``: the operation is carried out and answered never, or late; a settlement
      that is never answered is lost, and its message stays locked.
    - ``released``, ``modified``: a message is not stored but answered with that outcome.
    - ``lock-lost``: a settlement is refused and its message delivered again.
    - ``duplicate``: a sent message is stored twice; a settled one is confirmed and delivered again.
    - ``close-link``, ``close-connection``: the link or connection ends with the chosen condition instead.
    - ``kill``: the process ends as by ``kill -9``.
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

# Where a kind can strike, and where it does by default.
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

# These are states of the namespace while the fault holds, not events of a single operation.
_STATES: Final = frozenset({FaultKind.REFUSE, FaultKind.LATENCY, FaultKind.BANDWIDTH})
_WITHOUT_ENTITY: Final = frozenset({_O.CONNECT, _O.AUTHENTICATE, _O.ANYTHING})

# Fields of some kinds only, which need them or have a default for them.
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

    :param on: the operations that it strikes; empty = the default of the kind.
    :param namespace: the namespace concerned; None = each.
    :param entity: the entities concerned: a path in which ``*`` stands for anything, in any case; None = all.
    :param probability: the share of matching operations that it strikes, above 0 and up to 1.
    :param count: the largest number of operations that it strikes; None = any number.
    :param duration: seconds after which it ends; None = until it is cleared.
    :param delay: the delay of bytes (latency) or of an answer (late-disposition), in seconds.
    :param bytes_per_second: the bandwidth of each connection in each direction.
    :param status: the status code with which ``$cbs`` answers (auth-failure); None = 401.
    :param condition: the AMQP condition with which a link or connection is closed; None = a forced detach.
    :raises FaultError: when a field is invalid.
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
        """Return whether it concerns a namespace."""
        return self.namespace is None or self.namespace.casefold() == namespace.casefold()

    def is_state(self, operation: Operation) -> bool:
        """Return whether it is a state at an operation rather than an event."""
        if self.kind in _STATES or operation is _O.ANYTHING:
            return True
        # The kernel does not report a SYN that gets no answer.
        return self.kind is FaultKind.DROP and operation is _O.CONNECT

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations that it strikes."""
        return _PLACES[self.kind][1] if len(self.on) == 0 else self.on


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
