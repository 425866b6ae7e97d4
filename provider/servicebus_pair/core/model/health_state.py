"""Health of one entity: a pure state machine without I/O or clock (SPEC section 4).

::

    healthy --failure that counts--> suspect --failover_interval without a success--> failed over
    failed over --ping success, "no such entity" or mark_healthy--> healthy;  any success while suspect --> healthy

With ``ordering="session"`` (SPEC section 6) a ping does not end a failover by itself::

    failed over --little left in the backlog--> failing back --backlog empty, nothing in flight--> healthy
    failing back --backlog not empty, or its writer died--> failed over

While failing back, nothing is sent. Each change of route has a new epoch and settles before it is acted on: from
``since`` to ``effective_at``, other processes may still act on the route before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Any, TypeAlias

__all__ = [
    "HEALTHY",
    "AbandonFailback",
    "Action",
    "BeginFailback",
    "CaughtUp",
    "CompleteFailback",
    "Decision",
    "EntityHealth",
    "EntityMissing",
    "FailOver",
    "HealthEvent",
    "HealthState",
    "MarkHealthy",
    "PingFailed",
    "PingSucceeded",
    "SendFailed",
    "SendSucceeded",
    "decide",
    "latest_ping",
    "merge",
]


class HealthState(StrEnum):
    """State of an entity."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed_over"
    FAILING_BACK = "failing_back"


class Action(Enum):
    """Side effect that the caller of :func:`decide` must perform."""

    START_PING = auto()
    STOP_PING = auto()
    PUBLISH = auto()


@dataclass(frozen=True, slots=True)
class EntityHealth:
    """Health of one entity. Times are seconds since the Unix epoch.

    :param since: start of the state; for ``suspect``, start of the first failing call.
    :param last_ping: start of the last ping, in this or another process.
    :param reason: why the state was entered.
    :param by: what changed the state: ``send``, ``ping``, or the name given to a manual change.
    :param held_until: time before which pings do not end a manual failover.
    :param epoch: number of changes of the route; the same state in another epoch is another decision.
    :param effective_at: when the route may be acted on, if session order is kept.
    :param token: identifies a failback.
    :param caught_up: indexes of the session queues of which a syphon has said, since the last ping, that little is left
        for the entity. A hint: only the time of a failback depends on it.
    """

    state: HealthState = HealthState.HEALTHY
    since: float = 0.0
    last_ping: float | None = None
    reason: str = ""
    by: str = ""
    held_until: float | None = None
    epoch: int = 0
    effective_at: float = 0.0
    token: str = ""
    caught_up: frozenset[int] = frozenset()

    def is_held(self, now: float) -> bool:
        """Return whether a manual failover is in force that pings cannot end yet."""
        return self.failed_over and self.held_until is not None and now < self.held_until

    @property
    def failed_over(self) -> bool:
        """Whether sends go to the backlog, or are held until the entity has failed back."""
        return self.state in (HealthState.FAILED_OVER, HealthState.FAILING_BACK)

    def is_failing_back(self, token: str) -> bool:
        """Return whether this is the failback ``token``."""
        return self.state is HealthState.FAILING_BACK and self.token == token

    @property
    def route(self) -> HealthState:
        """The state without the difference between healthy and suspect, whose sends go the same way."""
        return HealthState.HEALTHY if self.state is HealthState.SUSPECT else self.state

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form in which health is shared between processes."""
        return {
            "state": self.state.value,
            "since": self.since,
            "last_ping": -1.0 if self.last_ping is None else self.last_ping,
            "reason": self.reason,
            "by": self.by,
            "held_until": -1.0 if self.held_until is None else self.held_until,
            "epoch": self.epoch,
            "effective_at": self.effective_at,
            "token": self.token,
            "caught_up": sorted(self.caught_up),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> EntityHealth:
        """Read the output of :meth:`to_json`. :raises ValueError: ``value`` is not a health record."""
        try:
            ping = float(value["last_ping"])
            # Records of earlier versions lack these fields.
            held = float(value.get("held_until", -1.0))
            epoch, effective_at = int(value.get("epoch", 0)), float(value.get("effective_at", 0.0))
            return cls(
                state=HealthState(value["state"]),
                since=float(value["since"]),
                last_ping=None if ping < 0 else ping,
                reason=str(value["reason"]),
                by=str(value["by"]),
                held_until=None if held < 0 else held,
                epoch=epoch,
                effective_at=effective_at,
                token=str(value.get("token", "")),
                caught_up=frozenset(map(int, value.get("caught_up", ()))),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a health record, {type(error).__name__}: {error}") from error


HEALTHY = EntityHealth()


@dataclass(frozen=True, slots=True)
class SendSucceeded:
    """The primary entity accepted a send."""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A send to the primary entity failed in a way that triggers failover; ``began`` is the start of that call."""

    reason: str
    began: float


