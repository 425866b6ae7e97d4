"""Health of one entity: a value that is shared between processes, and how two of them are merged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

# The end of the year 9999: no calendar has later times.
_LATEST: Final = 253_402_300_799.0
_MAX_TEXT: Final = 1000


class HealthState(StrEnum):
    """State of an entity."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed_over"
    FAILING_BACK = "failing_back"


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
    :param spool: name of the spool to which messages of a failed-over entity go, with session order; else empty.
    :param may_overtake: a person ended the last failover: what it left in the backlog and the spool holds up nothing.
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
    spool: str = ""
    may_overtake: bool = False

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
            "spool": self.spool,
            "may_overtake": self.may_overtake,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> EntityHealth:
        """Read the output of :meth:`to_json`. :raises ValueError: ``value`` is not a health record."""
        try:
            ping = _time(value["last_ping"])
            # Records of earlier versions lack these fields.
            held = _time(value.get("held_until", -1.0))
            epoch, effective_at = int(value.get("epoch", 0)), _time(value.get("effective_at", 0.0))
            return cls(
                state=HealthState(value["state"]),
                since=_time(value["since"]),
                last_ping=None if ping < 0 else ping,
                reason=str(value["reason"])[:_MAX_TEXT],
                by=str(value["by"])[:_MAX_TEXT],
                held_until=None if held < 0 else held,
                epoch=epoch,
                effective_at=effective_at,
                token=str(value.get("token", "")),
                caught_up=frozenset(map(int, value.get("caught_up", ()))),
                spool=str(value.get("spool", "")),
                may_overtake=bool(value.get("may_overtake", False)),
            )
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a health record, {type(error).__name__}: {error}") from error


def _time(value: Any) -> float:
    seconds = float(value)
    if not -1 <= seconds <= _LATEST:
        raise ValueError(f"not a health record: {seconds!r} is no time")
    return seconds


HEALTHY = EntityHealth()


def merge(local: EntityHealth, shared: EntityHealth, *, now: float, max_age: float) -> EntityHealth:
    """Merge the health known here with that shared by another process: the newer state and the newer ping.

    An entity that is suspect here also takes over an older failover if it was confirmed in the last ``max_age``
    seconds. The comparison is only as exact as the clocks of the machines agree.
    """
    confirmed = shared.since if shared.last_ping is None else max(shared.since, shared.last_ping)
    takes_over = local.state is HealthState.SUSPECT and shared.failed_over and confirmed >= now - max_age
    return replace(shared if shared.since > local.since or takes_over else local, last_ping=latest_ping(local, shared))


def latest_ping(one: EntityHealth, other: EntityHealth) -> float | None:
    """Return the start of the last ping that either knows."""
    return max((each.last_ping for each in (one, other) if each.last_ping is not None), default=None)
