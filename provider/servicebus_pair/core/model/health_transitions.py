"""Health of one entity: a pure state machine without I/O or clock (SPEC section 4).

::

    healthy --failure that counts--> suspect --failover_interval without a success--> failed over
    failed over --ping success, "no such entity" or mark_healthy--> healthy;  any success while suspect --> healthy

With ``ordering="session"`` (SPEC section 6) a ping does not end a failover by itself::

    failed over --little left in the backlog--> failing back --backlog empty, nothing in flight--> healthy
    failing back --backlog not empty, or its writer died--> failed over

With a spool as well (SPEC section 10), what no backlog queue took fails back in two steps::

    failed over --no backlog queue took a message--> failed over, to the spool
    failed over, to the spool --little left in it--> failing back --spool empty, nothing in flight--> failed over

A failback by hand waits for neither: messages may overtake what is left there, until the entity fails over again.
While failing back, nothing is sent. Each change of route has a new epoch and settles before it is acted on: from
``since`` to ``effective_at``, other processes may still act on the route before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from servicebus_pair.core.model.health_state import EntityHealth, HealthState


class Action(Enum):
    """Side effect that the caller of :func:`decide` must perform."""

    START_PING = auto()
    STOP_PING = auto()
    PUBLISH = auto()


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
class FailOverBehind:
    """Failover because of what an earlier process left: nothing may overtake it, unless a person said so."""

    reason: str


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
class BeginSpool:
    """Send messages of a failed-over entity to the spool of this name only: no backlog queue takes them."""

    spool: str
    reason: str


@dataclass(frozen=True, slots=True)
class BeginFailback:
    """Hold all sends, because little is left in the backlog; ``token`` tells this failback from all others.

    :param spool: from the spool of this name, in which little is left, back to the backlog.
    """

    reason: str
    by: str
    token: str
    spool: str = ""


@dataclass(frozen=True, slots=True)
class CompleteFailback:
    """End the failback ``token``: the backlog is empty, and nothing is on its way there."""

    token: str


@dataclass(frozen=True, slots=True)
class AbandonFailback:
    """Fail over again: the failback ``token`` found a message in the backlog, or its writer died."""

    token: str


_FailbackEvent: TypeAlias = FailOverBehind | BeginSpool | BeginFailback | CompleteFailback | AbandonFailback
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
    if isinstance(event, FailOverBehind | BeginSpool | BeginFailback | CompleteFailback | AbandonFailback):
        decision = _decide_failback(health, event, now)
    else:
        decision = _decide(health, event, now, failover_interval)
    if settle_seconds is None:
        return decision
    if (decision.health.route, decision.health.spool) == (health.route, health.spool):
        # Of a healthy entity there is nothing to write: it could only undo a failover that was not readable here yet.
        return decision if health.failed_over else replace(decision, actions=decision.actions - _PUBLISH)
    settle = settle_seconds
    if isinstance(event, CompleteFailback | AbandonFailback):
        settle = 0.0  # nobody was sending
    elif health.state is HealthState.FAILING_BACK:
        settle *= 2  # the failback's writer may not have noticed yet, and end it
    elif health.failed_over and isinstance(event, MarkHealthy | BeginSpool):
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
            marked = _healthy(health, now, event.reason, event.by)
            return Decision(replace(marked, may_overtake=health.may_overtake or health.failed_over), _ON_RECOVERY)


def _decide_failback(health: EntityHealth, event: _FailbackEvent, now: float) -> Decision:
    match event:
        case FailOverBehind(reason) if not health.may_overtake:
            return _fail_over(health, now, reason, "session order")
        case BeginSpool(spool, reason) if health.state is HealthState.FAILED_OVER and not health.spool:
            return Decision(replace(health, since=now, reason=reason, by="send", spool=spool), _PUBLISH)
        case BeginFailback() if health.state is HealthState.FAILED_OVER and health.spool == event.spool:
            begun = replace(
                health,
                state=HealthState.FAILING_BACK,
                since=now,
                reason=event.reason,
                by=event.by,
                held_until=health.held_until if event.spool else None,
                token=event.token,
            )
            return Decision(begun, _PUBLISH)
        case CompleteFailback(token) if health.is_failing_back(token) and health.spool:
            return Decision(replace(health, state=HealthState.FAILED_OVER, since=now, spool=""), _PUBLISH)
        case CompleteFailback(token) if health.is_failing_back(token):
            return Decision(_healthy(health, now, health.reason, health.by), _ON_RECOVERY)
        case AbandonFailback(token) if health.is_failing_back(token):
            return _fail_over(health, now, f"a failback did not end: {health.reason}", health.by)
    return Decision(health)


def _healthy(health: EntityHealth, now: float, reason: str, by: str) -> EntityHealth:
    return replace(health, state=HealthState.HEALTHY, since=now, reason=reason, by=by, held_until=None, spool="")


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
    held = health.held_until if health.failed_over else None
    failed_over = replace(
        health, state=HealthState.FAILED_OVER, since=now, reason=reason, by=by, held_until=held, may_overtake=False
    )
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
    if since <= now - failover_interval:
        return _fail_over(health, now, event.reason, "send")
    suspect = replace(health, state=HealthState.SUSPECT, since=since, reason=event.reason, by="send", held_until=None)
    return Decision(suspect)
