"""Health of one entity: a pure state machine (SPEC section 4).

::

    healthy --failure that counts--> suspect --failover_interval without a success--> failed over
    failed over --ping success, "no such entity" or mark_healthy--> healthy;  any success while suspect --> healthy

:func:`decide` takes a health, what happened and the time, and answers the new health and what the
shells must do. It does no I/O, reads no clock and never raises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Any, TypeAlias

__all__ = [
    "HEALTHY",
    "Action",
    "Decision",
    "EntityHealth",
    "EntityMissing",
    "FailOver",
    "HealthEvent",
    "MarkHealthy",
    "PingFailed",
    "PingSucceeded",
    "SendFailed",
    "SendSucceeded",
    "State",
    "decide",
    "merge",
]


class State(StrEnum):
    """The three states of an entity."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed_over"


class Action(Enum):
    """What the shells do after a decision."""

    START_PING = auto()
    STOP_PING = auto()
    PUBLISH = auto()


@dataclass(frozen=True, slots=True)
class EntityHealth:
    """Health of one entity. Times are seconds since the Unix epoch.

    :param since: when the state was taken; for ``suspect``, when the first failing call began.
    :param last_ping: when the last ping began, on this or another process.
    :param reason: why the state was taken.
    :param by: who or what took it (``send``, ``ping``, or the name given to a manual call).
    :param held_until: a failover by hand that pings do not end before.
    """

    state: State = State.HEALTHY
    since: float = 0.0
    last_ping: float | None = None
    reason: str = ""
    by: str = ""
    held_until: float | None = None

    def held(self, now: float) -> bool:
        """Answer whether pings are of no use yet: a hand has failed the entity over until later."""
        return self.failed_over and self.held_until is not None and now < self.held_until

    @property
    def failed_over(self) -> bool:
        """True when sends go to the backlog."""
        return self.state is State.FAILED_OVER

    def to_json(self) -> dict[str, Any]:
        """The form in which it is shared between processes."""
        return {
            "state": self.state.value,
            "since": self.since,
            "last_ping": -1.0 if self.last_ping is None else self.last_ping,
            "reason": self.reason,
            "by": self.by,
            "held_until": -1.0 if self.held_until is None else self.held_until,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> EntityHealth:
        """Read what :meth:`to_json` wrote. :raises ValueError: it is not such a value."""
        try:
            ping = float(value["last_ping"])
            # Not in what earlier versions wrote.
            held = float(value.get("held_until", -1.0))
            return cls(
                state=State(value["state"]),
                since=float(value["since"]),
                last_ping=None if ping < 0 else ping,
                reason=str(value["reason"]),
                by=str(value["by"]),
                held_until=None if held < 0 else held,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a health record, {type(error).__name__}: {error}") from error


HEALTHY = EntityHealth()


@dataclass(frozen=True, slots=True)
class SendSucceeded:
    """The primary entity accepted a send."""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A send to the primary entity failed in a way that counts; ``began`` is when that call began."""

    reason: str
    began: float


@dataclass(frozen=True, slots=True)
class PingSucceeded:
    """The primary entity accepted a ping; ``began`` is when it was asked."""

    began: float


@dataclass(frozen=True, slots=True)
class EntityMissing:
    """The primary answered a ping that there is no such entity; ``began`` is when it was asked.

    The outage is over, and no ping will ever be accepted: sends must raise what the caller has to mend.
    """

    began: float


@dataclass(frozen=True, slots=True)
class PingFailed:
    """A ping failed; ``began`` is when it was sent, which may be long ago."""

    began: float


@dataclass(frozen=True, slots=True)
class FailOver:
    """Failover by hand, as for a drill; for ``hold`` seconds no ping ends it."""

    reason: str
    by: str
    hold: float = 0.0


@dataclass(frozen=True, slots=True)
class MarkHealthy:
    """Failback by hand."""

    reason: str
    by: str


HealthEvent: TypeAlias = (
    SendSucceeded | SendFailed | PingSucceeded | EntityMissing | PingFailed | FailOver | MarkHealthy
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The new health and what follows from it."""

    health: EntityHealth
    actions: frozenset[Action] = frozenset()


_FAIL_OVER = frozenset({Action.START_PING, Action.PUBLISH})
_RECOVER = frozenset({Action.STOP_PING, Action.PUBLISH})
_TELL = frozenset({Action.PUBLISH})


def decide(health: EntityHealth, event: HealthEvent, *, now: float, failover_interval: float) -> Decision:
    """Answer what ``event`` at ``now`` makes of ``health``.

    :param now: seconds since the Unix epoch.
    :param failover_interval: seconds of failure that are accepted; 0 fails over at once.
    """
    match event:
        case SendSucceeded():
            return _sent(health, now)
        case SendFailed():
            return _failed(health, event, now, failover_interval)
        case PingSucceeded():
            return _answered(health, event.began, now, "a ping was answered")
        case EntityMissing():
            return _answered(health, event.began, now, "the primary answered a ping that the entity does not exist")
        case PingFailed():
            return Decision(replace(health, last_ping=event.began), _TELL if health.failed_over else frozenset())
        case FailOver():
            return _by_hand(health, event, now)
        case MarkHealthy():
            return Decision(_healthy(health, now, event.reason, event.by), _RECOVER)


def merge(mine: EntityHealth, shared: EntityHealth, *, now: float, fresh: float) -> EntityHealth:
    """Answer what to believe when another process shares ``shared``: the newer state, and the newer ping.

    To one that is suspect here, a failover that others have confirmed within ``fresh`` seconds is
    the rest of the evidence, although it began earlier. Processes on several machines compare their
    clocks here: what they differ by, they may be wrong by.
    """
    ping = max((each for each in (mine.last_ping, shared.last_ping) if each is not None), default=None)
    confirmed = shared.since if shared.last_ping is None else max(shared.since, shared.last_ping)
    joins = mine.state is State.SUSPECT and shared.failed_over and now - confirmed <= fresh
    return replace(shared if shared.since > mine.since or joins else mine, last_ping=ping)


def _healthy(health: EntityHealth, now: float, reason: str, by: str) -> EntityHealth:
    return EntityHealth(State.HEALTHY, now, health.last_ping, reason, by)


def _sent(health: EntityHealth, now: float) -> Decision:
    # A late success of a send that began before the failover does not end it: only a ping does.
    if health.state is State.SUSPECT:
        return Decision(_healthy(health, now, "a send succeeded", "send"))
    return Decision(health)


def _answered(before: EntityHealth, began: float, now: float, reason: str) -> Decision:
    health = replace(before, last_ping=began)
    if health.state is State.HEALTHY or health.held(now):
        return Decision(health)
    return Decision(_healthy(health, now, reason, "ping"), _RECOVER if health.failed_over else frozenset())


def _failed_over(health: EntityHealth, now: float, reason: str, by: str) -> Decision:
    if health.failed_over:
        return Decision(health)
    return Decision(EntityHealth(State.FAILED_OVER, now, health.last_ping, reason, by), _FAIL_OVER)


def _by_hand(health: EntityHealth, event: FailOver, now: float) -> Decision:
    decision = _failed_over(health, now, event.reason, event.by)
    if event.hold <= 0:
        return decision
    held = replace(decision.health, held_until=now + event.hold)
    return Decision(held, decision.actions | _TELL)


def _failed(health: EntityHealth, event: SendFailed, now: float, failover_interval: float) -> Decision:
    if health.failed_over:
        return Decision(health)
    # A call that began before the entity was last taken for healthy proves nothing about the time before.
    since = health.since if health.state is State.SUSPECT else max(event.began, health.since)
    if now - since >= failover_interval:
        return _failed_over(health, now, event.reason, "send")
    return Decision(EntityHealth(State.SUSPECT, since, health.last_ping, event.reason, "send"))
