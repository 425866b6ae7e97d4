"""What the world does to a namespace: each fault lasts for a while, and strikes some of its operations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from servicebus_emulator.engine.model.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    MessageLockLost,
    QuotaExceeded,
    UnprocessableMessage,
)


class Operation(Enum):
    """What a client asks for."""

    ATTACH = "attach"
    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"
    MANAGE = "manage"


class Kind(Enum):
    """What happens to an operation that a fault strikes."""

    REFUSED = "connection refused"
    LOST_BEFORE = "connection lost before the operation"
    LOST_AFTER = "connection lost after the operation"
    SILENT = "no answer, nothing done"
    SILENT_DONE = "no answer, but done"
    SILENT_LATER = "no answer, done when the fault ends"
    HANGS = "an outcome that the SDK does not understand"
    SLOW_BEFORE = "slow, and done late"
    SLOW_AFTER = "slow, and done early"
    BUSY = "server busy"
    QUOTA = "quota exceeded"
    DISABLED = "entity disabled"
    REJECTED = "every message rejected with an internal error"
    NOT_FOUND = "entity not found"
    TOKEN = "token refused"
    LOCK_LOST = "lock lost"


class ServerBusy(BrokerError):  # noqa: N818 - as the engine's errors
    """The service is throttling."""

    condition = "com.microsoft:server-busy"


_ATTACH_OR_SEND = frozenset({Operation.ATTACH, Operation.SEND, Operation.MANAGE})
_EVERY = frozenset(Operation)
APPLIES = {
    Kind.BUSY: _ATTACH_OR_SEND | {Operation.SETTLE},
    Kind.QUOTA: frozenset({Operation.SEND}),
    Kind.DISABLED: _ATTACH_OR_SEND,
    Kind.REJECTED: frozenset({Operation.SEND}),
    Kind.NOT_FOUND: frozenset({Operation.ATTACH, Operation.SEND, Operation.RECEIVE}),
    Kind.TOKEN: frozenset({Operation.ATTACH}),
    Kind.LOCK_LOST: frozenset({Operation.SETTLE}),
    Kind.HANGS: frozenset({Operation.SEND, Operation.SETTLE}),
}
# Not the errors themselves: one that is raised again keeps the frames of every time before.
REFUSALS: dict[Kind, tuple[type[BrokerError], str]] = {
    Kind.BUSY: (ServerBusy, "The request was terminated because the namespace is being throttled."),
    Kind.QUOTA: (QuotaExceeded, "The maximum entity size has been reached or exceeded."),
    Kind.DISABLED: (EntityDisabled, "The messaging entity is disabled for this operation."),
    Kind.REJECTED: (
        UnprocessableMessage,
        "The service was unable to process the request; please retry the operation.",
    ),
    Kind.NOT_FOUND: (EntityNotFound, "The messaging entity could not be found."),
    Kind.LOCK_LOST: (MessageLockLost, "The lock supplied is invalid."),
}


@dataclass(slots=True)
class Fault:
    """One fault.

    :param path: the entity that it concerns; None for the namespace.
    :param until: the time of the loop at which it ends.
    :param share: the share of operations that it strikes.
    :param left: how many operations it may still strike.
    :param delay: of slow operations, in seconds.
    """

    kind: Kind
    path: str | None
    until: float
    share: float = 1.0
    left: int = 10**9
    delay: float = 0.0


class Faults:
    """The faults of one namespace.

    :ivar strikes: how many operations were struck.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.active: list[Fault] = []
        self.strikes = 0

    def strike(self, operation: Operation, path: str, now: float) -> Fault | None:
        """Return the fault that strikes an operation, if any."""
        if not self.active:
            return None
        self.active = [fault for fault in self.active if fault.until > now and fault.left > 0]
        for fault in self.active:
            concerns = fault.path is None or fault.path == path
            if concerns and operation in APPLIES.get(fault.kind, _EVERY) and self._random.random() < fault.share:
                fault.left -= 1
                self.strikes += 1
                return fault
        return None