@dataclass(frozen=True, slots=True)
class PingSucceeded:
    """The primary entity accepted a ping that was started at ``began``."""

    began: float


@dataclass(frozen=True, slots=True)
class EntityMissing:
    """The primary answered a ping, started at ``began``, that the entity does not exist.

    The outage is over although no ping will ever be accepted; sends must raise the error for the caller to fix.
    """

    began: float


@dataclass(frozen=True, slots=True)
class PingFailed:
    """A ping failed that was started at ``began``, possibly long ago."""

    began: float


@dataclass(frozen=True, slots=True)
class FailOver:
    """Manual failover; no ping ends it for ``hold`` seconds."""

    reason: str
    by: str
    hold: float = 0.0


@dataclass(frozen=True, slots=True)
class MarkHealthy:
    """Manual failback."""

    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A syphon has found that little is left for the entity in some session queues."""

    queues: frozenset[int]


@dataclass(frozen=True, slots=True)
class BeginFailback:
    """Hold all sends, because little is left in the backlog; ``token`` tells this failback from all others."""

    reason: str
    by: str
    token: str


@dataclass(frozen=True, slots=True)
class CompleteFailback:
    """End the failback ``token``: the backlog is empty, and nothing is on its way there."""

    token: str


@dataclass(frozen=True, slots=True)
class AbandonFailback:
    """Fail over again: the failback ``token`` found a message in the backlog, or its writer died."""

    token: str


_FailbackEvent: TypeAlias = BeginFailback | CompleteFailback | AbandonFailback
_OtherEvent: TypeAlias = (
    SendSucceeded | SendFailed | PingSucceeded | EntityMissing | PingFailed | CaughtUp | FailOver | MarkHealthy
)
HealthEvent: TypeAlias = _OtherEvent | _FailbackEvent


@dataclass(frozen=True, slots=True)
class Decision:
    """New health and the actions that follow."""

    health: EntityHealth
    actions: frozenset[Action] = frozenset()


_ON_FAILOVER = frozenset({Action.START_PING, Action.PUBLISH})
_ON_RECOVERY = frozenset({Action.STOP_PING, Action.PUBLISH})
_PUBLISH = frozenset({Action.PUBLISH})


def decide(
    health: EntityHealth,
    event: HealthEvent,
    *,
    now: float,
    failover_interval: float,
    settle_seconds: float | None = None,
) -> Decision:
    """Return the health after ``event``, with the actions that the caller must perform.

    :param now: seconds since the Unix epoch.
    :param failover_interval: seconds of failures before a failover; 0 fails over at the first one.
    :param settle_seconds: how long other processes may still act on the route before; ``None`` without session order.
    """
    if isinstance(event, BeginFailback | CompleteFailback | AbandonFailback):
        decision = _decide_failback(health, event, now)
    else:
        decision = _decide(health, event, now, failover_interval)
    if settle_seconds is None:
        return decision
    if decision.health.route is health.route:
        # Of a healthy entity there is nothing to write: it could only undo a failover that was not readable here yet.
        return decision if health.failed_over else replace(decision, actions=decision.actions - _PUBLISH)
    settle = settle_seconds
    if isinstance(event, CompleteFailback | AbandonFailback):
        settle = 0.0  # nobody was sending
    elif health.state is HealthState.FAILING_BACK:
        settle *= 2  # the failback's writer may not have noticed yet, and end it
    elif health.failed_over and isinstance(event, MarkHealthy):
        settle *= 1.75  # a ping or report of another process may overwrite this change; by then, that is read here
    return replace(decision, health=replace(decision.health, epoch=health.epoch + 1, effective_at=now + settle))


def _decide(health: EntityHealth, event: _OtherEvent, now: float, failover_interval: float) -> Decision:
    match event:
        case SendSucceeded():
            return _after_success(health, now)
        case SendFailed():
            return _after_failure(health, event, now, failover_interval)
        case PingSucceeded():
            return _after_ping(health, event.began, now, "a ping was answered")
        case EntityMissing():
            return _after_ping(health, event.began, now, "the primary answered a ping that the entity does not exist")
        case PingFailed():
            pinged = replace(health, last_ping=event.began, caught_up=frozenset())
            # Of a failback, only its writer writes: else a change that overwrote it might go unnoticed.
            return Decision(pinged, _PUBLISH if health.state is HealthState.FAILED_OVER else frozenset())
        case CaughtUp(queues):
            return _after_report(health, queues)
        case FailOver():
            return _fail_over_manually(health, event, now)
        case MarkHealthy():
            return Decision(_healthy(health, now, event.reason, event.by), _ON_RECOVERY)


def _decide_failback(health: EntityHealth, event: _FailbackEvent, now: float) -> Decision:
    match event:
        case BeginFailback() if health.state is HealthState.FAILED_OVER:
            begun = replace(
                health,
                state=HealthState.FAILING_BACK,
                since=now,
                reason=event.reason,
                by=event.by,
                held_until=None,
                token=event.token,
            )
            return Decision(begun, _PUBLISH)
        case CompleteFailback(token) if health.is_failing_back(token):
            return Decision(_healthy(health, now, health.reason, health.by), _ON_RECOVERY)
        case AbandonFailback(token) if health.is_failing_back(token):
            return _fail_over(health, now, f"a failback did not end: {health.reason}", health.by)
    return Decision(health)


def merge(local: EntityHealth, shared: EntityHealth, *, now: float, max_age: float) -> EntityHealth:
    """Merge the health known here with that shared by another process: the newer state and the newer ping.

    An entity that is suspect here also takes over an older failover if it was confirmed in the last ``max_age``
    seconds. The comparison is only as exact as the clocks of the machines agree.
    """
    confirmed = shared.since if shared.last_ping is None else max(shared.since, shared.last_ping)
    takes_over = local.state is HealthState.SUSPECT and shared.failed_over and now - confirmed <= max_age
    return replace(shared if shared.since > local.since or takes_over else local, last_ping=latest_ping(local, shared))


def latest_ping(one: EntityHealth, other: EntityHealth) -> float | None:
    """Return the start of the last ping that either knows."""
    return max((each.last_ping for each in (one, other) if each.last_ping is not None), default=None)


def _healthy(health: EntityHealth, now: float, reason: str, by: str) -> EntityHealth:
    return replace(health, state=HealthState.HEALTHY, since=now, reason=reason, by=by, held_until=None)


def _after_success(health: EntityHealth, now: float) -> Decision:
    # A send that began before the failover may succeed late; only a ping ends the failover.
    if health.state is HealthState.SUSPECT:
        return Decision(_healthy(health, now, "a send succeeded", "send"))
    return Decision(health)


def _after_ping(before: EntityHealth, began: float, now: float, reason: str) -> Decision:
    health = replace(before, last_ping=began)
    if health.state is HealthState.HEALTHY or health.is_held(now):
        return Decision(health)
    return Decision(_healthy(health, now, reason, "ping"), _ON_RECOVERY if health.failed_over else frozenset())


def _after_report(health: EntityHealth, queues: frozenset[int]) -> Decision:
    if health.state is not HealthState.FAILED_OVER or queues <= health.caught_up:
        return Decision(health)
    return Decision(replace(health, caught_up=health.caught_up | queues), _PUBLISH)


def _fail_over(health: EntityHealth, now: float, reason: str, by: str) -> Decision:
    if health.state is HealthState.FAILED_OVER:
        return Decision(health)
    failed_over = replace(health, state=HealthState.FAILED_OVER, since=now, reason=reason, by=by, held_until=None)
    return Decision(failed_over, _ON_FAILOVER)


def _fail_over_manually(health: EntityHealth, event: FailOver, now: float) -> Decision:
    decision = _fail_over(health, now, event.reason, event.by)
    if event.hold <= 0:
        return decision
    held = replace(decision.health, held_until=now + event.hold)
    return Decision(held, decision.actions | _PUBLISH)


def _after_failure(health: EntityHealth, event: SendFailed, now: float, failover_interval: float) -> Decision:
    if health.failed_over:
        return Decision(health)
    # A call that began before the entity last became healthy says nothing about the time before that.
    since = health.since if health.state is HealthState.SUSPECT else max(event.began, health.since)
    if now - since >= failover_interval:
        return _fail_over(health, now, event.reason, "send")
    suspect = replace(health, state=HealthState.SUSPECT, since=since, reason=event.reason, by="send", held_until=None)
    return Decision(suspect)
